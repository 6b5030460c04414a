// @ts-check
/** Where the time of a vertex goes: samples its stacks when asked, and draws them. */
import { h, replace, setText } from "../dom.js";
import { duration, exact } from "../format.js";
import { FlameGraph } from "../flame.js";

const KINDS = { full: "All samples", on_cpu: "On CPU", off_cpu: "Waiting (off CPU)" };

/**
 * @param {import("./vertex.js").VertexContext} context
 * @param {HTMLElement} outlet
 */
export function show(context, outlet) {
  const flame = new FlameGraph(context.signal);
  const about = h("p", { class: "quiet" }, "Press Sample to see where the time goes; nothing is sampled before.");
  const subtask = h(
    "select",
    { id: "flame-subtask" },
    h("option", { value: "all" }, "all subtasks"),
    h("option", { value: String(context.subtask.value) }, `subtask ${context.subtask.value}`),
  );
  const kind = h(
    "select",
    { id: "flame-kind" },
    ...Object.entries(KINDS).map(([value, title]) => h("option", { value }, title)),
  );
  const seconds = h(
    "select",
    { id: "flame-seconds" },
    ...[2, 5, 10, 30].map((value) => h("option", { value: String(value) }, `${value} s`)),
  );
  const search = h("input", {
    id: "flame-search",
    type: "search",
    on: { input: () => flame.search(search.value) },
  });
  const button = h(
    "button",
    { type: "button", class: "primary", on: { click: () => sample() } },
    "Sample",
  );
  const sample = async () => {
    const { connection, api, path, signal, problem } = context;
    button.disabled = true;
    setText(button, "Sampling…");
    const question = `${path}/flamegraph?subtask=${subtask.value}&seconds=${seconds.value}&type=${kind.value}`;
    const answer = await connection.persist(signal, () => api.get(question, signal), problem);
    button.disabled = false;
    setText(button, "Sample again");
    if (!answer) return;
    problem("");
    setText(
      about,
      `${exact(answer.samples)} samples in ${duration(answer["wall-ms"])}; ` +
        `${duration(answer["cpu-ms"])} of it on a CPU.`,
    );
    flame.show(answer.data);
  };
  replace(
    outlet,
    h(
      "div",
      { class: "row" },
      h("label", { for: "flame-subtask" }, "Of"),
      subtask,
      h("label", { for: "flame-kind" }, "Show"),
      kind,
      h("label", { for: "flame-seconds" }, "For"),
      seconds,
      button,
      h("label", { for: "flame-search" }, "Find"),
      search,
    ),
    about,
    flame.element,
  );
  if (!context.runs()) {
    button.disabled = true;
    setText(about, "The job has ended: there is nothing to sample.");
  }
}
