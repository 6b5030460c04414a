// @ts-check
/** The settings that the job runs with; the driver leaves secrets out. */
import { DataTable } from "../data_table.js";
import { h, replace, setText } from "../dom.js";

/**
 * @param {import("./job.js").JobContext} context
 * @param {HTMLElement} outlet
 */
export function show(context, outlet) {
  const about = h("p", { class: "quiet" }, "Settings that are not listed have their defaults.");
  const pattern = h("input", { id: "setting", type: "search" });
  /** @type {DataTable<[string, string]>} */
  const table = new DataTable({
    label: "Configuration",
    keyOf: ([key]) => key,
    empty: "No setting differs from its default.",
    sortBy: 0,
    columns: [
      {
        title: "Setting",
        sort: ([key]) => key,
        make: () => h("code"),
        fill: (code, [key]) => setText(code, key),
      },
      {
        title: "Value",
        wide: true,
        make: () => h("code"),
        fill: (code, [, value]) => setText(code, value),
      },
    ],
  });
  replace(
    outlet,
    h(
      "section",
      { "aria-labelledby": "config-title" },
      h("h2", { id: "config-title" }, "Configuration"),
      h("div", { class: "row" }, h("label", { for: "setting" }, "Containing"), pattern),
      table.element,
      about,
    ),
  );
  load(context, about).then((settings) => {
    const draw = () =>
      table.show(
        settings.filter((pair) =>
          pair.join(" ").toLowerCase().includes(pattern.value.toLowerCase()),
        ),
      );
    pattern.addEventListener("input", draw);
    draw();
  });
}

/**
 * @param {import("./job.js").JobContext} context
 * @param {HTMLElement} about
 * @returns {Promise<[string, string][]>}
 */
async function load({ connection, api, id, signal }, about) {
  const path = `jobs/${encodeURIComponent(id)}/config`;
  const answer = await connection.persist(
    signal,
    () => api.get(path, signal),
    (sentence) => setText(about, sentence),
  );
  return Object.entries(answer?.settings ?? {});
}
