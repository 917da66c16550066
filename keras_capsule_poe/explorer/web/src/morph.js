// One test image turns into another one, in nine steps of their codes.

import { make, picture } from "./dom.js";
import { choices, loadKnown } from "./known.js";
import { whole as index } from "./state.js";
import { mixed } from "./vectors.js";

const STEPS = 9;

export async function show(root, model, state, change) {
  const known = await loadKnown(model);
  const a = index(state.a ?? 0, known.length);
  // By default a test image of another class.
  const other = known.findIndex(({ label }) => label !== known[a].label);
  const b = index(state.b ?? Math.max(1, other), known.length);
  const strip = make("div", { className: "strip" });
  // The next click changes the one that was not changed last.
  const side = state.next === "b" ? "b" : "a";
  root.replaceChildren(
    make("h2", {}, "Morph"),
    make("p", { className: "note" }, "Choose two test images, one after the other. The pictures between them are mixtures of their codes, the numbers that the model describes each image by."),
    choices(model, [a, b], (k) =>
      change({ ...state, [side]: k, next: side === "a" ? "b" : "a" }, true),
    ),
    strip,
  );
  const codes = [];
  for (const k of [a, b]) codes.push((await model.encode(known[k].pixels)).capsules.data);
  const shares = Array.from({ length: STEPS }, (_, k) => k / (STEPS - 1));
  const images = await model.decode(shares.map((t) => mixed(codes[0], codes[1], t)));
  const shown = (pixels, label) =>
    make("figure", {}, picture(pixels, model.image, label), make("figcaption", {}, label));
  strip.replaceChildren(
    shown(known[a].pixels, "first"),
    ...images.map((image, k) => shown(image, `${Math.round(100 * shares[k])}%`)),
    shown(known[b].pixels, "second"),
  );
}
