// The page: its views, and the state in its address.

import { make, say } from "./dom.js";
import * as draw from "./draw.js";
import * as film from "./film.js";
import { loadPicture } from "./known.js";
import * as map from "./map.js";
import * as mix from "./mix.js";
import { Model } from "./model.js";
import * as morph from "./morph.js";
import * as play from "./play.js";
import * as routing from "./routing.js";
import { read, written } from "./state.js";

const VIEWS = {
  play: ["Play", play, (model) => model.has("decode") && model.each.length > 0],
  draw: ["Draw", draw, (model) => model.has("encode") || model.has("classify")],
  mix: ["Mix", mix, (model) => model.kind === "capsules" && model.each.length > 1],
  morph: ["Morph", morph, (model) => model.kind === "capsules" && model.has("encode") && model.images],
  routing: ["Routing", routing, (model) => model.has("routing") && model.images],
  map: ["Map", map, (model) => model.map && model.images],
  film: ["Film", film, (model) => model.film?.length || model.has("step")],
};

const began = performance.now();
const view = document.getElementById("view");
const tabs = document.getElementById("tabs");
// The folder of the model that is shown: of two, the second one is below the page.
const own = read(location.hash).model;
let model;
let shown = 0;

function change(state, isNew) {
  const address = written({ ...state, model: own });
  if (!isNew) {
    history.replaceState(null, "", address);
    return;
  }
  history.pushState(null, "", address);
  show();
}

async function show() {
  const state = read(location.hash);
  const open = Object.entries(VIEWS).filter(([, [, , has]]) => has(model));
  const name = open.some(([key]) => key === state.view) ? state.view : open[0][0];
  state.view = name;
  tabs.replaceChildren(
    ...open.map(([key, [title]]) =>
      make(
        "button",
        {
          type: "button",
          role: "tab",
          id: `tab-${key}`,
          "aria-selected": String(key === name),
          "aria-controls": "view",
          onclick: () => change({ view: key }, true),
        },
        title,
      ),
    ),
  );
  view.setAttribute("aria-labelledby", `tab-${name}`);
  const number = ++shown;
  // A view that is slow must not replace one that was opened after it.
  const root = make("div");
  say("");
  try {
    view.replaceChildren(root);
    await VIEWS[name][1].show(root, model, state, change);
  } catch (error) {
    if (number === shown) say(`This view does not work: ${error.message}`);
    throw error;
  }
}

async function start() {
  const address = new URL(own || ".", document.baseURI);
  model = await Model.load(address);
  if (model.beside) {
    model.other = await Model.load(new URL(model.beside, address));
    const href = written({ model: own ? "" : model.beside });
    const link = make("a", { href }, `Show ${model.other.name} in place of ${model.name}`);
    document.getElementById("intro").after(make("p", {}, link));
  }
  model.thumbnails = model.thumbs ? await loadPicture(new URL(model.thumbs, address)) : null;
  document.title = model.title;
  document.getElementById("title").textContent = model.title;
  document.getElementById("intro").textContent = model.sentence;
  document.getElementById("about").href = new URL("model.json", address);
  await show();
  document.body.dataset.ready = String(Math.round(performance.now() - began));
}

window.addEventListener("popstate", () => (read(location.hash).model === own ? show() : location.reload()));
start().catch((error) => say(`The page cannot start: ${error.message}`));
