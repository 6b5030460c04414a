// @ts-check
/** Says when the driver does not answer, since when, and when it will be asked again. */
import { announce, h, replace, setText } from "./dom.js";
import { clock } from "./format.js";

/** @type {Record<import("./connection.js").Link["status"], string>} */
const WORDS = { connecting: "Connecting…", live: "Live", lost: "No answer", ended: "Not live" };

/** @param {import("./connection.js").Connection} connection */
export function showConnection(connection) {
  const banner = /** @type {HTMLElement} */ (document.getElementById("banner"));
  const mark = /** @type {HTMLElement} */ (document.getElementById("live"));
  const countdown = h("span", { "aria-hidden": "true" });
  let before = connection.link.value.status;

  const tick = () => {
    const { status, retryAt } = connection.link.value;
    if (status !== "lost") return;
    const seconds = Math.ceil((retryAt - Date.now()) / 1000);
    setText(countdown, seconds > 0 ? ` Next attempt in ${seconds} s.` : " Trying now…");
  };
  setInterval(tick, 500);

  connection.link.watch(({ status, since }) => {
    mark.dataset.state = status;
    setText(mark, WORDS[status]);
    document.body.classList.toggle("stale", status === "lost");
    if (status === "lost" && before !== "lost") {
      replace(
        banner,
        h("span", {}, sentence(since), countdown),
        h("button", { type: "button", on: { click: () => connection.retryNow() } }, "Try now"),
      );
    }
    banner.hidden = status !== "lost";
    if (before === "lost" && status === "live") announce("The driver answers again.");
    before = status;
    tick();
  }, new AbortController().signal);
}

/** @param {number} since */
const sentence = (since) =>
  `The driver has not answered since ${clock(since)}; everything below is as it was then. ` +
  "If the program has ended, headgate history shows its archived jobs.";
