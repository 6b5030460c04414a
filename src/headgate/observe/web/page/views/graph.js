// @ts-check
/** The graph, and below it all vertices as a table, or the one that was chosen. */
import { DataTable } from "../data_table.js";
import { h, replace, setAttribute, setText } from "../dom.js";
import { byteRate, bytes, count, duration, percent, rate } from "../format.js";
import { GraphPicture } from "../graph.js";
import { href } from "../router.js";
import { fillShareBar, makeShareBar } from "../share_bar.js";
import { fillBadge, makeBadge } from "./badge.js";

/** @typedef {import("../api_types.js").Vertex} Vertex */

export class GraphView {
  /**
   * @param {import("./job.js").JobContext} context
   * @param {HTMLElement} outlet
   */
  constructor(context, outlet) {
    this.context = context;
    this.picture = new GraphPicture(context.signal);
    this.table = makeTable(context.id);
    this.below = h("div");
    this.selected = "";
    /** @type {{route(route: import("../router.js").Route): void} | null} */
    this.vertex = null;
    this.shown = new AbortController();
    context.signal.addEventListener("abort", () => this.shown.abort(), { once: true });
    replace(
      outlet,
      h(
        "section",
        { "aria-labelledby": "graph-title" },
        h(
          "div",
          { class: "section-head" },
          h("h2", { id: "graph-title" }, "Job graph"),
          makeLegend(),
          this.picture.tools,
        ),
        this.picture.element,
      ),
      this.below,
    );
    context.job.watch((job) => job && this.#update(job), context.signal);
  }

  /** @param {import("../router.js").Route} route */
  async route(route) {
    if (route.item === this.selected && this.below.childElementCount) {
      this.vertex?.route(route);
      return;
    }
    this.selected = route.item;
    this.shown.abort();
    this.shown = new AbortController();
    const { signal } = this.shown;
    this.vertex = null;
    if (this.context.job.value) this.#update(this.context.job.value);
    if (!route.item) {
      replace(
        this.below,
        h(
          "section",
          { "aria-labelledby": "vertices-title" },
          h("h2", { id: "vertices-title" }, "Vertices"),
          this.table.element,
        ),
      );
      return;
    }
    const { VertexView } = await import("./vertex.js");
    if (signal.aborted) return;
    this.vertex = new VertexView({ ...this.context, signal }, this.below, route);
  }

  /** @param {import("../api_types.js").Job} job */
  #update(job) {
    this.picture.show(job, this.selected);
    if (!this.selected) this.table.show(job.vertices);
  }
}

function makeLegend() {
  /** @param {string} part @param {string} text */
  const entry = (part, text) =>
    h("li", {}, h("span", { class: `swatch ${part}`, "aria-hidden": "true" }), text);
  return h(
    "ul",
    { class: "legend", "aria-label": "Colours" },
    entry("busy", "busy"),
    entry("backpressured", "back-pressured"),
    entry("idle", "idle"),
    h("li", {}, "thickness: records per second"),
  );
}

/** @param {string} id @returns {DataTable<Vertex>} */
function makeTable(id) {
  return new DataTable({
    label: "Vertices",
    keyOf: (vertex) => vertex.id,
    empty: "The graph is empty.",
    columns: [
      {
        title: "Name",
        wide: true,
        make: () => h("a"),
        fill: (link, vertex) => {
          setAttribute(link, "href", href("jobs", id, "graph", vertex.id));
          setText(link, vertex.name);
        },
      },
      {
        title: "Activity",
        hint: "Busy, back-pressured, idle; mean of its subtasks",
        sort: (v) => v.busy,
        make: makeShareBar,
        fill: (bar, v) => fillShareBar(bar, v),
      },
      {
        title: "Subtasks",
        numeric: true,
        sort: (v) => v.parallelism,
        text: (v) => String(v.parallelism),
      },
      { title: "State", make: makeBadge, fill: (badge, vertex) => fillBadge(badge, vertex.status) },
      {
        title: "Busy (max)",
        numeric: true,
        hint: "Of its busiest subtask",
        sort: (v) => v["max-busy"],
        text: (v) => percent(v["max-busy"]),
      },
      {
        title: "CPU",
        numeric: true,
        hint: "CPU time of its threads beside wall time",
        sort: (v) => v.cpu,
        text: (v) => percent(v.cpu),
      },
      {
        title: "In",
        numeric: true,
        sort: (v) => v.rates["in-per-s"],
        text: (v) => rate(v.rates["in-per-s"]),
      },
      {
        title: "Out",
        numeric: true,
        sort: (v) => v.rates["out-per-s"],
        text: (v) => rate(v.rates["out-per-s"]),
      },
      {
        title: "Bytes out",
        numeric: true,
        sort: (v) => v.rates["bytes-out-per-s"],
        text: (v) => byteRate(v.rates["bytes-out-per-s"]),
      },
      { title: "Watermark lag", numeric: true, text: (v) => duration(v["watermark-lag-ms"]) },
      {
        title: "p99",
        numeric: true,
        hint: "Latency from the sources",
        text: (v) => duration(v["latency-p99-ms"]),
      },
      { title: "State size", numeric: true, text: (v) => bytes(v["state-bytes"]) },
      {
        title: "Behind",
        numeric: true,
        hint: "Records that wait outside, as far as the source knows",
        text: (v) => count(v["lag-records"]),
      },
    ],
  });
}
