// Fills in what takes longer than the list itself: the last message, the state and the size of each thread.

const AT_ONCE = 4;

const rows = [...document.querySelectorAll("tr[data-summary]")];

function fill(row, name, ...content) {
  row.querySelector(`[data-cell="${name}"]`).replaceChildren(...content);
}

function element(tag, className, text) {
  const made = document.createElement(tag);
  made.className = className;
  made.textContent = text;
  return made;
}

async function summarize(row) {
  const response = await fetch(row.dataset.summary, { headers: { accept: "application/json" } });
  const found = await response.json();
  if (!response.ok) {
    fill(row, "state", element("span", "chip", found.gone ? "deleted" : "unreadable"));
    fill(row, "text", found.problem ?? "");
    return;
  }
  fill(row, "state", element("span", `chip ${found.state}`, found.state));
  fill(row, "text", ...(found.role ? [element("span", "role", found.role), " "] : []), found.text);
  const hidden = found.hidden ? ` + ${found.hidden.toLocaleString("en")} hidden` : "";
  fill(row, "checkpoints", found.checkpoints + hidden);
  fill(row, "size", found.size);
}

async function work() {
  for (let row = rows.shift(); row; row = rows.shift()) {
    try {
      await summarize(row);
    } catch {
      fill(row, "state", element("span", "chip", "no answer"));
    }
  }
}

async function suggest({ currentTarget: field }) {
  const response = await fetch(field.dataset.suggestions, { headers: { accept: "application/json" } });
  const found = await response.json();
  field.list.replaceChildren(...found.suggestions.map((text) => new Option(text, text)));
}

for (const field of document.querySelectorAll("[data-suggestions]")) {
  field.addEventListener("focus", suggest, { once: true });
}
await Promise.all(Array.from({ length: AT_ONCE }, work));
document.documentElement.dataset.ready = "yes";
