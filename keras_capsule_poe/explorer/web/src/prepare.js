// From a drawing or a file to the pixels of the model, as its training images are.

// Levels (width x height), 0 to 255, of RGBA bytes in front of the level `behind`: of one colour, or
// of grey as Pillow weighs it.
export function levels({ data, width, height }, behind = 0, colour = null) {
  const found = new Uint8ClampedArray(width * height);
  for (let k = 0; k < found.length; k++) {
    const alpha = data[4 * k + 3];
    const own = (i) => Math.round((data[4 * k + i] * alpha + behind * (255 - alpha)) / 255);
    found[k] =
      colour === null
        ? (19595 * own(0) + 38470 * own(1) + 7471 * own(2) + 32768) >> 16
        : own(colour);
  }
  return found;
}

// The smallest box around the ink, or null if there is none.
export function inkBox(ink, width, height, least = 51) {
  let box = null;
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) {
      if (ink[y * width + x] < least) continue;
      if (!box) box = { left: x, top: y, right: x, bottom: y };
      box.left = Math.min(box.left, x);
      box.right = Math.max(box.right, x);
      box.bottom = y;
    }
  }
  return box;
}

// Levels (rows x columns) with another number of columns, or of rows if `isDown`, by Lanczos' filter
// with Pillow's rounding.
function resizedAlong(plane, rows, columns, to, isDown) {
  const [from, lines] = isDown ? [rows, columns] : [columns, rows];
  const found = new Uint8ClampedArray(to * lines);
  const scale = from / to;
  const widest = Math.max(1, scale);
  const sinc = (x) => (x ? Math.sin(Math.PI * x) / (Math.PI * x) : 1);
  for (let x = 0; x < to; x++) {
    const centre = (x + 0.5) * scale;
    const first = Math.max(0, Math.floor(centre - 3 * widest + 0.5));
    const last = Math.min(from, Math.floor(centre + 3 * widest + 0.5));
    const weights = Array.from({ length: last - first }, (_, k) => {
      const away = (first + k - centre + 0.5) / widest;
      return Math.abs(away) < 3 ? sinc(away) * sinc(away / 3) : 0;
    });
    const total = weights.reduce((sum, weight) => sum + weight, 0);
    const exact = weights.map((weight) => Math.round((weight / total) * 2 ** 22));
    for (let line = 0; line < lines; line++) {
      const at = isDown ? first * columns + line : line * columns + first;
      const step = isDown ? columns : 1;
      const sum = exact.reduce((sum, weight, k) => sum + weight * plane[at + k * step], 0);
      found[isDown ? x * columns + line : line * to + x] = Math.floor(sum / 2 ** 22 + 0.5);
    }
  }
  return found;
}

// Levels (height x width) resized to (high x wide), as by Pillow 13. Each pass rounds and clips, so
// their order matters; earlier versions of Pillow do the rows first.
export function resized(plane, width, height, wide, high) {
  if (height - high > 2 * Math.max(0, width - wide)) {
    return resizedAlong(resizedAlong(plane, height, width, high, true), high, width, wide, false);
  }
  return resizedAlong(resizedAlong(plane, height, width, wide, false), height, wide, high, true);
}

// Sorted grey levels along the four sides of an image (rows x columns x channels).
function border(pixels, rows, columns, channels = 1) {
  const found = [];
  const add = (y, x) => {
    const from = (y * columns + x) * channels;
    const own = pixels.subarray(from, from + channels);
    found.push(own.reduce((sum, value) => sum + value, 0) / channels);
  };
  for (let x = 0; x < columns; x++) [0, rows - 1].forEach((y) => add(y, x));
  for (let y = 0; y < rows; y++) [0, columns - 1].forEach((x) => add(y, x));
  return found.sort((first, second) => first - second);
}

function quantile(sorted, q) {
  return sorted[Math.floor(q * (sorted.length - 1))];
}

// As Python rounds: halves to even numbers.
function rounded(value) {
  return value % 1 === 0.5 ? 2 * Math.round(value / 2) : Math.round(value);
}

// The level behind transparent places: that of the model, else the one with more contrast.
function levelBehind(picture, background) {
  if (background) return background === "white" ? 255 : 0;
  const [black, white] = [0, 255].map((behind) => {
    let [sum, squares] = [0, 0];
    const found = levels(picture, behind);
    found.forEach((value) => {
      sum += value;
      squares += value * value;
    });
    return found.length * squares - sum * sum;
  });
  return white > black ? 255 : 0;
}

// A file's picture as files of training images were read: {pixels, notes}.
//
// This is `prepare` of data/preparation.py. `how` is the preparation of the model: `background`
// behind what is transparent, `keeps_proportions` (padded, else stretched), `invert_above` and
// `invert_below` for the border's levels in [0, 255].
export function asTraining(picture, [rows, columns, channels], how) {
  const { width, height } = picture;
  const behind = levelBehind(picture, how.background);
  const notes = [];
  let [high, wide] = [rows, columns];
  const [first, second] = [height * columns, width * rows];
  if (how.keeps_proportions && Math.abs(first - second) > 0.02 * Math.max(first, second)) {
    const scale = Math.min(rows / height, columns / width);
    [high, wide] = [height, width].map((side) => Math.max(1, rounded(side * scale)));
    notes.push("padded");
  }
  const pixels = new Uint8ClampedArray(rows * columns * channels);
  const [top, left] = [Math.floor((rows - high) / 2), Math.floor((columns - wide) / 2)];
  for (let c = 0; c < channels; c++) {
    const plane = levels(picture, behind, channels === 3 ? c : null);
    const small = resized(plane, width, height, wide, high);
    const sides = border(small, high, wide);
    const edge = Math.floor((sides[sides.length / 2 - 1] + sides[sides.length / 2]) / 2);
    for (let y = 0; y < rows; y++) {
      for (let x = 0; x < columns; x++) {
        const inside = y >= top && y < top + high && x >= left && x < left + wide;
        pixels[(y * columns + x) * channels + c] = inside ? small[(y - top) * wide + x - left] : edge;
      }
    }
  }
  const [lower, upper] = [0.1, 0.9].map((q) => quantile(border(pixels, rows, columns, channels), q));
  const { invert_above: above, invert_below: below } = how;
  const inverted = (above !== null && lower > above) || (below !== null && upper < below);
  if (inverted) notes.push(above !== null ? "dark on light: inverted" : "light on dark: inverted");
  return { pixels: Float32Array.from(pixels, (value) => (inverted ? 255 - value : value) / 255), notes };
}

// A picture as the model's training images are: as large, and with its ink in the same place.
//
// `frame` says how training images are: `size`, the longer side of the box around their ink as a
// share of the image; `x` and `y`, the centre of the ink's mass, likewise.
// Returns {pixels, inverted}, or null for a picture without ink.
export function fitted(picture, rows, columns, frame, isLightOnDark = true) {
  const { width, height } = picture;
  const grey = levels(picture, isLightOnDark ? 0 : 255);
  const isDark = quantile(border(grey, height, width), 0.5) > 127.5;
  const ink = isDark ? grey.map((value) => 255 - value) : grey;
  const box = inkBox(ink, width, height);
  if (!box) return null;
  const [boxWide, boxHigh] = [box.right - box.left + 1, box.bottom - box.top + 1];
  const scale = (frame.size * Math.min(rows, columns)) / Math.max(boxWide, boxHigh);
  const [high, wide] = [boxHigh, boxWide].map((side) => Math.max(1, Math.round(side * scale)));
  const inside = ink.filter((_, k) => {
    const [y, x] = [Math.floor(k / width), k % width];
    return y >= box.top && y <= box.bottom && x >= box.left && x <= box.right;
  });
  const small = resized(inside, boxWide, boxHigh, wide, high);
  const most = Math.max(...small);
  let [total, x, y] = [1e-9, 0, 0];
  small.forEach((value, k) => {
    total += value;
    x += value * ((k % wide) + 0.5);
    y += value * (Math.floor(k / wide) + 0.5);
  });
  const place = (centre, size, own) =>
    Math.min(Math.max(Math.round(centre), Math.min(0, size - own)), Math.max(0, size - own));
  const left = place(frame.x * columns - x / total, columns, wide);
  const top = place(frame.y * rows - y / total, rows, high);
  const pixels = new Float32Array(rows * columns);
  small.forEach((value, k) => {
    const [r, c] = [top + Math.floor(k / wide), left + (k % wide)];
    if (r >= 0 && r < rows && c >= 0 && c < columns) pixels[r * columns + c] = value / most;
  });
  return {
    pixels: isLightOnDark ? pixels : pixels.map((value) => 1 - value),
    inverted: isDark === isLightOnDark,
  };
}
