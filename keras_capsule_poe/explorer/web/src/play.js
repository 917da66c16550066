// One capsule: its picture, and sliders with names that change it.

import { GIFEncoder, applyPalette, quantize } from "gifenc";
import {
  button,
  copyText,
  enlarged,
  latest,
  make,
  paint,
  picture,
  range,
  save,
  say,
  slider,
} from "./dom.js";
import { gallery } from "./gallery.js";
import { numbers, text, whole as index } from "./state.js";
import { axis, moved, whole } from "./vectors.js";

// A slider spans this many standard deviations of the capsule's own codes.
const SPAN = 2;
const SLIDER = { min: -SPAN, max: SPAN, step: 0.05 };
const SWEEP = 16;
const DOTS = "Dots: how much of a property the numbers of the capsule determine. Five dots: nearly all.";

// The code of a capsule that the state of the page says.
export function codeOf(model, state, capsule) {
  const own = model.each[capsule];
  const start = state.s === undefined ? own.start : own.codes[index(state.s, own.codes.length)];
  const named = own.directions;
  const moves = numbers(state.v, named.length).map((by, k) => ({
    vector: named[k].vector,
    by: by * named[k].deviation,
  }));
  const raw = numbers(state.r, model.dim).map((by, k) => ({
    vector: axis(k, model.dim),
    by: by * own.deviations[k],
  }));
  return moved(start, [...moves, ...raw].filter(({ by }) => by), model.inside);
}

export async function show(root, model, state, change) {
  const shape = model.image;
  const capsule = index(state.c, model.capsules);
  const own = model.each[capsule];
  const named = own.directions;
  const values = numbers(state.v, named.length);
  const raw = numbers(state.r, model.dim);
  let last = 0;

  const render = async (codes) =>
    model.decode(codes.map((code) => whole(model.capsules, model.dim, [[capsule, code]])));
  const at = (k, value) => {
    const v = values.slice();
    v[k] = value;
    return codeOf(model, { ...state, v: v.join(","), r: raw.join(",") }, capsule);
  };

  const canvas = picture(new Float32Array(shape[0] * shape[1] * shape[2]), shape, "", "big");
  const draw = latest(async () => {
    const [image] = await render([codeOf(model, state, capsule)]);
    paint(canvas, image, shape);
    canvas.setAttribute("aria-label", `picture of capsule ${capsule}, ${own.label}`);
    canvas.dataset.drawn = String(Number(canvas.dataset.drawn ?? 0) + 1);
  });
  const keep = () => {
    Object.assign(state, { v: text(values), r: text(raw) });
    change(state, false);
    return draw();
  };

  const ends = named.map(() => [0, 1].map(() => make("canvas", { className: "end", "aria-hidden": "true" })));
  const rows = named.map((direction, k) => row(direction, k));

  function row({ name, r2 }, k) {
    const label = `${name} of capsule ${capsule}, ${own.label}`;
    const input = range({ ...SLIDER, value: values[k], "aria-label": label }, (value) => {
      values[k] = value;
      last = k;
      keep();
    });
    const dots = Math.round(5 * r2);
    return make(
      "div",
      { className: "direction" },
      ends[k][0],
      make(
        "label",
        {},
        make("span", {}, name),
        make(
          "span",
          { className: "dots", title: `The code explains ${Math.round(100 * r2)}% of it (R²)` },
          make("span", { "aria-hidden": "true" }, "●".repeat(dots) + "○".repeat(5 - dots)),
          make("span", { className: "hidden" }, `R² ${r2.toFixed(2)}`),
        ),
        input,
      ),
      ends[k][1],
    );
  }

  const dimensions = own.order.map((d) =>
    slider(`dimension ${d}`, { ...SLIDER, value: raw[d] }, (value) => {
      raw[d] = value;
      keep();
    }),
  );

  const other = (changes) => change({ ...state, v: "", r: "", ...changes }, true);
  const file = `capsule-${capsule}`;
  const actions = make(
    "div",
    { className: "actions" },
    button("Random", () => other({ s: Math.floor(Math.random() * own.codes.length) })),
    button("Reset", () => other({ s: undefined })),
    button("Copy link", async () => {
      say((await copyText(location.href)) ? "The link is copied." : `The link: ${location.href}`);
    }),
    button("PNG", () => enlarged(canvas).toBlob((blob) => save(`${file}.png`, blob))),
    button("GIF", async () => {
      const steps = Array.from({ length: SWEEP }, (_, k) => SPAN * ((2 * k) / (SWEEP - 1) - 1));
      const images = await render(steps.map((value) => at(last, value)));
      save(`${file}-${named[last]?.name ?? "still"}.gif`, animation(images, shape));
      say(`The GIF shows ${named[last]?.name ?? "the picture"}.`);
    }),
  );

  root.replaceChildren(
    make(
      "div",
      { className: "play" },
      make(
        "section",
        { className: "choose", "aria-label": "Capsules" },
        make("p", { className: "note" }, choosing(model)),
        gallery(model, capsule, (c) => other({ c, s: undefined })),
      ),
      make("section", { className: "stage", "aria-label": "Picture" }, canvas, actions),
      make(
        "section",
        { className: "sliders", "aria-label": "Sliders" },
        make("h2", {}, `Capsule ${capsule}: ${own.label || "no main class"}`),
        make("p", { className: "note" }, about(own)),
        ...rows,
        make("p", { className: "note" }, named.length ? DOTS : "No property of its pictures follows its code."),
        make("details", {}, make("summary", {}, `All ${model.dim} dimensions`), ...dimensions),
        make("details", {}, make("summary", {}, "The same in Python"), python(model, capsule)),
      ),
    ),
  );
  await draw();
  // The small pictures at the ends of the sliders.
  const images = await render(named.flatMap((_, k) => [at(k, -SPAN), at(k, SPAN)]));
  images.forEach((image, k) => paint(ends[Math.floor(k / 2)][k % 2], image, shape));
}

function choosing(model) {
  const isNamed = model.kind !== "classes" && model.each.some(({ label }) => label);
  return isNamed
    ? "What each capsule draws. Below: the most frequent class of the test images that it explains best, and its share."
    : "What each capsule draws.";
}

function about(own) {
  if (own.share === null || own.share === undefined) return "Move a slider to change the picture.";
  const classes = own.classes
    .slice(0, 3)
    .map(([name, share]) => `${name} ${Math.round(100 * share)}%`)
    .join(", ");
  const won = `${(100 * own.share).toFixed(1)}% of the test images are its own`;
  return classes ? `${won}: ${classes}.` : `${won}.`;
}

function python(model, capsule) {
  return make(
    "pre",
    { tabIndex: 0 },
    `import keras_capsule_poe as kcp

model = kcp.load(${JSON.stringify(model.name)})
model.sample(16, capsule=${capsule})
model.directions(${capsule})`,
  );
}

// A GIF that goes through images and back.
export function animation(images, [rows, columns, channels], factor = 8) {
  const gif = GIFEncoder();
  const small = make("canvas");
  for (const image of [...images, ...images.slice(1, -1).reverse()]) {
    paint(small, image, [rows, columns, channels]);
    const large = enlarged(small, factor);
    const { data } = large.getContext("2d").getImageData(0, 0, large.width, large.height);
    const palette = quantize(data, 64);
    gif.writeFrame(applyPalette(data, palette), large.width, large.height, { palette, delay: 80 });
  }
  gif.finish();
  return new Blob([gif.bytes()], { type: "image/gif" });
}
