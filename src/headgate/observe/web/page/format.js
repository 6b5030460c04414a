// @ts-check
/**
 * Figures as people read them. Law: what is unknown (null, undefined, NaN, or negative where only
 * sizes make sense) is a dash, never a zero.
 */

export const UNKNOWN = "–";
const BINARY = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
const DECIMAL = ["", "k", "M", "G", "T"];

/** @param {unknown} value @returns {value is number} */
export const isKnown = (value) => typeof value === "number" && Number.isFinite(value) && value >= 0;

/** @param {number} value three figures at most */
function short(value) {
  if (value >= 100 || Number.isInteger(value)) return value.toFixed(0);
  return value >= 10 ? value.toFixed(1) : value.toFixed(2);
}

/** 12345 → "12.3 k". @param {unknown} value */
export function count(value) {
  if (!isKnown(value)) return UNKNOWN;
  let size = value;
  let unit = 0;
  while (size >= 999.5 && unit < DECIMAL.length - 1) {
    size /= 1000;
    unit += 1;
  }
  return unit ? `${short(size)} ${DECIMAL[unit]}` : short(size);
}

/** 12345 → "12,345". @param {unknown} value */
export const exact = (value) =>
  isKnown(value) ? Math.round(value).toLocaleString("en-GB") : UNKNOWN;

/** "12.3 k/s". @param {unknown} value */
export const rate = (value) => (isKnown(value) ? `${count(value)}/s` : UNKNOWN);

/** "64 KiB". @param {unknown} value */
export function bytes(value) {
  if (!isKnown(value)) return UNKNOWN;
  let size = value;
  let unit = 0;
  while (size >= 1023.5 && unit < BINARY.length - 1) {
    size /= 1024;
    unit += 1;
  }
  return `${short(unit ? size : Math.round(size))} ${BINARY[unit]}`;
}

/** "64 KiB/s". @param {unknown} value */
export const byteRate = (value) => (isKnown(value) ? `${bytes(value)}/s` : UNKNOWN);

/** 0.934 → "93 %". @param {unknown} value */
export const percent = (value) => (isKnown(value) ? `${Math.round(100 * value)} %` : UNKNOWN);

/**
 * "340 ms", "1.2 s", "3 min 5 s", "2 h 4 min", "5 d 3 h".
 *
 * @param {unknown} ms
 */
export function duration(ms) {
  if (!isKnown(ms)) return UNKNOWN;
  if (ms < 1) return ms === 0 ? "0 ms" : `${ms.toFixed(2)} ms`;
  if (ms < 999.5) return `${short(ms < 10 ? ms : Math.round(ms))} ms`;
  if (ms < 59_950) return `${(ms / 1000).toFixed(1)} s`;
  const seconds = Math.round(ms / 1000);
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return pair(minutes, "min", seconds % 60, "s");
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return pair(hours, "h", minutes % 60, "min");
  return pair(Math.floor(hours / 24), "d", hours % 24, "h");
}

/** @param {number} big @param {string} unit @param {number} small @param {string} smallUnit */
const pair = (big, unit, small, smallUnit) =>
  small ? `${big} ${unit} ${small} ${smallUnit}` : `${big} ${unit}`;

/** "14:03:12". @param {unknown} ms */
export const clock = (ms) => (isKnown(ms) ? new Date(ms).toLocaleTimeString("en-GB") : UNKNOWN);

/** "2026-11-16 14:03:12", in the reader's time zone. @param {unknown} ms */
export function moment(ms) {
  if (!isKnown(ms)) return UNKNOWN;
  const date = new Date(ms);
  return `${date.toLocaleDateString("sv-SE")} ${date.toLocaleTimeString("en-GB")}`;
}

/** "1 subtask", "4 subtasks". @param {number} number @param {string} noun */
export const plural = (number, noun) => `${exact(number)} ${noun}${number === 1 ? "" : "s"}`;

/** As a sentence stands alone. @param {string} text */
export function sentence(text) {
  const capital = text.charAt(0).toUpperCase() + text.slice(1);
  return /[.!?…]$/.test(capital) ? capital : `${capital}.`;
}
