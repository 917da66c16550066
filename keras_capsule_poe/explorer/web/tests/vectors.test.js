import assert from "node:assert/strict";
import { test } from "node:test";
import { axis, largest, mixed, moved, norm, whole } from "../src/vectors.js";

const close = (a, b) => a.forEach((value, k) => assert.ok(Math.abs(value - b[k]) < 1e-6, `${a} ${b}`));

test("a code in a ball turns and keeps its length", () => {
  const code = [0.3, 0.4];
  const turned = moved(code, [{ vector: [1, 0], by: 0.7 }], "ball");
  assert.ok(Math.abs(norm(turned) - 0.5) < 1e-12);
  close(turned, [(0.5 * 1) / Math.hypot(1, 0.4), (0.5 * 0.4) / Math.hypot(1, 0.4)]);
  assert.deepEqual(code, [0.3, 0.4]);
  close(moved([0, 0], [], "ball"), [0, 0]);
});

test("a code in a cube stays there, and one that is alone goes anywhere", () => {
  const moves = [{ vector: [1, 0], by: 2 }, { vector: axis(1, 2), by: -3 }];
  assert.deepEqual(moved([0.5, 0.5], moves, "cube"), [1, 0]);
  assert.deepEqual(moved([0.5, 0.5], moves, "alone"), [2.5, -2.5]);
});

test("whole codes and their mixtures", () => {
  const one = whole(3, 2, [[1, [5, 6]]]);
  assert.deepEqual([...one], [0, 0, 5, 6, 0, 0]);
  assert.deepEqual([...mixed(one, whole(3, 2, [[0, [4, 4]]]), 0.5)], [2, 2, 2.5, 3, 0, 0]);
  assert.deepEqual(largest([0.1, 0.7, 0.7, 0.2], 3), [1, 2, 3]);
});
