// Draw or load a picture, and see which capsules it switches on.

import { bars, button, latest, make, paint, picture, say } from "./dom.js";
import { asTraining, fitted } from "./prepare.js";
import { largest, whole } from "./vectors.js";

const SIZE = 280;
const PEN = 20;
const SHOWN = 5;

export async function show(root, model) {
  const paper = make("canvas", {
    width: SIZE,
    height: SIZE,
    className: "paper",
    tabIndex: 0,
    role: "img",
    "aria-label": "Paper: draw here with a mouse or a finger",
  });
  const context = paper.getContext("2d", { willReadFrequently: true });
  const answers = [model, model.other].filter(Boolean).map((each) => column(each, Boolean(model.other)));

  function clear() {
    context.fillStyle = model.light ? "black" : "white";
    context.fillRect(0, 0, SIZE, SIZE);
    answers.forEach((each) => each.clear());
  }

  // Show the answers to an image that `prepare` makes for a model; its notes are those of the first.
  async function ask(prepare) {
    const made = answers.map((each) => prepare(each.model));
    if (made.some((each) => !each)) return;
    await Promise.all(answers.map((each, k) => each.show(made[k].pixels)));
    say(made[0].notes.join(", "));
    paper.dataset.answered = String(Number(paper.dataset.answered ?? 0) + 1);
  }

  const look = latest(() => {
    const drawn = context.getImageData(0, 0, SIZE, SIZE);
    return ask(({ image: [rows, columns, channels], frame, light }) => {
      const made = fitted(drawn, rows, columns, frame, light);
      const notes = made?.inverted ? ["Light and dark are exchanged, as the model was trained."] : [];
      return made && { pixels: spread(made.pixels, channels), notes };
    });
  });

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
      const pixels = whole.getContext("2d").getImageData(...size);
      const scale = SIZE / Math.max(image.width, image.height);
      context.drawImage(image, 0, 0, image.width * scale, image.height * scale);
      await ask((each) => asTraining(pixels, each.image, each.preparation));
    } catch (error) {
      say(`${file.files[0].name} cannot be read as a picture: ${error.message}`);
    }
  });

  clear();
  root.replaceChildren(
    make(
      "div",
      { className: "draw" },
      make(
        "section",
        { "aria-label": "Paper" },
        make("h2", {}, "Draw"),
        make("p", { className: "note" }, "Draw with a mouse or a finger, or load a picture."),
        paper,
        make("div", { className: "actions" }, button("Clear", clear), file),
      ),
      ...answers.map(({ element }) => element),
    ),
  );
}

// What one model says of a picture.
function column(model, isNamed) {
  const empty = new Float32Array(model.image[0] * model.image[1] * model.image[2]);
  const seen = picture(empty, model.image, "your picture, as the model gets it", "middle");
  const words = isSingle(model) ? "what the model makes of it" : "what the winner sees";
  const decoded = picture(empty, model.image, words, "middle");
  const found = make("div", { className: "found" });
  const title = model.kind === "classes" ? "What the classes say" : "Which capsules light up";
  const heading = isSingle(model) ? "What the model sees" : title;
  const element = make(
    "section",
    { "aria-label": isNamed ? `Answer of ${model.name}` : "Answer" },
    make("h2", {}, isNamed ? `${heading}: ${model.name}` : heading),
    make(
      "div",
      { className: "pair" },
      make("figure", {}, seen, make("figcaption", {}, "as the model gets it")),
      model.has("decode") ? make("figure", {}, decoded, make("figcaption", {}, words)) : null,
    ),
    found,
  );
  function clear() {
    found.replaceChildren();
    for (const canvas of [seen, decoded]) paint(canvas, empty, model.image);
  }
  async function show(image) {
    paint(seen, image, model.image);
    await answer(model, image, found, decoded);
  }
  return { model, element, clear, show };
}

// A Boltzmann machine is one capsule, which all images choose.
function isSingle(model) {
  return model.kind !== "classes" && model.capsules === 1;
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
  const usual = model.kind === "classes" ? "Probability of each class" : "Longest capsules";
  const caption = isSingle(model) ? "Hidden units that are on" : usual;
  const capsule = (j) => (isSingle(model) ? "share" : named(model, j));
  const name = (j) => (model.kind === "classes" ? model.class_names[j] ?? j : capsule(j));
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
