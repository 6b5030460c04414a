// @ts-check
/**
 * What part of a large SVG is seen: fitted at first, then moved by dragging and zoomed by buttons,
 * keys, or Ctrl and the wheel (which is what a pinch on a touch pad sends). The bare wheel scrolls
 * the page, as readers expect.
 */

const LARGEST = 2.5;
const STEP = 1.3;
const DRAG_PX = 4;

export class Viewport {
  /** @param {SVGSVGElement} svg */
  constructor(svg) {
    this.svg = svg;
    this.content = { width: 1, height: 1 };
    this.size = { width: 1, height: 1 };
    this.fitted = 1;
    this.scale = 1;
    this.centre = { x: 0, y: 0 };
    this.isFitted = true;
    this.#listen();
  }

  /**
   * The drawing has this size, and may take so much of the page.
   *
   * @param {{width: number, height: number}} content
   * @param {number} width
   * @param {number} maxHeight
   */
  fit(content, width, maxHeight) {
    this.content = content;
    this.fitted = Math.min(1, width / content.width, maxHeight / content.height);
    this.size = { width, height: Math.ceil(content.height * this.fitted) };
    this.svg.style.height = `${this.size.height}px`;
    if (this.isFitted) this.reset();
    else this.#apply();
  }

  reset() {
    this.isFitted = true;
    this.scale = this.fitted;
    this.centre = { x: this.content.width / 2, y: this.content.height / 2 };
    this.#apply();
  }

  /** @param {1 | -1} direction */
  zoom(direction) {
    this.#zoomBy(direction > 0 ? STEP : 1 / STEP);
  }

  /** Moves so that a card is seen whole. @param {{x: number, y: number, width: number, height: number}} box */
  include(box) {
    const half = this.#half();
    /** @param {"x" | "y"} axis @param {number} length @param {number} reach */
    const moved = (axis, length, reach) => {
      const least = box[axis] + length - reach;
      const most = box[axis] + reach;
      return least > most ? box[axis] + length / 2 : clamp(this.centre[axis], least, most);
    };
    this.centre = { x: moved("x", box.width, half.x), y: moved("y", box.height, half.y) };
    this.#apply();
  }

  #half() {
    return { x: this.size.width / this.scale / 2, y: this.size.height / this.scale / 2 };
  }

  /** @param {number} factor */
  #zoomBy(factor) {
    this.scale = clamp(this.scale * factor, this.fitted * 0.8, LARGEST);
    this.isFitted = false;
    this.#apply();
  }

  #apply() {
    const half = this.#half();
    const { x, y } = this.centre;
    const box = [x - half.x, y - half.y, 2 * half.x, 2 * half.y];
    this.svg.setAttribute("viewBox", box.map((part) => part.toFixed(1)).join(" "));
    this.svg.classList.toggle("zoomed", !this.isFitted);
  }

  #listen() {
    this.svg.addEventListener(
      "wheel",
      (event) => {
        if (!event.ctrlKey && !event.metaKey) return;
        event.preventDefault();
        this.#zoomBy(Math.exp(-event.deltaY / 300));
      },
      { passive: false },
    );
    this.svg.addEventListener("pointerdown", (down) => {
      if (down.button === 0 && !this.isFitted) this.#drag(down);
    });
  }

  /** @param {PointerEvent} down */
  #drag(down) {
    const start = { ...this.centre };
    const done = new AbortController();
    const { signal } = done;
    let moved = false;
    const move = (/** @type {PointerEvent} */ event) => {
      const dx = event.clientX - down.clientX;
      const dy = event.clientY - down.clientY;
      moved ||= Math.hypot(dx, dy) > DRAG_PX;
      if (!moved) return;
      this.svg.setPointerCapture(event.pointerId);
      this.centre = { x: start.x - dx / this.scale, y: start.y - dy / this.scale };
      this.#apply();
    };
    const swallow = (/** @type {Event} */ event) => event.preventDefault();
    this.svg.addEventListener("pointermove", move, { signal });
    for (const end of ["pointerup", "pointercancel"]) {
      this.svg.addEventListener(
        end,
        () => {
          done.abort();
          // The click that ends a drag must not open the card below it.
          if (moved) this.svg.addEventListener("click", swallow, { once: true, capture: true });
          setTimeout(() => this.svg.removeEventListener("click", swallow, { capture: true }));
        },
        { signal },
      );
    }
  }
}

/** @param {number} value @param {number} low @param {number} high */
const clamp = (value, low, high) => Math.max(low, Math.min(high, value));
