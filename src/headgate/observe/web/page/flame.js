// @ts-check
/**
 * A flame graph that hangs from its root: the whole above, its parts below it, as wide as their
 * share. A click or Enter zooms into a frame; Escape goes back.
 *
 * Frames of the runtime are grey, so that the program's own stand out.
 *
 * Law: frames narrower than a pixel are not drawn, so the number of elements is bounded by the
 * width of the page and the depth of the stacks.
 */
import { h, s, setAttribute, setText } from "./dom.js";
import { exact, percent, plural } from "./format.js";

const ROW_PX = 21;
const LETTER_PX = 6.6;
const NARROWEST_PX = 1;

/** @typedef {import("./api_types.js").Frame} Frame */
/** @typedef {{frame: Frame, depth: number, x: number, width: number, parent: Placed | null}} Placed */

export class FlameGraph {
  /** @param {AbortSignal} signal */
  constructor(signal) {
    this.svg = s("svg", { class: "flame", role: "tree", "aria-label": "Flame graph" });
    this.readout = h("p", { class: "readout" });
    this.element = h("div", {}, this.readout, this.svg);
    /** @type {Frame | null} */
    this.root = null;
    /** @type {Frame | null} */
    this.zoomed = null;
    /** @type {Map<Element, Placed>} */
    this.placed = new Map();
    this.pattern = "";
    const observer = new ResizeObserver(() => this.#draw());
    observer.observe(this.element);
    signal.addEventListener("abort", () => observer.disconnect(), { once: true });
    this.svg.addEventListener("click", (event) => this.#zoom(this.#at(event)));
    this.svg.addEventListener("keydown", (event) => this.#keyed(event));
    this.svg.addEventListener("pointermove", (event) => this.#read(this.#at(event)));
    this.svg.addEventListener("focusin", (event) => this.#read(this.#at(event)));
  }

  /** @param {Frame} root */
  show(root) {
    const { frame, left } = cutTrunk(root);
    this.root = frame;
    this.zoomed = null;
    this.#draw();
    const cut = left ? ` ${plural(left, "frame")} of the runtime around all of them left out.` : "";
    setText(this.readout, `Click a frame to zoom; Escape goes back.${cut}`);
  }

  /** Marks the frames whose name contains this. @param {string} pattern */
  search(pattern) {
    this.pattern = pattern.toLowerCase();
    for (const [element, { frame }] of this.placed) this.#mark(element, frame);
  }

  #draw() {
    const width = this.element.clientWidth;
    if (!this.root || !width) return;
    const places = this.#place(this.root, this.zoomed ?? this.root, width);
    const focused = this.placed.get(/** @type {Element} */ (document.activeElement))?.frame;
    this.placed.clear();
    const groups = places.map((place) => this.#makeFrame(place, places[0]));
    this.svg.replaceChildren(...groups);
    const depth = 1 + Math.max(0, ...places.map((place) => place.depth));
    setAttribute(this.svg, "viewBox", `0 0 ${width} ${depth * ROW_PX}`);
    this.svg.style.height = `${depth * ROW_PX}px`;
    const again = groups.find((group) => this.placed.get(group)?.frame === focused) ?? groups[0];
    again.setAttribute("tabindex", "0");
    if (focused) again.focus();
  }

  /**
   * The ancestors of what is zoomed into take the whole width, then come its descendants.
   *
   * @param {Frame} root
   * @param {Frame} zoomed
   * @param {number} width
   * @returns {Placed[]}
   */
  #place(root, zoomed, width) {
    /** @type {Placed[]} */
    const places = [];
    /** @type {Placed | null} */
    let parent = null;
    for (const frame of pathTo(root, zoomed)) {
      parent = { frame, depth: places.length, x: 0, width, parent };
      places.push(parent);
    }
    const queue = parent ? [parent] : [];
    for (let place = queue.shift(); place; place = queue.shift()) {
      let { x } = place;
      for (const frame of place.frame.children ?? []) {
        const share = (place.width * frame.value) / Math.max(1, place.frame.value);
        const child = { frame, depth: place.depth + 1, x, width: share, parent: place };
        x += share;
        if (share < NARROWEST_PX) continue;
        places.push(child);
        queue.push(child);
      }
    }
    return places;
  }

  /** @param {Placed} place @param {Placed} root */
  #makeFrame(place, root) {
    const { frame, depth, x, width } = place;
    const letters = Math.floor((width - 8) / LETTER_PX);
    const name = frame.name.length <= letters ? frame.name : `${frame.name.slice(0, letters - 1)}…`;
    const group = s(
      "g",
      {
        role: "treeitem",
        tabindex: "-1",
        "aria-level": depth + 1,
        "aria-label": `${frame.name}, ${percent(frame.value / Math.max(1, root.frame.value))}`,
        transform: `translate(${x.toFixed(1)} ${depth * ROW_PX})`,
      },
      s("rect", {
        width: Math.max(0.5, width - 1).toFixed(1),
        height: ROW_PX - 1,
        rx: 2,
        class: hueOf(frame.name),
      }),
      letters >= 3 && s("text", { x: 4, y: 14.5, "aria-hidden": "true" }, name),
    );
    this.placed.set(group, place);
    this.#mark(group, frame);
    return group;
  }

  /** @param {Element} element @param {Frame} frame */
  #mark(element, frame) {
    const found = this.pattern !== "" && frame.name.toLowerCase().includes(this.pattern);
    element.classList.toggle("found", found);
  }

  /** @param {Event} event */
  #at(event) {
    const element = /** @type {Element} */ (event.target).closest("[role=treeitem]");
    return element ? this.placed.get(element) : undefined;
  }

  /** @param {Placed | undefined} place */
  #zoom(place) {
    if (!place) return;
    this.zoomed = place.frame;
    this.#draw();
  }

  /** @param {Placed | undefined} place */
  #read(place) {
    if (!place || !this.root) return;
    const share = percent(place.frame.value / Math.max(1, this.root.value));
    setText(this.readout, `${place.frame.name} – ${share}, ${exact(place.frame.value)} samples`);
  }

  /** @param {KeyboardEvent} event */
  #keyed(event) {
    const place = this.#at(event);
    if (!place) return;
    const all = [...this.placed.values()];
    const siblings = all.filter(({ parent }) => parent === place.parent);
    const here = siblings.indexOf(place);
    /** @type {Record<string, () => void>} */
    const keys = {
      ArrowUp: () => this.#focus(place.parent),
      ArrowDown: () => this.#focus(all.find(({ parent }) => parent === place)),
      ArrowLeft: () => this.#focus(siblings[here - 1]),
      ArrowRight: () => this.#focus(siblings[here + 1]),
      Enter: () => this.#zoom(place),
      " ": () => this.#zoom(place),
      Escape: () => this.root && this.#zoom({ ...place, frame: this.root }),
    };
    if (!keys[event.key]) return;
    event.preventDefault();
    keys[event.key]();
  }

  /** One frame is in the order of Tab; the arrows move which. @param {Placed | null | undefined} place */
  #focus(place) {
    if (!place) return;
    for (const [element, candidate] of this.placed) {
      element.setAttribute("tabindex", candidate === place ? "0" : "-1");
      if (candidate === place) /** @type {SVGElement} */ (element).focus();
    }
  }
}

/**
 * @param {Frame} root
 * @param {Frame} wanted
 * @returns {Frame[]} from the root to it, both included
 */
function pathTo(root, wanted) {
  if (root === wanted) return [root];
  for (const child of root.children ?? []) {
    const path = pathTo(child, wanted);
    if (path.length) return [root, ...path];
  }
  return [];
}

/**
 * Every stack begins with the same frames of the runtime; what they share says nothing.
 *
 * @param {Frame} root
 * @returns {{frame: Frame, left: number}} the root without them, and how many they were
 */
function cutTrunk(root) {
  let children = root.children ?? [];
  let left = 0;
  while (children.length === 1 && isRuntime(children[0].name) && children[0].children?.length) {
    children = children[0].children;
    left += 1;
  }
  return { frame: { ...root, children }, left };
}

/** @param {string} name */
const isRuntime = (name) => /\((headgate\/(?!cli\/)|threading\.py)/.test(name);

/** Frames of one file have one hue. @param {string} name */
function hueOf(name) {
  if (isRuntime(name)) return "runtime";
  const file = /\(([^:)]*)/.exec(name)?.[1] ?? name;
  let sum = 0;
  for (const letter of file) sum = (31 * sum + letter.charCodeAt(0)) % 9973;
  return `hue${sum % 6}`;
}
