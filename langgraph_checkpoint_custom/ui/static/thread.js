// The page of a thread: draws the timeline, and loads the checkpoint that is chosen in it.

import { Timeline } from "./timeline.js";
import { searchable } from "./values.js";

const frame = document.querySelector("[data-timeline]");
const detail = document.querySelector("#detail");
const branches = document.querySelector("[data-compare]");
const status = frame.querySelector("[data-status]");
const control = (name) => frame.querySelector(`[data-do="${name}"]`);

// Seconds between two polls: the first, and the longest.
const [FIRST, LONGEST] = [1, 60];

let loading = 0;

function chosen() {
  const article = detail.querySelector("#checkpoint");
  return article && { ns: decodeURIComponent(article.dataset.ns), id: decodeURIComponent(article.dataset.id) };
}

function address(base, where) {
  const url = new URL(base, location.href);
  for (const [name, value] of Object.entries(where)) if (value) url.searchParams.set(name, value);
  return url;
}

async function show(where, { remember = true } = {}) {
  const turn = ++loading;
  const response = await fetch(address(frame.dataset.checkpoint, where));
  const text = await response.text();
  if (turn !== loading) return; // Another one has been chosen since.
  const page = new DOMParser().parseFromString(text, "text/html");
  const part = page.querySelector("#checkpoint") ?? page.querySelector("main > *");
  detail.replaceChildren(part);
  searchable(detail);
  if (remember) history.pushState(where, "", address(frame.dataset.page, where));
  document.documentElement.dataset.shown = where.id;
}

const timeline = new Timeline(frame.querySelector(".picture"), show);

let wait = FIRST;
let timer;
let state = "";

async function load() {
  const url = new URL(frame.dataset.timeline, location.href);
  if (state) url.searchParams.set("since", state);
  if (control("hidden").checked) url.searchParams.set("hidden", "1");
  const response = await fetch(url, { headers: { accept: "application/json" } });
  const found = await response.json();
  if (!response.ok) throw new Error(found.problem);
  const isNew = found.spots !== undefined;
  const first = !state;
  state = found.state;
  if (!isNew) return false;
  // A page whose address names no checkpoint shows the newest one, also if it was stored after the page was made.
  const atEnd = first ? !new URL(location.href).searchParams.has("id") : timeline.isAtEnd();
  timeline.set(found, chosen());
  control("strips").parentElement.hidden = found.strips.length === 0;
  const number = found.spots.length + found.strips.reduce((sum, strip) => sum + strip.spots.length, 0);
  status.textContent = [
    found.more && `the newest ${number.toLocaleString("en")} checkpoints`,
    found.pruned && "Earlier steps were deleted.",
    found.hidden && `${found.hidden.toLocaleString("en")} deleted ones are kept, hidden, to rebuild later ones.`,
  ].filter(Boolean).join(" ");
  const end = timeline.otherEnd();
  branches.hidden = !end;
  if (end) branches.href = address(frame.dataset.branches, { from: end });
  if (first) timeline.reveal();
  if (atEnd && !timeline.isAtEnd()) timeline.chooseNewest();
  document.documentElement.dataset.ready = state;
  return true;
}

async function poll() {
  clearTimeout(timer);
  try {
    wait = (await load()) ? FIRST : Math.min(wait * 1.6, LONGEST);
  } catch (error) {
    status.textContent = `The timeline cannot be loaded: ${error.message}`;
    wait = LONGEST;
  }
  if (control("live").checked && !document.hidden) timer = setTimeout(poll, wait * 1000);
}

function refresh() {
  state = "";
  wait = FIRST;
  poll();
}

control("in").addEventListener("click", () => timeline.zoom(1.5));
control("out").addEventListener("click", () => timeline.zoom(1 / 1.5));
control("fit").addEventListener("click", () => timeline.fit());
control("strips").addEventListener("change", (event) => timeline.unfold(event.target.checked));
control("hidden").addEventListener("change", refresh);
control("live").addEventListener("change", poll);
document.addEventListener("visibilitychange", () => document.hidden || poll());
addEventListener("popstate", (event) => {
  if (!event.state) return location.reload();
  timeline.choose(event.state, { quietly: true });
  show(event.state, { remember: false });
});
detail.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-go]");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  const query = new URL(link.href).searchParams;
  event.preventDefault();
  timeline.choose({ ns: query.get("ns") ?? "", id: query.get("id") });
});

history.replaceState(chosen(), "");
searchable(detail);
await poll();
