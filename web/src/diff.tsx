import "./charts.css";
import { useMemo, useState } from "preact/hooks";
import { formatCount, formatDifference, formatDuration, formatRatio } from "./format";
import { showName } from "./names";
import { ChangeBar } from "./parts/bar";
import { Name } from "./parts/name";
import { Sentences } from "./parts/sentences";
import { ShortSource } from "./parts/source";
import { Table, type TableColumn } from "./parts/table";
import { axisOf, type FallingStep, fallingSteps } from "./parts/waterfall";
import type { DiffDocument, DiffRow } from "./types.gen";
import type { View, ViewProps } from "./view";

const VERDICTS: Record<DiffDocument["verdict"], string> = {
  slower: "▲ slower",
  faster: "▼ faster",
  same: "= the same",
  unclear: "? unclear",
};

/** Two runs: what an iteration of A became in B, step by step. */
function Diff({ document }: ViewProps<DiffDocument>) {
  return (
    <div class="diff">
      <p>
        <span class={`verdict verdict-${document.verdict}`}>{VERDICTS[document.verdict]}</span> A is <Name text={document.a_title} />, B is <Name text={document.b_title} />. Medians B / A: {document.ratio.toFixed(3)}
        {document.low !== null && document.high !== null && ` (${document.low.toFixed(3)} to ${document.high.toFixed(3)} with 95 % confidence)`}
      </p>
      <Answers document={document} />
      <Sentences title="What differs besides the time" sentences={document.differences} />
      <Waterfall document={document} />
      {(["stages", "layers", "kernels", "contexts"] as const).map((group) => (
        <Changes title={group} rows={document[group]} />
      ))}
      <Sentences title="What could not be compared" sentences={document.missing} />
    </div>
  );
}

/** The answer of each run's own report. */
function Answers({ document }: { document: DiffDocument }) {
  return (
    <dl class="answers">
      <dt>A</dt>
      <dd>{showName(document.a_answer)}</dd>
      <dt>B</dt>
      <dd>{showName(document.b_answer)}</dd>
    </dl>
  );
}

/** From A's mean iteration to B's: each step begins where the one before it ends. */
function Waterfall({ document }: { document: DiffDocument }) {
  const [byChange, setByChange] = useState(true);
  const [open, setOpen] = useState<string | null>(null);
  const steps = useMemo(() => fallingSteps(document.a_ns, document.steps, byChange), [document, byChange]);
  const axis = axisOf(document.a_ns, document.b_ns, steps);
  const place = (time_ns: number) => `${(100 * (time_ns - axis.low)) / (axis.high - axis.low)}%`;
  return (
    <section>
      <h3>From A to B</h3>
      <fieldset class="switch">
        <legend class="unseen">Order of the steps</legend>
        <label>
          <input type="radio" name="order" checked={byChange} onChange={() => setByChange(true)} /> largest change first
        </label>
        <label>
          <input type="radio" name="order" checked={!byChange} onChange={() => setByChange(false)} /> in the order of the parts
        </label>
      </fieldset>
      <ol class="waterfall">
        <End title="A" time_ns={document.a_ns} left={place(document.a_ns)} />
        {steps.map((step) => (
          <Step
            key={step.step.name}
            falling={step}
            left={place(Math.min(step.from_ns, step.to_ns))}
            width={`${(100 * Math.abs(step.to_ns - step.from_ns)) / (axis.high - axis.low)}%`}
            isOpen={open === step.step.name}
            toggle={() => setOpen(open === step.step.name ? null : step.step.name)}
          />
        ))}
        <End title="B" time_ns={document.b_ns} left={place(document.b_ns)} />
      </ol>
      <p class="quiet">The picture reaches from {formatDuration(axis.low)} on the left to {formatDuration(axis.high)} on the right.</p>
    </section>
  );
}

function End({ title, time_ns, left }: { title: string; time_ns: number; left: string }) {
  return (
    <li class="fall fall-end">
      <span class="fall-title">{title}, mean iteration</span>
      <span class="fall-track" aria-hidden="true">
        <span class="fall-tick" style={{ left }} />
      </span>
      <span class="number">{formatDuration(time_ns)}</span>
    </li>
  );
}

interface StepProps {
  falling: FallingStep;
  left: string;
  width: string;
  isOpen: boolean;
  toggle: () => void;
}

function Step({ falling: { step, from_ns, to_ns }, left, width, isOpen, toggle }: StepProps) {
  const look = to_ns > from_ns ? "more" : "less";
  return (
    <li>
      <button type="button" class="fall" aria-expanded={isOpen} onClick={toggle}>
        <span class="fall-title">{showName(step.title, 60)}</span>
        <span class="fall-track" aria-hidden="true">
          <span class={`fall-bar ${look} ${step.idle ? "idle" : ""}`} style={{ left, width }} />
        </span>
        <span class="number">{formatDifference(to_ns - from_ns)}</span>
      </button>
      {isOpen && (
        <div class="behind">
          <p>
            {showName(step.title, 60)}: {formatDuration(step.a_ns)} in A, {formatDuration(step.b_ns)} in B.
          </p>
          {step.behind.length > 0 ? <RowTable label={`Changes behind ${showName(step.title, 60)}`} rows={step.behind} /> : <p class="quiet">No kernel or place in the code is known behind it.</p>}
        </div>
      )}
    </li>
  );
}

function Changes({ title, rows }: { title: string; rows: DiffRow[] }) {
  if (rows.length === 0) return null;
  return (
    <section>
      <h3>{title[0].toUpperCase() + title.slice(1)}</h3>
      <RowTable label={`Changes of ${title}`} rows={rows} />
    </section>
  );
}

function RowTable({ label, rows }: { label: string; rows: DiffRow[] }) {
  const columns = useMemo(() => rowColumns(rows), [rows]);
  return <Table label={label} columns={columns} rows={rows} id={(row, at) => `${at} ${row.title}`} />;
}

function rowColumns(rows: DiffRow[]): TableColumn<DiffRow>[] {
  const most = Math.max(1, ...rows.map((row) => Math.abs(row.b_ns - row.a_ns)));
  const columns: TableColumn<DiffRow>[] = [
    { title: "name", text: (row) => row.title, cell: (row) => <Name text={row.title} longest={48} /> },
    { title: "A", text: (row) => (row.status === "new" ? "-" : formatDuration(row.a_ns)), number: (row) => row.a_ns },
    { title: "B", text: (row) => (row.status === "gone" ? "-" : formatDuration(row.b_ns)), number: (row) => row.b_ns },
    { title: "change", text: (row) => formatDifference(row.b_ns - row.a_ns), number: (row) => row.b_ns - row.a_ns },
    { title: "bar", text: changeText, cell: (row) => <ChangeBar change={row.b_ns - row.a_ns} most={most} /> },
    { title: "B / A", text: changeText, number: (row) => (row.a_ns > 0 ? row.b_ns / row.a_ns : null) },
  ];
  const source: TableColumn<DiffRow> = { title: "code", text: (row) => row.source?.file ?? "", cell: (row) => <ShortSource place={row.source} /> };
  return rows.some((row) => row.source !== null) ? [...columns, source] : columns;
}

function changeText(row: DiffRow): string {
  if (row.status !== "changed") return row.status;
  const ratio = row.a_ns > 0 ? row.b_ns / row.a_ns : null;
  return ratio !== null && ratio >= 10 ? `${formatCount(Math.round(ratio))} ×` : formatRatio(ratio);
}

export const diff: View<DiffDocument> = { name: "diff", component: Diff };
