import assert from "node:assert/strict";
import test from "node:test";
import { BoxTree, isBox, openLevels, placeBoxes, placeIcicle, stepFrom } from "../src/levels";

/** An iteration of 1,000 with the children 0–600 and 600–1,000, and 1,000 boxes within the second. */
function sampleTree(): BoxTree {
  const parent = [-1, 0, 0, ...Array<number>(1000).fill(2)];
  const start = [0, 0, 600, ...Array.from({ length: 1000 }, (_, at) => 600 + at * 0.4)];
  const size = [1000, 600, 400, ...Array<number>(1000).fill(0.4)];
  return new BoxTree(parent, start, size);
}

const room = (width: number) => ({ from: 0, to: 1000, x: 0, width, up: -1 });

test("children stand side by side in their order, though the columns mix them", () => {
  const tree = new BoxTree([-1, 0, 1, 0, 1], [0, 0, 0, 5, 1], [9, 4, 1, 4, 1]);
  const children = (row: number) => [...tree.order.subarray(...tree.children(row))];
  assert.deepEqual([children(-1), children(0), children(1), children(2)], [[0], [1, 3], [2, 4], []]);
  assert.deepEqual(tree.path(4), [0, 1, 4]);
  assert.deepEqual([...tree.around((row) => row === 4)], [1, 1, 0, 0, 1]);
});

test("neighbours under 3 pixels are merged, and none is lost", () => {
  const tree = sampleTree();
  const [first, last] = tree.children(2);
  const items = placeBoxes(tree, first, last, { from: 600, to: 1000, x: 0, width: 500, up: 0 });
  assert.ok(items.length <= 500 / 3);
  assert.equal(
    items.reduce((sum, item) => sum + item.last - item.first, 0),
    1000,
  );
  assert.ok(items.every((item, at) => item.width <= 41 && (!at || item.first === items[at - 1].last)));
});

test("wide boxes, and narrow ones far from each other, stay alone", () => {
  const tree = new BoxTree([-1, 0, 0, 0], [0, 0, 500, 999], [1000, 1, 1, 1]);
  const [first, last] = tree.children(0);
  assert.ok(placeBoxes(tree, first, last, room(1000)).every(isBox));
});

test("boxes without any time can be reached too", () => {
  const count = 5000;
  const tree = new BoxTree(
    [-1, ...Array<number>(count).fill(0)],
    Array<number>(count + 1).fill(0),
    Array<number>(count + 1).fill(0),
  );
  const wanted = 3210;
  const levels = openLevels(tree, 0, { row: wanted }, 600, { ...room(600), to: 0 });
  const shown = levels.at(-1)!.find((item) => isBox(item) && tree.order[item.first] === wanted);
  assert.ok(shown && levels.length > 1);
});

test("a box within merged ones is reached by opening them", () => {
  const tree = sampleTree();
  const levels = openLevels(tree, 0, { row: 503 }, 500, room(500));
  assert.equal(levels[0].length, 2);
  assert.ok(levels.length >= 3);
  assert.ok(levels.at(-1)!.some((item) => isBox(item) && tree.order[item.first] === 503));
});

test("a box that is alone in the last row is open, too", () => {
  const tree = new BoxTree([-1, 0, 0, 1, 3, 3], [0, 0, 50, 0, 0, 25], [100, 50, 50, 50, 25, 25]);
  const rows = openLevels(tree, 0, { row: 1 }, 500, room(500)).map((row) => row.map(({ first }) => tree.order[first]));
  assert.deepEqual(rows, [[1, 2], [3], [4, 5]]);
});

test("opening merged boxes shows them in the whole width", () => {
  const tree = sampleTree();
  const [item] = openLevels(tree, 0, { row: 2 }, 500, room(500))[1];
  const levels = openLevels(tree, 0, { row: 2, group: [item.first, item.last] }, 500, room(500));
  assert.equal(levels.length, 3);
  assert.equal(
    levels[2].reduce((sum, { first, last }) => sum + last - first, 0),
    item.last - item.first,
  );
  assert.ok(levels[2].at(-1)!.x > 450);
});

test("an icicle has what is around its target, and all within it that can be seen", () => {
  const tree = sampleTree();
  const rows = placeIcicle(tree, { row: 2 }, 500);
  assert.deepEqual(
    rows.slice(0, 2).map((items) => items.map(({ first }) => tree.order[first])),
    [[0], [2]],
  );
  assert.equal(
    rows[2].reduce((sum, { first, last }) => sum + last - first, 0),
    1000,
  );
  assert.deepEqual(placeIcicle(tree, { row: 1 }, 500), placeIcicle(tree, { row: 0 }, 500)); // nothing is within 1
});

test("keys lead to siblings, to the longest within, and out", () => {
  const tree = sampleTree();
  const rows = placeIcicle(tree, { row: 0 }, 500);
  assert.equal(stepFrom(rows, 0, 0, "in"), rows[1][0]);
  assert.equal(stepFrom(rows, 1, 0, "next"), rows[1][1]);
  assert.equal(stepFrom(rows, 1, 1, "next"), null);
  assert.equal(stepFrom(rows, 2, 0, "out"), rows[1][1]);
  assert.equal(stepFrom(rows, 0, 0, "out"), null);
});
