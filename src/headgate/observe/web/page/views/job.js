// @ts-check
/**
 * A job: its head, the answer of `why`, and one of its views below.
 *
 * Law: the head lives as long as the job is looked at; a change of the view, a restart of the job or
 * a driver that was away for a while does not move the reader.
 */
import { crumb } from "../crumbs.js";
import { announce, h, replace, setAttribute, setText } from "../dom.js";
import { clock, duration, exact, isKnown, moment, rate } from "../format.js";
import { follow } from "../live.js";
import { href } from "../router.js";
import { Store } from "../store.js";
import { makeActions } from "./actions.js";
import { ENDED, fillBadge, makeBadge } from "./badge.js";
import { GraphView } from "./graph.js";
import { WhyPanel } from "./why.js";

/** @typedef {import("../api_types.js").Job} Job */
/** @typedef {{route(route: import("../router.js").Route): void}} SubView */
/** @typedef {import("../api_types.js").Context & {id: string, job: Store<Job | null>, runs: () => boolean}} JobContext */

/** Views other than the graph are loaded when they are first opened. */
const VIEWS = /** @type {const} */ ([
  ["graph", "Graph"],
  ["history", "Over time"],
  ["checkpoints", "Checkpoints"],
  ["exceptions", "Exceptions"],
  ["logs", "Logs"],
  ["taskmanagers", "Task managers"],
  ["config", "Configuration"],
  ["plan", "Plan"],
]);

export class JobView {
  /**
   * @param {import("../api_types.js").Context} context
   * @param {HTMLElement} main
   * @param {import("../router.js").Route} route
   */
  constructor(context, main, route) {
    this.id = route.job;
    this.main = main;
    /** @type {Store<Job | null>} */
    this.store = new Store(/** @type {Job | null} */ (null));
    /** @type {JobContext} */
    this.context = { ...context, id: this.id, job: this.store, runs: () => !this.#hasEnded() };
    this.name = h("h1");
    this.badge = makeBadge();
    this.notice = h("div", { class: "notice", hidden: true });
    this.facts = new Facts();
    this.leftOut = h("ul", { class: "left-out", "aria-label": "Records left out", hidden: true });
    this.why = new WhyPanel(this.context);
    this.tabs = makeTabs(this.id);
    this.outlet = h("div", { class: "outlet" });
    this.shown = new AbortController();
    this.view = "";
    /** @type {SubView | null} */
    this.subView = null;
    this.state = "";
    this.isForgotten = false;
    replace(
      main,
      h("div", { class: "job-head" }, this.name, this.badge, makeActions(this.context)),
      this.notice,
      this.facts.element,
      this.leftOut,
      this.why.element,
      this.tabs,
      this.outlet,
    );
    this.store.watch((job) => job && this.#update(job), context.signal);
    context.signal.addEventListener("abort", () => this.shown.abort(), { once: true });
    this.#follow();
    this.route(route);
  }

  async #follow() {
    const { connection, signal } = this.context;
    await follow(connection, `jobs/${encodeURIComponent(this.id)}/events`, {
      signal,
      goesOn: () => !this.#hasEnded() && !this.isForgotten,
      onEvent: ({ event, data }) => {
        if (event === "job") this.store.set(data);
        else if (event === "gone")
          this.#forgotten("The driver has forgotten this job to make room for later ones.");
      },
      onRefused: (sentence, status) => this.#forgotten(sentence, status),
    });
    if (!signal.aborted) connection.ended();
  }

  #hasEnded() {
    return ENDED.has(this.store.value?.state ?? "");
  }

  /** @param {import("../router.js").Route} route */
  async route(route) {
    for (const link of this.tabs.querySelectorAll("a")) {
      setAttribute(link, "aria-current", link.dataset.view === route.view ? "page" : null);
    }
    if (route.view === this.view) {
      this.subView?.route(route);
      return;
    }
    this.view = route.view;
    this.subView = null;
    this.shown.abort();
    this.shown = new AbortController();
    const { signal } = this.shown;
    const context = { ...this.context, signal };
    const isKnownView = VIEWS.some(([view]) => view === route.view);
    if (!isKnownView) {
      replace(this.outlet, h("p", { class: "notice" }, `There is no view called ${route.view}.`));
      return;
    }
    replace(this.outlet);
    const show = route.view === "graph" ? null : (await import(`./${route.view}.js`)).show;
    if (signal.aborted) return;
    this.subView = show ? show(context, this.outlet, route) : new GraphView(context, this.outlet);
    this.subView?.route(route);
  }

  /** @param {Job} job */
  #update(job) {
    setText(this.name, job.name);
    fillBadge(this.badge, job.state);
    this.facts.update(job);
    this.why.update(job);
    this.#tellLeftOut(job);
    this.#notify(job);
    if (this.state === job.state) return;
    crumb(job.name, job.jid);
    const before = this.state;
    this.state = job.state;
    if (before) announce(`${job.name} is now ${job.state.toLowerCase()}.`);
  }

  /** What operators drop by design: no error tells of it. @param {Job} job */
  #tellLeftOut(job) {
    const found = job.why?.["left-out"] ?? [];
    this.leftOut.hidden = !found.length;
    if (this.leftOut.childElementCount !== found.length) {
      replace(this.leftOut, ...found.map(() => h("li")));
    }
    found.forEach(({ summary }, index) =>
      setText(this.leftOut.children[index], `Left out: ${summary}.`),
    );
  }

  /** What the reader must know before the figures: how it ended, or why it restarts. @param {Job} job */
  #notify(job) {
    const ended = ENDED.has(job.state);
    const failure = job["latest-failure"];
    const tells = ended || job.state === "RESTARTING" || job.state === "FAILING";
    this.notice.hidden = !tells;
    if (!tells) return;
    const when = ended ? ` at ${clock(job["end-time"])} after ${duration(job.duration)}` : "";
    const words = { FINISHED: "Finished", FAILED: "Failed", CANCELED: "Canceled" };
    const word =
      words[/** @type {"FAILED"} */ (job.state)] ??
      job.state.charAt(0) + job.state.slice(1).toLowerCase();
    const blames = failure && job.state !== "FINISHED" && job.state !== "CANCELED";
    const text = `${word}${when}.${blames ? ` ${failure.kind.split(".").pop()}: ${failure.message}` : ""}`;
    if (this.notice.dataset.text === text) return;
    this.notice.dataset.text = text;
    this.notice.classList.toggle("bad", Boolean(blames));
    replace(
      this.notice,
      h("p", {}, text),
      blames && h("a", { href: href("jobs", this.id, "exceptions") }, "All exceptions"),
    );
  }

  /** @param {string} sentence @param {number} [status] */
  #forgotten(sentence, status = 404) {
    this.isForgotten = true;
    if (this.store.value) {
      this.notice.hidden = false;
      delete this.notice.dataset.text;
      replace(this.notice, h("p", {}, sentence));
      return;
    }
    crumb(this.id, this.id);
    replace(
      this.main,
      h("h1", {}, status === 404 ? "No such job" : "This job cannot be shown"),
      h("p", { class: "notice bad" }, sentence),
      h("p", {}, h("a", { href: href("jobs") }, "All jobs")),
    );
  }
}

/** @param {string} id */
function makeTabs(id) {
  return h(
    "nav",
    { class: "tabs", "aria-label": "Views of the job" },
    ...VIEWS.map(([view, title]) =>
      h("a", { href: href("jobs", id, view), data: { view } }, title),
    ),
  );
}

/** The figures that are looked at first. */
class Facts {
  constructor() {
    const names = ["In", "Out", "Latency p99", "Watermark lag", "Restarts", "Run time", "Started"];
    this.values = names.map(() => h("dd", {}, "–"));
    this.element = h(
      "dl",
      { class: "facts" },
      ...names.map((name, index) => h("div", {}, h("dt", {}, name), this.values[index])),
    );
  }

  /** @param {Job} job */
  update(job) {
    const withOutputs = new Set(job.edges.map((edge) => edge.source));
    const sources = job.vertices.filter((vertex) => vertex["is-source"]);
    const ends = job.vertices.filter((vertex) => !withOutputs.has(vertex.id));
    /** @param {import("../api_types.js").Vertex[]} vertices */
    const incoming = (vertices) => vertices.reduce((sum, { rates }) => sum + rates["in-per-s"], 0);
    /** @param {"latency-p99-ms" | "watermark-lag-ms"} field */
    const worst = (field) => Math.max(-1, ...ends.map((end) => end[field] ?? -1).filter(isKnown));
    const texts = [
      rate(incoming(sources)),
      rate(incoming(ends)),
      duration(worst("latency-p99-ms")),
      duration(worst("watermark-lag-ms")),
      exact(job.restarts),
      duration(job.duration),
      moment(job["start-time"]),
    ];
    texts.forEach((text, index) => setText(this.values[index], text));
  }
}
