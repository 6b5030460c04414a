// @ts-check
/** A vertex below the graph: what it is made of, and tabs for its subtasks, channels and so on. */
import { h, replace, setAttribute, setText } from "../dom.js";
import { exact, plural } from "../format.js";
import { href } from "../router.js";

/** @typedef {import("../api_types.js").Vertex & {subtasks: import("../api_types.js").Subtask[]}} VertexDetails */
/**
 * @typedef {import("./job.js").JobContext & {
 *   vertex: string,
 *   path: string,
 *   subtask: {value: number},
 *   problem: (sentence: string) => void,
 * }} VertexContext `subtask`: the chosen one, the same in all tabs; `path`: of the vertex in the API
 */

/** A tab is loaded when it is first opened. */
const TABS = /** @type {const} */ ([
  ["subtasks", "Subtasks"],
  ["channels", "Channels"],
  ["watermarks", "Watermarks"],
  ["flamegraph", "Flame graph"],
  ["waiting", "Waiting records"],
]);

export class VertexView {
  /**
   * @param {import("./job.js").JobContext} context
   * @param {HTMLElement} outlet
   * @param {import("../router.js").Route} route
   */
  constructor(context, outlet, route) {
    const path = `jobs/${encodeURIComponent(context.id)}/vertices/${encodeURIComponent(route.item)}`;
    this.problem = h("p", { class: "notice bad", hidden: true });
    /** @type {VertexContext} */
    this.context = {
      ...context,
      vertex: route.item,
      path,
      subtask: { value: 0 },
      problem: (sentence) => this.#complain(sentence),
    };
    this.name = h("h2", { id: "vertex-title", tabindex: "-1" });
    this.facts = h("p", { class: "quiet" });
    this.operators = h("ol", { class: "operators", "aria-label": "Operators of the chain" });
    this.tabs = h(
      "nav",
      { class: "tabs", "aria-label": "Views of the vertex" },
      ...TABS.map(([tab, title]) =>
        h("a", { href: href("jobs", context.id, "graph", route.item, tab), data: { tab } }, title),
      ),
    );
    this.outlet = h("div", { class: "vertex-tab" });
    this.tab = "";
    this.shown = new AbortController();
    context.signal.addEventListener("abort", () => this.shown.abort(), { once: true });
    const section = h(
      "section",
      { class: "vertex card", "aria-labelledby": "vertex-title" },
      h(
        "div",
        { class: "section-head" },
        this.name,
        h("a", { href: href("jobs", context.id, "graph") }, "All vertices"),
      ),
      this.facts,
      this.operators,
      this.tabs,
      this.problem,
      this.outlet,
    );
    replace(outlet, section);
    context.job.watch((job) => job && this.#update(job), context.signal);
    this.route(route);
    this.name.focus({ preventScroll: true });
    section.scrollIntoView({ block: "nearest" });
  }

  /** @param {import("../router.js").Route} route */
  async route(route) {
    const tab = route.tab || "subtasks";
    for (const link of this.tabs.querySelectorAll("a")) {
      setAttribute(link, "aria-current", link.dataset.tab === tab ? "page" : null);
    }
    if (tab === this.tab || !TABS.some(([known]) => known === tab)) return;
    this.tab = tab;
    this.shown.abort();
    this.shown = new AbortController();
    const { signal } = this.shown;
    this.problem.hidden = true;
    replace(this.outlet);
    const { show } = await import(`./${tab}.js`);
    if (!signal.aborted) show({ ...this.context, signal }, this.outlet);
  }

  /** @param {import("../api_types.js").Job} job */
  #update(job) {
    const vertex = job.vertices.find(({ id }) => id === this.context.vertex);
    if (!vertex) {
      setText(this.name, "No such vertex");
      this.#complain(`${job.name} has no vertex ${this.context.vertex}.`);
      return;
    }
    setText(this.name, vertex.name);
    const group = vertex["slot-sharing-group"];
    setText(
      this.facts,
      [
        plural(vertex.parallelism, "subtask"),
        `at most ${exact(vertex["max-parallelism"])}`,
        group && group !== "default" ? `slot sharing group ${group}` : "",
        `${exact(vertex.metrics["read-records"])} records in`,
        `${exact(vertex.metrics["write-records"])} out`,
      ]
        .filter(Boolean)
        .join(" · "),
    );
    const chain = vertex.operators.map(
      ({ name, ...counts }) =>
        `${name} (${exact(counts["records-in"])} in, ${exact(counts["records-out"])} out${leftOut(counts)})`,
    );
    if (vertex.operators.length !== this.operators.childElementCount) {
      replace(this.operators, ...chain.map(() => h("li")));
    }
    chain.forEach((text, index) => setText(this.operators.children[index], text));
  }

  /** @param {string} sentence nothing: all is well again */
  #complain(sentence) {
    setText(this.problem, sentence);
    this.problem.hidden = !sentence;
  }
}

/**
 * Follows the vertex with all its subtasks.
 *
 * @param {VertexContext} context
 * @param {(details: VertexDetails) => void} onDetails
 */
export function followVertex({ connection, config, signal, path, problem, runs }, onDetails) {
  connection.poll(path, {
    everyMs: config["refresh-interval"],
    signal,
    goesOn: runs,
    onAnswer: (details) => {
      problem("");
      onDetails(details);
    },
    onRefused: problem,
  });
}

/**
 * A field for the subtask that a tab is about.
 *
 * @param {VertexContext} context
 * @param {() => void} onChanged
 */
export function makeSubtaskField({ job, vertex, subtask }, onChanged) {
  const parallelism = job.value?.vertices.find(({ id }) => id === vertex)?.parallelism ?? 1;
  const input = h("input", {
    type: "number",
    min: "0",
    max: String(parallelism - 1),
    class: "short",
  });
  input.value = String(Math.min(subtask.value, parallelism - 1));
  input.addEventListener("change", () => {
    const wanted = Math.round(Number(input.value)) || 0;
    subtask.value = Math.max(0, Math.min(parallelism - 1, wanted));
    input.value = String(subtask.value);
    onChanged();
  });
  return h("label", {}, `Subtask (0 to ${parallelism - 1}) `, input);
}

/**
 * What an operator has not passed on, because it failed or came too late; nothing if there was none.
 * @param {{"records-skipped"?: number, "dead-letters"?: number, "late-records-dropped"?: number}} counts
 */
function leftOut(counts) {
  const { "records-skipped": skipped = 0, "dead-letters": letters = 0 } = counts;
  const late = counts["late-records-dropped"] ?? 0;
  return (
    (late ? `, ${exact(late)} too late` : "") +
    (skipped ? `, ${exact(skipped)} skipped` : "") +
    (letters ? `, ${exact(letters)} dead letters` : "")
  );
}
