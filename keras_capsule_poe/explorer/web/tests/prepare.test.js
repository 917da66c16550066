import assert from "node:assert/strict";
import { test } from "node:test";
import { asTraining, fitted, inkBox, levels } from "../src/prepare.js";

// RGBA bytes of a picture with a bar of ink from (left, top), `wide` x `high`.
function bar(size, left, top, wide, high, isDark = false, alpha = 255) {
  const data = new Uint8ClampedArray(4 * size * size);
  for (let y = 0; y < size; y++) {
    for (let x = 0; x < size; x++) {
      const isInk = x >= left && x < left + wide && y >= top && y < top + high;
      const value = isInk !== isDark ? 255 : 0;
      data.set([value, value, value, isInk ? 255 : alpha], 4 * (y * size + x));
    }
  }
  return { data, width: size, height: size };
}

const FRAME = { size: 0.7, x: 0.5, y: 0.5 };

test("ink of any size, place and colour gets the size and place of training images", () => {
  const wanted = fitted(bar(280, 10, 20, 40, 140), 28, 28, FRAME);
  const box = inkBox(wanted.pixels, 28, 28, 0.2);
  assert.equal(box.bottom - box.top + 1, 20);
  assert.equal(box.right - box.left + 1, 6);
  assert.equal(box.top, 4);
  for (const other of [bar(280, 200, 60, 20, 70), bar(140, 5, 5, 20, 70)]) {
    assert.deepEqual(fitted(other, 28, 28, FRAME).pixels, wanted.pixels);
  }
  const dark = fitted(bar(280, 10, 20, 40, 140, true), 28, 28, FRAME);
  assert.deepEqual(dark.pixels, wanted.pixels);
  assert.ok(dark.inverted && !wanted.inverted);
});

test("a model of dark ink gets dark ink", () => {
  const made = fitted(bar(100, 40, 10, 20, 80), 28, 28, FRAME, false);
  assert.equal(Math.max(...made.pixels), 1);
  assert.ok(made.inverted && made.pixels[0] === 1);
});

test("transparent places are background, and no ink is no picture", () => {
  const picture = bar(20, 5, 5, 4, 4, false, 0);
  assert.equal(levels(picture, 0)[0], 0);
  assert.equal(levels(picture, 255)[0], 255);
  assert.equal(fitted(bar(20, 0, 0, 0, 0), 28, 28, FRAME), null);
});

test("a file is prepared as files of training images were", () => {
  const how = { background: "black", keeps_proportions: true, invert_above: 127, invert_below: null };
  const same = asTraining(bar(28, 5, 4, 6, 12), [28, 28, 1], how);
  assert.deepEqual(same.notes, []);
  assert.equal(same.pixels[4 * 28 + 5], 1);
  assert.equal(same.pixels.reduce((sum, value) => sum + value, 0), 72);
  const dark = asTraining(bar(56, 10, 8, 12, 24, true), [28, 28, 1], how);
  assert.deepEqual(dark.notes, ["dark on light: inverted"]);
  const light = asTraining(bar(56, 10, 8, 12, 24), [28, 28, 1], how);
  dark.pixels.forEach((value, k) => assert.ok(Math.abs(value - light.pixels[k]) < 1.5 / 255));
  const wide = { data: new Uint8ClampedArray(4 * 40 * 20).fill(255), width: 40, height: 20 };
  wide.data[3] = 0;
  const made = asTraining(wide, [28, 28, 3], { ...how, invert_above: null });
  assert.deepEqual(made.notes, ["padded"]);
  assert.equal(made.pixels.length, 28 * 28 * 3);
  assert.equal(made.pixels[0], 1);
});
