// @ts-check
/**
 * Whether the driver answers, shared by everything that asks it.
 *
 * Law: however many loops fail, there is one wait between two attempts, and it grows up to 15 s.
 * The first failure stays quiet: a connection may break without the driver being gone.
 */
import { Refused, Unauthorized, Unreachable } from "./api.js";
import { Store } from "./store.js";

const WAITS_MS = [300, 1000, 2000, 4000, 8000, 15000];

/** @typedef {{status: "connecting" | "live" | "lost" | "ended", since: number, retryAt: number}} Link */

export class Connection {
  /**
   * @param {import("./api.js").Api} api
   * @param {() => void} onUnauthorized
   */
  constructor(api, onUnauthorized) {
    this.api = api;
    this.onUnauthorized = onUnauthorized;
    /** @type {Link} */
    const unknown = { status: "connecting", since: Date.now(), retryAt: 0 };
    this.link = new Store(unknown);
    this.failures = 0;
    /** @type {Promise<void> | null} */
    this.waiting = null;
    this.retryNow = () => {};
  }

  answered() {
    this.failures = 0;
    const { status } = this.link.value;
    if (status !== "live" && status !== "ended") this.#become("live", Date.now());
  }

  /** Something else is looked at from now on. */
  turned() {
    if (this.link.value.status === "ended") this.#become("connecting", Date.now());
  }

  /** What is shown changes no more; nobody has to answer. */
  ended() {
    if (this.link.value.status !== "ended") this.#become("ended", Date.now());
  }

  /** Resolves when it is time for another attempt. */
  failed() {
    this.waiting ??= this.#wait().finally(() => (this.waiting = null));
    return this.waiting;
  }

  async #wait() {
    const wait = WAITS_MS[Math.min(this.failures, WAITS_MS.length - 1)];
    this.failures += 1;
    if (this.failures > 1) {
      const { status, since } = this.link.value;
      this.#become("lost", status === "lost" ? since : Date.now(), Date.now() + wait);
    }
    await new Promise((resolve) => {
      const timer = setTimeout(resolve, wait, undefined);
      this.retryNow = () => {
        clearTimeout(timer);
        resolve(undefined);
      };
    });
  }

  /** @param {Link["status"]} status @param {number} since @param {number} [retryAt] */
  #become(status, since, retryAt = 0) {
    this.link.set({ status, since, retryAt });
  }

  /**
   * Runs `attempt` until it succeeds; a driver that does not answer is tried again.
   *
   * @template T
   * @param {AbortSignal} signal
   * @param {() => Promise<T>} attempt
   * @param {(sentence: string, status: number) => void} onRefused
   * @returns {Promise<T | undefined>} nothing, if it was refused or nobody looks any more
   */
  async persist(signal, attempt, onRefused) {
    while (!signal.aborted) {
      try {
        const answer = await attempt();
        if (!signal.aborted) this.answered();
        return answer;
      } catch (error) {
        if (signal.aborted) return undefined;
        if (error instanceof Unauthorized) return void this.onUnauthorized();
        if (error instanceof Refused) {
          this.answered();
          return void onRefused(error.message, error.status);
        }
        if (!(error instanceof Unreachable)) throw error;
        await this.failed();
      }
    }
    return undefined;
  }

  /**
   * Asks again and again while the page is visible; once, if `goesOn` says so.
   *
   * @param {string} path
   * @param {{
   *   everyMs: number,
   *   signal: AbortSignal,
   *   onAnswer: (answer: any) => void,
   *   onRefused: (sentence: string, status: number) => void,
   *   goesOn?: () => boolean,
   * }} how
   */
  async poll(path, { everyMs, signal, onAnswer, onRefused, goesOn = () => true }) {
    let due = performance.now(); // on a grid, so that slow answers and late timers do not add up
    do {
      await untilVisible(signal);
      due = Math.max(due, performance.now() - everyMs) + everyMs;
      const answer = await this.persist(signal, () => this.api.get(path, signal), onRefused);
      if (signal.aborted) return;
      if (answer !== undefined) onAnswer(answer);
      await pause(Math.max(due - performance.now(), everyMs / 10), signal);
    } while (goesOn() && !signal.aborted);
  }
}

/**
 * @param {number} ms
 * @param {AbortSignal} signal
 * @returns {Promise<void>}
 */
export function pause(ms, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(done, ms);
    signal.addEventListener("abort", done, { once: true });
    function done() {
      clearTimeout(timer);
      signal.removeEventListener("abort", done);
      resolve();
    }
  });
}

/** @param {AbortSignal} signal @returns {Promise<void>} */
export async function untilVisible(signal) {
  while (document.hidden && !signal.aborted) {
    await new Promise((resolve) => {
      document.addEventListener("visibilitychange", resolve, { once: true, signal });
      signal.addEventListener("abort", resolve, { once: true });
    });
  }
}
