// @ts-check
import { h, replace } from "./dom.js";
import { href } from "./router.js";

/**
 * The way from the list of jobs to here.
 *
 * @param {string} [job]
 * @param {string} [id]
 */
export function crumb(job, id) {
  const crumbs = /** @type {HTMLElement} */ (document.getElementById("crumbs"));
  const steps = [h("a", { href: href("jobs"), "aria-current": job ? null : "page" }, "Jobs")];
  if (job && id) steps.push(h("a", { href: href("jobs", id), "aria-current": "page" }, job));
  replace(crumbs, h("ol", {}, ...steps.map((step) => h("li", {}, step))));
  document.title = job ? `${job} – Headgate` : "Headgate";
}
