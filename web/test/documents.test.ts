import assert from "node:assert/strict";
import test from "node:test";
import { gzipSync } from "node:zlib";
import { DocumentStore } from "../src/documents";
import { chooseEntry } from "../src/view";

test("documents are found in the page, packed or not", async () => {
  const documents = { session: { title: "é" }, "flame/0/up": { rank: 1 } };
  const packed = gzipSync(JSON.stringify({ documents })).toString("base64");
  for (const store of [new DocumentStore({ documents }), new DocumentStore({ packed })]) {
    assert.deepEqual(await store.session(), documents.session);
    assert.equal(await store.has("flame/0/up"), true);
    await assert.rejects(store.load("toString"), /no document “toString”/);
  }
});

test("a server is asked once, and again after a failure", async (context) => {
  const asked: string[] = [];
  const answers = [
    Response.json({ title: "a" }),
    new Response("No such rank.", { status: 404, headers: { "content-type": "text/plain" } }),
    Response.json({}),
  ];
  context.mock.method(globalThis, "fetch", async (address: string) => (asked.push(address), answers.shift()));
  const store = new DocumentStore({ server: true });
  assert.equal(await store.session(), await store.session());
  await assert.rejects(store.load("ranks"), /^Error: No such rank\.$/);
  await store.load("ranks");
  assert.deepEqual(asked, ["api/documents/session", "api/documents/ranks", "api/documents/ranks"]);
});

test("a view shows the document that is named, else the one of the loop and rank", () => {
  const entry = (key: string, loop: number | null, rank: number | null, iteration: number | null = null) => ({ key, title: key, loop, rank, iteration, loops: [] });
  const view = {
    name: "flame",
    title: "Flame",
    problem: null,
    documents: [entry("a", 0, 0), entry("b", 0, 1), entry("c", 1, null)],
  };
  const chosen = (selection: object) => chooseEntry(view, { view: "flame", ...selection })?.key;
  assert.deepEqual([chosen({}), chosen({ rank: 1 }), chosen({ loop: 1 }), chosen({ loop: 0, rank: 1 })], ["a", "b", "c", "b"]);
  assert.deepEqual([chosen({ document: "b" }), chosen({ document: "gone", rank: 1 })], ["b", "b"]);
  const timeline = { ...view, documents: [entry("typical", null, null), entry("slowest", 0, 0, 7)] };
  const shown = (selection: object) => chooseEntry(timeline, { view: "timeline", ...selection })?.key;
  assert.deepEqual([shown({ loop: 0, rank: 0 }), shown({ loop: 0, iteration: 7 }), shown({ iteration: 3 })], ["typical", "slowest", "typical"]);
  assert.equal(chooseEntry({ ...view, documents: [] }, { view: "flame" }), undefined);
});
