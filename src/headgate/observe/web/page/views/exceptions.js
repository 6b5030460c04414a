// @ts-check
/** Failures, newest first, each with its root cause first. */
import { h, reconcile, replace, setText } from "../dom.js";
import { moment } from "../format.js";

const EVERY_MS = 3000;

/** @typedef {import("../api_types.js").Failure} Failure */

/**
 * @param {import("./job.js").JobContext} context
 * @param {HTMLElement} outlet
 */
export function show({ connection, id, signal, runs, job }, outlet) {
  const about = h("p", { class: "quiet" }, "…");
  const list = h("ol", { class: "failures" });
  replace(
    outlet,
    h(
      "section",
      { "aria-labelledby": "exceptions-title" },
      h("h2", { id: "exceptions-title" }, "Exceptions"),
      about,
      list,
    ),
  );
  connection.poll(`jobs/${encodeURIComponent(id)}/exceptions`, {
    everyMs: EVERY_MS,
    signal,
    goesOn: runs,
    onAnswer: (
      /** @type {{exceptions: Failure[], truncated: boolean}} */ { exceptions, truncated },
    ) => {
      setText(about, describe(exceptions.length, truncated));
      reconcile(
        list,
        exceptions,
        (failure) => `${failure["at-ms"]} ${failure.attempt} ${failure.task}`,
        (failure) => makeFailure(failure, job.value?.vertices[failure.vertex]?.name ?? ""),
        () => {},
      );
    },
    onRefused: (sentence) => setText(about, sentence),
  });
}

/** @param {number} count @param {boolean} truncated */
function describe(count, truncated) {
  if (!count) return "Nothing has failed.";
  return truncated
    ? `The last ${count}; older ones are not kept.`
    : `${count} in all, newest first.`;
}

/** @param {Failure} failure @param {string} vertex */
function makeFailure(failure, vertex) {
  const facts = [
    ["When", moment(failure["at-ms"])],
    ["Attempt", `${failure.attempt}${failure.restarted ? ", the job went on after it" : ""}`],
    ["Vertex", vertex && failure.subtask >= 0 ? `${vertex}, subtask ${failure.subtask}` : vertex],
    ["Operator", failure.operator],
    ["Record", failure.record],
    ["Task manager", failure.host],
  ].filter(([, value]) => value);
  return h(
    "li",
    { class: "card" },
    h("h3", {}, `${failure.kind.split(".").pop()}: `, failure.message),
    h(
      "dl",
      { class: "pairs" },
      ...facts.flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]),
    ),
    failure.traceback &&
      h(
        "details",
        {},
        h("summary", {}, "Traceback"),
        h("pre", { tabindex: "0" }, failure.traceback),
      ),
  );
}
