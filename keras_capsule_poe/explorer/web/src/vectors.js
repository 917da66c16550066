// Vectors of capsules: plain arrays or typed arrays of numbers.

export const norm = (a) => Math.hypot(...a);

export const dot = (a, b) => a.reduce((sum, value, k) => sum + value * b[k], 0);

export function add(a, b, factor = 1) {
  return Array.from(a, (value, k) => value + factor * b[k]);
}

export function withLength(a, length) {
  const size = norm(a);
  return size > 0 ? Array.from(a, (value) => (value * length) / size) : Array.from(a);
}

// Move a code of a capsule. In a `ball` it turns and keeps its length, the probability that the
// capsule is on. In a `cube` each number stays between 0 and 1.
export function moved(code, moves, inside) {
  const sum = moves.reduce((at, { vector, by }) => add(at, vector, by), Array.from(code));
  if (inside === "cube") return sum.map((value) => Math.min(1, Math.max(0, value)));
  return inside === "ball" ? withLength(sum, norm(code)) : sum;
}

// Unit vector (size) of one dimension.
export function axis(dimension, size) {
  return Array.from({ length: size }, (_, k) => (k === dimension ? 1 : 0));
}

// A whole code of J capsules of E numbers, in which only some are on.
export function whole(capsules, dim, on) {
  const code = new Float32Array(capsules * dim);
  for (const [capsule, numbers] of on) code.set(numbers, capsule * dim);
  return code;
}

// Mixture (1 - t) a + t b of two whole codes.
export function mixed(a, b, t) {
  return Float32Array.from(a, (value, k) => (1 - t) * value + t * b[k]);
}

// Indices of the largest numbers, the largest first.
export function largest(values, count) {
  return Array.from(values, (_, k) => k)
    .sort((a, b) => values[b] - values[a] || a - b)
    .slice(0, count);
}
