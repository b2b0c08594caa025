import assert from "node:assert/strict";
import test from "node:test";
import { formatBytes, formatCount, formatDifference, formatDuration, formatRatio } from "../src/format";

test("durations read as in the report", () => {
  const cases: [number | null, string][] = [
    [null, "-"],
    [0, "0 ns"],
    [999, "999 ns"],
    [1_000, "1.00 µs"],
    [12_345_678, "12.3 ms"],
    [999_900, "1.00 ms"],
    [-2_500_000_000, "-2.50 s"],
    [99_960_000, "100 ms"],
    [61_000_000_000, "1.02 min"],
    [7_200_000_000_000, "2.00 h"],
  ];
  for (const [ns, text] of cases) assert.equal(formatDuration(ns), text);
  assert.equal(formatDifference(12_300_000), "+12.3 ms");
  assert.equal(formatDifference(0), "0 ns");
});

test("sizes, shares and numbers read as in the report", () => {
  assert.equal(formatBytes(1.25 * 2 ** 30), "1.25 GiB");
  assert.equal(formatBytes(0), "0 B");
  const shares: [number | null, string][] = [
    [null, "-"],
    [0, "0 %"],
    [1, "100 %"],
    [0.0001, "<0.1 %"],
    [0.9999, ">99.9 %"],
    [0.123, "12.3 %"],
  ];
  for (const [ratio, text] of shares) assert.equal(formatRatio(ratio), text);
  assert.equal(formatCount(12345), "12,345");
});
