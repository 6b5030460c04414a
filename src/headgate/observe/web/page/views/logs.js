// @ts-check
/** Log lines of the job from all its processes, as they come. */
import { h, replace, setText } from "../dom.js";
import { clock, exact } from "../format.js";
import { pause } from "../connection.js";

const EVERY_MS = 1500;
const KEPT = 2000;
const LEVELS = ["DEBUG", "INFO", "WARNING", "ERROR"];

/** @typedef {import("../api_types.js").LogLine} LogLine */

/**
 * @param {import("./job.js").JobContext} context
 * @param {HTMLElement} outlet
 */
export function show(context, outlet) {
  const view = new LogView();
  replace(
    outlet,
    h(
      "section",
      { "aria-labelledby": "logs-title" },
      h("h2", { id: "logs-title" }, "Logs"),
      view.controls,
      view.list,
      view.about,
    ),
  );
  view.follow(context);
}

class LogView {
  constructor() {
    const redraw = () => this.#filter();
    this.level = h(
      "select",
      { id: "log-level", on: { change: redraw } },
      ...LEVELS.map((level) => h("option", { value: level }, level.toLowerCase())),
    );
    this.level.value = "INFO";
    this.pattern = h("input", { id: "log-pattern", type: "search", on: { input: redraw } });
    this.follows = h("input", { id: "log-follow", type: "checkbox", checked: true });
    this.controls = h(
      "div",
      { class: "row" },
      h("label", { for: "log-level" }, "From level"),
      this.level,
      h("label", { for: "log-pattern" }, "Containing"),
      this.pattern,
      h("label", { class: "check" }, this.follows, " Follow"),
    );
    this.list = h("ol", { class: "log", tabindex: "0", "aria-label": "Log lines" });
    this.about = h("p", { class: "quiet" });
    /** @type {WeakMap<Element, LogLine>} */
    this.lines = new WeakMap();
  }

  /** @param {import("./job.js").JobContext} context */
  async follow({ connection, api, id, signal, runs }) {
    let after = 0;
    do {
      const path = `jobs/${encodeURIComponent(id)}/logs?after=${after}&limit=1000`;
      const answer = await connection.persist(
        signal,
        () => api.get(path, signal),
        (sentence) => setText(this.about, sentence),
      );
      if (!answer) return;
      after = answer.next;
      this.#append(answer.lines);
      if (answer.lines.length < 1000) await pause(EVERY_MS, signal);
    } while (runs() && !signal.aborted);
  }

  /** @param {LogLine[]} lines */
  #append(lines) {
    this.list.append(...lines.map((line) => this.#make(line)));
    while (this.list.childElementCount > KEPT) this.list.firstElementChild?.remove();
    const number = this.list.childElementCount;
    setText(
      this.about,
      number
        ? `${exact(number)} lines${number === KEPT ? ", the last of them" : ""}.`
        : "No line yet.",
    );
    if (lines.length && this.follows.checked) this.list.scrollTop = this.list.scrollHeight;
  }

  /** @param {LogLine} line */
  #make(line) {
    const where = line.task
      ? `${line.task}${line.subtask >= 0 ? ` [${line.subtask}]` : ""}`
      : line.host;
    const item = h(
      "li",
      { class: line.level.toLowerCase() },
      h("time", {}, clock(line["at-ms"])),
      h("span", { class: "level" }, line.level),
      h("span", { class: "where", title: `${line.host} ${line.logger}` }, where),
      h("span", { class: "message" }, line.message),
      line.traceback && h("pre", {}, line.traceback),
    );
    this.lines.set(item, line);
    item.hidden = !this.#passes(line);
    return item;
  }

  #filter() {
    for (const item of /** @type {HTMLCollectionOf<HTMLElement>} */ (this.list.children)) {
      const line = this.lines.get(item);
      item.hidden = line !== undefined && !this.#passes(line);
    }
  }

  /** @param {LogLine} line */
  #passes(line) {
    const pattern = this.pattern.value.toLowerCase();
    const rank = LEVELS.indexOf(line.level);
    const text = `${line.message} ${line.task} ${line.logger} ${line.host} ${line.traceback}`;
    return (
      (rank < 0 || rank >= LEVELS.indexOf(this.level.value)) && text.toLowerCase().includes(pattern)
    );
  }
}
