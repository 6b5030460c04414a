// @ts-check
/** The watermarks of each subtask, and how far they are behind the clock. */
import { DataTable } from "../data_table.js";
import { replace } from "../dom.js";
import { duration, moment } from "../format.js";
import { followVertex } from "./vertex.js";

/**
 * @param {import("./vertex.js").VertexContext} context
 * @param {HTMLElement} outlet
 */
export function show(context, outlet) {
  /** @type {DataTable<import("../api_types.js").Subtask>} */
  const table = new DataTable({
    label: "Watermarks",
    keyOf: (row) => String(row.subtask),
    empty: "No subtask has reported yet.",
    sortBy: 0,
    columns: [
      {
        title: "Subtask",
        numeric: true,
        sort: (row) => row.subtask,
        text: (row) => String(row.subtask),
      },
      {
        title: "Watermark",
        sort: (row) => row.watermark ?? NaN,
        text: (row) => timeOf(row.watermark),
      },
      {
        title: "Lag",
        numeric: true,
        sort: (row) => row["watermark-lag-ms"] ?? NaN,
        text: (row) => duration(row["watermark-lag-ms"]),
      },
      {
        title: "By input",
        wide: true,
        text: (row) =>
          row["input-watermarks"].map((mark, gate) => `${gate}: ${timeOf(mark)}`).join(", ") || "–",
      },
    ],
  });
  replace(outlet, table.element);
  followVertex(context, ({ subtasks }) => table.show(subtasks));
}

/** Event time can be any number; what is no date is shown as it is. @param {number | null} mark */
function timeOf(mark) {
  if (mark === null) return "none yet";
  return Math.abs(mark) > 8.64e15 ? "end of time" : mark < 86_400_000 ? String(mark) : moment(mark);
}
