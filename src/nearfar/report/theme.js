// The switch between light and dark. Without a choice, or without scripts, the page follows the system.
(function () {
  "use strict";
  const root = document.documentElement;
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  const button = document.getElementById("theme");
  const dark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
  function name() {
    button.textContent = dark() ? "Light" : "Dark";
    button.setAttribute("aria-label", dark() ? "Use light colours" : "Use dark colours");
    document.dispatchEvent(new Event("nearfar-colours"));
  }
  button.hidden = false;
  button.addEventListener("click", function () {
    root.dataset.theme = dark() ? "light" : "dark";
    try { localStorage.setItem("nearfar-theme", root.dataset.theme); } catch (error) { /* not stored then */ }
    name();
  });
  system.addEventListener("change", name);
  name();
})();
