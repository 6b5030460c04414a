// @ts-check
/**
 * The job graph as a picture: cards for vertices, edges as thick as their traffic.
 *
 * Law: an update of the same graph changes attributes and texts only; cards keep their elements,
 * and with them the focus.
 */
import { h, s, setAttribute, setText } from "./dom.js";
import { count, rate } from "./format.js";
import { GraphCard } from "./graph_card.js";
import { CARD, layOut } from "./graph_layout.js";
import { href } from "./router.js";
import { Viewport } from "./viewport.js";

const NARROW_PX = 720;
const THINNEST = 1.5;
const THICKEST = 13;

/** @typedef {import("./api_types.js").Job} Job */
/** @typedef {import("./api_types.js").Edge} Edge */

export class GraphPicture {
  /** @param {AbortSignal} signal */
  constructor(signal) {
    this.svg = s("svg", { class: "graph", role: "group", "aria-label": "Job graph" });
    this.viewport = new Viewport(this.svg);
    this.tools = this.#makeTools();
    this.element = h("div", { class: "picture" }, this.svg);
    /** @type {Map<string, GraphCard>} */
    this.cards = new Map();
    /** @type {{path: SVGPathElement, rate: SVGTextElement, note: SVGTextElement, group: SVGGElement}[]} */
    this.edges = [];
    /** @type {import("./graph_layout.js").Layout | null} */
    this.layout = null;
    /** @type {Job | null} */
    this.job = null;
    this.shape = "";
    this.width = 0;
    this.svg.addEventListener("keydown", (event) => this.#keyed(event));
    this.svg.addEventListener("focusin", (event) => this.#focused(event));
    const observer = new ResizeObserver(([entry]) => this.#resized(entry.contentRect.width));
    observer.observe(this.element);
    signal.addEventListener("abort", () => observer.disconnect(), { once: true });
  }

  /**
   * @param {Job} job
   * @param {string} selected id of the vertex that is shown below
   */
  show(job, selected) {
    this.job = job;
    if (!this.width) return; // not laid out yet; `#resized` will come
    this.#build(job);
    const limiting = String(job.why?.vertex ?? "");
    for (const vertex of job.vertices) {
      this.cards.get(vertex.id)?.update(vertex, {
        limits: vertex.id === limiting,
        selected: vertex.id === selected,
      });
    }
    const most = Math.max(1e-9, ...job.edges.map((edge) => edge["records-per-s"]));
    job.edges.forEach((edge, index) => this.#updateEdge(edge, index, most));
    this.selected = selected;
  }

  /** @param {number} width */
  #resized(width) {
    this.width = width;
    if (this.job && width) this.show(this.job, this.selected ?? "");
    this.#fit();
  }

  /** Anew only if the graph or its direction is another one. @param {Job} job */
  #build(job) {
    const isDown = this.width < NARROW_PX;
    const places = job.vertices.map(({ id, column, row }) => ({ id, column, row }));
    const links = job.edges.map(({ source, target }) => ({ source, target }));
    const shape = JSON.stringify([job.jid, isDown, places, links]);
    if (shape === this.shape) return;
    this.shape = shape;
    this.layout = layOut(places, links, isDown);
    this.edges = this.layout.edges.map(({ path, label }) => makeEdge(path, label, isDown));
    this.cards = new Map(
      job.vertices.map((vertex) => {
        const card = new GraphCard(vertex, href("jobs", job.jid, "graph", vertex.id));
        card.place(/** @type {{x: number, y: number}} */ (this.layout?.cards.get(vertex.id)));
        return [vertex.id, card];
      }),
    );
    this.svg.replaceChildren(
      makeHatching(),
      ...this.edges.map((edge) => edge.path),
      ...[...this.cards.values()].map((card) => card.element),
      ...this.edges.map((edge) => edge.group),
    );
    this.#fit();
  }

  #fit() {
    if (!this.layout || !this.width) return;
    const maxHeight = this.width < NARROW_PX ? Infinity : Math.max(300, 0.58 * window.innerHeight);
    this.viewport.fit(this.layout, this.width, maxHeight);
  }

  /** @param {Edge} edge @param {number} index @param {number} most */
  #updateEdge(edge, index, most) {
    const drawn = this.edges[index];
    const perSecond = edge["records-per-s"];
    const width = THINNEST + (THICKEST - THINNEST) * Math.sqrt(Math.max(0, perSecond) / most);
    setAttribute(drawn.path, "stroke-width", perSecond > 0 ? width.toFixed(1) : THINNEST);
    drawn.path.classList.toggle("still", !(perSecond > 0));
    setText(drawn.rate, rate(perSecond));
    setText(
      drawn.note,
      edge.backlog > 0 ? `${count(edge.backlog)} waiting` : edge.ship.toLowerCase(),
    );
    drawn.group.classList.toggle("waiting", edge.backlog > 0);
  }

  #makeTools() {
    /** @param {string} text @param {string} label @param {() => void} click */
    const button = (text, label, click) =>
      h("button", { type: "button", "aria-label": label, title: label, on: { click } }, text);
    return h(
      "div",
      { class: "tools", role: "group", "aria-label": "Zoom" },
      button("+", "Zoom in", () => this.viewport.zoom(1)),
      button("−", "Zoom out", () => this.viewport.zoom(-1)),
      button("Fit", "Fit the whole graph", () => this.viewport.reset()),
    );
  }

  /** Arrows go from card to card; plus, minus and zero zoom. @param {KeyboardEvent} event */
  #keyed(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    /** @type {Record<string, () => void>} */
    const keys = {
      "+": () => this.viewport.zoom(1),
      "-": () => this.viewport.zoom(-1),
      0: () => this.viewport.reset(),
      ArrowLeft: () => this.#step(-1, 0),
      ArrowRight: () => this.#step(1, 0),
      ArrowUp: () => this.#step(0, -1),
      ArrowDown: () => this.#step(0, 1),
    };
    if (!keys[event.key]) return;
    event.preventDefault();
    keys[event.key]();
  }

  /** To the nearest card in that direction. @param {number} dx @param {number} dy */
  #step(dx, dy) {
    const here = this.#cardOf(document.activeElement);
    const from = here && this.layout?.cards.get(here);
    if (!from) return;
    let best = { id: "", distance: Infinity };
    for (const [id, to] of this.layout?.cards ?? []) {
      const ahead = (to.x - from.x) * dx + (to.y - from.y) * dy;
      const aside = Math.abs((to.x - from.x) * dy) + Math.abs((to.y - from.y) * dx);
      const distance = ahead + 2 * aside;
      if (id !== here && ahead > 1 && distance < best.distance) best = { id, distance };
    }
    /** @type {SVGElement | undefined} */ (this.cards.get(best.id)?.element)?.focus();
  }

  /** @param {FocusEvent} event */
  #focused(event) {
    const id = this.#cardOf(/** @type {Element} */ (event.target));
    const corner = id && this.layout?.cards.get(id);
    if (corner && !this.viewport.isFitted) this.viewport.include({ ...corner, ...CARD });
  }

  /** @param {Element | null} element */
  #cardOf(element) {
    return /** @type {HTMLElement | null} */ (element?.closest("[data-vertex]"))?.dataset.vertex;
  }
}

/**
 * The rate above the line and a note below it; of a line that runs down, both to its right.
 *
 * @param {string} path
 * @param {{x: number, y: number}} middle
 * @param {boolean} isDown
 */
function makeEdge(path, { x, y }, isDown) {
  const at = isDown ? { x: x + 13, "text-anchor": "start" } : { x, "text-anchor": "middle" };
  const above = s("text", { class: "rate", y: isDown ? y - 3 : y - 12, ...at });
  const note = s("text", { class: "note", y: isDown ? y + 12 : y + 21, ...at });
  return {
    path: s("path", { class: "edge", d: path }),
    rate: above,
    note,
    group: s("g", { class: "edge-label" }, above, note),
  };
}

/** Stripes for back pressure, which black alone would hide on a dark page. */
function makeHatching() {
  return s(
    "defs",
    {},
    s(
      "pattern",
      {
        id: "hatched",
        width: 6,
        height: 6,
        patternUnits: "userSpaceOnUse",
        patternTransform: "rotate(45)",
      },
      s("rect", { width: 6, height: 6, class: "hatch-ground" }),
      s("rect", { width: 2, height: 6, class: "hatch-stripe" }),
    ),
  );
}
