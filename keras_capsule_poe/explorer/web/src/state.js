// The state of the page, which its address holds: a link shows the same picture.

const PLAIN = { view: "play", model: "" };

export function read(hash) {
  const found = { ...PLAIN, ...Object.fromEntries(new URLSearchParams(hash.replace(/^#/, ""))) };
  // A link must not show the model of another site under this page's address.
  return /^([\w-]+\/)?$/.test(found.model) ? found : { ...found, model: "" };
}

export function written(state) {
  const kept = Object.entries(state).filter(([key, value]) => value !== "" && value !== PLAIN[key]);
  return `#${new URLSearchParams(kept)}`;
}

// Numbers in a text such as "0,1.5,-2", `size` of them; what is missing or no number is zero.
export function numbers(text, size) {
  const found = String(text ?? "").split(",").map(Number);
  return Array.from({ length: size }, (_, k) => (Number.isFinite(found[k]) ? found[k] : 0));
}

// The text of numbers, without zeros at its end.
export function text(values) {
  const rounded = values.map((value) => String(Math.round(value * 100) / 100));
  while (rounded.length && rounded.at(-1) === "0") rounded.pop();
  return rounded.join(",");
}

export function whole(value, size) {
  const number = Number(value);
  return Number.isInteger(number) && number >= 0 && number < size ? number : 0;
}
