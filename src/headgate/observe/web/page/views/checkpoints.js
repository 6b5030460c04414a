// @ts-check
/** Checkpoints and savepoints: how many, how long, how large, and where the time of each went. */
import { DataTable } from "../data_table.js";
import { h, replace, setAttribute, setText } from "../dom.js";
import { bytes, duration, exact, moment } from "../format.js";
import { href } from "../router.js";
import { fillBadge, makeBadge } from "./badge.js";

const EVERY_MS = 2000;

/** @typedef {import("../api_types.js").Checkpoint} Checkpoint */
/** @typedef {import("../api_types.js").CheckpointPart} Part */
/** @typedef {import("./job.js").JobContext} JobContext */

/**
 * @param {JobContext} context
 * @param {HTMLElement} outlet
 */
export function show(context, outlet) {
  const { connection, id, signal, runs } = context;
  const counts = h("p", { class: "quiet" });
  const restored = h("p", { hidden: true });
  const history = makeHistory(id);
  const details = new Details(context);
  const problem = h("p", { class: "notice bad", hidden: true });
  replace(
    outlet,
    h(
      "section",
      { "aria-labelledby": "checkpoints-title" },
      h("h2", { id: "checkpoints-title" }, "Checkpoints and savepoints"),
      problem,
      counts,
      restored,
      history.element,
    ),
    details.element,
  );
  connection.poll(`jobs/${encodeURIComponent(id)}/checkpoints`, {
    everyMs: EVERY_MS,
    signal,
    goesOn: runs,
    onAnswer: (answer) => {
      const { triggered, completed, failed, "in-progress": running } = answer.counts;
      setText(
        counts,
        `${exact(triggered)} triggered, ${exact(completed)} completed, ${exact(failed)} failed, ${exact(running)} in progress.`,
      );
      restored.hidden = !answer["restored-from"];
      setText(restored, `This attempt goes on from ${answer["restored-from"]}`);
      history.show(answer.history);
      details.refresh(answer.history);
    },
    onRefused: (sentence) => {
      setText(problem, sentence);
      problem.hidden = false;
    },
  });
  return {
    route: (/** @type {import("../router.js").Route} */ route) => details.choose(route.item),
  };
}

/** @param {string} id @returns {DataTable<Checkpoint>} */
function makeHistory(id) {
  return new DataTable({
    label: "Checkpoints and savepoints",
    keyOf: (row) => String(row.checkpoint),
    empty: "No checkpoint has been triggered yet.",
    columns: [
      {
        title: "Number",
        make: () => h("a"),
        fill: (link, row) => {
          setAttribute(link, "href", href("jobs", id, "checkpoints", row.checkpoint));
          setText(link, `${row.kind} ${row.checkpoint}`);
        },
      },
      { title: "Status", make: makeBadge, fill: (badge, row) => fillBadge(badge, row.status) },
      { title: "Triggered", text: (row) => moment(row["triggered-at-ms"]) },
      {
        title: "Took",
        numeric: true,
        sort: (row) => row["took-ms"],
        text: (row) => duration(row["took-ms"]),
      },
      {
        title: "State",
        numeric: true,
        sort: (row) => row["state-bytes"],
        text: (row) => bytes(row["state-bytes"]),
      },
      {
        title: "In flight",
        numeric: true,
        hint: "Records that barriers have overtaken",
        sort: (row) => row["in-flight-bytes"],
        text: (row) => bytes(row["in-flight-bytes"]),
      },
      { title: "Barriers", text: (row) => (row.unaligned ? "unaligned" : "aligned") },
      { title: "Where, or why not", wide: true, text: (row) => row.problem || row.path || "–" },
    ],
  });
}

/** One checkpoint with the parts of its tasks. */
class Details {
  /** @param {JobContext} context */
  constructor(context) {
    this.context = context;
    this.chosen = "";
    this.known = "";
    this.title = h("h2", { id: "parts-title" });
    this.summary = h("p", { class: "quiet" });
    this.parts = makeParts(context);
    this.element = h(
      "section",
      { class: "card", "aria-labelledby": "parts-title", hidden: true },
      h(
        "div",
        { class: "section-head" },
        this.title,
        h("a", { href: href("jobs", context.id, "checkpoints") }, "Close"),
      ),
      this.summary,
      makeLegend(),
      this.parts.element,
    );
  }

  /** @param {string} number */
  choose(number) {
    this.chosen = number;
    this.known = "";
    this.element.hidden = !number;
    setText(this.title, `Parts of checkpoint ${number}`);
    if (number) this.#load();
  }

  /** Loads it again if it has changed since. @param {Checkpoint[]} history */
  refresh(history) {
    const row = history.find(({ checkpoint }) => String(checkpoint) === this.chosen);
    if (!row) return;
    const now = `${row.status} ${row["took-ms"]}`;
    if (now !== this.known) this.#load();
    this.known = now;
  }

  async #load() {
    const { connection, api, id, signal } = this.context;
    const wanted = this.chosen;
    const path = `jobs/${encodeURIComponent(id)}/checkpoints/details/${encodeURIComponent(wanted)}`;
    /** @type {Checkpoint | undefined} */
    const found = await connection.persist(
      signal,
      () => api.get(path, signal),
      (sentence) => {
        setText(this.summary, sentence);
        this.parts.show([]);
      },
    );
    if (!found || wanted !== this.chosen) return;
    setText(this.title, `Parts of ${found.kind} ${found.checkpoint}`);
    setText(
      this.summary,
      `${found.parts.length} of ${found.tasks} tasks have answered.${found.problem ? ` ${found.problem}` : ""}`,
    );
    this.parts.show(found.parts);
  }
}

function makeLegend() {
  return h(
    "ul",
    { class: "legend" },
    ...["wait for the barrier", "align", "sync", "async"].map((name, index) =>
      h("li", {}, h("span", { class: `swatch phase${index}`, "aria-hidden": "true" }), name),
    ),
  );
}

/** @param {JobContext} context @returns {DataTable<Part>} */
function makeParts(context) {
  /** @param {Part} part */
  const nameOf = (part) => context.job.value?.vertices[part.vertex]?.name ?? part.task;
  /** @type {Part[]} */
  let all = [];
  const table = new DataTable({
    label: "Parts of the checkpoint",
    keyOf: (/** @type {Part} */ part) => part.task,
    empty: "No task has answered yet.",
    sortBy: 2,
    descending: true,
    columns: [
      { title: "Vertex", sort: nameOf, text: nameOf },
      {
        title: "Subtask",
        numeric: true,
        sort: (part) => part.subtask,
        text: (part) => String(part.subtask),
      },
      {
        title: "Took",
        numeric: true,
        sort: (part) => part["took-ms"],
        text: (part) => duration(part["took-ms"]),
      },
      {
        title: "Phases",
        make: makePhases,
        fill: (bar, part) =>
          fillPhases(bar, part, Math.max(...table.rows.map((row) => row["took-ms"]))),
      },
      {
        title: "Align",
        numeric: true,
        sort: (part) => part["align-ms"],
        text: (part) => duration(part["align-ms"]),
      },
      {
        title: "Sync",
        numeric: true,
        sort: (part) => part["sync-ms"],
        text: (part) => duration(part["sync-ms"]),
      },
      {
        title: "Async",
        numeric: true,
        sort: (part) => part["async-ms"],
        text: (part) => duration(part["async-ms"]),
      },
      {
        title: "State",
        numeric: true,
        sort: (part) => part["state-bytes"],
        text: (part) => bytes(part["state-bytes"]),
      },
      {
        title: "In flight",
        numeric: true,
        sort: (part) => part["in-flight-bytes"],
        text: (part) => bytes(part["in-flight-bytes"]),
      },
      { title: "Barriers", text: (part) => (part.unaligned ? "unaligned" : "aligned") },
    ],
  });
  return table;
}

/** @returns {HTMLElement} */
const makePhases = () =>
  h(
    "span",
    { class: "phases", role: "img" },
    ...[0, 1, 2, 3].map((phase) => h("span", { class: `phase${phase}` })),
  );

/** @param {HTMLElement} bar @param {Part} part @param {number} longest */
function fillPhases(bar, part, longest) {
  const known = [part["align-ms"], part["sync-ms"], part["async-ms"]];
  const before = Math.max(0, part["took-ms"] - known.reduce((sum, ms) => sum + Math.max(0, ms), 0));
  [before, ...known].forEach((ms, index) => {
    /** @type {HTMLElement} */ (bar.children[index]).style.width =
      `${(100 * Math.max(0, ms)) / Math.max(1, longest)}%`;
  });
  setAttribute(
    bar,
    "aria-label",
    `wait ${duration(before)}, align ${duration(known[0])}, sync ${duration(known[1])}, async ${duration(known[2])}`,
  );
}
