// @ts-check
/**
 * Colours of activity, as in Flink: idle blue, busy red, back-pressured black, and shades between
 * them for what is between.
 *
 * Law: white text is readable (WCAG AA, 4.5 : 1) on every shade. It is on the three corners, and a
 * mixture is never brighter than the brightest of what it is mixed of.
 */

/** @typedef {{busy: number, backpressured: number, idle: number}} Shares */
/** @typedef {[number, number, number]} Rgb */

/** @type {Rgb} */
const IDLE = [44, 104, 208];
/** @type {Rgb} */
const BUSY = [205, 43, 49];
/** @type {Rgb} */
const BACKPRESSURED = [10, 10, 12];
/** @type {Rgb} */
const NONE = [107, 114, 128];

/**
 * @param {Partial<Shares>} shares
 * @returns {string}
 */
export function activityColour({ busy = 0, backpressured = 0, idle = 0 }) {
  const sum = busy + backpressured + idle;
  if (!(sum > 0)) return rgb(NONE);
  /** @param {number} part */
  const mix = (part) =>
    (busy * BUSY[part] + backpressured * BACKPRESSURED[part] + idle * IDLE[part]) / sum;
  return rgb([mix(0), mix(1), mix(2)]);
}

/** What a vertex mostly does, in a word. @param {Partial<Shares>} shares */
export function activityWord({ busy = 0, backpressured = 0, idle = 0 }) {
  if (!(busy + backpressured + idle > 0)) return "no figures yet";
  if (backpressured >= 0.5) return "back-pressured";
  if (busy >= 0.5) return "busy";
  return idle >= 0.5 ? "idle" : "mixed";
}

/**
 * From nothing to the maximum, for figures without a colour of their own.
 *
 * @param {number} share 0 to 1
 * @param {boolean} isDark
 */
export function scaleColour(share, isDark) {
  const part = Math.max(0, Math.min(1, share));
  const [low, high] = isDark
    ? /** @type {[Rgb, Rgb]} */ ([
        [34, 41, 50],
        [255, 196, 87],
      ])
    : /** @type {[Rgb, Rgb]} */ ([
        [232, 236, 241],
        [124, 45, 18],
      ]);
  return rgb([0, 1, 2].map((i) => low[i] + part * (high[i] - low[i])));
}

/** @param {number[]} parts */
const rgb = (parts) => `rgb(${parts.map((part) => Math.round(part)).join(" ")})`;
