// Formulas and tables that are wider than their place are moved sideways: by keyboard, too, which must reach them.
const named = document.documentElement.lang.startsWith("zh") ? ["公式", "表格"] : ["formula", "table"];

function reach() {
  for (const each of document.querySelectorAll(".formula, .md-typeset__scrollwrap")) {
    if (each.scrollWidth > each.clientWidth) {
      each.tabIndex = 0;
      each.setAttribute("role", "group");
      each.setAttribute("aria-label", named[each.classList.contains("formula") ? 0 : 1]);
    } else {
      for (const name of ["tabindex", "role", "aria-label"]) each.removeAttribute(name);
    }
  }
}

new ResizeObserver(reach).observe(document.body); // at first, and whenever the page has another size
new MutationObserver(reach).observe(document.body, { childList: true, subtree: true }); // the theme puts tables in frames
