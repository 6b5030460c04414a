// @ts-check
/**
 * What limits the job: the quick answer is live; the full one, which samples stacks and counts keys,
 * is asked for with a button and stays until it is closed or asked for again. Law: while it is open
 * the paragraph is its own, so that there are no two figures for one thing.
 */
import { DataTable } from "../data_table.js";
import { announce, h, replace, setAttribute, setText } from "../dom.js";
import { clock, isKnown, percent, rate } from "../format.js";
import { href } from "../router.js";

const SECONDS = 2;

/** @typedef {import("../api_types.js").Diagnosis} Diagnosis */
/** @typedef {import("../api_types.js").Job} Job */

/** @type {Record<string, string>} */
const CAUSES = {
  unknown: "Cannot say yet",
  skew: "Skew",
  waits: "Waits",
  "async-capacity": "Asynchronous calls",
  "rate-limit": "Rate limit",
  cpu: "Out of CPU",
  state: "State access",
  link: "Network",
  commit: "Commit",
  alternating: "Alternating load",
  busy: "Busy",
  source: "Source",
  none: "Keeps up",
};

export class WhyPanel {
  /** @param {import("./job.js").JobContext} context */
  constructor(context) {
    this.context = context;
    this.title = h("h2", { id: "why-title" }, "What limits this job");
    this.cause = h("span", { class: "badge" });
    this.summary = h("p", { class: "summary" }, "…");
    this.link = h("a", { class: "to-vertex", hidden: true }, "Show the vertex");
    this.button = h("button", { type: "button", on: { click: () => this.#ask() } }, "Full answer");
    this.full = h("div", { class: "full", hidden: true });
    /** @type {Diagnosis | null} */
    this.answer = null;
    /** @type {Job | null} */
    this.job = null;
    this.element = h(
      "section",
      { class: "why card", "aria-labelledby": "why-title" },
      h("div", { class: "why-head" }, this.title, this.cause, this.link, this.button),
      this.summary,
      this.full,
    );
  }

  /** @param {Job} job */
  update(job) {
    this.job = job;
    const why = this.answer ?? job.why;
    this.element.hidden = !why;
    if (!why) return;
    this.element.dataset.cause = why.cause;
    setText(this.cause, CAUSES[why.cause] ?? why.cause);
    this.cause.dataset.tone = toneOf(why.cause);
    setText(this.summary, why.summary || "There are no figures yet.");
    this.link.hidden = why.vertex < 0;
    if (why.vertex >= 0)
      setAttribute(this.link, "href", href("jobs", job.jid, "graph", why.vertex));
    setText(this.title, this.context.runs() ? "What limits this job" : "What limited this job");
  }

  async #ask() {
    const { connection, api, id, signal } = this.context;
    this.button.disabled = true;
    const samples = this.context.runs();
    setText(this.button, samples ? `Sampling for ${SECONDS} s…` : "Asking…");
    const how = samples ? `seconds=${SECONDS}` : "quick=true";
    const path = `jobs/${encodeURIComponent(id)}/why?${how}`;
    const answer = await connection.persist(
      signal,
      () => api.get(path, signal),
      (sentence) => this.#show(h("p", { class: "problem" }, sentence)),
    );
    this.button.disabled = false;
    setText(this.button, "Ask again");
    if (!answer) return;
    this.answer = answer;
    if (this.job) this.update(this.job);
    this.#show(...this.#describe(answer));
  }

  /** @param {...(Node | false | null)} content */
  #show(...content) {
    const close = () => {
      this.full.hidden = true;
      this.answer = null;
      if (this.job) this.update(this.job);
      this.button.focus();
    };
    replace(
      this.full,
      ...content,
      h("button", { type: "button", class: "plain", on: { click: close } }, "Close"),
    );
    this.full.hidden = false;
    announce("The full answer is there.");
  }

  /** @param {Diagnosis} answer */
  #describe(answer) {
    return [
      h("h3", {}, `Full answer of ${clock(Date.now())}`),
      answer.line ? h("p", {}, "Python line: ", h("code", {}, answer.line)) : null,
      this.#describeRates(answer),
      answer.keys.length > 0 && describeKeys(answer.keys),
      answer.evidence.length > 0 &&
        h(
          "div",
          {},
          h("h4", {}, "Evidence"),
          h("ul", {}, ...answer.evidence.map((line) => h("li", {}, line))),
        ),
      answer.advice.length > 0 && makeAdvice(answer),
    ];
  }

  /** @param {Diagnosis} answer */
  #describeRates(answer) {
    if (!isKnown(answer["possible-rate"])) return null;
    const next = this.context.job.value?.vertices.find(
      ({ id }) => id === String(answer["next-vertex"]),
    );
    return h(
      "p",
      {},
      `Now ${rate(answer.rate)} from the sources; without it ${rate(answer["possible-rate"])}`,
      next ? ", then limited by " : ".",
      next && h("a", { href: href("jobs", this.context.id, "graph", next.id) }, next.name),
      next && ".",
    );
  }
}

/** @param {string} cause */
function toneOf(cause) {
  if (cause === "none") return "good";
  return cause === "unknown" || cause === "source" ? "plain" : "bad";
}

/** @param {[string, number][]} keys */
function describeKeys(keys) {
  const rows = keys.map(([key, share]) => {
    const bar = h("span", { class: "meter", "aria-hidden": "true" }, h("span"));
    /** @type {HTMLElement} */ (bar.firstElementChild).style.width = `${100 * Math.min(1, share)}%`;
    return h("li", {}, h("code", {}, key), bar, percent(share));
  });
  return h(
    "div",
    {},
    h("h4", {}, "Hot keys, by their share of the records that wait"),
    h("ol", { class: "keys" }, ...rows),
  );
}

/** @param {Diagnosis} answer */
function makeAdvice(answer) {
  /** @type {DataTable<import("../api_types.js").Advice>} */
  const table = new DataTable({
    label: "Suggested parallelism",
    keyOf: (row) => String(row.vertex),
    empty: "",
    decorate: (element, row) =>
      element.classList.toggle("changed", row.suggested !== row.parallelism),
    columns: [
      { title: "Vertex", text: (row) => row.name },
      { title: "Subtasks", numeric: true, text: (row) => String(row.parallelism) },
      {
        title: "Suggested",
        numeric: true,
        text: (row) => (row.suggested === row.parallelism ? "leave it" : String(row.suggested)),
      },
      { title: "Rate", numeric: true, text: (row) => rate(row.rate) },
      {
        title: "Could take",
        numeric: true,
        hint: "Rate ÷ busy share of its busiest subtask",
        text: (row) => rate(row["true-rate"]),
      },
      {
        title: "Has to take",
        numeric: true,
        hint: "To keep up with the sources",
        text: (row) => rate(row["target-rate"]),
      },
      { title: "Busy (max)", numeric: true, text: (row) => percent(row.busy) },
      { title: "Capped by", text: (row) => row["limited-by"] || "–" },
    ],
  });
  table.show(answer.advice);
  return h("div", {}, h("h4", {}, "Suggested parallelism"), table.element);
}
