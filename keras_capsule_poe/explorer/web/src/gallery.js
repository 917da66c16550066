// Thumbnails of all capsules, with the class that each one wins most.

import { make } from "./dom.js";

export function thumbnail(model, capsule) {
  const [rows, columns] = model.image;
  const canvas = make("canvas", { width: columns, height: rows, "aria-hidden": "true" });
  canvas.getContext("2d").drawImage(model.thumbnails, -capsule * columns, 0);
  return canvas;
}

export function gallery(model, chosen, choose) {
  const made = make(
    "div",
    { className: "gallery" },
    ...model.each.map((own, capsule) =>
      make(
        "button",
        {
          type: "button",
          "aria-pressed": String(capsule === chosen),
          "aria-label": `capsule ${capsule}${own.label ? `, ${own.label}` : ""}`,
          onclick: () => choose(capsule),
        },
        thumbnail(model, capsule),
        make("span", {}, own.label || `capsule ${capsule}`),
      ),
    ),
  );
  // On a phone it is one row, which begins at the chosen capsule.
  requestAnimationFrame(() => {
    made.scrollLeft = made.children[chosen].offsetLeft - made.clientWidth / 3;
  });
  return made;
}
