// @ts-check
/**
 * Where the cards and edges of a job graph go. The driver puts vertices into columns (layers) and
 * rows; here they become places, left to right where there is room and downwards on a phone.
 *
 * Law: an edge over several layers runs through a lane of its own beyond the last row, where no card
 * stands.
 */

export const CARD = { width: 228, height: 122 };
const GAP = { along: 98, across: 26 };
const DOWN_GAP = { along: 66, across: 18 };
/** Labels of edges that run down end above the flag of the card below. */
const RAISED = 8;
const LANE = { width: 104, height: 52 };
const MARGIN = 20;

/** @typedef {{id: string, column: number, row: number}} Place */
/** @typedef {{source: string, target: string}} Link */
/** @typedef {{x: number, y: number}} Point */
/**
 * @typedef {{
 *   width: number,
 *   height: number,
 *   cards: Map<string, Point>,
 *   edges: {path: string, label: Point}[],
 * }} Layout
 */

/**
 * @param {Place[]} places
 * @param {Link[]} links
 * @param {boolean} isDown
 * @returns {Layout}
 */
export function layOut(places, links, isDown) {
  const gap = isDown ? DOWN_GAP : GAP;
  const step = isDown
    ? { along: CARD.height + gap.along, across: CARD.width + gap.across }
    : { along: CARD.width + gap.along, across: CARD.height + gap.across };
  const columns = 1 + Math.max(0, ...places.map((place) => place.column));
  const rows = Math.max(1, ...places.map((place) => place.row + 1));
  const heights = countPerColumn(places, columns);
  const lane = isDown ? LANE.width : LANE.height;
  let lanes = 0;
  /** @param {number} along @param {number} across @returns {Point} */
  const point = (along, across) => (isDown ? { x: across, y: along } : { x: along, y: across });
  /** @param {Place} place the columns are centred on each other */
  const corner = (place) =>
    point(
      MARGIN + place.column * step.along,
      MARGIN + (place.row + (rows - heights[place.column]) / 2) * step.across,
    );
  const cards = new Map(places.map((place) => [place.id, corner(place)]));
  const byId = new Map(places.map((place) => [place.id, place]));
  const routes = links.map((link) => {
    const from = byId.get(link.source);
    const to = byId.get(link.target);
    if (!from || !to) return { path: "", label: { x: 0, y: 0 } };
    if (to.column - from.column <= 1) return route(cards, link, isDown);
    lanes += 1;
    return route(
      cards,
      link,
      isDown,
      MARGIN + rows * step.across - gap.across + lane * (lanes - (isDown ? 0.8 : 0.5)),
    );
  });
  const size = point(
    2 * MARGIN + columns * step.along - gap.along,
    2 * MARGIN + rows * step.across - gap.across + lane * lanes,
  );
  return { width: size.x, height: size.y, cards, edges: routes };
}

/** @param {Place[]} places @param {number} columns */
function countPerColumn(places, columns) {
  const heights = new Array(columns).fill(0);
  for (const place of places)
    heights[place.column] = Math.max(heights[place.column], place.row + 1);
  return heights;
}

/**
 * A curve from card to card, through a lane if there is one.
 *
 * @param {Map<string, Point>} cards
 * @param {Link} link
 * @param {boolean} isDown
 * @param {number} [lane]
 */
function route(cards, { source, target }, isDown, lane) {
  const from = /** @type {Point} */ (cards.get(source));
  const to = /** @type {Point} */ (cards.get(target));
  const start = isDown
    ? { x: from.x + CARD.width / 2, y: from.y + CARD.height }
    : { x: from.x + CARD.width, y: from.y + CARD.height / 2 };
  const end = isDown
    ? { x: to.x + CARD.width / 2, y: to.y }
    : { x: to.x, y: to.y + CARD.height / 2 };
  if (lane === undefined) return curve(start, end, isDown);
  const depth = isDown ? DOWN_GAP.along : GAP.along;
  const first = isDown ? { x: lane, y: start.y + depth } : { x: start.x + depth, y: lane };
  const last = isDown ? { x: lane, y: end.y - depth } : { x: end.x - depth, y: lane };
  const [down, along, up] = [
    curve(start, first, isDown),
    curve(first, last, isDown),
    curve(last, end, isDown),
  ];
  return { path: `${down.path} ${along.path} ${up.path}`, label: along.label };
}

/** @param {Point} start @param {Point} end @param {boolean} isDown */
function curve(start, end, isDown) {
  const middle = { x: (start.x + end.x) / 2, y: (start.y + end.y) / 2 };
  const bend = isDown
    ? `${start.x} ${middle.y} ${end.x} ${middle.y}`
    : `${middle.x} ${start.y} ${middle.x} ${end.y}`;
  const label = isDown ? { x: middle.x, y: middle.y - RAISED } : middle;
  return { path: `M${start.x} ${start.y} C${bend} ${end.x} ${end.y}`, label };
}
