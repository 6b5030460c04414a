// @ts-check
/**
 * A stream of server-sent events. By fetch, because an EventSource cannot send a token; so it also
 * knows why a stream was refused.
 */
import { Unreachable } from "./api.js";

const SILENCE_MS = 20_000;

/** @typedef {{event: string, data: any}} ServerEvent */

/**
 * Follows a stream through every interruption.
 *
 * @param {import("./connection.js").Connection} connection
 * @param {string} path
 * @param {{
 *   signal: AbortSignal,
 *   onEvent: (event: ServerEvent) => void,
 *   onRefused: (sentence: string, status: number) => void,
 *   goesOn: () => boolean,
 * }} how `goesOn`: whether more is to come, should the stream end
 */
export async function follow(connection, path, { signal, onEvent, onRefused, goesOn }) {
  const attempt = async () => {
    const silence = new AbortController();
    const response = await connection.api.open(path, {
      signal: AbortSignal.any([signal, silence.signal]),
      headers: { Accept: "text/event-stream" },
    });
    try {
      for await (const event of readEvents(response, () => silence.abort())) {
        connection.answered();
        onEvent(event);
      }
    } catch (error) {
      if (signal.aborted) throw error;
      throw new Unreachable("The connection to the driver broke off.");
    }
    if (goesOn()) throw new Unreachable("The driver has closed the connection.");
  };
  await connection.persist(signal, attempt, onRefused);
}

/**
 * @param {Response} response
 * @param {() => void} onSilence called when nothing has come for long, not even a comment
 * @returns {AsyncGenerator<ServerEvent>}
 */
async function* readEvents(response, onSilence) {
  if (!response.body) return;
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let timer = 0;
  try {
    for (;;) {
      timer = window.setTimeout(onSilence, SILENCE_MS);
      const { done, value } = await reader.read();
      clearTimeout(timer);
      if (done) return;
      const blocks = (rest + value.replaceAll("\r", "")).split("\n\n");
      rest = blocks.pop() ?? "";
      for (const block of blocks) {
        const event = parseEvent(block);
        if (event) yield event;
      }
    }
  } finally {
    clearTimeout(timer);
    await reader.cancel().catch(() => {}); // it has failed or ended already
  }
}

/**
 * @param {string} block the lines of one event
 * @returns {ServerEvent | null} null for a comment, which only keeps the connection open
 */
function parseEvent(block) {
  let event = "message";
  const data = [];
  for (const line of block.split("\n")) {
    if (line.startsWith("event:")) event = line.slice(6).trim();
    else if (line.startsWith("data:")) data.push(line.slice(5).trim());
  }
  return data.length ? { event, data: JSON.parse(data.join("\n")) } : null;
}
