import assert from "node:assert/strict";
import test from "node:test";
import { changeSelection, formatSelection, parseSelection } from "../src/selection";

test("a selection survives the address", () => {
  const selection = {
    view: "timeline",
    loop: 0,
    rank: 3,
    iteration: 7,
    box: 12,
    measure: "idle",
    search: "a&b=c#?ü",
    document: "flame/0/up",
  };
  assert.deepEqual(parseSelection("#" + formatSelection(selection)), selection);
  assert.equal(formatSelection({ view: "flame" }), "flame");
});

test("what is no selection is left out", () => {
  assert.deepEqual(parseSelection("#timeline?loop=-1&rank=x&iteration=1e3&box=99999999999999999&other=1"), { view: "timeline" });
  assert.deepEqual(parseSelection("#<script>?loop=2"), { view: "", loop: 2 });
  assert.deepEqual(parseSelection(""), { view: "" });
  assert.equal(parseSelection("#flame?search=" + "a".repeat(10_000)).search?.length, 500);
});

test("what depends on something else goes with it", () => {
  const selection = { view: "timeline", loop: 0, iteration: 7, box: 12, search: "gemm", document: "timeline/0/7" };
  assert.deepEqual(changeSelection(selection, { view: "flame" }), { view: "flame", loop: 0, iteration: 7, search: "gemm" });
  assert.deepEqual(changeSelection(selection, { loop: 1 }), { view: "timeline", loop: 1, search: "gemm" });
  assert.deepEqual(changeSelection(selection, { iteration: 8, box: 3 }), { ...selection, iteration: 8, box: 3 });
  assert.deepEqual(changeSelection(selection, { box: 13 }), { ...selection, box: 13 });
});
