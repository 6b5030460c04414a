// @ts-check
/** Records that wait in front of a subtask right now, decoded, without taking them away. */
import { DataTable } from "../data_table.js";
import { h, replace, setText } from "../dom.js";
import { exact, moment } from "../format.js";
import { makeSubtaskField } from "./vertex.js";

const PLACES = { begun: "being read", arrived: "arrived", producer: "at the producer" };

/** @typedef {import("../api_types.js").WaitingEntry & {place: keyof typeof PLACES, number: number}} Entry */

/**
 * @param {import("./vertex.js").VertexContext} context
 * @param {HTMLElement} outlet
 */
export function show(context, outlet) {
  const table = makeTable();
  const about = h(
    "p",
    { class: "quiet" },
    "Press Look to see the records that wait; what waits stays where it is.",
  );
  const gate = h("input", { id: "gate", type: "number", min: "0", value: "0", class: "short" });
  const channel = h("input", {
    id: "channel",
    type: "number",
    min: "0",
    class: "short",
    placeholder: "all",
  });
  const limit = h(
    "select",
    { id: "limit" },
    ...[20, 50, 100].map((value) => h("option", {}, value)),
  );
  const button = h(
    "button",
    { type: "button", class: "primary", on: { click: () => look() } },
    "Look",
  );
  const look = async () => {
    const { connection, api, path, signal, problem, subtask } = context;
    button.disabled = true;
    const question =
      `${path}/peek?subtask=${subtask.value}&gate=${gate.value || 0}` +
      `${channel.value ? `&channel=${channel.value}` : ""}&limit=${limit.value}`;
    const answer = await connection.persist(signal, () => api.get(question, signal), problem);
    button.disabled = false;
    setText(button, "Look again");
    if (!answer) return;
    problem("");
    const more = answer.complete ? "" : "; there are more than these";
    setText(
      about,
      `${exact(answer.records)} records decoded, ${exact(answer.buffers)} buffers wait in ` +
        `${exact(answer.channels)} channels${more}.`,
    );
    table.show(
      answer.entries.map((/** @type {object} */ entry, /** @type {number} */ number) => ({
        ...entry,
        number,
      })),
    );
  };
  replace(
    outlet,
    h(
      "div",
      { class: "row" },
      makeSubtaskField(context, () => {}),
      h("label", { for: "gate" }, "Gate"),
      gate,
      h("label", { for: "channel" }, "Channel"),
      channel,
      h("label", { for: "limit" }, "At most"),
      limit,
      button,
    ),
    about,
    table.element,
  );
  table.show([]);
  table.nothing.hidden = true;
  const isOff = !context.config.features.peek;
  if (isOff || !context.runs()) {
    button.disabled = true;
    setText(
      about,
      isOff ? "Looking at records is turned off here." : "The job has ended: nothing waits.",
    );
  }
}

/** @returns {DataTable<Entry>} */
function makeTable() {
  return new DataTable({
    label: "Waiting records",
    keyOf: (row) => String(row.number),
    empty: "Nothing waits there at the moment.",
    columns: [
      { title: "Channel", numeric: true, text: (row) => String(row.channel) },
      { title: "Kind", text: (row) => row.kind },
      { title: "Key", make: () => h("code"), fill: (code, row) => setText(code, row.key ?? "–") },
      {
        title: "Record",
        wide: true,
        make: () => h("code", { class: "record" }),
        fill: (code, row) => setText(code, row.text),
      },
      {
        title: "Timestamp",
        text: (row) => (row["timestamp-ms"] === null ? "–" : moment(row["timestamp-ms"])),
      },
      { title: "Where", text: (row) => PLACES[row.place] ?? row.place },
    ],
  });
}
