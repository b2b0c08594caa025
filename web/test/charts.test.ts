import assert from "node:assert/strict";
import { test } from "node:test";
import { mergedBars, stackedRows } from "../src/parts/bars.ts";
import { causeOrder } from "../src/parts/causes.ts";
import { cividis, heatPixels } from "../src/parts/heat.ts";
import { type Clock, latestOnly } from "../src/parts/latest.ts";
import { matchingRows, MOST_ROWS, shownRows } from "../src/parts/rows.ts";
import { sparkPath } from "../src/parts/sparkline.tsx";
import { byteTicks } from "../src/parts/ticks.ts";
import { axisOf, fallingSteps } from "../src/parts/waterfall.ts";
import { arranged } from "../src/states.tsx";

test("neighbouring iterations are merged into the longest of them", () => {
  assert.deepEqual(mergedBars([5, 9, 1, 2, 7], 2), [
    { first: 0, last: 2, longest: 1 },
    { first: 3, last: 4, longest: 4 },
  ]);
  assert.equal(mergedBars([5, 9, 1], 10).length, 3);
  assert.deepEqual(mergedBars([], 10), []);
});

test("parts stand on top of each other, those without time left out", () => {
  const rows = stackedRows([{ first: 0, last: 0, longest: 0 }], [0, 1, 2], [[4], [0], [3]]);
  assert.deepEqual(rows, [
    { at: 0, part: 0, low: 0, high: 4 },
    { at: 0, part: 2, low: 4, high: 7 },
  ]);
});

test("symptoms stand under their cause, and each finding once", () => {
  const order = causeOrder([{ cause: null }, { cause: null }, { cause: 0 }, { cause: 2 }, { cause: 9 }]);
  assert.deepEqual(order.map(({ number, depth }) => [number, depth]), [[0, 0], [2, 1], [3, 2], [1, 0], [4, 0]]);
  assert.deepEqual(causeOrder([{ cause: 1 }, { cause: 0 }]).map(({ number }) => number), [0, 1]);
});

test("rows are filtered by any column and sorted, those without a value last", () => {
  const columns = [
    { title: "name", text: (row: { name: string }) => row.name },
    { title: "time", text: () => "", number: (row: { time: number | null }) => row.time },
  ];
  const rows = [{ name: "Gemm", time: 2 }, { name: "add", time: null }, { name: "gemv", time: 5 }];
  const names = (descending: boolean, filter = "") => shownRows(rows, columns, filter, { column: 1, descending }).map((row) => row.name);
  assert.deepEqual(names(true), ["gemv", "Gemm", "add"]);
  assert.deepEqual(names(false), ["Gemm", "gemv", "add"]);
  assert.deepEqual(names(false, " GEM"), ["Gemm", "gemv"]);
  assert.equal(matchingRows(rows, columns, "gem"), 2);
});

test("a table never has more rows than browsers bear", () => {
  const rows = Array.from({ length: MOST_ROWS + 1 }, (_, row) => row);
  assert.equal(shownRows(rows, [{ title: "row", text: String }], "", null).length, MOST_ROWS);
});

test("heat goes from the least to nearly the most, unknown cells are clear", () => {
  const heat = heatPixels([[1, null], [3, 2]], 2);
  assert.equal(heat.low, 1);
  assert.deepEqual([...heat.pixels.slice(0, 4)], [...cividis(0), 255]);
  assert.deepEqual([...heat.pixels.slice(4, 8)], [0, 0, 0, 0]);
  assert.deepEqual([...heat.pixels.slice(8, 12)], [...cividis(1), 255]);
  assert.equal(heatPixels([[null]], 1).isCut, false);
});

test("one long iteration does not make all others look alike", () => {
  const heat = heatPixels([Array.from({ length: 100 }, (_, at) => (at === 0 ? 9_999 : at))], 100);
  assert.ok(heat.isCut && heat.high < 100);
});

test("a waterfall begins at A and ends at B", () => {
  const step = (name: string, a_ns: number, b_ns: number) => ({ name, title: name, idle: false, a_ns, b_ns, behind: [] });
  const steps = [step("x", 10, 12), step("y", 5, 5), step("z", 20, 10)];
  const falling = fallingSteps(35, steps, true);
  assert.deepEqual(falling.map(({ step, from_ns, to_ns }) => [step.name, from_ns, to_ns]), [["z", 35, 25], ["x", 25, 27]]);
  assert.equal(fallingSteps(35, steps, false)[0].step.name, "x");
  const { low, high } = axisOf(35, 27, falling);
  assert.ok(low < 25 && low >= 0 && high > 35);
});

test("only the latest of many events is drawn, at most once in a while", () => {
  const calls: (() => void)[] = [];
  const waits: number[] = [];
  let now_ms = 0;
  const clock: Clock = { now: () => now_ms, after: (wait_ms, act) => void (waits.push(wait_ms), calls.push(act)) };
  const seen: number[] = [];
  const take = latestOnly((value: number) => void seen.push(value), 250, clock);
  take(1), take(2);
  assert.deepEqual([waits, seen], [[0], []]);
  calls[0]();
  now_ms = 100;
  take(3), take(4);
  assert.deepEqual([waits, seen], [[0, 150], [2]]);
  calls[1]();
  take(5), take.cancel(), calls[2]();
  assert.deepEqual(seen, [2, 4]);
});

test("a sparkline is one path from left to right", () => {
  assert.equal(sparkPath([1, 2], 10, 4), "M0,2L10,0");
  assert.equal(sparkPath([], 10, 4), "");
  assert.equal(sparkPath([0], 10, 4), "M0,4h1");
});

test("ticks of sizes are powers of two", () => {
  assert.deepEqual(byteTicks(16 * 2 ** 30).map((tick) => tick / 2 ** 30), [0, 4, 8, 12, 16]);
  assert.deepEqual(byteTicks(0), [0]);
});

test("states and transitions get a place, loops and doubled ones too", () => {
  const node = (name: string) => ({ name, title: name, kind: "compute" as const, time_ns: 1, share_ratio: 0.5, count: 1 });
  const edge = (source: number, target: number) => ({ source, target, count: 1, starts: 0, probability: 0.5 });
  const drawing = arranged({ nodes: [node("a"), node("b")], edges: [edge(0, 1), edge(1, 0), edge(0, 0)] });
  assert.equal(drawing.edges.length, 3);
  assert.ok(drawing.nodes.every(({ x, y }) => x > 0 && y > 0 && x < drawing.width && y < drawing.height));
  assert.ok(drawing.edges.every(({ path }) => !path.includes("NaN")));
});
