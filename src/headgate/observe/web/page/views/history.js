// @ts-check
/** Throughput, latency and lag over the job's life, and what each vertex was at. */
import { activityColour } from "../colours.js";
import { LineChart } from "../chart.js";
import { h, reconcile, replace, setText } from "../dom.js";
import { clock, duration, percent, rate } from "../format.js";

const EVERY_MS = 2000;

/** @typedef {ReturnType<typeof readPoint>} Point */
/** @typedef {[number, number, number, number]} Moment of a vertex: records per second, busy, back-pressured, idle */

/** There are hundreds, so they come as arrays. @param {any[]} point */
function readPoint([at, incoming, outgoing, p50, p99, lag, vertices]) {
  return {
    "at-ms": /** @type {number} */ (at),
    "in-per-s": /** @type {number} */ (incoming),
    "out-per-s": /** @type {number} */ (outgoing),
    "latency-p50-ms": /** @type {number} */ (p50),
    "latency-p99-ms": /** @type {number} */ (p99),
    "watermark-lag-ms": /** @type {number} */ (lag),
    vertices: /** @type {Moment[]} */ (vertices),
  };
}

/**
 * @param {import("./job.js").JobContext} context
 * @param {HTMLElement} outlet
 */
export function show(context, outlet) {
  const { connection, id, signal, runs } = context;
  const charts = [
    new LineChart(
      {
        title: "Throughput",
        format: rate,
        series: [
          { name: "from the sources", tone: "first", value: (point) => point["in-per-s"] },
          { name: "into the sinks", tone: "second", value: (point) => point["out-per-s"] },
        ],
      },
      signal,
    ),
    new LineChart(
      {
        title: "Latency",
        format: duration,
        series: [
          { name: "p50", tone: "first", value: (point) => point["latency-p50-ms"] },
          { name: "p99", tone: "second", value: (point) => point["latency-p99-ms"] },
        ],
      },
      signal,
    ),
    new LineChart(
      {
        title: "Watermark lag",
        format: duration,
        series: [{ name: "lag", tone: "first", value: (point) => point["watermark-lag-ms"] }],
      },
      signal,
    ),
  ];
  const strips = new ActivityStrips();
  const problem = h("p", { class: "notice bad", hidden: true });
  replace(
    outlet,
    problem,
    h("div", { class: "charts" }, ...charts.map((chart) => chart.element), strips.element),
  );
  connection.poll(`jobs/${encodeURIComponent(id)}/series`, {
    everyMs: EVERY_MS,
    signal,
    goesOn: runs,
    onAnswer: (answer) => {
      const points = answer.points.map(readPoint);
      const restarts = answer.restarts ?? [];
      for (const chart of charts) chart.show(points, restarts);
      strips.show(answer.vertices, points, restarts);
    },
    onRefused: (sentence) => {
      setText(problem, sentence);
      problem.hidden = false;
    },
  });
}

/** For each vertex a strip of time, in the colours of the graph. */
class ActivityStrips {
  constructor() {
    this.list = h("ul", { class: "strips" });
    this.span = h("p", { class: "quiet" });
    this.element = h(
      "section",
      { class: "card", "aria-labelledby": "strips-title" },
      h("h3", { id: "strips-title" }, "Activity of each vertex"),
      this.list,
      this.span,
    );
  }

  /** @param {string[]} names @param {Point[]} points @param {number[]} restarts */
  show(names, points, restarts) {
    reconcile(
      this.list,
      names.map((name, index) => ({ name, index })),
      ({ index }) => String(index),
      ({ name }) =>
        h(
          "li",
          {},
          h("span", { class: "name", title: name }, name),
          h("canvas", { role: "img", width: 600, height: 16 }),
        ),
      (item, { name, index }) => {
        paint(
          /** @type {HTMLCanvasElement} */ (item.querySelector("canvas")),
          name,
          points.map(({ vertices }) => vertices[index]),
        );
      },
    );
    const [first, last] = [points[0], points.at(-1)];
    setText(
      this.span,
      first && last
        ? `From ${clock(first["at-ms"])} to ${clock(last["at-ms"])}${restartWords(restarts)}.`
        : "No figures yet.",
    );
  }
}

/** @param {number[]} restarts dashed lines in the charts */
const restartWords = (restarts) =>
  restarts.length
    ? `; restarted at ${restarts.slice(-5).map(clock).join(", ")} (dashed lines in the charts)`
    : "";

/** @param {HTMLCanvasElement} canvas @param {string} name @param {Moment[]} moments */
function paint(canvas, name, moments) {
  const context = canvas.getContext("2d");
  if (!context) return;
  canvas.width = Math.max(1, moments.length);
  let backpressured = 0;
  let busy = 0;
  moments.forEach((moment, x) => {
    const [, busyShare, backpressuredShare, idle] = moment ?? [0, 0, 0, 0];
    busy += busyShare;
    backpressured += backpressuredShare;
    context.fillStyle = activityColour({
      busy: busyShare,
      backpressured: backpressuredShare,
      idle,
    });
    context.fillRect(x, 0, 1, canvas.height);
  });
  const of = Math.max(1, moments.length);
  canvas.setAttribute(
    "aria-label",
    `${name}: busy ${percent(busy / of)}, back-pressured ${percent(backpressured / of)} on average`,
  );
}
