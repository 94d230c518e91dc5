// Draws the timeline of a thread as SVG, and moves through it by mouse and keyboard.
//
// The server has laid it out: each spot has a column and a row. Only what is visible is drawn, and drawn anew when the
// picture is scrolled or zoomed, so thousands of spots cost no more than those on the screen.

const SVG = "http://www.w3.org/2000/svg";
const [BRANCH, STRIP, TOP, LEFT] = [58, 46, 36, 34];
const [WIDEST, USUAL, NARROWEST] = [150, 76, 0.2];
// Widths of a column, in pixels, from which spots have circles of their own, a step, and a name.
const [CIRCLES, STEPS, NAMES] = [12, 26, 50];
// Spots with marks or labels that are drawn as circles where columns are narrow.
const MOST = 400;

const [ID, PARENT, COLUMN, ROW, MARKS, STEP, SOURCE, RUN, TIME, MADE, LABELS] = Array.from({ length: 11 }, (_, n) => n);
// In the order of importance, in which they are read out; style.css says which colour wins.
const CLASSES = [[2, "waiting"], [8, "failed"], [16, "stopped"], [4, "asked"], [32, "changed"], [1, "hidden"]];
const SAID = {
  waiting: "waiting for a human", failed: "failed", stopped: "stopped in the middle", asked: "asked a human",
  changed: "changed by hand", hidden: "hidden",
};

function svg(tag, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

export class Timeline {
  #frame;
  #canvas = svg("svg", { "aria-hidden": "false" });
  #wide = document.createElement("div");
  #onChoose;
  #data = { spots: [], strips: [], columns: 0, rows: 0 };
  #points = [];
  #byKey = new Map();
  #unfolded = new Set();
  #all = false;
  #width = USUAL;
  #chosen = null;
  #planned = 0;
  #pending = 0;

  constructor(frame, onChoose) {
    this.#frame = frame;
    this.#onChoose = onChoose;
    this.#wide.className = "wide";
    frame.replaceChildren(this.#wide, this.#canvas);
    frame.addEventListener("scroll", () => this.#plan());
    frame.addEventListener("keydown", (event) => this.#key(event));
    frame.addEventListener("wheel", (event) => this.#wheel(event), { passive: false });
    this.#canvas.addEventListener("click", (event) => this.#click(event));
    new ResizeObserver(() => this.#plan()).observe(frame);
  }

  // Data

  set(data, chosen) {
    const first = this.#points.length === 0;
    this.#data = data;
    this.#arrange();
    if (chosen) this.choose(chosen, { quietly: true, still: !first });
    if (first && data.columns * this.#width < this.#frame.clientWidth) this.#width = USUAL;
    this.#plan();
  }

  #arrange() {
    const { spots, strips, rows } = this.#data;
    this.#points = spots.map((spot) => ({ spot, ns: "", column: spot[COLUMN], row: spot[ROW], y: TOP + spot[ROW] * BRANCH, under: [] }));
    const link = (points, own) => {
      for (const point of own) {
        point.parent = point.spot[PARENT] === null ? null : points[point.spot[PARENT]];
        point.children = [];
      }
      for (const point of own) point.parent?.children.push(point);
    };
    link(this.#points, this.#points);
    let row = Math.max(rows, 1);
    let y = TOP + row * BRANCH + 10; // Below the number of subgraphs that are folded.
    for (const strip of strips) {
      const root = strip.root === null ? null : this.#points[strip.root];
      root?.under.push(strip);
      if (!(this.#all || root === null || this.#unfolded.has(root.spot[ID]))) continue;
      const begin = root?.column ?? 0;
      const own = strip.spots.map((spot) => (
        { spot, ns: strip.ns, strip, column: begin + spot[COLUMN], row, y, under: [] }
      ));
      link(own, own);
      own[0].root = root;
      this.#points.push(...own);
      row += 1;
      y += STRIP;
    }
    this.#byKey = new Map(this.#points.map((point) => [`${point.ns}\n${point.spot[ID]}`, point]));
    this.rows = row;
    this.columns = 1 + this.#points.reduce((most, point) => Math.max(most, point.column), 0);
    this.height = y;
    if (this.#chosen) this.#chosen = this.#byKey.get(`${this.#chosen.ns}\n${this.#chosen.spot[ID]}`) ?? null;
  }

  // Choosing

  choose(where, { quietly = false, still = false } = {}) {
    let point = this.#byKey.get(`${where.ns}\n${where.id}`);
    if (!point) {
      const strip = this.#data.strips.find((one) => one.ns === where.ns && one.spots.some((spot) => spot[ID] === where.id));
      if (!strip) return;
      this.#unfolded.add(this.#data.spots[strip.root]?.[ID]);
      this.#arrange();
      point = this.#byKey.get(`${where.ns}\n${where.id}`);
    }
    this.#chosen = point;
    document.documentElement.dataset.chosen = point.spot[ID];
    if (!still) this.reveal();
    this.#plan();
    if (quietly) return;
    clearTimeout(this.#pending); // A held key passes many; the last one is loaded.
    this.#pending = setTimeout(() => this.#onChoose({ ns: point.ns, id: point.spot[ID] }), 120);
  }

  #take(point) {
    if (point) this.choose({ ns: point.ns, id: point.spot[ID] });
  }

  #newest() {
    const { spots } = this.#data;
    return spots.length ? this.#points[spots.length - 1] : null;
  }

  // The id of the last checkpoint of the newest branch that does not lead to the newest checkpoint.
  otherEnd() {
    const own = this.#points.filter((point) => !point.ns && !point.children.length && point !== this.#newest());
    return own.at(-1)?.spot[ID];
  }

  isAtEnd() {
    return this.#chosen !== null && this.#chosen === this.#newest();
  }

  chooseNewest() {
    this.#take(this.#newest());
  }

  unfold(all) {
    this.#all = all;
    if (!all) this.#unfolded.clear();
    this.#arrange();
    this.reveal();
    this.#plan();
  }

  #toggle(point) {
    if (!point?.under.length) return;
    const id = point.spot[ID];
    if (!this.#unfolded.delete(id)) this.#unfolded.add(id);
    this.#arrange();
    this.#plan();
  }

  // Moving

  #x(column) {
    return LEFT + column * this.#width + Math.min(this.#width / 2, 20);
  }

  zoom(factor) {
    const point = this.#chosen;
    const at = point ? this.#x(point.column) - this.#frame.scrollLeft : this.#frame.clientWidth / 2;
    const column = point ? point.column : (this.#frame.scrollLeft + at) / this.#width;
    this.#width = Math.min(WIDEST, Math.max(NARROWEST, this.#width * factor));
    this.#size();
    this.#frame.scrollLeft = this.#x(column) - Math.min(Math.max(at, 40), this.#frame.clientWidth - 40);
    this.#plan();
  }

  fit() {
    this.#width = Math.min(USUAL, Math.max(NARROWEST, (this.#frame.clientWidth - 2 * LEFT - 40) / this.columns));
    this.#plan();
  }

  reveal() {
    const point = this.#chosen;
    if (!point) return;
    this.#size();
    const { scrollLeft, scrollTop, clientWidth, clientHeight } = this.#frame;
    const x = this.#x(point.column);
    const margin = Math.min(120, clientWidth / 4);
    if (x < scrollLeft + margin || x > scrollLeft + clientWidth - margin) {
      this.#frame.scrollLeft = x < scrollLeft + margin ? x - margin : x - clientWidth + margin;
    }
    if (point.y < scrollTop + TOP) this.#frame.scrollTop = point.y - TOP;
    if (point.y > scrollTop + clientHeight - 30) this.#frame.scrollTop = point.y - clientHeight + 44;
  }

  #key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const point = this.#chosen ?? this.#newest();
    const keys = {
      ArrowLeft: () => this.#take(point.parent ?? point.root),
      ArrowRight: () => this.#take(point.children.find((child) => child.row === point.row) ?? point.children[0]),
      ArrowUp: () => this.#take(this.#beside(point, -1)),
      ArrowDown: () => this.#take(this.#beside(point, 1)),
      Home: () => this.#take(this.#points[0]),
      End: () => this.chooseNewest(),
      Enter: () => this.#toggle(point),
      " ": () => this.#toggle(point),
      "+": () => this.zoom(1.5),
      "=": () => this.zoom(1.5),
      "-": () => this.zoom(1 / 1.5),
      0: () => this.fit(),
    };
    if (!point || !Object.hasOwn(keys, event.key)) return;
    event.preventDefault();
    keys[event.key]();
  }

  // The nearest point of the next row in a direction.
  #beside(point, direction) {
    for (let row = point.row + direction; row >= 0 && row < this.rows; row += direction) {
      const own = this.#points.filter((one) => one.row === row);
      const far = (one) => Math.abs(one.column - point.column);
      if (own.length) return own.reduce((best, one) => (far(one) < far(best) ? one : best));
    }
    return null;
  }

  #wheel(event) {
    if (!event.ctrlKey) return;
    event.preventDefault();
    this.zoom(event.deltaY < 0 ? 1.2 : 1 / 1.2);
  }

  #click(event) {
    const group = event.target.closest("[data-point]");
    if (group) {
      const point = this.#points[Number(group.dataset.point)];
      if (event.target.closest(".more")) this.#toggle(point);
      else this.#take(point);
      return;
    }
    if (this.#width >= CIRCLES) return;
    // Where columns are narrow, the nearest point counts.
    const box = this.#frame.getBoundingClientRect();
    const x = event.clientX - box.left + this.#frame.scrollLeft;
    const y = event.clientY - box.top + this.#frame.scrollTop;
    const far = (one) => Math.abs(this.#x(one.column) - x) + 2 * Math.abs(one.y - y);
    this.#take(this.#points.reduce((best, one) => (far(one) < far(best) ? one : best)));
  }

  // Drawing

  #plan() {
    if (!this.#planned) this.#planned = requestAnimationFrame(() => this.#draw());
  }

  #size() {
    this.#wide.style.width = `${this.#x(this.columns) + LEFT}px`;
    this.#wide.style.height = `${this.height}px`;
    this.#frame.style.height = `${this.height + 16}px`;
  }

  #draw() {
    this.#planned = 0;
    if (!this.#points.length) return;
    this.#size();
    const { scrollLeft, scrollTop, clientWidth, clientHeight } = this.#frame;
    const [from, to] = [scrollLeft - 2 * WIDEST, scrollLeft + clientWidth + 2 * WIDEST];
    const edges = { main: [], other: [] };
    const seen = [];
    for (const [number, point] of this.#points.entries()) {
      const x = this.#x(point.column);
      const before = point.parent ?? point.root;
      if (before && this.#x(before.column) <= to && x >= from) {
        edges[point.row === 0 && before.row === 0 ? "main" : "other"].push(this.#edge(before, point, x));
      }
      if (x >= from && x <= to) seen.push([number, point, x]);
    }
    const layer = svg("g", { transform: `translate(${-scrollLeft} ${-scrollTop})` });
    layer.append(
      svg("path", { class: "edge", d: edges.other.join("") }),
      svg("path", { class: "edge main", d: edges.main.join("") }),
    );
    const narrow = this.#width < CIRCLES;
    const special = ([, point]) => point === this.#chosen || point.spot[MARKS] || point.spot[LABELS].length;
    const drawn = narrow ? seen.filter(special).slice(-MOST) : seen;
    const chosen = seen.find(([, point]) => point === this.#chosen);
    if (chosen && !drawn.includes(chosen)) drawn.push(chosen);
    if (narrow) {
      const plain = seen.filter((each) => !special(each)).map(([, point, x]) => `M${x.toFixed(1)} ${point.y}h0`);
      const thick = Math.max(2, Math.min(7, this.#width * 0.7));
      layer.append(svg("path", { class: "dots", d: plain.join(""), "stroke-width": thick }));
    }
    for (const each of drawn) layer.append(this.#spot(...each));
    for (const point of this.#points) if (point.strip && point.spot[PARENT] === null) layer.append(this.#name(point));
    this.#canvas.setAttribute("width", clientWidth);
    this.#canvas.setAttribute("height", clientHeight);
    this.#canvas.replaceChildren(layer);
    const active = this.#chosen && `spot-${this.#points.indexOf(this.#chosen)}`;
    if (active) this.#frame.setAttribute("aria-activedescendant", active);
    document.documentElement.dataset.drawn = String(drawn.length);
  }

  #edge(before, point, x) {
    const begin = this.#x(before.column);
    if (before.y === point.y) return `M${begin} ${before.y}H${x}`;
    const bend = Math.min(this.#width * 0.6, 34);
    return `M${begin} ${before.y}c${bend} 0 ${(x - begin) * 0.35} ${point.y - before.y} ${Math.min(x - begin, bend * 1.6)} ${point.y - before.y}H${x}`;
  }

  #name(point) {
    const text = svg("text", { class: "strip-name", x: this.#x(point.column) - 8, y: point.y - 12 });
    text.textContent = point.strip.name;
    return text;
  }

  #spot(number, point, x) {
    const { spot } = point;
    const own = CLASSES.filter(([bit]) => spot[MARKS] & bit).map(([, name]) => name);
    const classes = ["spot", ...(own.length || spot[SOURCE] !== "input" ? own : ["input"])];
    const isChosen = point === this.#chosen;
    const step = spot[STEP] === null ? "" : String(spot[STEP]);
    const time = spot[TIME] === null ? "" : new Date(spot[TIME]).toLocaleString("sv", { timeZoneName: "short" });
    const said = [
      `step ${step}`, spot[MADE] || spot[SOURCE], time, ...own.map((name) => SAID[name]), ...spot[LABELS].map((name) => `label ${name}`),
      spot[RUN] && `run ${spot[RUN]}`, point.under.length ? `${point.under.length} subgraph calls, Enter shows them` : "",
    ].filter(Boolean).join(", ");
    const group = svg("g", {
      class: [...classes, isChosen ? "chosen" : ""].filter(Boolean).join(" "),
      transform: `translate(${x.toFixed(1)} ${point.y})`, "data-point": number, "data-id": spot[ID], id: `spot-${number}`,
      role: "option", "aria-selected": String(isChosen), "aria-label": said,
    });
    const title = svg("title");
    title.textContent = said;
    const small = point.strip || this.#width < CIRCLES;
    if (isChosen) group.append(svg("circle", { class: "ring", r: small ? 9 : 12 }));
    group.append(title, svg("circle", { class: "dot", r: small ? 5 : 7.5 }));
    const write = (className, y, text) => {
      const made = svg("text", { class: className, y, "text-anchor": "middle" });
      made.textContent = text;
      group.append(made);
    };
    const short = (text, letter = 6.4) => {
      const most = Math.floor(this.#width / letter);
      return text.length > most ? `${text.slice(0, Math.max(1, most - 1))}…` : text;
    };
    if (spot[LABELS].length && !point.strip) write("name", -17, this.#width >= NAMES ? short(spot[LABELS].join(", "), 7.4) : "⚑");
    else if (this.#width >= STEPS && !point.strip) write("step", -15, step);
    if (this.#width >= NAMES) write("made", point.strip ? 18 : 23, short(spot[MADE] || spot[SOURCE]));
    if (point.under.length && this.#width >= STEPS) {
      const isOpen = this.#all || this.#unfolded.has(spot[ID]);
      write("more", 36, `${isOpen ? "▾" : "▸"} ${point.under.length}`);
    }
    return group;
  }
}
