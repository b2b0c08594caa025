import assert from "node:assert/strict";
import test from "node:test";
import { foldStrip } from "../src/strip";

const strip = {
  first: [0, 1, 2, 3, 4],
  last: [0, 1, 2, 3, 4],
  longest: [0, 1, 2, 3, 4],
  longest_ns: [9, 2, 2, 5, 2],
  mark: ["warm-up", "", "", "outlier", "incomplete"] as ("" | "warm-up" | "outlier" | "incomplete")[],
  median_ns: 2,
};

test("bars are folded until they fit, and keep the longest and what is notable", () => {
  assert.deepEqual(foldStrip(strip, 3), [
    { first: 0, last: 1, longest: 0, longest_ns: 9, mark: "warm-up" },
    { first: 2, last: 3, longest: 3, longest_ns: 5, mark: "outlier" },
    { first: 4, last: 4, longest: 4, longest_ns: 2, mark: "incomplete" },
  ]);
  assert.equal(foldStrip(strip, 100).length, 5);
  assert.equal(foldStrip(strip, 0).length, 1);
  assert.deepEqual(foldStrip({ ...strip, first: [] }, 10), []);
});
