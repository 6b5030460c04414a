// @ts-check
/** The subtasks of a vertex: a heat map to find the odd one out, and a table with its figures. */
import { DataTable } from "../data_table.js";
import { h, replace } from "../dom.js";
import { byteRate, bytes, count, duration, exact, percent, rate } from "../format.js";
import { HeatMap } from "../heat.js";
import { fillShareBar, makeShareBar, shareWords } from "../share_bar.js";
import { fillBadge, makeBadge } from "./badge.js";
import { followVertex } from "./vertex.js";

/** @typedef {import("../api_types.js").Subtask} Subtask */

/** @type {Record<string, {title: string, measure: import("../heat.js").Measure<Subtask>}>} */
const MEASURES = {
  activity: { title: "Activity", measure: { shares: (row) => row } },
  in: { title: "Records in per second", measure: { value: (row) => row.rates["in-per-s"] } },
  out: { title: "Records out per second", measure: { value: (row) => row.rates["out-per-s"] } },
  queued: { title: "Buffers that wait", measure: { value: (row) => waiting(row) } },
  lag: { title: "Watermark lag", measure: { value: (row) => row["watermark-lag-ms"] ?? NaN } },
  state: { title: "State size", measure: { value: (row) => row["state-bytes"] ?? NaN } },
};

/**
 * @param {import("./vertex.js").VertexContext} context
 * @param {HTMLElement} outlet
 */
export function show(context, outlet) {
  const table = makeTable((row) => row.subtask === context.subtask.value);
  /** @type {Subtask[]} */
  let rows = [];
  /** @type {HeatMap<Subtask>} */
  const heat = new HeatMap({
    label: "Subtasks",
    signal: context.signal,
    describe: (row) =>
      `Subtask ${row.subtask}: ${shareWords(row)}, ${rate(row.rates["in-per-s"])} in, ${exact(waiting(row))} buffers wait`,
    onChosen: (row) => {
      context.subtask.value = row.subtask;
      draw();
      table.reveal(String(row.subtask));
    },
  });
  const select = h(
    "select",
    { id: "measure", on: { change: () => draw() } },
    ...Object.entries(MEASURES).map(([key, { title }]) => h("option", { value: key }, title)),
  );
  const user = h("div");
  const draw = () => {
    heat.show(
      rows,
      MEASURES[select.value].measure,
      rows.findIndex((row) => row.subtask === context.subtask.value),
    );
    table.show(rows);
    showUserMetrics(user, rows[context.subtask.value]);
    performance.mark("headgate:subtasks", { detail: rows.length });
  };
  replace(
    outlet,
    h("div", { class: "row" }, h("label", { for: "measure" }, "Colour shows"), select),
    heat.element,
    table.element,
    user,
  );
  followVertex(context, (details) => {
    rows = details.subtasks;
    draw();
  });
}

/** @param {Subtask} row */
const waiting = (row) => row["queued-in"] + row.gates.reduce((sum, gate) => sum + gate.backlog, 0);

/** @param {(row: Subtask) => boolean} isChosen @returns {DataTable<Subtask>} */
function makeTable(isChosen) {
  return new DataTable({
    label: "Subtasks",
    keyOf: (row) => String(row.subtask),
    empty: "No subtask has reported yet.",
    sortBy: 0,
    decorate: (element, row) => element.classList.toggle("chosen", isChosen(row)),
    columns: [
      {
        title: "Subtask",
        numeric: true,
        sort: (row) => row.subtask,
        text: (row) => String(row.subtask),
      },
      {
        title: "State",
        sort: (row) => row.status,
        make: makeBadge,
        fill: (badge, row) => fillBadge(badge, row.status),
      },
      { title: "Activity", sort: (row) => row.busy, make: makeShareBar, fill: fillShareBar },
      { title: "Busy", numeric: true, sort: (row) => row.busy, text: (row) => percent(row.busy) },
      {
        title: "Back-pressured",
        numeric: true,
        sort: (row) => row.backpressured,
        text: (row) => percent(row.backpressured),
      },
      { title: "CPU", numeric: true, sort: (row) => row.cpu, text: (row) => percent(row.cpu) },
      {
        title: "In",
        numeric: true,
        sort: (row) => row.rates["in-per-s"],
        text: (row) => rate(row.rates["in-per-s"]),
      },
      {
        title: "Out",
        numeric: true,
        sort: (row) => row.rates["out-per-s"],
        text: (row) => rate(row.rates["out-per-s"]),
      },
      {
        title: "Records in",
        numeric: true,
        sort: (row) => row.metrics["read-records"],
        text: (row) => count(row.metrics["read-records"]),
      },
      {
        title: "Bytes in",
        numeric: true,
        sort: (row) => row.rates["bytes-in-per-s"],
        text: (row) => byteRate(row.rates["bytes-in-per-s"]),
      },
      {
        title: "Waiting",
        numeric: true,
        hint: "Buffers in its queues and at its producers",
        sort: waiting,
        text: (row) => exact(waiting(row)),
      },
      {
        title: "Watermark lag",
        numeric: true,
        sort: (row) => row["watermark-lag-ms"] ?? NaN,
        text: (row) => duration(row["watermark-lag-ms"]),
      },
      {
        title: "p99",
        numeric: true,
        sort: (row) => row["latency-p99-ms"] ?? NaN,
        text: (row) => duration(row["latency-p99-ms"]),
      },
      {
        title: "State size",
        numeric: true,
        sort: (row) => row["state-bytes"] ?? NaN,
        text: (row) => bytes(row["state-bytes"]),
      },
      { title: "Task manager", sort: (row) => row.host, text: (row) => row.host || "–" },
    ],
  });
}

/** @param {HTMLElement} place @param {Subtask | undefined} row */
function showUserMetrics(place, row) {
  if (!row?.user.length) {
    replace(place);
    return;
  }
  const entries = row.user.flatMap(({ operator, scope, name, values }) =>
    Object.entries(values).map(([part, value]) => [
      [operator, ...scope, name].join(" › "),
      part,
      Number.isInteger(value) ? exact(value) : value.toPrecision(4),
    ]),
  );
  replace(
    place,
    h("h3", {}, `Metrics of the program, subtask ${row.subtask}`),
    h(
      "dl",
      { class: "pairs" },
      ...entries.flatMap(([name, part, value]) => [
        h("dt", {}, name),
        h("dd", {}, part === "count" || part === "value" ? value : `${part} ${value}`),
      ]),
    ),
  );
}
