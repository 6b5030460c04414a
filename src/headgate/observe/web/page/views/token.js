// @ts-check
/** Asks for the token, in one sentence. */
import { Unauthorized } from "../api.js";
import { h, replace, setText } from "../dom.js";

/**
 * @param {import("../api_types.js").Context} context
 * @param {HTMLElement} main
 * @param {() => void} onAccepted
 */
export function showTokenForm({ api, connection, signal }, main, onAccepted) {
  const input = h("input", {
    id: "token",
    type: "password",
    autocomplete: "off",
    spellcheck: "false",
    required: true,
    "aria-describedby": "token-hint token-problem",
  });
  const problem = h("p", { id: "token-problem", class: "problem", role: "alert" });
  if (api.token) setText(problem, "That token is not the right one.");
  const submit = async (/** @type {Event} */ event) => {
    event.preventDefault();
    setText(problem, "");
    try {
      api.useToken(input.value.trim());
      await api.get("jobs", signal);
      onAccepted();
    } catch (error) {
      if (signal.aborted) return;
      const wrong = error instanceof Unauthorized;
      setText(
        problem,
        wrong ? "That token is not the right one." : /** @type {Error} */ (error).message,
      );
      input.select();
    }
  };
  connection.answered();
  replace(
    main,
    h(
      "form",
      { class: "card token", on: { submit } },
      h("h1", {}, "This driver asks for a token"),
      h(
        "p",
        { id: "token-hint" },
        "Enter the token that the job printed with the address of this page, or open that address.",
      ),
      h("label", { for: "token" }, "Token"),
      h("div", { class: "row" }, input, h("button", { class: "primary" }, "Open")),
      problem,
    ),
  );
  input.focus();
}
