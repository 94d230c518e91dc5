// Finds text in the trees of values: unfolds what contains it, and leaves out the rest.

function matches(item, text) {
  return item.textContent.toLowerCase().includes(text);
}

function filter(root, text) {
  for (const item of root.querySelectorAll(".tree li")) {
    const fits = !text || matches(item, text) || item.parentElement.closest("li.whole") !== null;
    item.classList.toggle("out", !fits);
    // What is inside an element whose own line matches stays visible.
    const details = item.querySelector(":scope > details");
    const own = details?.querySelector(":scope > summary > .key, :scope > summary > .note");
    item.classList.toggle("whole", Boolean(text && own && matches(own, text)));
    if (text && fits && details) details.open = true;
  }
  for (const part of root.querySelectorAll(".channel, .message")) {
    part.classList.toggle("found-here", Boolean(text) && matches(part, text));
  }
}

export function searchable(root) {
  const input = root.querySelector("[data-filter]");
  if (!input) return;
  input.addEventListener("input", () => filter(root, input.value.trim().toLowerCase()));
}
