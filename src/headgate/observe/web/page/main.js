// @ts-check
/** Starts the page. */
import { App } from "./app.js";

const main = /** @type {HTMLElement} */ (document.getElementById("main"));

// The fragment is the page's address: a skip link must not change it.
document.querySelector(".skip")?.addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});

await new App(main).start();
