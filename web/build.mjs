// Bundles the page: `node build.mjs [--outdir=FOLDER]` writes app.js and app.css; `--tests` bundles the tests into build/.
import { readFileSync, readdirSync, writeFileSync } from "node:fs";
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
  const { metafile } = await build({
    ...shared,
    metafile: true,
    entryPoints: { app: join(here, "src", "main.tsx") },
    outdir: resolve(values.outdir),
    format: "iife",
    minify: true,
    legalComments: "none",
    charset: "ascii", // the same bytes whatever encoding the page around them is read in
    define: { "process.env.NODE_ENV": '"production"' },
  });
  writeFileSync(join(resolve(values.outdir), "licenses.txt"), listLicenses(Object.keys(metafile.inputs)));
}

/** Returns the licences of what is bundled: whoever gets a page gets a copy of it. */
function listLicenses(inputs) {
  const packages = new Set(inputs.flatMap((path) => /(?:^|\/)node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(path)?.[1] ?? []));
  const texts = new Map();
  for (const name of [...packages].sort()) {
    const folder = join(here, "node_modules", name);
    const file = readdirSync(folder).find((each) => /^licen[cs]e/i.test(each));
    const { version, license } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
    const text = file ? readFileSync(join(folder, file), "utf8").trim() : license;
    texts.set(text, [...(texts.get(text) ?? []), `${name} ${version}`]);
  }
  return [...texts].map(([text, names]) => `${names.join(", ")}\n\n${text}\n`).join(`\n${"-".repeat(80)}\n\n`);
}
