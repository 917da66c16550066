// Draw or load a picture, and see which capsules it switches on.

import { bars, button, latest, make, paint, picture, say } from "./dom.js";
import { asTraining, fitted } from "./prepare.js";
import { largest, whole } from "./vectors.js";

const SIZE = 280;
const PEN = 20;
const SHOWN = 5;

export async function show(root, model) {
  const shape = model.image;
  const empty = new Float32Array(shape[0] * shape[1] * shape[2]);
  const paper = make("canvas", {
    width: SIZE,
    height: SIZE,
    className: "paper",
    tabIndex: 0,
    role: "img",
    "aria-label": "Paper: draw here with a mouse or a finger",
  });
  const context = paper.getContext("2d", { willReadFrequently: true });
  const seen = picture(empty, shape, "your picture, as the model gets it", "middle");
  const decoded = picture(empty, shape, "what the winner sees", "middle");
  const found = make("div", { className: "found" });

  function clear() {
    context.fillStyle = model.light ? "black" : "white";
    context.fillRect(0, 0, SIZE, SIZE);
    found.replaceChildren();
    for (const canvas of [seen, decoded]) paint(canvas, empty, shape);
  }

  const look = latest(async () => {
    const drawn = context.getImageData(0, 0, SIZE, SIZE);
    const made = fitted(drawn, shape[0], shape[1], model.frame, model.light);
    if (!made) return;
    const image = spread(made.pixels, shape[2]);
    paint(seen, image, shape);
    await answer(model, image, found, decoded);
    say(made.inverted ? "Light and dark are exchanged, as the model was trained." : "");
    answered();
  });
  const answered = () => {
    paper.dataset.answered = String(Number(paper.dataset.answered ?? 0) + 1);
  };

  let from = null;
  const place = (event) => {
    const box = paper.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top].map((at) => (at * SIZE) / box.width);
  };
  paper.addEventListener("pointerdown", (event) => {
    paper.setPointerCapture(event.pointerId);
    from = place(event);
  });
  paper.addEventListener("pointermove", (event) => {
    if (!from) return;
    const to = place(event);
    Object.assign(context, { lineWidth: PEN, lineCap: "round" });
    context.strokeStyle = model.light ? "white" : "black";
    context.beginPath();
    context.moveTo(...from);
    context.lineTo(...to);
    context.stroke();
    from = to;
    look();
  });
  for (const kind of ["pointerup", "pointercancel"]) {
    paper.addEventListener(kind, () => {
      from = null;
      look();
    });
  }

  const file = make("input", { type: "file", accept: "image/*", "aria-label": "Load a picture" });
  file.addEventListener("change", async () => {
    if (!file.files.length) return;
    try {
      const image = await createImageBitmap(file.files[0]);
      clear();
      const whole = make("canvas", { width: image.width, height: image.height });
      whole.getContext("2d").drawImage(image, 0, 0);
      const size = [0, 0, image.width, image.height];
      const read = whole.getContext("2d").getImageData(...size);
      const made = asTraining(read, shape, model.preparation);
      const scale = SIZE / Math.max(image.width, image.height);
      context.drawImage(image, 0, 0, image.width * scale, image.height * scale);
      paint(seen, made.pixels, shape);
      await answer(model, made.pixels, found, decoded);
      say(made.notes.join(", "));
      answered();
    } catch (error) {
      say(`${file.files[0].name} cannot be read as a picture: ${error.message}`);
    }
  });

  clear();
  const isClasses = model.kind === "classes";
  root.replaceChildren(
    make(
      "div",
      { className: "draw" },
      make(
        "section",
        { "aria-label": "Paper" },
        make("h2", {}, "Draw"),
        paper,
        make("div", { className: "actions" }, button("Clear", clear), file),
      ),
      make(
        "section",
        { "aria-label": "Answer" },
        make("h2", {}, isClasses ? "What the classes say" : "Which capsules light up"),
        make(
          "div",
          { className: "pair" },
          make("figure", {}, seen, make("figcaption", {}, "as the model gets it")),
          model.has("decode")
            ? make("figure", {}, decoded, make("figcaption", {}, "what the winner sees"))
            : null,
        ),
        found,
      ),
    ),
  );
}

export function spread(pixels, channels) {
  const image = new Float32Array(pixels.length * channels);
  pixels.forEach((value, k) => image.fill(value, k * channels, (k + 1) * channels));
  return image;
}

// Show the probabilities of an image (Float32Array), and the picture of the longest capsule.
export async function answer(model, image, found, decoded) {
  const code = model.has("encode") ? await model.encode(image) : await model.classify(image);
  const p = code.probabilities.data;
  const winner = largest(p, 1)[0];
  const caption = model.kind === "classes" ? "Probability of each class" : "Longest capsules";
  const name = (j) => (model.kind === "classes" ? model.class_names[j] ?? j : named(model, j));
  found.replaceChildren(
    bars(largest(p, SHOWN).map((j) => [String(name(j)), p[j]]), caption),
  );
  found.dataset.winner = String(winner);
  found.dataset.named = model.kind === "classes" ? name(winner) : model.each[winner]?.classes?.[0]?.[0] ?? "";
  if (!model.has("decode") || !code.capsules) return;
  const own = code.capsules.data.slice(winner * model.dim, (winner + 1) * model.dim);
  const [picture] = await model.decode([whole(model.capsules, model.dim, [[winner, own]])]);
  paint(decoded, picture, model.image);
}

export function named(model, capsule) {
  const label = model.each[capsule]?.label;
  return label ? `capsule ${capsule}, ${label}` : `capsule ${capsule}`;
}
