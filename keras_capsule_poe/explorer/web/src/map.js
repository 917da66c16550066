// A map of test images by their codes: near images have similar codes.

import { make, paint, picture } from "./dom.js";
import { named } from "./draw.js";
import { loadKnown } from "./known.js";

const SIZE = 640;
const MARGIN = 12;

export function colour(capsule, capsules) {
  return `hsl(${(360 * capsule) / capsules} 70% ${capsule % 2 ? 42 : 60}%)`;
}

export async function show(root, model, state, change) {
  const known = await loadKnown(model);
  const { x, y, capsule } = await (await fetch(new URL("map.json", model.address))).json();
  // Where one capsule has all images, classes are the colours.
  const hasCapsules = model.capsules > 1;
  const classes = [...new Set(known.map(({ label }) => label))].filter(Boolean).sort();
  const group = hasCapsules ? capsule : known.map(({ label }) => classes.indexOf(label));
  const groups = hasCapsules ? model.capsules : classes.length;
  const nameOf = (j) => (hasCapsules ? named(model, j) : classes[j]);
  const canvas = make("canvas", {
    width: SIZE,
    height: SIZE,
    className: "map",
    role: "img",
    "aria-label": `Map of ${x.length} test images by their codes, coloured by ${hasCapsules ? "capsule" : "class"}`,
  });
  const context = canvas.getContext("2d");
  const at = (k) => [x[k], y[k]].map((value) => MARGIN + value * (SIZE - 2 * MARGIN));
  x.forEach((_, k) => {
    context.fillStyle = colour(group[k], groups);
    context.beginPath();
    context.arc(...at(k), 4, 0, 2 * Math.PI);
    context.fill();
  });
  if (model.thumbnails) mark(context, model, capsule, x.map((_, k) => at(k)));
  const [height, width, channels] = model.image;
  const shown = picture(new Float32Array(height * width * channels), model.image, "image", "middle");
  shown.style.display = "none";
  const plays = model.each.length > 0;
  const words = make("p", { className: "note" }, `Point at a dot to see its image.${plays ? " Click to play with its capsule." : ""}`);
  function nearest(event) {
    const box = canvas.getBoundingClientRect();
    const [px, py] = [event.clientX - box.left, event.clientY - box.top].map((v) => (v * SIZE) / box.width);
    let best = [Infinity, 0];
    x.forEach((_, k) => {
      const [cx, cy] = at(k);
      const far = (cx - px) ** 2 + (cy - py) ** 2;
      if (far < best[0]) best = [far, k];
    });
    return best[1];
  }
  canvas.addEventListener("pointermove", (event) => {
    const k = nearest(event);
    if (!known[k]) return;
    paint(shown, known[k].pixels, model.image);
    shown.style.display = "";
    const name = known[k].label || `test image ${k}`;
    words.textContent = hasCapsules ? `${name}: ${named(model, capsule[k])}` : name;
  });
  if (plays) canvas.addEventListener("click", (event) => change({ view: "play", c: capsule[nearest(event)] }, true));
  const most = Array.from({ length: groups }, (_, j) => j).filter((j) => group.includes(j));
  root.replaceChildren(
    make("h2", {}, "Map"),
    make(
      "p",
      { className: "note" },
      "Each dot is a test image that training has not seen. Images with similar codes lie near each other.",
    ),
    make(
      "div",
      { className: "mapped" },
      canvas,
      make(
        "div",
        {},
        shown,
        words,
        make(
          "ul",
          { className: "legend" },
          ...most.map((j) =>
            make(
              "li",
              {},
              make("span", { style: `background:${colour(j, groups)}`, "aria-hidden": "true" }),
              nameOf(j),
            ),
          ),
        ),
      ),
    ),
  );
}

// Draw each capsule's thumbnail in the middle of its dots.
function mark(context, model, capsule, places) {
  const [rows, columns] = model.image;
  context.imageSmoothingEnabled = false;
  for (let j = 0; j < model.capsules; j++) {
    const own = places.filter((_, k) => capsule[k] === j);
    if (!own.length) continue;
    // The median: a few far dots must not move the thumbnail away from the others.
    const [cx, cy] = [0, 1].map((axis) => own.map((p) => p[axis]).sort((a, b) => a - b)[own.length >> 1]);
    context.strokeStyle = colour(j, model.capsules);
    context.lineWidth = 3;
    context.strokeRect(cx - 17, cy - 17, 34, 34);
    context.drawImage(model.thumbnails, j * columns, 0, columns, rows, cx - 16, cy - 16, 32, 32);
  }
}
