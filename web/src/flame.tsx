// Calling contexts as an icicle: from the threads down, or from what took the time up to its callers; or two runs compared.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { Boxes, type Look, Patterns } from "./boxes";
import { useWidth } from "./chart";
import { formatBytes, formatCount, formatDifference, formatRatio, formatValue } from "./format";
import { Code } from "./code";
import { FindingLink, Inspector, Source } from "./inspector";
import { BoxTree, type Item, type Target, isBox, placeIcicle } from "./levels";
import { labelOf, showName } from "./names";
import { type Found, countMatches, findRows, markRows } from "./search";
import type { DocumentEntry, FlameDocument, SessionDocument } from "./types.gen";
import type { View, ViewProps } from "./view";

const AGAIN_MS = 30_000; // between two looks at what a running job has sent
const CHANGES = [0.05, 0.25, 0.75]; // shares from which on a change has a stronger colour

/** A flame graph; that of a running job is drawn anew as the daemon hears more of it. */
function Flame(props: ViewProps<FlameDocument>) {
  return <FlameGraph {...props} document={useLatest(props)} />;
}

/** Whether the page is a daemon's, whose documents change. */
function isLive(session: SessionDocument): boolean {
  return session.views.some(({ name }) => name === "live");
}

function useLatest({ document, documents, entry, session }: ViewProps<FlameDocument>): FlameDocument {
  const [latest, setLatest] = useState({ key: entry.key, document });
  useEffect(() => {
    if (!isLive(session)) return;
    let stopped = false;
    const show = (found: FlameDocument) => !stopped && setLatest({ key: entry.key, document: found });
    const again = () => {
      documents.forget(entry.key);
      documents.load<FlameDocument>(entry.key).then(show, () => {}); // what was seen last stays
    };
    const timer = setInterval(again, AGAIN_MS);
    return () => ((stopped = true), clearInterval(timer), documents.forget(entry.key));
  }, [documents, entry.key, session]);
  return latest.key === entry.key ? latest.document : document;
}

function FlameGraph(props: ViewProps<FlameDocument>) {
  const { document: doc, selection, select } = props;
  const place = useRef<HTMLDivElement>(null);
  const width = useWidth(place);
  const [group, setGroup] = useState<Target | null>(null);
  const measure = Math.max(
    doc.measures.findIndex(({ name }) => name === selection.measure),
    0,
  );
  const frames = useMemo(() => new FlameFrames(doc, measure), [doc, measure]);
  const found = useMemo(() => frames.find(selection.search), [frames, selection.search]);
  const row = selection.box !== undefined && selection.box < doc.parent.length ? selection.box : 0;
  const target: Target = group?.row === row ? group : { row };
  const choose = (next: Target, how?: "push" | "replace") => {
    setGroup(next.group ? next : null);
    select({ box: next.row }, how);
  };
  if (!doc.parent.length) return <p class="problem">There are no calling contexts to show.</p>;
  return (
    <div class="with-inspector">
      <section aria-label="Flame graph" class="picture">
        <div class="tools">
          <Choosers {...props} measure={measure} />
          {found && <span role="status">{countMatches(found.count, doc.parent.length)}</span>}
          {row > 0 && (
            <button type="button" onClick={() => choose({ row: 0 })}>
              Show all
            </button>
          )}
        </div>
        <div ref={place} class="tracks">
          {width > 0 && (
            <Boxes
              label={`Flame graph by ${doc.measures[measure].title}`}
              tree={frames.tree}
              gap={0}
              rows={placeIcicle(frames.tree, target, width)}
              width={width}
              target={target}
              choose={choose}
              look={lookOf(frames, found)}
            />
          )}
        </div>
        <Legend frames={frames} />
      </section>
      <Chosen {...props} frames={frames} row={row} />
      <Patterns />
    </div>
  );
}

/** What is computed once for a document and a measure; with two runs a frame is as wide as both together. */
class FlameFrames {
  readonly tree: BoxTree;
  readonly after: number[];
  readonly before: number[] | null;
  readonly kinds: string[];
  readonly hasFinding: Uint8Array;
  readonly own: Float64Array;

  constructor(
    readonly doc: FlameDocument,
    readonly measure: number,
  ) {
    this.after = doc.value[measure];
    this.before = doc.before?.[measure] ?? null;
    const size = Float64Array.from(this.after, (value, row) => value + (this.before?.[row] ?? 0));
    widen(size, doc.parent);
    const start = new Float64Array(size.length);
    const used = new Float64Array(size.length);
    for (let row = 0; row < size.length; row++) {
      const parent = doc.parent[row];
      if (parent < 0) continue;
      start[row] = start[parent] + used[parent];
      used[parent] += size[row];
    }
    this.tree = new BoxTree(doc.parent, start, size);
    this.own = Float64Array.from(this.after);
    doc.parent.forEach((parent, row) => parent >= 0 && (this.own[parent] -= this.after[row]));
    this.kinds = [...new Set(doc.kind)].map((kind) => doc.strings[kind] ?? "").sort();
    this.hasFinding = this.tree.around((row) => doc.finding[row] >= 0);
  }

  nameOf(row: number): string {
    return this.doc.strings[this.doc.name[row]] ?? "";
  }

  kindOf(row: number): string {
    return this.doc.strings[this.doc.kind[row]] ?? "";
  }

  format(value: number): string {
    return formatValue(value, this.doc.measures[this.measure].unit);
  }

  /** Returns the change of a frame as in `+12.3 ms`. */
  change(row: number): string {
    const change = this.after[row] - this.before![row];
    const { unit } = this.doc.measures[this.measure];
    if (unit === "ns") return formatDifference(change);
    return (change > 0 ? "+" : "") + (unit === "bytes" ? formatBytes(change) : formatCount(change));
  }

  find(search: string | undefined): Found | null {
    return findRows(this.tree, this.doc.strings, search, this.doc.name, this.doc.file);
  }
}

/** Makes frames as wide as all within them at least, so that none is drawn over its neighbours. */
function widen(size: Float64Array, parent: number[]): void {
  const within = new Float64Array(size.length);
  for (let row = size.length - 1; row >= 0; row--) {
    size[row] = Math.max(size[row], within[row], 0);
    if (parent[row] >= 0) within[parent[row]] += size[row];
  }
}

function lookOf(frames: FlameFrames, found: Found | null): (item: Item) => Look {
  const { doc, tree } = frames;
  return (item) => {
    const rows = tree.order.subarray(item.first, item.last);
    const around = markRows(found, rows);
    const sign = around ? "◆" : "";
    if (!isBox(item))
      return { text: `+${rows.length}`, detail: `${rows.length} frames too narrow to show`, style: `merged${around}`, sign };
    const row = rows[0];
    const name = labelOf(frames.nameOf(row));
    const hatched = doc.finding[row] >= 0;
    const change = frames.before ? ` ${statusOf(frames, row) || frames.change(row)}` : "";
    const share = formatRatio(frames.after[0] ? frames.after[row] / frames.after[0] : null);
    const style = frames.before ? `change${changeOf(frames, row)}` : `kind-${frames.kinds.indexOf(frames.kindOf(row)) % 7}`;
    const detail = `${name}, ${frames.format(frames.after[row])}, ${share}${change && `,${change}`}${hatched ? ", has a finding" : ""}`;
    return { text: name + change, detail, style: style + around, sign: sign + (frames.hasFinding[row] ? "⚠" : ""), hatched };
  };
}

/** Returns the step of a change's colour: from -3, much less, to 3, much more. */
function changeOf(frames: FlameFrames, row: number): number {
  const after = frames.after[row];
  const before = frames.before![row];
  const ratio = Math.abs(after - before) / Math.max(after, before, 1);
  return Math.sign(after - before) * CHANGES.filter((least) => ratio >= least).length + 0; // never -0
}

function statusOf(frames: FlameFrames, row: number): string {
  if (frames.before![row] === 0) return frames.after[row] ? "new" : "";
  return frames.after[row] === 0 ? "gone" : "";
}

/** The ways to look at the frames: the view's documents, and measures. */
function Choosers({ document: doc, entries, entry, select, measure, session }: ViewProps<FlameDocument> & { measure: number }) {
  const whose = isLive(session) ? entries.filter(({ key }) => key.endsWith(`/${doc.direction}`)) : [];
  const alike = entries.filter((each) => (each.rank === entry.rank || each.rank === null) && isOfSame(each, entry, session));
  const next = alike[(alike.findIndex(({ key }) => key === entry.key) + 1) % alike.length];
  return (
    <>
      {whose.length > 1 && (
        <label>
          of{" "}
          <select value={entry.key} onChange={(event) => select({ document: event.currentTarget.value, box: undefined })}>
            {whose.map(({ key, title }) => (
              <option key={key} value={key}>
                {showName(withoutDirection(title), 80)}
              </option>
            ))}
          </select>
        </label>
      )}
      {alike.length > 1 && (
        <span class="choices" role="group" aria-label="Direction">
          {alike.map(({ key, title }) => (
            <button
              key={key}
              type="button"
              aria-pressed={key === entry.key}
              data-key={key === next.key ? "b" : undefined}
              onClick={() => select({ document: key })}
            >
              {showName(isLive(session) ? directionOf(title) : title)}
            </button>
          ))}
        </span>
      )}
      {doc.measures.length > 1 && (
        <label>
          by{" "}
          <select value={doc.measures[measure].name} onChange={(event) => select({ measure: event.currentTarget.value })}>
            {doc.measures.map(({ name, title }) => (
              <option key={name} value={name}>
                {showName(title)}
              </option>
            ))}
          </select>
        </label>
      )}
    </>
  );
}

/** Whether two documents of a daemon are of one rank of one job. */
function isOfSame(one: DocumentEntry, other: DocumentEntry, session: SessionDocument): boolean {
  const stem = ({ key }: DocumentEntry) => key.slice(0, key.lastIndexOf("/"));
  return !isLive(session) || stem(one) === stem(other);
}

function withoutDirection(title: string): string {
  return title.slice(0, title.lastIndexOf(", "));
}

function directionOf(title: string): string {
  return title.slice(title.lastIndexOf(", ") + 2);
}

function Legend({ frames }: { frames: FlameFrames }) {
  const { doc } = frames;
  return (
    <ul class="legend" aria-label="Legend">
      {frames.before
        ? [
            ["-3", "much less"],
            ["-1", "less"],
            ["0", "same"],
            ["1", "more"],
            ["3", "much more"],
          ].map(([step, text]) => (
            <li key={step}>
              <i class={`swatch change${step}`} aria-hidden="true" /> {text}
            </li>
          ))
        : frames.kinds.map((kind, at) => (
            <li key={kind}>
              <i class={`swatch kind-${at % 7}`} aria-hidden="true" /> {showName(kind)}
            </li>
          ))}
      {frames.before && <li>A frame is as wide as both runs together.</li>}
      <li>
        <i class="swatch hatched" aria-hidden="true" /> ⚠ finding
      </li>
      {doc.left_out > 0 && <li>{formatCount(doc.left_out)} frames too small to show are left out</li>}
    </ul>
  );
}

function Chosen({ frames, row, session, select, documents }: ViewProps<FlameDocument> & { frames: FlameFrames; row: number }) {
  const { doc, after, before } = frames;
  const file = doc.strings[doc.file[row]];
  const parent = doc.parent[row];
  const share = (whole: number) => formatRatio(whole ? after[row] / whole : null);
  return (
    <Inspector
      kind={`${showName(frames.kindOf(row))} · rank ${doc.rank}`}
      title={frames.nameOf(row)}
      facts={[
        ...doc.measures.map((measure, at) => [measure.title, formatValue(doc.value[at][row], measure.unit)] as const),
        before && ["before", frames.format(before[row])],
        before && ["change", statusOf(frames, row) || frames.change(row)],
        ["share of the whole", share(after[0])],
        parent >= 0 && ["share of parent", share(after[parent])],
        [doc.direction === "down" ? "its own" : "by none of the callers shown", frames.format(Math.max(frames.own[row], 0))],
        file !== undefined && ["source", <Source file={file} line={doc.line[row]} />],
        doc.finding[row] >= 0 && ["finding", <FindingLink finding={doc.finding[row]} select={select} session={session} />],
      ]}
    >
      {file !== undefined && !isLive(session) && <Code file={file} line={doc.line[row]} session={session} documents={documents} />}
    </Inspector>
  );
}

export const flame: View<FlameDocument> = {
  name: "flame",
  component: Flame,
  searches: true,
  key: (entry, _view, session, { rank }) =>
    session.server && rank !== undefined && session.ranks.includes(rank) ? entry.key.replace(/^flame\/\d+/, `flame/${rank}`) : entry.key,
};
