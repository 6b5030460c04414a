// @ts-check
/** The state of a job, checkpoint or task: a word, and a colour beside it. */
import { h, setText } from "../dom.js";

/** @type {Record<string, string>} */
const TONES = {
  RUNNING: "good",
  FINISHED: "done",
  COMPLETED: "good",
  FAILED: "bad",
  FAILING: "bad",
  RESTARTING: "warn",
  CANCELLING: "warn",
  CANCELED: "done",
  CANCELLED: "done",
  IN_PROGRESS: "warn",
};

export const ENDED = new Set(["FINISHED", "FAILED", "CANCELED"]);

/** @returns {HTMLElement} */
export const makeBadge = () => h("span", { class: "badge" });

/** @param {HTMLElement} badge @param {string} state */
export function fillBadge(badge, state) {
  const name = state.toUpperCase();
  setText(badge, name.toLowerCase().replaceAll("_", " "));
  badge.dataset.tone = TONES[name] ?? "plain";
}
