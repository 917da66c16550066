// Two capsules at once, and the free energy of their picture.

import { latest, make, paint, picture, slider } from "./dom.js";
import { gallery } from "./gallery.js";
import { whole as index } from "./state.js";
import { whole } from "./vectors.js";

export async function show(root, model, state, change) {
  const shape = model.image;
  const [a, b] = [index(state.a ?? 0, model.capsules), index(state.b ?? 1, model.capsules)];
  const share = Math.min(1, Math.max(0, Number(state.t ?? 0.5) || 0));
  const canvas = picture(new Float32Array(shape[0] * shape[1] * shape[2]), shape, "mixture", "big");
  const energy = make("p", { className: "note" });
  const scaled = (code, factor) => code.map((value) => factor * value);

  const draw = latest(async (t) => {
    const on = [
      [a, scaled(model.each[a].start, 1 - t)],
      [b, scaled(model.each[b].start, t)],
    ];
    // One capsule with itself is that capsule.
    const code = a === b ? whole(model.capsules, model.dim, [[a, model.each[a].start]]) : null;
    const [image] = await model.decode([code ?? whole(model.capsules, model.dim, on)]);
    paint(canvas, image, shape);
    if (!model.has("encode")) return;
    const { free_energy: found } = await model.encode(image);
    if (found) {
      energy.textContent = `Free energy of the picture: ${found.data[0].toFixed(2)} nats. Low: the capsules are sure of it. It does not say how typical a picture is.`;
    }
  });

  root.replaceChildren(
    make("p", { className: "note" }, "Two capsules at once: choose the first and the second, then move the slider."),
    make(
      "div",
      { className: "mix" },
      make("section", { "aria-label": "First capsule" }, make("h2", {}, "First"), gallery(model, a, (c) => change({ ...state, a: c }, true))),
      make(
        "section",
        { className: "stage", "aria-label": "Mixture" },
        canvas,
        slider("from the first to the second", { min: 0, max: 1, step: 0.01, value: share }, (t) => {
          state.t = t;
          change(state, false);
          draw(t);
        }),
        energy,
      ),
      make("section", { "aria-label": "Second capsule" }, make("h2", {}, "Second"), gallery(model, b, (c) => change({ ...state, b: c }, true))),
    ),
  );
  await draw(share);
}
