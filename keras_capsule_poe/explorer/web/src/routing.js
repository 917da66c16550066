// Routing step by step: the coupling coefficients of an image in each iteration.

import { bars, make, paint, picture } from "./dom.js";
import { named } from "./draw.js";
import { choices, loadKnown } from "./known.js";
import { whole as index } from "./state.js";
import { largest } from "./vectors.js";

const SHOWN = 4;

export async function show(root, model, state, change) {
  const known = await loadKnown(model);
  const chosen = index(state.i ?? 0, known.length);
  const steps = make("div", { className: "steps" });
  const isClasses = model.kind === "classes";
  root.replaceChildren(
    make("h2", {}, "Routing, step by step"),
    make(
      "p",
      { className: "note" },
      `Each place of the image votes for ${isClasses ? "classes" : "capsules"}. Routing starts with equal shares and gives more to those that agree with the votes. The more orange a place is, the larger is the share that it gives to the ${isClasses ? "most probable class" : "longest capsule"}.`,
    ),
    choices(model, [chosen], (k) => change({ ...state, i: k }, true), 20),
    steps,
  );
  const { pixels } = known[chosen];
  const { coefficients, probabilities } = await model.ask("routing", pixels);
  const [, iterations, rows, columns, capsules] = coefficients.dims;
  const size = rows * columns * capsules;
  const p = (t) => probabilities.data.subarray(t * capsules, (t + 1) * capsules);
  const winner = largest(p(iterations - 1), 1)[0];
  steps.replaceChildren(
    make("figure", {}, picture(pixels, model.image, "the image"), make("figcaption", {}, "image")),
    ...Array.from({ length: iterations }, (_, t) => {
      const c = coefficients.data.subarray(t * size, (t + 1) * size);
      const shown = Float32Array.from({ length: rows * columns }, (_, k) => {
        const all = c.subarray(k * capsules, (k + 1) * capsules);
        return all[winner] / all.reduce((sum, value) => sum + value, 0);
      });
      const [low, high] = [Math.min(...shown), Math.max(...shown)].map((share) => `${Math.round(100 * share)}%`);
      const title = t === 0 ? "equal shares" : `iteration ${t}`;
      const names = (j) => (isClasses ? String(model.class_names[j] ?? j) : named(model, j));
      return make(
        "figure",
        {},
        overlay(pixels, model.image, shown, rows, columns, title),
        make("figcaption", {}, `${title}: ${low === high ? low : `${low} to ${high}`}`),
        bars(largest(p(t), SHOWN).map((j) => [names(j), p(t)[j]]), isClasses ? "Probability of each class" : "Longest capsules"),
      );
    }),
  );
}

// The image in grey, with coefficients (rows x columns) in orange over it.
function overlay(pixels, [height, width, channels], shown, rows, columns, label) {
  const colours = new Float32Array(height * width * 3);
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) {
      const k = y * width + x;
      const c = shown[Math.floor((y * rows) / height) * columns + Math.floor((x * columns) / width)];
      const grey = 0.5 * pixels[k * channels];
      colours.set([Math.min(1, grey + 0.5 * c), Math.min(1, grey + 0.28 * c), grey], 3 * k);
    }
  }
  const canvas = make("canvas", { className: "middle", role: "img", "aria-label": label });
  paint(canvas, colours, [height, width, 3]);
  return canvas;
}
