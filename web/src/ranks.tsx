import "./charts.css";
import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { formatDuration } from "./format";
import { showName } from "./names";
import { cividis, heatPixels } from "./parts/heat";
import { AsTable } from "./parts/picture";
import { Table } from "./parts/table";
import type { RanksDocument } from "./types.gen";
import type { View, ViewProps } from "./view";

const TALLEST = 480; // pixels that the rows share, as far as they stay visible
const ROW = { least: 3, most: 26, labelled: 13 };
type Measure = "own_ns" | "waiting_ns";
const MEASURES: { measure: Measure; title: string }[] = [
  { measure: "own_ns", title: "own time" },
  { measure: "waiting_ns", title: "waiting for others" },
];

/** Ranks by iterations as a heat map, the worst rank first. */
function Ranks({ document, session, selection, select }: ViewProps<RanksDocument>) {
  const [measure, setMeasure] = useState<Measure>("own_ns");
  const [latest, setLatest] = useState(0); // tells devices of one rank apart
  const title = MEASURES.find((one) => one.measure === measure)!.title;
  const rank = selection.rank ?? session.loops.find(({ loop }) => loop === selection.loop)?.rank;
  const row = chosenRow(document, rank, latest);
  const column = document.index.indexOf((selection.iteration ?? NaN) + (document.rows[row]?.shift ?? 0));
  const choose = (row: number, column: number) => {
    const { rank, loop, shift } = document.rows[row];
    setLatest(row);
    select({ rank, loop: loop ?? undefined, iteration: column < 0 ? undefined : document.index[column] - shift, document: selection.document });
  };
  return (
    <div class="ranks">
      <fieldset class="switch">
        <legend class="unseen">What colours show</legend>
        {MEASURES.map((one) => (
          <label>
            <input type="radio" name="measure" checked={one.measure === measure} onChange={() => setMeasure(one.measure)} /> {one.title}
          </label>
        ))}
      </fieldset>
      <Notes document={document} />
      <HeatMap document={document} measure={measure} title={title} chosen={{ row, column }} choose={choose} />
      {column >= 0 && row >= 0 && <ChosenCell document={document} row={row} column={column} />}
      <AsTable table={() => <RankIterations document={document} row={Math.max(0, row)} column={column} choose={choose} />} />
      <section>
        <h3>Medians by rank, the worst first</h3>
        <MedianTable document={document} chosen={row} choose={(row) => choose(row, column)} />
      </section>
    </div>
  );
}

/** The row of `rank`, -1 for none; `latest` is meant where it is one of several. */
function chosenRow(document: RanksDocument, rank: number | undefined, latest: number): number {
  return document.rows[latest]?.rank === rank ? latest : document.rows.findIndex((row) => row.rank === rank);
}

function Notes({ document }: { document: RanksDocument }) {
  const notes = [
    !document.matched && "Iterations are counted from each rank's own first one: a column need not be the same moment in all ranks.",
    showName(document.missing),
    document.left_out > 0 && `${document.left_out} iterations are not in it.`,
    document.left_out_rows > 0 && `${document.left_out_rows} ranks are not in it: those that differ least.`,
  ].filter((note) => note !== false && note !== "");
  return notes.length === 0 ? null : <p class="quiet">{notes.join(" ")}</p>;
}

interface HeatMapProps {
  document: RanksDocument;
  measure: Measure;
  title: string;
  chosen: { row: number; column: number };
  choose: (row: number, column: number) => void;
}

/** One pixel of a canvas a cell, stretched: a million cells are one picture. The table is for the keyboard. */
function HeatMap({ document, measure, title, chosen, choose }: HeatMapProps) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const [rows, columns] = [document.rows.length, document.index.length];
  const heat = useMemo(() => heatPixels(document[measure], columns), [document, measure]);
  const height = Math.max(ROW.least, Math.min(ROW.most, Math.floor(TALLEST / Math.max(1, rows))));
  useLayoutEffect(() => {
    if (rows > 0 && columns > 0) canvas.current?.getContext("2d")?.putImageData(new ImageData(heat.pixels, columns, rows), 0, 0);
  }, [heat]);
  const pick = (event: MouseEvent & { currentTarget: HTMLElement }) => {
    const box = event.currentTarget.getBoundingClientRect();
    const part = (at: number, whole: number, count: number) => Math.min(count - 1, Math.max(0, Math.floor((at / whole) * count)));
    choose(part(event.clientY - box.top, box.height, rows), part(event.clientX - box.left, box.width, columns));
  };
  if (rows === 0 || columns === 0) return <p>No iterations to compare.</p>;
  const every = Math.ceil(ROW.labelled / height);
  return (
    <figure class="heat">
      <div class="heat-box" tabIndex={0} role="group" aria-label="Heat map">
        <RowTexts document={document} height={height} every={every} text={(row) => showName(document.rows[row].title, 18)} />
        <div class="heat-cells" onClick={pick}>
          <canvas
            ref={canvas}
            width={columns}
            height={rows}
            style={{ height: `${rows * height}px` }}
            role="img"
            aria-label={`${title} of ${rows} ranks in ${columns} iterations, ${formatDuration(heat.low)} to ${formatDuration(heat.high)}`}
          />
          {chosen.row >= 0 && chosen.column >= 0 && (
            <span
              class="heat-chosen"
              style={{ left: `${(100 * chosen.column) / columns}%`, width: `${100 / columns}%`, top: `${chosen.row * height}px`, height: `${height}px` }}
            />
          )}
        </div>
        <RowTexts document={document} height={height} every={every} text={(row) => formatDuration(document.rows[row][measure])} />
        <span class="heat-foot" />
        <span class="heat-foot heat-axis">
          <span>iteration {document.index[0]}</span>
          <span>{document.index[columns - 1]}</span>
        </span>
        <span class="heat-foot">median</span>
      </div>
      <figcaption class="heat-legend">
        {title}: {formatDuration(heat.low)} <Ramp /> {heat.isCut ? "≥ " : ""}
        {formatDuration(heat.high)} <span class="heat-unknown" aria-hidden="true" /> not known
      </figcaption>
    </figure>
  );
}

interface RowTextsProps {
  document: RanksDocument;
  height: number;
  every: number;
  text: (row: number) => string;
}

/** A text beside each row, or each `every`-th where rows are too low for texts. */
function RowTexts({ document, height, every, text }: RowTextsProps) {
  const rows = document.rows.flatMap((_, row) => (row % every === 0 ? [row] : []));
  return (
    <span class="heat-texts">
      {rows.map((row) => (
        <span style={{ height: `${height * every}px` }}>{text(row)}</span>
      ))}
    </span>
  );
}

function Ramp() {
  const steps = [0, 0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875, 1];
  return <span class="ramp" aria-hidden="true" style={{ background: `linear-gradient(to right, ${steps.map((at) => `rgb(${cividis(at)})`)})` }} />;
}

function ChosenCell({ document, row, column }: { document: RanksDocument; row: number; column: number }) {
  const { rank, title, loop, shift } = document.rows[row];
  const iteration = document.index[column] - shift; // the rank's own number
  const fragment = `timeline?${loop === null ? "" : `loop=${loop}&`}rank=${rank}&iteration=${iteration}`;
  return (
    <p aria-live="polite">
      {showName(title, 40)}, iteration {iteration}: own time {formatDuration(document.own_ns[row][column])}, waiting{" "}
      {formatDuration(document.waiting_ns[row][column])}. <a href={`#${fragment}`}>Show in the timeline →</a>
    </p>
  );
}

function MedianTable({ document, chosen, choose }: { document: RanksDocument; chosen: number; choose: (row: number) => void }) {
  const rows = useMemo(() => document.rows.map((_, row) => row), [document]);
  const medians = (title: string, field: "iteration_ns" | "own_ns" | "waiting_ns") => ({
    title,
    text: (row: number) => formatDuration(document.rows[row][field]),
    number: (row: number) => document.rows[row][field],
  });
  return (
    <Table
      label="Medians by rank"
      rows={rows}
      id={(row) => row}
      isChosen={(row) => row === chosen}
      choose={choose}
      columns={[
        { title: "rank", text: (row) => showName(document.rows[row].title, 40) },
        medians("iteration", "iteration_ns"),
        medians("own time", "own_ns"),
        medians("waiting", "waiting_ns"),
        { title: "score", text: (row) => document.rows[row].score?.toFixed(2) ?? "-", number: (row) => document.rows[row].score },
      ]}
    />
  );
}

interface RankIterationsProps {
  document: RanksDocument;
  row: number;
  column: number;
  choose: (row: number, column: number) => void;
}

/** The cells of one rank as a table; the table of medians chooses the rank. */
function RankIterations({ document, row, column, choose }: RankIterationsProps) {
  const columns = useMemo(() => document.index.map((_, at) => at), [document]);
  if (document.rows.length === 0) return null;
  const times = (title: string, measure: Measure) => ({
    title,
    text: (at: number) => formatDuration(document[measure][row][at]),
    number: (at: number) => document[measure][row][at],
  });
  return (
    <Table
      label={`Iterations of ${showName(document.rows[row].title, 40)}`}
      rows={columns}
      id={(at) => at}
      isChosen={(at) => at === column}
      choose={(at) => choose(row, at)}
      columns={[
        { title: "iteration", text: (at) => String(document.index[at]), number: (at) => document.index[at] },
        times("own time", "own_ns"),
        times("waiting", "waiting_ns"),
      ]}
    />
  );
}

export const ranks: View<RanksDocument> = { name: "ranks", component: Ranks };
