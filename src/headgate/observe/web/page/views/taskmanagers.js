// @ts-check
/** The Python workers that run the job's tasks. */
import { DataTable } from "../data_table.js";
import { h, replace, setAttribute, setText } from "../dom.js";
import { bytes, duration, exact, percent } from "../format.js";
import { nameTask } from "../task_names.js";

const EVERY_MS = 2000;

/**
 * @typedef {{
 *   slot: number, host: string, pid: number, cores: number, "cpu-ms": number,
 *   "memory-bytes": number, buffers: number, "buffers-free": number, tasks: string[],
 * }} TaskManager
 */

/**
 * @param {import("./job.js").JobContext} context
 * @param {HTMLElement} outlet
 */
export function show({ connection, id, signal, runs, job }, outlet) {
  const table = makeTable((task) => nameTask(job.value, task));
  const problem = h("p", { class: "notice bad", hidden: true });
  replace(
    outlet,
    h(
      "section",
      { "aria-labelledby": "managers-title" },
      h("h2", { id: "managers-title" }, "Task managers"),
      problem,
      table.element,
    ),
  );
  connection.poll(`jobs/${encodeURIComponent(id)}/taskmanagers`, {
    everyMs: EVERY_MS,
    signal,
    goesOn: runs,
    onAnswer: ({ taskmanagers }) => table.show(taskmanagers),
    onRefused: (sentence) => {
      setText(problem, sentence);
      problem.hidden = false;
    },
  });
}

/** @param {(task: string) => string} nameOf @returns {DataTable<TaskManager>} */
function makeTable(nameOf) {
  return new DataTable({
    label: "Task managers",
    keyOf: (row) => String(row.slot),
    empty: "None has registered yet.",
    columns: [
      { title: "Slot", numeric: true, sort: (row) => row.slot, text: (row) => String(row.slot) },
      { title: "Host", sort: (row) => row.host, text: (row) => row.host },
      { title: "Process", numeric: true, text: (row) => String(row.pid) },
      { title: "Cores", numeric: true, text: (row) => exact(row.cores) },
      {
        title: "CPU time",
        numeric: true,
        sort: (row) => row["cpu-ms"],
        text: (row) => duration(row["cpu-ms"]),
      },
      {
        title: "Memory",
        numeric: true,
        sort: (row) => row["memory-bytes"],
        text: (row) => bytes(row["memory-bytes"]),
      },
      { title: "Buffers in use", make: makeMeter, fill: fillMeter },
      { title: "Tasks", wide: true, text: (row) => row.tasks.map(nameOf).join(", ") || "–" },
    ],
  });
}

/** @returns {HTMLElement} */
const makeMeter = () => h("span", { class: "meter labelled", role: "img" }, h("span"));

/** @param {HTMLElement} meter @param {TaskManager} row */
function fillMeter(meter, row) {
  const used = row.buffers - row["buffers-free"];
  const share = row.buffers ? used / row.buffers : 0;
  /** @type {HTMLElement} */ (meter.firstElementChild).style.width = `${100 * share}%`;
  const text = `${exact(used)} of ${exact(row.buffers)} (${percent(share)})`;
  setAttribute(meter, "aria-label", text);
  setAttribute(meter, "title", text);
}
