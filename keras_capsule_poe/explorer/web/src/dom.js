// Elements of the page, and pictures on canvases.

// Make an element: make("button", { onclick, "aria-label": "..." }, "text", child).
export function make(kind, options = {}, ...children) {
  const made = document.createElement(kind);
  for (const [name, value] of Object.entries(options)) {
    if (value === undefined || value === false) continue;
    if (name in made && !name.includes("-") && name !== "list") made[name] = value;
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

// Draw pixels in [0, 1], rows x columns x channels, on a canvas of that size.
export function paint(canvas, pixels, [rows, columns, channels]) {
  canvas.width = columns;
  canvas.height = rows;
  const context = canvas.getContext("2d");
  const shown = context.createImageData(columns, rows);
  for (let k = 0; k < rows * columns; k++) {
    for (let c = 0; c < 3; c++) {
      shown.data[4 * k + c] = 255 * pixels[k * channels + (channels === 3 ? c : 0)];
    }
    shown.data[4 * k + 3] = 255;
  }
  context.putImageData(shown, 0, 0);
}

export function picture(pixels, shape, label, className = "") {
  const canvas = make("canvas", { className, role: "img", "aria-label": label });
  paint(canvas, pixels, shape);
  return canvas;
}

// Horizontal bars: [[name, value in [0, 1]], ...].
export function bars(pairs, caption) {
  return make(
    "table",
    { className: "bars" },
    make("caption", {}, caption),
    ...pairs.map(([name, value]) =>
      make(
        "tr",
        {},
        make("th", { scope: "row" }, name),
        make("td", { className: "bar" }, make("span", { style: `width:${100 * Math.min(1, value)}%` })),
        make("td", {}, value.toFixed(2)),
      ),
    ),
  );
}

export function range({ value, ...options }, onInput) {
  const input = make("input", { type: "range", ...options, value: String(value) });
  input.addEventListener("input", () => onInput(Number(input.value)));
  return input;
}

export function slider(label, options, onInput) {
  return make("label", { className: "slider" }, make("span", {}, label), range(options, onInput));
}

export function button(text, onclick, options = {}) {
  return make("button", { type: "button", onclick, ...options }, text);
}

export function say(text) {
  document.getElementById("status").textContent = text;
}

// Run at most one job at a time; of those asked meanwhile only the last one runs.
export function latest(job) {
  let isBusy = false;
  let again = null;
  return async function run(...values) {
    if (isBusy) {
      again = values;
      return;
    }
    isBusy = true;
    try {
      await job(...values);
    } finally {
      isBusy = false;
      const next = again;
      again = null;
      if (next) run(...next);
    }
  };
}

export function save(name, blob) {
  const address = URL.createObjectURL(blob);
  make("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

// A large copy of a canvas, with sharp pixels.
export function enlarged(canvas, factor = 10) {
  const large = make("canvas", { width: canvas.width * factor, height: canvas.height * factor });
  const context = large.getContext("2d");
  context.imageSmoothingEnabled = false;
  context.drawImage(canvas, 0, 0, large.width, large.height);
  return large;
}

export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // Clipboards need https or localhost, and may be forbidden.
    const area = make("textarea", { value: text, className: "offscreen" });
    document.body.append(area);
    area.select();
    const isDone = document.execCommand("copy");
    area.remove();
    return isDone;
  }
}
