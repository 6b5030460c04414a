// @ts-check
/**
 * Lines over time, with a cursor for pointer and arrow keys, and the same figures as a table.
 *
 * Law: unknown values (negative or missing) leave a gap; the scale begins at zero.
 */
import { announce, h, s, setAttribute, setText } from "./dom.js";
import { clock, isKnown } from "./format.js";

const HEIGHT = 180;
const MARGIN = { left: 62, right: 10, top: 10, bottom: 22 };
const TABLE_ROWS = 40;

/**
 * @typedef {{name: string, value: (point: any) => number, tone: string}} Series `tone`: a class of the style sheet
 * @typedef {{title: string, series: Series[], format: (value: number) => string}} Options
 */

export class LineChart {
  /**
   * @param {Options} options
   * @param {AbortSignal} signal
   */
  constructor(options, signal) {
    this.options = options;
    /** @type {{"at-ms": number}[]} */
    this.points = [];
    this.cursor = -1;
    this.id = `chart-${options.title.toLowerCase().replaceAll(/[^a-z]+/g, "-")}`;
    this.grid = s("g", { class: "grid" });
    this.lines = options.series.map(({ tone }) => s("path", { class: `line ${tone}` }));
    /** @type {number[]} */
    this.restarts = [];
    this.marks = s("g", { class: "restarts" });
    this.rule = s("line", { class: "rule", y1: MARGIN.top, y2: HEIGHT - MARGIN.bottom });
    this.svg = s(
      "svg",
      {
        class: "chart",
        tabindex: "0",
        role: "application",
        "aria-roledescription": "chart",
        "aria-label": `${options.title} over time; arrow keys move the cursor`,
        "aria-describedby": `${this.id}-readout`,
      },
      this.grid,
      this.marks,
      ...this.lines,
      this.rule,
    );
    this.readout = h("p", { id: `${this.id}-readout`, class: "readout" });
    this.table = h("tbody");
    this.details = this.#makeTable();
    this.element = h(
      "section",
      { class: "card", "aria-labelledby": this.id },
      h(
        "div",
        { class: "section-head" },
        h("h3", { id: this.id }, options.title),
        this.#makeLegend(),
      ),
      this.svg,
      this.readout,
      this.details,
    );
    this.#listen(signal);
  }

  /**
   * @param {{"at-ms": number}[]} points
   * @param {number[]} [restarts] moments at which the job has begun anew
   */
  show(points, restarts = []) {
    this.points = points;
    this.restarts = restarts;
    this.#draw();
    if (this.details.open) this.#fillTable();
  }

  #makeLegend() {
    return h(
      "ul",
      { class: "legend" },
      ...this.options.series.map(({ name, tone }) =>
        h("li", {}, h("span", { class: `swatch line-${tone}`, "aria-hidden": "true" }), name),
      ),
    );
  }

  #makeTable() {
    const heads = ["Time", ...this.options.series.map(({ name }) => name)];
    return h(
      "details",
      { on: { toggle: () => this.#fillTable() } },
      h("summary", {}, "As a table"),
      h(
        "div",
        {
          class: "table",
          role: "group",
          tabindex: "0",
          "aria-label": `${this.options.title} as a table`,
        },
        h(
          "table",
          {},
          h(
            "thead",
            {},
            h(
              "tr",
              {},
              ...heads.map((head, index) =>
                h("th", { scope: "col", class: index ? "number" : null }, head),
              ),
            ),
          ),
          this.table,
        ),
      ),
    );
  }

  #fillTable() {
    const step = Math.max(1, Math.ceil(this.points.length / TABLE_ROWS));
    const rows = this.points
      .filter((_, index) => (this.points.length - 1 - index) % step === 0)
      .reverse();
    this.table.replaceChildren(
      ...rows.map((point) =>
        h(
          "tr",
          {},
          h("th", { scope: "row" }, clock(point["at-ms"])),
          ...this.options.series.map(({ value }) =>
            h("td", { class: "number" }, this.#format(value(point))),
          ),
        ),
      ),
    );
  }

  /** @param {number} value */
  #format(value) {
    return isKnown(value) ? this.options.format(value) : "–";
  }

  /** @param {AbortSignal} signal */
  #listen(signal) {
    const observer = new ResizeObserver(() => this.#draw());
    observer.observe(this.element);
    signal.addEventListener("abort", () => observer.disconnect(), { once: true });
    this.svg.addEventListener("pointermove", (event) => {
      const { left, width } = this.svg.getBoundingClientRect();
      const share = (event.clientX - left - MARGIN.left) / (width - MARGIN.left - MARGIN.right);
      this.#point(this.#nearest(share));
    });
    this.svg.addEventListener("pointerleave", () => this.#point(-1));
    this.svg.addEventListener("keydown", (event) => {
      const last = this.points.length - 1;
      /** @type {Record<string, number>} */
      const targets = {
        ArrowLeft: this.#current() - 1,
        ArrowRight: this.#current() + 1,
        Home: 0,
        End: last,
      };
      if (!(event.key in targets)) return;
      event.preventDefault();
      this.#point(Math.max(0, Math.min(last, targets[event.key])));
      announce(this.readout.textContent ?? "");
    });
  }

  #current() {
    return this.cursor < 0 ? this.points.length - 1 : this.cursor;
  }

  /** @param {number} share */
  #nearest(share) {
    if (!this.points.length) return -1;
    const [begin, end] = this.#span();
    const at = begin + share * (end - begin);
    let best = 0;
    this.points.forEach((point, index) => {
      if (Math.abs(point["at-ms"] - at) < Math.abs(this.points[best]["at-ms"] - at)) best = index;
    });
    return best;
  }

  /** @param {number} index */
  #point(index) {
    this.cursor = index;
    this.#drawCursor();
  }

  /** @returns {[number, number]} */
  #span() {
    const begin = this.points[0]?.["at-ms"] ?? 0;
    const end = this.points.at(-1)?.["at-ms"] ?? 1;
    return [begin, Math.max(end, begin + 1000)];
  }

  #draw() {
    const width = this.svg.clientWidth;
    if (!width) return;
    setAttribute(this.svg, "viewBox", `0 0 ${width} ${HEIGHT}`);
    this.width = width;
    const values = this.points
      .flatMap((point) => this.options.series.map(({ value }) => value(point)))
      .filter(isKnown);
    this.top = niceTop(Math.max(0, ...values));
    this.options.series.forEach(({ value }, index) => {
      setAttribute(this.lines[index], "d", this.#path(value));
    });
    this.#drawGrid();
    this.#drawRestarts();
    this.#drawCursor();
  }

  #drawRestarts() {
    const [begin, end] = this.#span();
    this.marks.replaceChildren(
      ...this.restarts
        .filter((at) => begin <= at && at <= end)
        .map((at) =>
          s(
            "line",
            {
              x1: this.#x(at),
              x2: this.#x(at),
              y1: MARGIN.top,
              y2: HEIGHT - MARGIN.bottom,
              data: { at },
            },
            s("title", {}, `Restarted at ${clock(at)}`),
          ),
        ),
    );
  }

  /** @param {number} at */
  #x(at) {
    const [begin, end] = this.#span();
    return (
      MARGIN.left +
      ((at - begin) / (end - begin)) * ((this.width ?? 0) - MARGIN.left - MARGIN.right)
    );
  }

  /** @param {number} value */
  #y(value) {
    return (
      HEIGHT - MARGIN.bottom - (value / (this.top || 1)) * (HEIGHT - MARGIN.top - MARGIN.bottom)
    );
  }

  /** @param {(point: any) => number} value */
  #path(value) {
    let path = "";
    let isPenDown = false;
    for (const point of this.points) {
      const known = isKnown(value(point));
      if (known)
        path += `${isPenDown ? "L" : "M"}${this.#x(point["at-ms"]).toFixed(1)} ${this.#y(value(point)).toFixed(1)}`;
      isPenDown = known;
    }
    return path;
  }

  #drawGrid() {
    const [begin, end] = this.#span();
    const width = this.width ?? 0;
    const levels = [0, 0.5, 1].map((share) => share * (this.top || 1));
    const times = width > 480 ? [0, 0.25, 0.5, 0.75, 1] : [0, 0.5, 1];
    this.grid.replaceChildren(
      ...levels.flatMap((level) => [
        s("line", {
          x1: MARGIN.left,
          x2: width - MARGIN.right,
          y1: this.#y(level),
          y2: this.#y(level),
        }),
        s(
          "text",
          { x: MARGIN.left - 6, y: this.#y(level) + 4, "text-anchor": "end" },
          this.options.format(level),
        ),
      ]),
      ...times.map((share) =>
        s(
          "text",
          {
            x: this.#x(begin + share * (end - begin)),
            y: HEIGHT - 6,
            "text-anchor": share === 0 ? "start" : share === 1 ? "end" : "middle",
          },
          clock(begin + share * (end - begin)),
        ),
      ),
    );
  }

  #drawCursor() {
    const point = this.points[this.#current()];
    setAttribute(this.rule, "visibility", point && this.cursor >= 0 ? "visible" : "hidden");
    if (!point) {
      setText(this.readout, "No figures yet.");
      return;
    }
    const x = this.#x(point["at-ms"]).toFixed(1);
    setAttribute(this.rule, "x1", x);
    setAttribute(this.rule, "x2", x);
    const parts = this.options.series.map(
      ({ name, value }) => `${name} ${this.#format(value(point))}`,
    );
    setText(this.readout, `${clock(point["at-ms"])}: ${parts.join(", ")}`);
  }
}

/** The next of 1, 2, 2.5 and 5 times a power of ten. @param {number} value */
function niceTop(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return power * ([1, 2, 2.5, 5].find((step) => value <= step * power) ?? 10);
}
