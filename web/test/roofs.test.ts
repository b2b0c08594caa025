import assert from "node:assert/strict";
import { test } from "node:test";
import { amountOf, chosenRows, formatRate, placeOn, radiusOf, tickName } from "../src/parts/roofs";

test("places on an axis of decades", () => {
  const axis = { low: -1, high: 3, shares: [] };
  assert.deepEqual([0.1, 10, 1000, 1e-9, 1e9].map((value) => placeOn(axis, value)), [0, 0.5, 1, 0, 1]);
});

test("the area of a point is its share", () => {
  assert.equal(radiusOf(0.64) ** 2 / radiusOf(0.16) ** 2, 4);
  assert.equal(radiusOf(0), radiusOf(-1));
});

test("rows that take the first part of the time", () => {
  assert.deepEqual(chosenRows([0.5, 0.3, 0.2], 1), [0, 1, 2]);
  assert.deepEqual(chosenRows([0.5, 0.3, 0.2], 0.5), [0]);
  assert.deepEqual(chosenRows([0.5, 0.3, 0.2], 0.6), [0, 1]);
  assert.deepEqual(chosenRows([], 0.5), []);
});

test("rates as people read them", () => {
  assert.equal(formatRate(989.4e12, "FLOP/s"), "989 TFLOP/s");
  assert.equal(formatRate(1e12, ""), "1 T");
  assert.equal(formatRate(null, "FLOP/s"), "-");
  assert.deepEqual([0.125, 12_345, null].map(amountOf), ["0.125", "12,345", "-"]);
  assert.deepEqual([-4, -1, 2, 6].map(tickName), ["1e-4", "0.1", "100", "1e6"]);
});
