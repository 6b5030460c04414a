// @ts-check
/** Savepoint, stop and cancel: each asks first, and says afterwards what has become of it. */
import { pause } from "../connection.js";
import { announce, h, replace, setText } from "../dom.js";

/** @typedef {import("./job.js").JobContext} JobContext */

/**
 * @typedef {{
 *   title: string, does: string, verb: string, isDangerous?: boolean,
 *   fields?: HTMLElement[], run: () => Promise<string>,
 * }} Question `run` answers with what has happened, in a sentence
 */

/** @param {JobContext} context */
export function makeActions(context) {
  const { features } = context.config;
  const result = h("p", { class: "result", role: "status" });
  /** @param {string} text @param {() => Question} question */
  const button = (text, question) =>
    h("button", { type: "button", on: { click: () => ask(question(), result) } }, text);
  const savepoint = button("Savepoint…", () => askSavepoint(context));
  const stop = button("Stop…", () => askStop(context));
  const cancel = button("Cancel…", () => askCancel(context));
  cancel.classList.add("danger");
  const enable = () => {
    const runs = context.runs() && context.job.value !== null;
    savepoint.disabled = stop.disabled = !(runs && features["web-savepoint"]);
    cancel.disabled = !(runs && features["web-cancel"]);
    if (!features["web-cancel"]) cancel.title = "Cancelling from the page is turned off";
    if (!features["web-savepoint"])
      savepoint.title = stop.title = "Savepoints from the page are turned off";
  };
  context.job.watch(enable, context.signal);
  return h("div", { class: "actions" }, savepoint, stop, cancel, result);
}

/** @param {JobContext} context @returns {Question} */
function askCancel(context) {
  return {
    title: "Cancel the job?",
    does: `${nameOf(context)} will end at once, without a savepoint. What its sinks have not committed is lost.`,
    verb: "Cancel the job",
    isDangerous: true,
    run: async () => {
      await context.api.send("PATCH", `${pathOf(context)}?mode=cancel`);
      return "The job is being cancelled.";
    },
  };
}

/** @param {JobContext} context @returns {Question} */
function askSavepoint(context) {
  const directory = makeDirectory();
  return {
    title: "Take a savepoint?",
    does: `${nameOf(context)} goes on while its state is written.`,
    verb: "Take a savepoint",
    fields: [directory.field],
    run: () => takeSavepoint(context, "savepoints", { "cancel-job": false, ...directory.read() }),
  };
}

/** @param {JobContext} context @returns {Question} */
function askStop(context) {
  const directory = makeDirectory();
  const drain = h("input", { type: "checkbox", id: "drain" });
  return {
    title: "Stop the job with a savepoint?",
    does: `${nameOf(context)} writes its state and ends. It can go on from there later.`,
    verb: "Stop the job",
    isDangerous: true,
    fields: [
      directory.field,
      h(
        "label",
        { class: "check" },
        drain,
        " Drain: fire all timers and windows first (it will not go on later)",
      ),
    ],
    run: () => takeSavepoint(context, "stop", { drain: drain.checked, ...directory.read() }),
  };
}

function makeDirectory() {
  const input = h("input", {
    id: "directory",
    type: "text",
    autocomplete: "off",
    spellcheck: "false",
  });
  const field = h(
    "div",
    { class: "field" },
    h("label", { for: "directory" }, "Directory (empty: as configured)"),
    input,
  );
  const read = () => (input.value.trim() ? { "target-directory": input.value.trim() } : {});
  return { field, read };
}

/**
 * @param {JobContext} context
 * @param {"savepoints" | "stop"} how
 * @param {object} body
 */
async function takeSavepoint(context, how, body) {
  const { api, signal } = context;
  const { "request-id": request } = await api.send("POST", `${pathOf(context)}/${how}`, body);
  for (;;) {
    const answer = await api.get(
      `${pathOf(context)}/savepoints/${encodeURIComponent(request)}`,
      signal,
    );
    if (answer.status.id !== "IN_PROGRESS") {
      const { location, "failure-cause": cause } = answer.operation ?? {};
      if (location) return `The savepoint is in ${location}`;
      throw new Error(causeText(cause));
    }
    await pause(500, signal);
  }
}

/** @param {any} cause */
const causeText = (cause) =>
  typeof cause === "string"
    ? cause
    : (cause?.message ?? cause?.["stack-trace"] ?? "The savepoint has failed.");

/** @param {JobContext} context */
const pathOf = ({ id }) => `jobs/${encodeURIComponent(id)}`;

/** @param {JobContext} context */
const nameOf = ({ job, id }) => job.value?.name ?? id;

/**
 * @param {Question} question
 * @param {HTMLElement} result
 */
function ask(question, result) {
  const problem = h("p", { class: "problem", role: "alert" });
  const close = h("button", { type: "button", on: { click: () => dialog.close() } }, "Not now");
  const go = h(
    "button",
    { type: "submit", class: question.isDangerous ? "danger solid" : "primary" },
    question.verb,
  );
  const submit = async (/** @type {Event} */ event) => {
    event.preventDefault();
    go.disabled = true;
    setText(problem, "");
    try {
      setText(go, "Working…");
      const sentence = await question.run();
      setText(result, sentence);
      dialog.close();
    } catch (error) {
      setText(problem, error instanceof Error ? error.message : String(error));
      announce(problem.textContent ?? "");
      go.disabled = false;
      setText(go, question.verb);
    }
  };
  const dialog = h("dialog", { "aria-labelledby": "question" });
  replace(
    dialog,
    h(
      "form",
      { on: { submit } },
      h("h2", { id: "question" }, question.title),
      h("p", {}, question.does),
      ...(question.fields ?? []),
      problem,
      h("div", { class: "row end" }, close, go),
    ),
  );
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}
