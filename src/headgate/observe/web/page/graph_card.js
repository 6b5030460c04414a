// @ts-check
/** One vertex of the graph picture: a link, drawn as a card whose head has the live colour. */
import { activityColour, activityWord } from "./colours.js";
import { s, setAttribute, setText } from "./dom.js";
import { count, duration, isKnown, percent, plural, rate } from "./format.js";
import { CARD } from "./graph_layout.js";
import { shareWords } from "./share_bar.js";

const HEAD = 46;
const PAD = 12;
const BAR = { y: 92, height: 8 };
const NAME_PX = CARD.width - 2 * PAD - 34;
const PARTS = /** @type {const} */ (["busy", "backpressured", "idle"]);

/** @typedef {import("./api_types.js").Vertex} Vertex */

export class GraphCard {
  /**
   * @param {Vertex} vertex
   * @param {string} address
   */
  constructor(vertex, address) {
    this.head = s("path", { class: "head", d: headPath() });
    this.names = wrap(vertex.name).map((line, index, { length }) =>
      s("text", { class: "name", x: PAD, y: length === 1 ? 28 : 20 + 16 * index }, line),
    );
    this.tasks = s("text", { class: "tasks", x: CARD.width - PAD, y: 20, "text-anchor": "end" });
    this.left = [textAt(PAD, 64), textAt(PAD, 82)];
    this.right = [textAt(CARD.width - PAD, 64, "end"), textAt(CARD.width - PAD, 82, "end")];
    this.bars = PARTS.map((part) => s("rect", { class: part, y: BAR.y, height: BAR.height }));
    this.words = s("text", { class: "words", x: CARD.width / 2, y: 114, "text-anchor": "middle" });
    this.flag = s(
      "g",
      { class: "flag", transform: `translate(${PAD} -14)` },
      s("rect", { width: 96, height: 18, rx: 9 }),
      s("text", { x: 48, y: 13, "text-anchor": "middle" }, "limits the job"),
    );
    this.element = s(
      "a",
      { class: "card", href: address, data: { vertex: vertex.id } },
      s("title", {}, vertex.name),
      s("rect", { class: "body", width: CARD.width, height: CARD.height, rx: 8 }),
      this.head,
      ...this.names,
      this.tasks,
      ...this.left,
      ...this.right,
      s("rect", {
        class: "rail",
        x: PAD,
        y: BAR.y,
        width: CARD.width - 2 * PAD,
        height: BAR.height,
      }),
      ...this.bars,
      this.words,
      this.flag,
    );
  }

  /** @param {{x: number, y: number}} corner */
  place({ x, y }) {
    setAttribute(this.element, "transform", `translate(${x} ${y})`);
  }

  /**
   * @param {Vertex} vertex
   * @param {{limits: boolean, selected: boolean}} marks
   */
  update(vertex, { limits, selected }) {
    setAttribute(this.head, "fill", activityColour(vertex));
    setText(this.tasks, `×${vertex.parallelism}`);
    const { rates } = vertex;
    setText(
      this.left[0],
      vertex.status === "RUNNING" ? `in ${rate(rates["in-per-s"])}` : vertex.status.toLowerCase(),
    );
    setText(this.right[0], `out ${rate(rates["out-per-s"])}`);
    setText(this.left[1], lagWords(vertex));
    setText(
      this.right[1],
      isKnown(vertex["latency-p99-ms"]) ? `p99 ${duration(vertex["latency-p99-ms"])}` : "",
    );
    let x = PAD;
    PARTS.forEach((part, index) => {
      const width = (CARD.width - 2 * PAD) * (vertex[part] || 0);
      setAttribute(this.bars[index], "x", x.toFixed(1));
      setAttribute(this.bars[index], "width", width.toFixed(1));
      x += width;
    });
    setText(this.words, cardWords(vertex));
    this.element.classList.toggle("limits", limits);
    this.element.classList.toggle("selected", selected);
    setAttribute(this.element, "data-activity", activityWord(vertex));
    setAttribute(this.element, "aria-current", selected ? "true" : null);
    setAttribute(this.element, "aria-label", describe(vertex, limits));
  }
}

/** @param {Vertex} vertex */
function lagWords(vertex) {
  if (isKnown(vertex["lag-records"]) && vertex["lag-records"] > 0) {
    return `${count(vertex["lag-records"])} behind`;
  }
  return isKnown(vertex["watermark-lag-ms"])
    ? `watermark −${duration(vertex["watermark-lag-ms"])}`
    : "";
}

/** Shares are means; the busiest subtask is named as such. @param {Vertex} vertex */
function cardWords(vertex) {
  const [busy, most] = [percent(vertex.busy), percent(vertex["max-busy"])];
  const backpressured = `back-pr. ${percent(vertex.backpressured)}`;
  return busy === most || vertex.parallelism === 1
    ? `busy ${busy} · ${backpressured} · idle ${percent(vertex.idle)}`
    : `busy ${busy} (max ${most}) · ${backpressured}`;
}

/** @param {Vertex} vertex @param {boolean} limits */
const describe = (vertex, limits) =>
  `${vertex.name}: ${plural(vertex.parallelism, "subtask")}, ${activityWord(vertex)}, ` +
  `${shareWords(vertex)}, ${rate(vertex.rates["in-per-s"])} in, ` +
  `${rate(vertex.rates["out-per-s"])} out${limits ? ", limits the job" : ""}`;

/** @param {number} x @param {number} y @param {string} [anchor] */
const textAt = (x, y, anchor = "start") => s("text", { x, y, "text-anchor": anchor });

function headPath() {
  return `M0 ${HEAD} V8 a8 8 0 0 1 8 -8 H${CARD.width - 8} a8 8 0 0 1 8 8 V${HEAD} Z`;
}

const ruler = /** @type {CanvasRenderingContext2D} */ (
  document.createElement("canvas").getContext("2d")
);

/**
 * A name in two lines at most, broken where an operator ends if that is possible.
 *
 * @param {string} name
 * @returns {string[]}
 */
function wrap(name) {
  ruler.font = `600 13px ${getComputedStyle(document.body).fontFamily}`;
  const first = longest(name);
  if (first.length === name.length) return [name];
  const space = first.lastIndexOf(" ");
  const end = space > first.length / 3 ? space : first.length;
  const rest = name.slice(end).trim();
  const second = longest(rest);
  return [
    name.slice(0, end),
    second.length === rest.length ? rest : `${second.slice(0, -1).trimEnd()}…`,
  ];
}

/** The longest beginning that fits. @param {string} text */
function longest(text) {
  let low = 0;
  let high = text.length;
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if (ruler.measureText(text.slice(0, middle)).width <= NAME_PX) low = middle;
    else high = middle - 1;
  }
  return text.slice(0, low);
}
