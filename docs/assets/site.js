// Names for buttons that the theme adds to code, and keys that scroll code of notebooks.
const watch = new MutationObserver(() => {
  document.querySelectorAll(".md-code__nav:not([aria-label])").forEach((each, k) => {
    each.setAttribute("aria-label", `Code ${k + 1}`);
  });
  for (const each of document.querySelectorAll(".highlight-ipynb:not([tabindex])")) each.tabIndex = 0;
});
watch.observe(document.documentElement, { childList: true, subtree: true });
