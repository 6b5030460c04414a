// @ts-check
/** The channels of a subtask, as its task manager sees them at the moment: credit, backlog, queues. */
import { DataTable } from "../data_table.js";
import { h, replace, setText } from "../dom.js";
import { bytes, exact, plural } from "../format.js";
import { nameTask } from "../task_names.js";
import { makeSubtaskField } from "./vertex.js";

const LIMIT = 500;
const EVERY_MS = 2000;

/** @typedef {import("../api_types.js").Channel} Channel */

/**
 * @param {import("./vertex.js").VertexContext} context
 * @param {HTMLElement} outlet
 */
export function show(context, outlet) {
  const table = makeTable((task) => nameTask(context.job.value, task));
  const summary = h("p", { class: "quiet" });
  let following = new AbortController();
  const follow = () => {
    following.abort();
    following = new AbortController();
    const { connection, path, problem, runs, subtask } = context;
    connection.poll(`${path}/channels?subtask=${subtask.value}&limit=${LIMIT}`, {
      everyMs: EVERY_MS,
      signal: AbortSignal.any([context.signal, following.signal]),
      goesOn: runs,
      onAnswer: ({ channels, rows }) => {
        problem("");
        const listed =
          rows.length < channels ? `; the ${rows.length} with the largest backlog are listed` : "";
        setText(summary, `${plural(channels, "channel")}${listed}.`);
        table.show(rows);
      },
      onRefused: problem,
    });
  };
  replace(
    outlet,
    h("div", { class: "row" }, makeSubtaskField(context, follow)),
    summary,
    table.element,
  );
  follow();
}

/** @param {(task: string) => string} nameOf @returns {DataTable<Channel>} */
function makeTable(nameOf) {
  return new DataTable({
    label: "Channels",
    keyOf: (row) => `${row.gate}.${row.channel}`,
    empty: "This subtask has no input channels: it is a source.",
    columns: [
      {
        title: "Channel",
        sort: (row) => `${row.gate}.${row.channel}`,
        text: (row) => `gate ${row.gate}, channel ${row.channel}`,
      },
      { title: "From", sort: (row) => row.producer, text: (row) => nameOf(row.producer) },
      { title: "Link", text: (row) => (row["is-local"] ? "same process" : "network") },
      {
        title: "Backlog",
        numeric: true,
        hint: "Buffers that wait at the producer",
        sort: (row) => row.backlog,
        text: (row) => exact(row.backlog),
      },
      {
        title: "Credit",
        numeric: true,
        hint: "Buffers that the producer may send",
        sort: (row) => row.credit,
        text: (row) => (row.credit < 0 ? "none needed" : exact(row.credit)),
      },
      {
        title: "Queued",
        numeric: true,
        hint: "Buffers that have arrived and wait",
        sort: (row) => row["queued-buffers"],
        text: (row) => exact(row["queued-buffers"]),
      },
      {
        title: "Queued bytes",
        numeric: true,
        sort: (row) => row["queued-bytes"],
        text: (row) => bytes(row["queued-bytes"]),
      },
      { title: "Free exclusive", numeric: true, text: (row) => exact(row.exclusive) },
      { title: "Free floating", numeric: true, text: (row) => exact(row.floating) },
      {
        title: "Received",
        numeric: true,
        sort: (row) => row["bytes-in"],
        text: (row) => bytes(row["bytes-in"]),
      },
      { title: "Note", text: noteOf },
    ],
  });
}

/** @param {Channel} row */
function noteOf(row) {
  if (row["has-ended"]) return "ended";
  if (!row["is-placed"]) return "producer not deployed yet";
  return row.blocked ? "blocked: a checkpoint is aligned" : "–";
}
