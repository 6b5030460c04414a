// @ts-check
/**
 * A value that others look at.
 *
 * @template T
 */
export class Store {
  /** @param {T} value */
  constructor(value) {
    this.value = value;
    /** @type {Set<(value: T) => void>} */
    this.watchers = new Set();
  }

  /** @param {T} value */
  set(value) {
    this.value = value;
    for (const watcher of [...this.watchers]) watcher(value);
  }

  /**
   * Calls `watcher` now and after every change, until `signal` says that the view is gone.
   *
   * @param {(value: T) => void} watcher
   * @param {AbortSignal} signal
   */
  watch(watcher, signal) {
    if (signal.aborted) return;
    this.watchers.add(watcher);
    signal.addEventListener("abort", () => this.watchers.delete(watcher), { once: true });
    watcher(this.value);
  }
}
