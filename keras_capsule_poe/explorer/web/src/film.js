// How the model learned: pictures that training kept; and a chain of up-down passes from noise.

import { button, make, paint, picture, slider } from "./dom.js";

const CHAINS = 8;

export async function show(root, model) {
  const parts = [make("h2", {}, "Film")];
  for (const { name, text, files } of model.film ?? []) {
    const image = make("img", { src: new URL(files.at(-1), model.address).href, className: "frame", alt: `${name}: last picture` });
    const turn = (k) => {
      image.src = new URL(files[k], model.address).href;
      image.alt = `${name}: picture ${k + 1} of ${files.length}`;
    };
    parts.push(
      make(
        "section",
        { "aria-label": name },
        make("h3", {}, name),
        make("p", { className: "note" }, text),
        image,
        slider(`training of the ${name}`, { min: 0, max: files.length - 1, step: 1, value: files.length - 1 }, turn),
      ),
    );
  }
  if (model.has("step")) parts.push(chain(model));
  root.replaceChildren(...parts);
}

function chain(model) {
  const [rows, columns, channels] = model.image;
  const size = rows * columns * channels;
  const canvases = Array.from({ length: CHAINS }, (_, k) =>
    picture(new Float32Array(size), model.image, `chain ${k}`, "middle"),
  );
  const count = make("p", { className: "note" }, "");
  let images;
  let done = 0;
  const restart = () => {
    images = canvases.map(() => Float32Array.from({ length: size }, Math.random));
    done = 0;
    draw();
  };
  const draw = () => {
    images.forEach((image, k) => paint(canvases[k], image, model.image));
    count.textContent = `${done} steps`;
  };
  const step = async (steps) => {
    for (let k = 0; k < steps; k++) {
      images = await Promise.all(images.map(async (image) => (await model.ask("step", image)).images.data));
      done += 1;
      draw();
    }
  };
  restart();
  return make(
    "section",
    { "aria-label": "Chain" },
    make("h3", {}, "From noise to images"),
    make("p", { className: "note" }, "Noise goes up through the model and back down to an image, many times. It becomes what the model takes for probable."),
    make("div", { className: "strip" }, ...canvases),
    make(
      "div",
      { className: "actions" },
      button("Step", () => step(1)),
      button("10 steps", () => step(10)),
      button("Start again", restart),
    ),
    count,
  );
}
