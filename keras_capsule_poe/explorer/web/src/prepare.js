// From a drawing or a file to the pixels of the model, as its training images are.

// Brightness (width x height) in [0, 1] of RGBA bytes; transparent places show `background`.
export function brightness({ data, width, height }, background = 0) {
  const grey = new Float32Array(width * height);
  for (let k = 0; k < grey.length; k++) {
    const [r, g, b, a] = data.subarray(4 * k, 4 * k + 4);
    const own = (0.299 * r + 0.587 * g + 0.114 * b) / 255;
    grey[k] = own * (a / 255) + background * (1 - a / 255);
  }
  return grey;
}

// Whether a picture is dark ink on light paper, by its border.
export function isDarkOnLight(grey, width, height) {
  let sum = 0;
  let count = 0;
  for (let y = 0; y < height; y++) {
    const step = y === 0 || y === height - 1 ? 1 : width - 1 || 1;
    for (let x = 0; x < width; x += step) {
      sum += grey[y * width + x];
      count += 1;
    }
  }
  return sum / count > 0.5;
}

// The smallest box around the ink, or null if there is none.
export function inkBox(ink, width, height, least = 0.2) {
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

// Mean of the ink in each cell of a grid (rows x columns) laid over a box of the picture.
function resized(ink, width, height, box, rows, columns) {
  const found = new Float32Array(rows * columns);
  const high = (box.bottom - box.top + 1) / rows;
  const wide = (box.right - box.left + 1) / columns;
  for (let r = 0; r < rows; r++) {
    for (let c = 0; c < columns; c++) {
      const [top, bottom] = [box.top + r * high, box.top + (r + 1) * high];
      const [left, right] = [box.left + c * wide, box.left + (c + 1) * wide];
      let sum = 0;
      let weight = 0;
      for (let y = Math.floor(top); y < Math.min(height, Math.ceil(bottom)); y++) {
        const down = Math.min(bottom, y + 1) - Math.max(top, y);
        for (let x = Math.floor(left); x < Math.min(width, Math.ceil(right)); x++) {
          const part = down * (Math.min(right, x + 1) - Math.max(left, x));
          sum += part * ink[y * width + x];
          weight += part;
        }
      }
      found[r * columns + c] = weight ? sum / weight : 0;
    }
  }
  return found;
}

// Quantile q of the grey levels along the four sides of an image (rows x columns x channels).
function border(pixels, rows, columns, channels, q = 0.5) {
  const levels = [];
  const add = (y, x) => {
    const from = (y * columns + x) * channels;
    const own = pixels.subarray(from, from + channels);
    levels.push(own.reduce((sum, value) => sum + value, 0) / channels);
  };
  for (let x = 0; x < columns; x++) [0, rows - 1].forEach((y) => add(y, x));
  for (let y = 0; y < rows; y++) [0, columns - 1].forEach((x) => add(y, x));
  return levels.sort((first, second) => first - second)[Math.floor(q * (levels.length - 1))];
}

// A file's picture as files of training images were read: {pixels, notes}.
//
// `how` is the preparation of the model: `background` behind what is transparent,
// `keeps_proportions` (padded, else stretched), `invert_above` and `invert_below` for the border's
// levels in [0, 255].
export function asTraining(picture, [rows, columns, channels], how) {
  const { data, width, height } = picture;
  const behind = how.background === "white" ? 255 : 0;
  const notes = [];
  const planes = Array.from({ length: channels }, (_, c) => {
    const plane = new Float32Array(width * height);
    for (let k = 0; k < plane.length; k++) {
      const a = data[4 * k + 3] / 255;
      const [r, g, b] = [0, 1, 2].map((i) => data[4 * k + i] * a + behind * (1 - a));
      const own = channels === 3 ? [r, g, b][c] : 0.299 * r + 0.587 * g + 0.114 * b;
      plane[k] = Math.round(own) / 255;
    }
    return plane;
  });
  const box = { left: 0, top: 0, right: width - 1, bottom: height - 1 };
  let [high, wide] = [rows, columns];
  if (how.keeps_proportions && width * rows !== height * columns) {
    const scale = Math.min(rows / height, columns / width);
    [high, wide] = [Math.max(1, Math.round(height * scale)), Math.max(1, Math.round(width * scale))];
    notes.push("padded");
  }
  let pixels = new Float32Array(rows * columns * channels);
  const [top, left] = [Math.floor((rows - high) / 2), Math.floor((columns - wide) / 2)];
  planes.forEach((plane, c) => {
    const small = resized(plane, width, height, box, high, wide);
    const edge = border(small, high, wide, 1);
    for (let y = 0; y < rows; y++) {
      for (let x = 0; x < columns; x++) {
        const inside = y >= top && y < top + high && x >= left && x < left + wide;
        pixels[(y * columns + x) * channels + c] = inside ? small[(y - top) * wide + x - left] : edge;
      }
    }
  });
  const [lower, upper] = [0.1, 0.9].map((q) => 255 * border(pixels, rows, columns, channels, q));
  const { invert_above: above, invert_below: below } = how;
  if ((above !== null && lower > above) || (below !== null && upper < below)) {
    pixels = pixels.map((value) => 1 - value);
    notes.push(above !== null ? "dark on light: inverted" : "light on dark: inverted");
  }
  return { pixels, notes };
}

// A picture as the model's training images are: as large, and with its ink in the same place.
//
// `frame` says how training images are: `size`, the longer side of the box around their ink as a
// share of the image; `x` and `y`, the centre of the ink's mass, likewise.
// Returns {pixels, inverted}, or null for a picture without ink.
export function fitted(picture, rows, columns, frame, isLightOnDark = true) {
  const { width, height } = picture;
  const grey = brightness(picture, isLightOnDark ? 0 : 1);
  const isDark = isDarkOnLight(grey, width, height);
  const ink = isDark ? grey.map((value) => 1 - value) : grey;
  const box = inkBox(ink, width, height);
  if (!box) return null;
  const longer = Math.max(box.right - box.left + 1, box.bottom - box.top + 1);
  const scale = (frame.size * Math.min(rows, columns)) / longer;
  const high = Math.max(1, Math.round((box.bottom - box.top + 1) * scale));
  const wide = Math.max(1, Math.round((box.right - box.left + 1) * scale));
  const small = resized(ink, width, height, box, high, wide);
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
