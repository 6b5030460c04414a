// @ts-check
/** The plan: a drawing of the chains, and the JSON that Flink's plan visualizer reads. */
import { h, replace, setText } from "../dom.js";
import { copySvg } from "../safe_svg.js";

/**
 * @param {import("./job.js").JobContext} context
 * @param {HTMLElement} outlet
 */
export function show(context, outlet) {
  const drawing = h("div", {
    class: "drawing",
    tabindex: "0",
    role: "group",
    "aria-label": "Drawing of the plan",
  });
  const json = h("pre", { tabindex: "0" });
  const about = h("p", { class: "quiet" });
  const copy = h(
    "button",
    { type: "button", on: { click: () => copyText(json.textContent ?? "", about) } },
    "Copy",
  );
  replace(
    outlet,
    h(
      "section",
      { "aria-labelledby": "plan-title" },
      h("h2", { id: "plan-title" }, "Plan"),
      drawing,
      h("details", {}, h("summary", {}, "As JSON"), h("div", { class: "row" }, copy), json),
      about,
    ),
  );
  load(context, about).then((answer) => {
    if (!answer) return;
    setText(json, JSON.stringify(answer.plan, null, 2));
    const picture = copySvg(answer.svg);
    if (picture) replace(drawing, picture);
    drawing.hidden = !picture;
  });
}

/**
 * @param {import("./job.js").JobContext} context
 * @param {HTMLElement} about
 * @returns {Promise<{plan: object, svg: string} | undefined>}
 */
function load({ connection, api, id, signal }, about) {
  const path = `jobs/${encodeURIComponent(id)}/plan`;
  return connection.persist(
    signal,
    () => api.get(path, signal),
    (sentence) => setText(about, sentence),
  );
}

/** @param {string} text @param {HTMLElement} about */
async function copyText(text, about) {
  try {
    await navigator.clipboard.writeText(text);
    setText(about, "Copied.");
  } catch {
    setText(about, "The browser does not let this page copy; select the text instead.");
  }
}
