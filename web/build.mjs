// Bundles the page: `node build.mjs [--outdir=FOLDER]` writes app.js and app.css; `--tests` bundles the tests into build/.
import { readdirSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const { values } = parseArgs({
  options: {
    outdir: { type: "string", default: join(here, "..", "deepprof", "web", "static") },
    tests: { type: "boolean", default: false },
  },
});
const shared = { bundle: true, target: "es2022", jsx: "automatic", jsxImportSource: "preact", logLevel: "warning" };

if (values.tests) {
  const tests = readdirSync(join(here, "test")).filter((name) => name.endsWith(".test.ts"));
  await build({
    ...shared,
    entryPoints: tests.map((name) => join(here, "test", name)),
    outdir: join(here, "build"),
    platform: "node",
    format: "esm",
  });
} else {
  await build({
    ...shared,
    entryPoints: { app: join(here, "src", "main.tsx") },
    outdir: resolve(values.outdir),
    format: "iife",
    minify: true,
    legalComments: "none",
    charset: "ascii", // the same bytes whatever encoding the page around them is read in
    define: { "process.env.NODE_ENV": '"production"' },
  });
}
