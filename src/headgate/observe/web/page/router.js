// @ts-check
/**
 * The address of what is shown, in the fragment: a link can be sent, and Back works.
 *
 *     #/                                  the only job, or the list
 *     #/jobs                              the list, ended jobs included
 *     #/jobs/JOB/VIEW                     graph, history, checkpoints …
 *     #/jobs/JOB/graph/VERTEX/TAB         a vertex below the graph
 *     #/jobs/JOB/checkpoints/NUMBER       a checkpoint's parts
 */

/** @typedef {{place: "start" | "jobs" | "job", job: string, view: string, item: string, tab: string}} Route */

/**
 * @param {string} hash
 * @returns {Route}
 */
export function parse(hash) {
  const parts = hash.replace(/^#\/?/, "").split("/").map(decode);
  const [place = "", job = "", view = "", item = "", tab = ""] = parts;
  if (place !== "jobs") return { place: "start", job: "", view: "", item: "", tab: "" };
  if (!job) return { place: "jobs", job: "", view: "", item: "", tab: "" };
  return { place: "job", job, view: view || "graph", item, tab };
}

/** @param {string} part */
function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part; // a stray per cent sign
  }
}

/**
 * The address of something: `href("jobs", id, "graph")`.
 *
 * @param {...(string | number)} parts
 */
export const href = (...parts) => `#/${parts.map((part) => encodeURIComponent(part)).join("/")}`;

/**
 * Takes the token out of `#token=…&path=/jobs/JOB`, so that it is neither shown nor kept in the
 * history of the browser.
 *
 * @returns {string} the token, or nothing
 */
export function takeToken() {
  const found = /^#token=([^&]*)(?:&path=(\/.*))?$/.exec(location.hash);
  if (!found) return "";
  history.replaceState(null, "", `#${found[2] ?? "/"}`);
  return decode(found[1]);
}
