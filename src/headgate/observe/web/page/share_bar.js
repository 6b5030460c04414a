// @ts-check
/** A bar in three parts, busy, back-pressured (hatched) and idle, so that colour is not alone. */
import { h, setAttribute } from "./dom.js";
import { percent } from "./format.js";

const PARTS = /** @type {const} */ (["busy", "backpressured", "idle"]);

/** @returns {HTMLElement} */
export function makeShareBar() {
  return h(
    "span",
    { class: "shares", role: "img" },
    ...PARTS.map((part) => h("span", { class: part })),
  );
}

/**
 * @param {HTMLElement} bar
 * @param {import("./colours.js").Shares} shares
 */
export function fillShareBar(bar, shares) {
  PARTS.forEach((part, index) => {
    const width = `${(100 * (shares[part] || 0)).toFixed(1)}%`;
    const { style } = /** @type {HTMLElement} */ (bar.children[index]);
    if (style.width !== width) style.width = width;
  });
  setAttribute(bar, "aria-label", shareWords(shares));
  setAttribute(bar, "title", shareWords(shares));
}

/** @param {import("./colours.js").Shares} shares */
export const shareWords = ({ busy, backpressured, idle }) =>
  `busy ${percent(busy)}, back-pressured ${percent(backpressured)}, idle ${percent(idle)}`;
