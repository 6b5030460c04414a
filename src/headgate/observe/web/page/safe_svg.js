// @ts-check
/**
 * Takes over a drawing that came as text. Law: only shapes, groups and texts are copied, and only
 * attributes that place or paint them, so whatever the text contains, nothing in it can run, load or
 * link anywhere.
 */

const SVG = "http://www.w3.org/2000/svg";
const ELEMENTS = new Set([
  "svg",
  "g",
  "rect",
  "path",
  "line",
  "polyline",
  "polygon",
  "circle",
  "ellipse",
  "text",
  "tspan",
  "title",
]);
const ATTRIBUTES = new Set([
  ...["x", "y", "x1", "y1", "x2", "y2", "cx", "cy", "r", "rx", "ry", "dx", "dy", "d", "points"],
  ...[
    "width",
    "height",
    "viewBox",
    "transform",
    "fill",
    "stroke",
    "stroke-width",
    "stroke-linecap",
  ],
  ...["stroke-dasharray", "fill-opacity", "stroke-opacity", "opacity", "font-family", "font-size"],
  ...["font-weight", "text-anchor", "dominant-baseline", "role"],
]);

/**
 * @param {string} text
 * @returns {Element | null} null: it is not a drawing
 */
export function copySvg(text) {
  const parsed = new DOMParser().parseFromString(text, "image/svg+xml").documentElement;
  return parsed.namespaceURI === SVG && parsed.localName === "svg" ? copy(parsed) : null;
}

/** @param {Element} element */
function copy(element) {
  const made = document.createElementNS(SVG, element.localName);
  for (const { name, value } of element.attributes) {
    if (ATTRIBUTES.has(name) && !value.includes("url(")) made.setAttribute(name, value);
  }
  for (const child of element.childNodes) {
    if (child.nodeType === Node.TEXT_NODE) made.append(child.textContent ?? "");
    else if (child instanceof Element && ELEMENTS.has(child.localName)) made.append(copy(child));
  }
  return made;
}
