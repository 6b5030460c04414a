// @ts-check
/**
 * Light, dark, or what the system prefers. A plain script in the head, not a module: it runs before
 * the first paint, so that a dark page does not flash white.
 */
(() => {
  const KEY = "headgate.theme";
  const root = document.documentElement;

  /** @returns {string} */
  const chosen = () => {
    try {
      return localStorage.getItem(KEY) ?? "auto";
    } catch {
      return "auto"; // storage is forbidden here
    }
  };

  /** @param {string} theme */
  const choose = (theme) => {
    root.dataset.theme = theme;
    try {
      localStorage.setItem(KEY, theme);
    } catch {
      // It holds until the page is closed.
    }
  };

  root.dataset.theme = chosen();
  document.addEventListener("DOMContentLoaded", () => {
    const select = /** @type {HTMLSelectElement} */ (document.getElementById("theme"));
    select.value = chosen();
    select.addEventListener("change", () => choose(select.value));
  });
})();
