import assert from "node:assert/strict";
import { test } from "node:test";
import { numbers, read, text, whole, written } from "../src/state.js";

test("an address holds the state, and nothing that is usual", () => {
  const state = { view: "play", model: "", c: 10, v: "0,1.5", r: "" };
  assert.equal(written(state), "#c=10&v=0%2C1.5");
  assert.deepEqual(read(written(state)), { view: "play", model: "", c: "10", v: "0,1.5" });
});

test("numbers of a bad address are zero", () => {
  assert.deepEqual(numbers("1,x,,1e999,-2", 6), [1, 0, 0, 0, -2, 0]);
  assert.deepEqual(numbers(undefined, 2), [0, 0]);
  assert.equal(text([0, 1.234, 0, 0]), "0,1.23");
  for (const bad of ["-1", "1.5", "20", "x", undefined]) assert.equal(whole(bad, 20), 0);
  assert.equal(whole("19", 20), 19);
});

test("a model lies in a folder of the page", () => {
  assert.equal(read("#model=beside/").model, "beside/");
  for (const bad of ["http://a.example/", "//a.example/", "../m/", "/m/", "a/b/", "beside"])
    assert.equal(read(`#model=${encodeURIComponent(bad)}`).model, "");
});
