import assert from "node:assert/strict";
import test from "node:test";
import { cutMiddle, showName } from "../src/names";

test("what cannot be seen is shown", () => {
  assert.equal(showName("a\u0000b\nc\u007f"), "a␀b␊c␡");
  assert.equal(showName("evil\u202egnp.exe"), "evil⟨U+202E⟩gnp.exe");
  assert.equal(showName("</script><b>ü 漢"), "</script><b>ü 漢");
});

test("the middle of long names is left out", () => {
  assert.equal(showName("a".repeat(10_000)).length, 1_000);
  assert.equal(cutMiddle("beginning and end", 10), "beginn…end");
  assert.equal(cutMiddle("short", 10), "short");
});
