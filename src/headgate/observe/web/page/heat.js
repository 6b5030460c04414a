// @ts-check
/**
 * Many subtasks at a glance: a cell for each, on a canvas, so that thousands are drawn within a
 * frame. Arrow keys move a cursor over the cells; what is below it is said in words.
 */
import { activityColour, scaleColour } from "./colours.js";
import { announce, h, setAttribute, setText } from "./dom.js";
import { plural } from "./format.js";

const LARGEST_PX = 34;
const SMALLEST_PX = 9;
const GAP_PX = 2;

/** @typedef {import("./colours.js").Shares} Shares */
/**
 * What a cell shows: the mixed colour of its activity, or a place on a scale up to the largest.
 *
 * @template R
 * @typedef {{shares?: (row: R) => Shares, value?: (row: R) => number}} Measure
 */

/** @template R */
export class HeatMap {
  /**
   * @param {{
   *   label: string,
   *   describe: (row: R) => string,
   *   onChosen: (row: R) => void,
   *   signal: AbortSignal,
   * }} options
   */
  constructor(options) {
    this.options = options;
    /** @type {R[]} */
    this.rows = [];
    /** @type {Measure<R>} */
    this.measure = {};
    this.cursor = -1;
    this.chosen = -1;
    this.columns = 1;
    this.pitch = LARGEST_PX;
    this.canvas = h("canvas", {
      class: "heat",
      tabindex: "0",
      role: "application",
      "aria-roledescription": "heat map",
      "aria-label": options.label,
      "aria-describedby": "heat-readout",
    });
    this.readout = h("p", { id: "heat-readout", class: "readout" });
    this.element = h("div", { class: "heat-map" }, this.canvas, this.readout);
    this.#listen(options.signal);
  }

  /**
   * @param {R[]} rows
   * @param {Measure<R>} measure
   * @param {number} chosen
   */
  show(rows, measure, chosen) {
    this.rows = rows;
    this.measure = measure;
    this.chosen = chosen;
    setAttribute(
      this.canvas,
      "aria-label",
      `${this.options.label}: ${plural(rows.length, "cell")}, arrow keys move`,
    );
    this.#draw();
    this.#read();
  }

  /** @param {AbortSignal} signal */
  #listen(signal) {
    const observer = new ResizeObserver(() => this.#draw());
    observer.observe(this.element);
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    scheme.addEventListener("change", () => this.#draw(), { signal });
    signal.addEventListener("abort", () => observer.disconnect(), { once: true });
    this.canvas.addEventListener("pointermove", (event) => this.#point(this.#at(event)));
    this.canvas.addEventListener("pointerleave", () => this.#point(-1));
    this.canvas.addEventListener("click", (event) => this.#choose(this.#at(event)));
    this.canvas.addEventListener("keydown", (event) => this.#keyed(event));
    this.canvas.addEventListener("focus", () => this.#point(Math.max(0, this.cursor)));
  }

  /** @param {KeyboardEvent} event */
  #keyed(event) {
    /** @type {Record<string, number>} */
    const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -this.columns, ArrowDown: this.columns };
    if (event.key === "Enter" || event.key === " ") this.#choose(this.cursor);
    else if (event.key === "Home") this.#point(0);
    else if (event.key === "End") this.#point(this.rows.length - 1);
    else if (steps[event.key]) {
      const next = this.cursor + steps[event.key];
      if (next >= 0 && next < this.rows.length) this.#point(next);
    } else return;
    event.preventDefault();
    announce(this.readout.textContent ?? "");
  }

  /** @param {PointerEvent | MouseEvent} event */
  #at(event) {
    const column = Math.floor(event.offsetX / this.pitch);
    const index = column + this.columns * Math.floor(event.offsetY / this.pitch);
    return column < this.columns && index < this.rows.length ? index : -1;
  }

  /** @param {number} index */
  #point(index) {
    if (index === this.cursor) return;
    this.cursor = index;
    this.#draw();
    this.#read();
  }

  /** @param {number} index */
  #choose(index) {
    if (this.rows[index] !== undefined) this.options.onChosen(this.rows[index]);
  }

  #read() {
    const row = this.rows[this.cursor] ?? this.rows[this.chosen];
    setText(
      this.readout,
      row === undefined ? "Point at a cell, or use the arrow keys." : this.options.describe(row),
    );
  }

  #draw() {
    const width = this.element.clientWidth;
    const context = this.canvas.getContext("2d");
    if (!width || !context) return;
    this.#arrange(width);
    const height = Math.ceil(this.rows.length / this.columns) * this.pitch;
    const ratio = window.devicePixelRatio || 1;
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    this.canvas.style.height = `${height}px`;
    context.scale(ratio, ratio);
    const style = getComputedStyle(this.canvas);
    const outline = style.getPropertyValue("--cell-line");
    const ink = style.getPropertyValue("--ink");
    const paint = this.#painter(style.colorScheme === "dark");
    this.rows.forEach((row, index) => {
      const { x, y, size } = this.#cell(index);
      context.fillStyle = paint(row);
      context.fillRect(x, y, size, size);
      context.strokeStyle = outline;
      context.lineWidth = 1;
      context.strokeRect(x + 0.5, y + 0.5, size - 1, size - 1);
    });
    context.strokeStyle = ink;
    context.lineWidth = 2;
    for (const index of [this.cursor, this.chosen]) {
      if (!this.rows[index]) continue;
      const { x, y, size } = this.#cell(index);
      context.strokeRect(x - 1, y - 1, size + 2, size + 2);
    }
  }

  /** Cells as large as lets them all be seen in about a dozen lines. @param {number} width */
  #arrange(width) {
    const ideal = Math.sqrt((width * 220) / Math.max(1, this.rows.length));
    this.pitch = Math.max(SMALLEST_PX, Math.min(LARGEST_PX, Math.floor(ideal)));
    this.columns = Math.max(1, Math.floor(width / this.pitch));
  }

  /** @param {number} index */
  #cell(index) {
    const x = (index % this.columns) * this.pitch + GAP_PX / 2;
    const y = Math.floor(index / this.columns) * this.pitch + GAP_PX / 2;
    return { x, y, size: this.pitch - GAP_PX };
  }

  /** @param {boolean} isDark @returns {(row: R) => string} */
  #painter(isDark) {
    const { shares, value } = this.measure;
    if (shares) return (row) => activityColour(shares(row));
    if (!value) return () => "transparent";
    const most = Math.max(1e-9, ...this.rows.map(value).filter(Number.isFinite));
    return (row) => scaleColour((value(row) || 0) / most, isDark);
  }
}
