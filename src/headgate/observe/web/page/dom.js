// @ts-check
/**
 * Elements without markup strings.
 *
 * Law: every text that comes from a job becomes a text node or an attribute of fixed name, so data
 * can never become markup. The page's policy (CSP) forbids inline styles in markup; `style` goes
 * through the object model.
 */

const SVG = "http://www.w3.org/2000/svg";

/**
 * @typedef {Node | string | number | null | undefined | false} Child
 * @typedef {{
 *   class?: string | null,
 *   style?: Record<string, string>,
 *   data?: Record<string, string>,
 *   on?: Record<string, (event: any) => void>,
 *   [attribute: string]: unknown,
 * }} Props
 */

/**
 * An HTML element.
 *
 * @template {keyof HTMLElementTagNameMap} T
 * @param {T} tag
 * @param {Props} [props]
 * @param {...Child} children
 * @returns {HTMLElementTagNameMap[T]}
 */
export function h(tag, props = {}, ...children) {
  return fill(document.createElement(tag), props, children);
}

/**
 * An SVG element.
 *
 * @template {keyof SVGElementTagNameMap} T
 * @param {T} tag
 * @param {Props} [props]
 * @param {...Child} children
 * @returns {SVGElementTagNameMap[T]}
 */
export function s(tag, props = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), props, children);
}

/**
 * @template {HTMLElement | SVGElement} E
 * @param {E} element
 * @param {Props} props
 * @param {Child[]} children
 * @returns {E}
 */
function fill(element, props, children) {
  for (const [name, value] of Object.entries(props)) {
    if (name === "style") Object.assign(element.style, value);
    else if (name === "data") Object.assign(element.dataset, value);
    else if (name === "on") {
      for (const [event, listener] of Object.entries(/** @type {object} */ (value))) {
        element.addEventListener(event, listener);
      }
    } else setAttribute(element, name, value);
  }
  element.append(...children.filter(isShown).map(asNode));
  return element;
}

/** @param {Child} child */
const isShown = (child) => child !== null && child !== undefined && child !== false;

/** @param {Child} child @returns {Node | string} */
const asNode = (child) => (child instanceof Node ? child : String(child));

/**
 * Writes only what has changed: `true` is an empty attribute, `false` and null are none.
 *
 * @param {Element} element
 * @param {string} name
 * @param {unknown} value
 */
export function setAttribute(element, name, value) {
  if (value === false || value === null || value === undefined) {
    if (element.hasAttribute(name)) element.removeAttribute(name);
    return;
  }
  const text = value === true ? "" : String(value);
  if (element.getAttribute(name) !== text) element.setAttribute(name, text);
}

/**
 * Writes only what has changed, so that a selection and the accessibility tree stay as they are.
 *
 * @param {Node} node
 * @param {string} text
 */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/**
 * @param {Element} element
 * @param {...Child} children
 */
export function replace(element, ...children) {
  element.replaceChildren(...children.filter(isShown).map(asNode));
}

/**
 * Children of `parent` for `items`, in their order; those that were there already are kept, and
 * with them focus, selection and scroll position.
 *
 * @template T
 * @template {Element} E
 * @param {Element} parent
 * @param {T[]} items
 * @param {(item: T) => string} keyOf
 * @param {(item: T) => E} create
 * @param {(element: E, item: T) => void} update
 */
export function reconcile(parent, items, keyOf, create, update) {
  const old = new Map();
  for (const child of parent.children) old.set(/** @type {any} */ (child).dataset.key, child);
  let place = parent.firstElementChild;
  for (const item of items) {
    const key = keyOf(item);
    let element = old.get(key);
    old.delete(key);
    if (!element) {
      element = create(item);
      element.dataset.key = key;
    }
    update(element, item);
    if (element === place) place = place?.nextElementSibling ?? null;
    else parent.insertBefore(element, place);
  }
  for (const gone of old.values()) gone.remove();
}

/**
 * Says something to screen readers without moving anything.
 *
 * @param {string} text
 */
export function announce(text) {
  const announcer = document.getElementById("announcer");
  if (announcer) setText(announcer, text);
}
