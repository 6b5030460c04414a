// @ts-check
/**
 * Questions to the driver. Law: every failure is one of the three errors below, and its message is
 * a sentence that can be shown.
 */

import { sentence } from "./format.js";

const TOKEN = "headgate.token";

/** The driver did not answer. */
export class Unreachable extends Error {}

/** The token is missing or wrong. */
export class Unauthorized extends Error {}

/** The driver refused: no such job, not now, a bad parameter. */
export class Refused extends Error {
  /** @param {number} status @param {string} message */
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export class Api {
  constructor() {
    this.token = remembered();
  }

  /** @param {string} token kept for this tab only, not for others nor later ones */
  useToken(token) {
    this.token = token;
    try {
      sessionStorage.setItem(TOKEN, token);
    } catch {
      // It holds until the page is left.
    }
  }

  /**
   * @param {string} path without a leading slash, so that the page works below a prefix, too
   * @param {AbortSignal} [signal]
   * @returns {Promise<any>}
   */
  async get(path, signal) {
    return read(await this.open(path, { signal }));
  }

  /**
   * @param {string} method
   * @param {string} path
   * @param {object} [body]
   * @returns {Promise<any>}
   */
  async send(method, path, body) {
    const headers = { "X-Requested-With": "headgate", "Content-Type": "application/json" };
    return read(await this.open(path, { method, headers, body: JSON.stringify(body ?? {}) }));
  }

  /**
   * An answer with a good status, its body unread.
   *
   * @param {string} path
   * @param {RequestInit} [options]
   */
  async open(path, options = {}) {
    const headers = new Headers(options.headers);
    if (this.token) headers.set("Authorization", `Bearer ${this.token}`);
    let response;
    try {
      response = await fetch(new URL(path, document.baseURI), {
        ...options,
        headers,
        cache: "no-store",
        credentials: "same-origin",
      });
    } catch (error) {
      if (options.signal?.aborted) throw error;
      throw new Unreachable("The driver does not answer.");
    }
    if (response.ok) return response;
    const complaint = await readComplaint(response);
    if (response.status === 401) throw new Unauthorized("The token is missing or wrong.");
    if (complaint) throw new Refused(response.status, complaint);
    throw new Unreachable(`Somebody in between answered ${response.status}.`);
  }
}

function remembered() {
  try {
    return sessionStorage.getItem(TOKEN) ?? "";
  } catch {
    return "";
  }
}

/** @param {Response} response */
async function read(response) {
  try {
    const text = await response.text();
    return text ? JSON.parse(text) : null;
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new Unreachable("The driver's answer broke off.");
  }
}

/**
 * @param {Response} response
 * @returns {Promise<string | null>} null: the answer is not the driver's, but a proxy's, perhaps
 */
async function readComplaint(response) {
  try {
    const { errors } = await response.json();
    return errors.map(sentence).join(" ");
  } catch {
    return null;
  }
}
