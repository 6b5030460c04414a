// @ts-check
/**
 * A table that is sorted by its headings, updated in place, and draws only the rows in sight.
 *
 * Law: the same key keeps the same row element while it is in sight, so focus and selection stay
 * through updates. With more than `VIRTUAL_ABOVE` rows all rows have one height, and the table
 * tells screen readers how many there are.
 */
import { h, reconcile, setAttribute, setText } from "./dom.js";

const VIRTUAL_ABOVE = 120;
const ROW_PX = 30;
const AROUND = 8;

/**
 * A column shows a text, or an element of its own that is made once and filled at each update.
 *
 * @template R
 * @typedef {{
 *   title: string,
 *   text?: (row: R) => string,
 *   make?: () => HTMLElement,
 *   fill?: (element: any, row: R) => void,
 *   sort?: (row: R) => number | string,
 *   numeric?: boolean,
 *   hint?: string,
 *   wide?: boolean,
 * }} Column
 */

/** @template R */
export class DataTable {
  /**
   * @param {{
   *   label: string,
   *   columns: Column<R>[],
   *   keyOf: (row: R) => string,
   *   empty: string,
   *   sortBy?: number,
   *   descending?: boolean,
   *   decorate?: (element: HTMLTableRowElement, row: R) => void,
   * }} options
   */
  constructor(options) {
    this.options = options;
    /** @type {R[]} */
    this.rows = [];
    this.sortBy = options.sortBy ?? -1;
    this.descending = options.descending ?? false;
    this.heads = options.columns.map((column, index) => this.#makeHead(column, index));
    this.body = h("tbody");
    this.above = h("td", { colspan: options.columns.length });
    this.below = h("td", { colspan: options.columns.length });
    this.table = h(
      "table",
      {},
      h("caption", { class: "sr" }, options.label),
      h("thead", {}, h("tr", {}, ...this.heads)),
      h("tbody", { class: "spacer", "aria-hidden": "true" }, h("tr", {}, this.above)),
      this.body,
      h("tbody", { class: "spacer", "aria-hidden": "true" }, h("tr", {}, this.below)),
    );
    this.nothing = h("p", { class: "quiet", hidden: true }, options.empty);
    this.scroller = h(
      "div",
      { class: "table", role: "group", "aria-label": options.label, tabindex: "0", hidden: true },
      this.table,
    );
    this.scroller.addEventListener("scroll", () => this.#isVirtual() && this.#draw(), {
      passive: true,
    });
    this.element = h("div", {}, this.scroller, this.nothing);
  }

  /** @param {R[]} rows */
  show(rows) {
    this.rows = rows;
    this.nothing.hidden = rows.length > 0;
    this.scroller.hidden = rows.length === 0;
    this.#sort();
    this.#draw();
  }

  /** Scrolls to a row and marks it. @param {string} key */
  reveal(key) {
    const index = this.rows.findIndex((row) => this.options.keyOf(row) === key);
    if (index < 0) return;
    if (this.#isVirtual()) {
      this.scroller.scrollTop = Math.max(0, index * ROW_PX - this.scroller.clientHeight / 2);
      this.#draw();
    }
    this.body
      .querySelector(`[data-key="${CSS.escape(key)}"]`)
      ?.scrollIntoView({ block: "nearest" });
  }

  /** @param {Column<R>} column @param {number} index */
  #makeHead(column, index) {
    const props = { scope: "col", class: column.numeric ? "number" : null, title: column.hint };
    if (!column.sort) return h("th", props, column.title);
    const click = () => {
      this.descending = this.sortBy === index ? !this.descending : Boolean(column.numeric);
      this.sortBy = index;
      this.show(this.rows);
    };
    return h(
      "th",
      props,
      h("button", { type: "button", class: "sort", on: { click } }, column.title),
    );
  }

  #sort() {
    const { columns } = this.options;
    this.heads.forEach((head, index) => {
      const order = this.descending ? "descending" : "ascending";
      setAttribute(head, "aria-sort", index === this.sortBy ? order : null);
    });
    const by = columns[this.sortBy]?.sort;
    if (!by) return;
    const sign = this.descending ? -1 : 1;
    this.rows = [...this.rows].sort((a, b) => sign * compare(by(a), by(b)));
  }

  #isVirtual() {
    return this.rows.length > VIRTUAL_ABOVE;
  }

  #draw() {
    const virtual = this.#isVirtual();
    this.scroller.classList.toggle("virtual", virtual);
    setAttribute(this.table, "aria-rowcount", virtual ? this.rows.length + 1 : null);
    let first = 0;
    let end = this.rows.length;
    if (virtual) {
      const height = this.scroller.clientHeight || 480;
      first = Math.max(0, Math.floor(this.scroller.scrollTop / ROW_PX) - AROUND);
      end = Math.min(end, first + Math.ceil(height / ROW_PX) + 2 * AROUND);
    }
    setHeight(this.above, first * ROW_PX);
    setHeight(this.below, (this.rows.length - end) * ROW_PX);
    const shown = this.rows.slice(first, end).map((row, place) => ({ row, place: first + place }));
    reconcile(
      this.body,
      shown,
      ({ row }) => this.options.keyOf(row),
      () => this.#makeRow(),
      (element, { row, place }) => {
        setAttribute(element, "aria-rowindex", virtual ? place + 2 : null);
        this.#fillRow(element, row);
      },
    );
  }

  #makeRow() {
    const cells = this.options.columns.map((column, index) => {
      const kind = [column.numeric ? "number" : "", column.wide ? "wide" : ""].join(" ").trim();
      const props = { class: kind || null, scope: index ? null : "row" };
      return h(index ? "td" : "th", props, column.make?.());
    });
    return h("tr", {}, ...cells);
  }

  /** @param {HTMLTableRowElement} element @param {R} row */
  #fillRow(element, row) {
    this.options.columns.forEach((column, index) => {
      const cell = element.cells[index];
      if (column.text) setText(cell, column.text(row));
      else column.fill?.(cell.firstElementChild, row);
    });
    this.options.decorate?.(element, row);
  }
}

/** @param {HTMLElement} element @param {number} px */
function setHeight(element, px) {
  const height = `${px}px`;
  if (element.style.height !== height) element.style.height = height;
  const row = /** @type {HTMLElement} */ (element.parentElement);
  row.hidden = px === 0;
}

/** What is unknown (NaN) comes first. @param {number | string} a @param {number | string} b */
function compare(a, b) {
  if (typeof a === "string" || typeof b === "string") {
    return String(a).localeCompare(String(b), "en", { numeric: true });
  }
  return (Number.isNaN(a) ? -Infinity : a) - (Number.isNaN(b) ? -Infinity : b) || 0;
}
