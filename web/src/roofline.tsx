import "./charts.css";
import { useState } from "preact/hooks";
import { formatBytes, formatCount, formatDuration, formatRatio } from "./format";
import { showName } from "./names";
import { Bar } from "./parts/bar";
import { Name } from "./parts/name";
import { Table, type TableColumn } from "./parts/table";
import { amountOf, chosenRows, formatRate, placeOn, radiusOf, tickName } from "./parts/roofs";
import type { DecadeAxis, RooflineDocument } from "./types.gen";
import type { View, ViewProps } from "./view";

const SIZE = { width: 860, height: 470 };
const PLOT = { left: 66, right: 780, top: 62, bottom: 424 };
const STRIP = 44; // pixels of the longest bar of time
const WHOLE = 100;
const BOUNDS = ["compute", "memory", "launch"];

/** What the kernels of a loop do each second, beside what the device allows. */
function Roofline({ document, selection, select }: ViewProps<RooflineDocument>) {
  const [most, setMost] = useState(WHOLE);
  const { groups } = document;
  const rows = chosenRows(groups.share_ratio, most / WHOLE);
  const choose = (row: number) => select({ loop: document.loop, box: row }, "replace");
  const chosen = selection.box !== undefined && selection.box < groups.time_ns.length ? selection.box : undefined;
  if (groups.time_ns.length === 0) return <p class="quiet">No kernel runs in the iterations of this loop.</p>;
  return (
    <div class="roofline">
      <label class="table-filter">
        What takes the first{" "}
        <input type="range" min="10" max={WHOLE} step="5" value={most} onInput={(event) => setMost(Number(event.currentTarget.value))} /> {most} % of the time
      </label>
      <RooflineChart document={document} rows={rows} chosen={chosen} choose={choose} />
      <Legend document={document} />
      {document.notes.map((note) => (
        <p class="quiet">{showName(note)}</p>
      ))}
      <Groups document={document} rows={rows} chosen={chosen} choose={choose} />
      {document.left_out > 0 && (
        <p class="quiet">
          {formatCount(document.left_out)} smaller groups with {formatDuration(document.left_out_ns)} are left out.
        </p>
      )}
    </div>
  );
}

interface GroupProps {
  document: RooflineDocument;
  rows: number[];
  chosen: number | undefined;
  choose: (row: number) => void;
}

function xOf(document: RooflineDocument, intensity: number): number {
  return PLOT.left + (PLOT.right - PLOT.left) * placeOn(document.intensity_axis, intensity);
}

function yOf(document: RooflineDocument, rate: number): number {
  return PLOT.bottom - (PLOT.bottom - PLOT.top) * placeOn(document.rate_axis, rate);
}

function RooflineChart({ document, rows, chosen, choose }: GroupProps) {
  const { groups } = document;
  const drawn = rows.filter((row) => (groups.intensity[row] ?? 0) > 0 && (groups.flops_per_s[row] ?? 0) > 0);
  const label = `Roofline of ${drawn.length} groups of calls. Roofs: ${document.roofs.map((roof) => roof.label).join("; ") || "none known"}.`;
  return (
    <div class="graph-box" tabIndex={0} role="group" aria-label="Roofline">
      <svg class="roofline-chart" viewBox={`0 0 ${SIZE.width} ${SIZE.height}`} width={SIZE.width} role="img" aria-label={label}>
        <Axes document={document} />
        <TimeBars axis={document.intensity_axis} />
        <TimeBars axis={document.rate_axis} upright />
        {document.roofs.map((roof) => (
          <RoofPath document={document} roof={roof} />
        ))}
        {drawn.map((row) => (
          <g class={row === chosen ? "roof-point chosen" : "roof-point"} onClick={() => choose(row)}>
            <PointForm bound={boundOf(document, row)} x={xOf(document, groups.intensity[row]!)} y={yOf(document, groups.flops_per_s[row]!)} radius={radiusOf(groups.share_ratio[row])} />
            <title>{explain(document, row)}</title>
          </g>
        ))}
      </svg>
    </div>
  );
}

/** Lines of the decades with their numbers. */
function Axes({ document }: { document: RooflineDocument }) {
  return (
    <g>
      {decades(document.intensity_axis).map((exponent) => (
        <g>
          <path class="roof-grid" d={`M${xOf(document, 10 ** exponent)} ${PLOT.top}V${PLOT.bottom}`} />
          <text text-anchor="middle" x={xOf(document, 10 ** exponent)} y={PLOT.bottom + 17}>{tickName(exponent)}</text>
        </g>
      ))}
      {decades(document.rate_axis).map((exponent) => (
        <g>
          <path class="roof-grid" d={`M${PLOT.left} ${yOf(document, 10 ** exponent)}H${PLOT.right}`} />
          <text text-anchor="end" x={PLOT.left - 8} y={yOf(document, 10 ** exponent) + 4}>{formatRate(10 ** exponent, "")}</text>
        </g>
      ))}
      <text text-anchor="middle" x={(PLOT.left + PLOT.right) / 2} y={PLOT.bottom + 37}>arithmetic intensity, FLOP per byte</text>
      <text x={PLOT.left} y={14}>FLOP/s; bars: share of the time</text>
    </g>
  );
}

function decades({ low, high }: DecadeAxis): number[] {
  return Array.from({ length: high - low + 1 }, (_, at) => low + at);
}

/** The time along an axis, above the plot or at its right. */
function TimeBars({ axis, upright = false }: { axis: DecadeAxis; upright?: boolean }) {
  const most = Math.max(0, ...axis.shares);
  const [from, to] = upright ? [PLOT.bottom, PLOT.top] : [PLOT.left, PLOT.right];
  const step = Math.abs(to - from) / axis.shares.length;
  return (
    <g>
      {axis.shares.map((share, part) => {
        if (share <= 0) return null;
        const length = Math.max(1, (STRIP * share) / most);
        const place = upright
          ? { x: PLOT.right + 5, y: PLOT.bottom - step * (part + 1), width: length, height: step - 1 }
          : { x: PLOT.left + step * part, y: PLOT.top - 5 - length, width: step - 1, height: length };
        return (
          <rect class="roof-time" {...place}>
            <title>{formatRatio(share)} of the time</title>
          </rect>
        );
      })}
    </g>
  );
}

function RoofPath({ document, roof }: { document: RooflineDocument; roof: RooflineDocument["roofs"][number] }) {
  const [x1, y1] = [xOf(document, roof.begin[0]), yOf(document, roof.begin[1])];
  const [x2, y2] = [xOf(document, roof.end[0]), yOf(document, roof.end[1])];
  const turn = (Math.atan2(y2 - y1, x2 - x1) * 180) / Math.PI;
  const level = roof.kind === "compute";
  return (
    <g class="roof">
      <path d={`M${x1} ${y1}L${x2} ${y2}`} />
      <text x={level ? x1 - 8 : x1 + 12} y={level ? y1 + 4 : y1 - 6} text-anchor={level ? "end" : "start"} transform={level ? undefined : `rotate(${turn} ${x1} ${y1})`}>
        {showName(roof.label, 60)}
      </text>
    </g>
  );
}

/** Bounds differ by form, not only by colour; all have the same area. */
function PointForm({ bound, x, y, radius }: { bound: string; x: number; y: number; radius: number }) {
  const look = `point-${BOUNDS.includes(bound) ? bound : "unknown"}`;
  if (bound === "memory") {
    const half = (radius * Math.sqrt(Math.PI)) / 2;
    return <rect class={look} x={x - half} y={y - half} width={2 * half} height={2 * half} />;
  }
  if (bound === "launch") {
    const side = radius * Math.sqrt((4 * Math.PI) / Math.sqrt(3));
    const up = side / Math.sqrt(3);
    return <path class={look} d={`M${x} ${y - up}l${side / 2} ${1.5 * up}h${-side}z`} />;
  }
  return <circle class={look} cx={x} cy={y} r={radius} />;
}

function Legend({ document }: { document: RooflineDocument }) {
  const known = new Set(document.groups.bound.map((_, row) => boundOf(document, row)));
  return (
    <p class="roof-legend">
      {[...BOUNDS, "unknown"]
        .filter((bound) => known.has(bound))
        .map((bound) => (
          <span>
            <svg width="14" height="14" aria-hidden="true">
              <PointForm bound={bound} x={7} y={7} radius={4.5} />
            </svg>{" "}
            {bound === "unknown" ? "bound unknown" : `bound by ${bound}`}
          </span>
        ))}
      <span class="quiet">area: share of the time</span>
    </p>
  );
}

function textOf(document: RooflineDocument, number: number): string {
  return document.strings[number] ?? "";
}

function boundOf(document: RooflineDocument, row: number): string {
  return textOf(document, document.groups.bound[row]) || "unknown";
}

function nameOf(document: RooflineDocument, row: number): string {
  return textOf(document, document.groups.operator[row]) || textOf(document, document.groups.kernel[row]);
}

function explain(document: RooflineDocument, row: number): string {
  const { groups } = document;
  const words = [
    `${showName(nameOf(document, row), 120)}: ${formatRatio(groups.share_ratio[row])} of the time, ${formatDuration(groups.time_ns[row])}`,
    `${formatRate(groups.flops_per_s[row], "FLOP/s")} at ${amountOf(groups.intensity[row])} FLOP/byte`,
    `bound: ${boundOf(document, row)}`,
    `${formatRatio(groups.roof_ratio[row])} of its roof`,
  ];
  return words.join(", ");
}

/** The groups as a table. */
function Groups({ document, rows, chosen, choose }: GroupProps) {
  const { groups } = document;
  const longest = Math.max(0, ...groups.time_ns);
  const number = (title: string, of: (number | null)[], text: (value: number | null) => string): TableColumn<number> => ({
    title,
    text: (row) => text(of[row]),
    number: (row) => of[row],
  });
  const text = (title: string, of: number[]): TableColumn<number> => ({
    title,
    text: (row) => showName(textOf(document, of[row]), 200),
    cell: (row) => <Name text={textOf(document, of[row])} longest={40} />,
  });
  const time = number("time", groups.time_ns, formatDuration);
  const columns: TableColumn<number>[] = [
    { title: "operator", text: (row) => showName(nameOf(document, row), 200), cell: (row) => <Name text={nameOf(document, row)} longest={40} /> },
    { ...time, cell: (row) => <>{formatDuration(groups.time_ns[row])} <Bar value={groups.time_ns[row]} most={longest} /></> },
    number("share", groups.share_ratio, formatRatio),
    number("calls", groups.calls, formatCount),
    { title: "bound", text: (row) => boundOf(document, row) },
    number("of its roof", groups.roof_ratio, formatRatio),
    number("headroom", groups.headroom_ns, formatDuration),
    number("FLOP/s", groups.flops_per_s, (value) => formatRate(value, "FLOP/s")),
    number("FLOP/byte", groups.intensity, amountOf),
    number("bytes", groups.nbytes, formatBytes),
    text("type", groups.dtype),
    text("shapes", groups.dims),
    text("layer", groups.layer),
  ];
  return (
    <section>
      <h3>Groups of calls</h3>
      <Table label="Groups of calls" columns={columns} rows={rows} id={(row) => row} isChosen={(row) => row === chosen} choose={choose} />
    </section>
  );
}

export const roofline: View<RooflineDocument> = { name: "roofline", component: Roofline };
