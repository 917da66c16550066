// Test images that the page can show, cut from one picture.

import { make, paint } from "./dom.js";

// Load the images once: [{pixels: Float32Array, label}, ...].
export async function loadKnown(model) {
  if (model.known) return model.known;
  if (!model.images) return (model.known = []);
  const { file, count, columns: perRow, labels } = model.images;
  const [rows, columns, channels] = model.image;
  const sheet = await loadPicture(new URL(file, model.address));
  const canvas = make("canvas", { width: sheet.width, height: sheet.height });
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.drawImage(sheet, 0, 0);
  model.known = Array.from({ length: count }, (_, k) => {
    const [left, top] = [(k % perRow) * columns, Math.floor(k / perRow) * rows];
    const { data } = context.getImageData(left, top, columns, rows);
    const pixels = new Float32Array(rows * columns * channels);
    for (let p = 0; p < rows * columns; p++) {
      for (let c = 0; c < channels; c++) pixels[p * channels + c] = data[4 * p + (c % 3)] / 255;
    }
    return { pixels, label: labels?.[k] ?? "" };
  });
  return model.known;
}

export async function loadPicture(address) {
  const image = new Image();
  image.src = address;
  await image.decode();
  return image;
}

// Buttons with known images; `chosen` are the numbers of those that are pressed.
export function choices(model, chosen, choose, count = 40) {
  return make(
    "div",
    { className: "gallery known" },
    ...model.known.slice(0, count).map(({ pixels, label }, k) => {
      const canvas = make("canvas", { "aria-hidden": "true" });
      paint(canvas, pixels, model.image);
      const name = `test image ${k}${label ? `, ${label}` : ""}`;
      const pressed = String(chosen.includes(k));
      return make(
        "button",
        { type: "button", "aria-label": name, "aria-pressed": pressed, onclick: () => choose(k) },
        canvas,
      );
    }),
  );
}
