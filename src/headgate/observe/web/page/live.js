// @ts-check
/**
 * A stream of server-sent events. By fetch, because an EventSource cannot send a token; so it also
 * knows why a stream was refused.
 *
 * Law: a page that nobody sees holds no stream, because a browser opens six connections to a server
 * at most, for all its tabs together.
 */
import { Refused, Unauthorized, Unreachable } from "./api.js";
import { untilVisible } from "./connection.js";

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
    await untilVisible(signal);
    const leaving = new AbortController();
    const left = AbortSignal.any([signal, leaving.signal]);
    const leaveIfHidden = () => document.hidden && leaving.abort();
    document.addEventListener("visibilitychange", leaveIfHidden, { signal: left });
    try {
      const headers = { Accept: "text/event-stream" };
      const response = await connection.api.open(path, { signal: left, headers });
      for await (const event of readEvents(response, () => leaving.abort())) {
        connection.answered();
        onEvent(event);
      }
    } catch (error) {
      if (signal.aborted || !isBrokenOff(error)) throw error;
      throw new Unreachable("The connection to the driver broke off.");
    } finally {
      leaving.abort();
    }
    if (goesOn()) throw new Unreachable("The driver has closed the connection.");
  };
  await connection.persist(signal, attempt, onRefused);
}

/** A refusal is an answer; all else is a stream that failed. @param {unknown} error */
const isBrokenOff = (error) => !(error instanceof Refused || error instanceof Unauthorized);

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
