import "./charts.css";
import * as Plot from "@observablehq/plot";
import { useMemo } from "preact/hooks";
import { formatBytes, formatCount, formatDuration, formatRatio } from "./format";
import { showName } from "./names";
import { type IterationBar, mergedBars, stackedRows } from "./parts/bars";
import { Bar } from "./parts/bar";
import { MarkBadge, MarkLegend } from "./parts/marks";
import { Name } from "./parts/name";
import { PartLegend, partFill, PartPatterns, PartSwatch } from "./parts/partlooks";
import { Picture } from "./parts/picture";
import { Table, type TableColumn } from "./parts/table";
import { StatesOf } from "./states";
import { type Mark, SIGNS } from "./strip";
import type { IterationsDocument } from "./types.gen";
import type { View, ViewProps } from "./view";

const FEWEST_PIXELS = 4;
const HEIGHT = 240;
const ICON_PIXELS = 12;
const MARGINS = { left: 60, right: 8 };

/** Every iteration of a loop by parts, and what takes the time of the chosen one. */
function Iterations({ document, documents, session, selection, select }: ViewProps<IterationsDocument>) {
  const typical = session.loops.find(({ loop }) => loop === document.loop)?.typical;
  const row = document.index.indexOf(selection.iteration ?? typical ?? -1);
  const choose: Choose = (at, how) => select({ loop: document.loop, iteration: document.index[at] }, how);
  if (document.index.length === 0) return <p class="quiet">This loop has no iterations to show.</p>;
  return (
    <div class="iterations">
      <PartPatterns />
      <Stack document={document} row={row} choose={choose} />
      <PartLegend parts={usedParts(document).map((part) => document.part[part])} />
      <MarkLegend marks={document.mark} />
      {row >= 0 ? <Chosen document={document} row={row} /> : <p class="quiet">No such iteration here: choose one to see its kernels and copies.</p>}
      <section>
        <h3>All iterations</h3>
        <IterationTable document={document} row={row} choose={choose} />
      </section>
      <StatesOf session={session} documents={documents} loop={document.loop} figures={document.figures} />
    </div>
  );
}

type Choose = (row: number, how?: "replace") => void;

interface StackProps {
  document: IterationsDocument;
  row: number;
  choose: Choose;
}

/** The bars. They are a slider for the keyboard: left and right go from bar to bar. */
function Stack({ document, row, choose }: StackProps) {
  const bars = useMemo(() => new Map<number, IterationBar[]>(), [document]);
  const barsAt = (width: number) => {
    const most = Math.max(1, Math.floor((width - MARGINS.left - MARGINS.right) / FEWEST_PIXELS));
    if (!bars.has(most)) bars.set(most, mergedBars(document.length_ns, most));
    return bars.get(most)!;
  };
  const label = `${document.index.length} iterations as bars, by the parts of their time`;
  const chosen = row < 0 ? "none" : `iteration ${document.index[row]}, ${formatDuration(document.length_ns[row])}`;
  const chooseAt = (event: MouseEvent & { currentTarget: HTMLElement }) => {
    const box = event.currentTarget.getBoundingClientRect();
    const share = (event.clientX - box.left - MARGINS.left) / (box.width - MARGINS.left - MARGINS.right);
    const now = barsAt(Math.floor(box.width));
    choose(now[Math.min(now.length - 1, Math.max(0, Math.floor(share * now.length)))].longest);
  };
  const chooseBy = (event: KeyboardEvent & { currentTarget: HTMLElement }) => {
    const now = barsAt(Math.floor(event.currentTarget.getBoundingClientRect().width));
    const at = now.findIndex((bar) => row >= bar.first && row <= bar.last);
    const next = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: now.length - 1 }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    choose(now[Math.min(now.length - 1, Math.max(0, next))].longest, "replace");
  };
  return (
    <Picture
      label={label}
      options={(width) => stackOptions(document, barsAt(width), row, width)}
      note={(width) => mergedNote(document, barsAt(width))}
    >
      <div
        class="chart-slider"
        role="slider"
        tabIndex={0}
        aria-label="Iteration"
        aria-valuemin={document.index[0] ?? 0}
        aria-valuemax={document.index[document.index.length - 1] ?? 0}
        aria-valuenow={row < 0 ? document.index[0] ?? 0 : document.index[row]}
        aria-valuetext={chosen}
        onClick={chooseAt}
        onKeyDown={chooseBy}
      />
    </Picture>
  );
}

function mergedNote(document: IterationsDocument, bars: IterationBar[]): string {
  const merged = bars.length < document.length_ns.length;
  const notes = [
    merged && `Each bar is the longest of ${bars[0].last - bars[0].first + 1} neighbouring iterations.`,
    document.left_out > 0 && `The last ${formatCount(document.left_out)} iterations are not in it.`,
  ];
  return notes.filter((note) => note !== false).join(" ");
}

function stackOptions(document: IterationsDocument, bars: IterationBar[], row: number, width: number): Plot.PlotOptions {
  const parts = usedParts(document);
  const rows = stackedRows(bars, parts, document.parts);
  const marked = bars.flatMap((bar, at) => (document.mark[bar.longest] === "" ? [] : [{ at, mark: document.mark[bar.longest] as Mark }]));
  const icons = apart(marked, Math.ceil((ICON_PIXELS * bars.length) / width));
  const chosen = bars.findIndex((bar) => row >= bar.first && row <= bar.last);
  const most = Math.max(1, ...bars.map((bar) => document.length_ns[bar.longest]));
  return {
    height: HEIGHT,
    marginLeft: MARGINS.left,
    marginRight: MARGINS.right,
    marginTop: 20,
    x: { domain: [0, bars.length], label: "iteration", ticks: 6, tickFormat: (at: number) => tickOf(document, bars, at) },
    y: { domain: [0, most], label: null, ticks: 4, tickFormat: formatDuration, grid: true },
    marks: [
      Plot.rect(marked, { x1: "at", x2: (d) => d.at + 1, y1: 0, y2: most, fill: "url(#marked)" }),
      Plot.rect(rows, {
        x1: "at",
        x2: (d) => d.at + 1,
        y1: "low",
        y2: "high",
        fill: (d) => partFill(document.part[d.part]),
        inset: 0,
        insetRight: width / bars.length > 3 * FEWEST_PIXELS ? 1 : 0.5,
      }),
      Plot.text(icons, { x: (d) => d.at + 0.5, y: most, dy: -9, fontWeight: 700, text: (d) => SIGNS[d.mark as Mark], fill: "currentColor" }),
      chosen < 0 ? null : Plot.rect([chosen], { x1: (d) => d, x2: (d) => d + 1, y1: 0, y2: most, stroke: "var(--accent)", strokeWidth: 2 }),
    ],
  };
}

/** Those of `marked` that have room for an icon: at least `room` bars from the one before. */
function apart<M extends { at: number }>(marked: M[], room: number): M[] {
  let last = -Infinity;
  return marked.filter(({ at }) => at - last >= room && ((last = at), true));
}

function tickOf(document: IterationsDocument, bars: IterationBar[], at: number): string {
  return Number.isInteger(at) && at < bars.length ? String(document.index[bars[at].first]) : "";
}

/** The parts that take any time at all. */
function usedParts(document: IterationsDocument): number[] {
  return document.part.map((_, part) => part).filter((part) => document.parts[part].some((time_ns) => time_ns > 0));
}

function IterationTable({ document, row, choose }: StackProps) {
  const rows = useMemo(() => document.index.map((_, at) => at), [document]);
  const columns = useMemo(() => iterationColumns(document), [document]);
  return <Table label="Table of iterations" columns={columns} rows={rows} id={(at) => at} isChosen={(at) => at === row} choose={(at) => choose(at)} />;
}

function iterationColumns(document: IterationsDocument): TableColumn<number>[] {
  const numbers = (title: string, values: (number | null)[], text: (value: number) => string): TableColumn<number> => ({
    title,
    text: (at) => (values[at] === null ? "-" : text(values[at]!)),
    number: (at) => values[at],
  });
  return [
    numbers("iteration", document.index, String),
    { title: "mark", text: (at) => document.mark[at], cell: (at) => <MarkBadge mark={document.mark[at]} /> },
    numbers("start", document.start_ns, formatDuration),
    numbers("time", document.length_ns, formatDuration),
    numbers("operation", document.operation_ns, formatDuration),
    numbers("interval", document.interval_ns, formatDuration),
    numbers("overlap", document.overlap_ratio, formatRatio),
    numbers("from host", document.htod_nbytes, formatBytes),
    numbers("kernels", document.kernels, formatCount),
    numbers("edits", document.edits, formatCount),
  ];
}

/** The parts of one iteration, its kernels and its copies. */
function Chosen({ document, row }: { document: IterationsDocument; row: number }) {
  const index = document.index[row];
  const parts = usedParts(document).filter((part) => document.parts[part][row] > 0);
  const most = Math.max(1, ...parts.map((part) => document.parts[part][row]));
  return (
    <section aria-live="polite">
      <h3>
        Iteration {index}: {formatDuration(document.length_ns[row])} <MarkBadge mark={document.mark[row]} />
      </h3>
      <div class="columns">
        <table class="evidence">
          <caption>Where its time goes</caption>
          <tbody>
            {parts.map((part) => (
              <tr>
                <th scope="row">
                  <PartSwatch part={document.part[part]} /> {showName(document.part[part].title, 60)}
                </th>
                <td class="number">{formatDuration(document.parts[part][row])}</td>
                <td>
                  <Bar value={document.parts[part][row]} most={most} />
                </td>
              </tr>
            ))}
          </tbody>
        </table>
        <Kernels document={document} index={index} />
        <Copies document={document} index={index} />
      </div>
    </section>
  );
}

function Kernels({ document, index }: { document: IterationsDocument; index: number }) {
  const { top_kernels: top, strings } = document;
  const rows = top.index.flatMap((of, at) => (of === index ? [at] : []));
  if (rows.length === 0) return null;
  const columns: TableColumn<number>[] = [
    { title: "kernel", text: (at) => strings[top.name[at]], cell: (at) => <Name text={strings[top.name[at]]} longest={40} /> },
    { title: "calls", text: (at) => formatCount(top.calls[at]), number: (at) => top.calls[at] },
    { title: "time", text: (at) => formatDuration(top.time_ns[at]), number: (at) => top.time_ns[at] },
  ];
  return <Table label={`Kernels that take most of iteration ${index}`} columns={columns} rows={rows} id={(at) => at} />;
}

function Copies({ document, index }: { document: IterationsDocument; index: number }) {
  const { top_copies: top, strings } = document;
  const rows = top.index.flatMap((of, at) => (of === index ? [at] : []));
  if (rows.length === 0) return null;
  const columns: TableColumn<number>[] = [
    { title: "copies", text: (at) => showName(strings[top.direction[at]], 60) },
    { title: "calls", text: (at) => formatCount(top.calls[at]), number: (at) => top.calls[at] },
    { title: "size", text: (at) => (formatBytes(top.nbytes[at])), number: (at) => top.nbytes[at] },
    { title: "time", text: (at) => formatDuration(top.time_ns[at]), number: (at) => top.time_ns[at] },
  ];
  return <Table label={`Copies of iteration ${index}`} columns={columns} rows={rows} id={(at) => at} />;
}

export const iterations: View<IterationsDocument> = {
  name: "iterations",
  component: Iterations,
  key: (entry, _view, session, { loop }) => (session.server && loop !== undefined && session.loops[loop] ? `iterations/${loop}` : entry.key),
};
