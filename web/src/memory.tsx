import "./charts.css";
import * as Plot from "@observablehq/plot";
import { formatBytes, formatCount, formatDuration, formatRatio } from "./format";
import { showName } from "./names";
import { Bar } from "./parts/bar";
import { Picture } from "./parts/picture";
import { Table, type TableColumn } from "./parts/table";
import type { CopyEntry, MemoryDocument, MemorySeries } from "./types.gen";
import { byteTicks } from "./parts/ticks";
import type { View, ViewProps } from "./view";

/** Copies of an iteration, and memory in use over time. */
function Memory({ document }: ViewProps<MemoryDocument>) {
  return (
    <div class="memory">
      <section>
        <h3>Copies of an iteration</h3>
        {document.copies.length > 0 ? <CopyTable copies={document.copies} /> : <p>No copies in an iteration.</p>}
      </section>
      <section>
        <h3>Memory in use</h3>
        {document.problem !== null && <p class="problem">{showName(document.problem)}</p>}
        {document.series.map((series) => (
          <Series series={series} />
        ))}
      </section>
    </div>
  );
}

function CopyTable({ copies }: { copies: CopyEntry[] }) {
  const columns: TableColumn<CopyEntry>[] = [
    { title: "direction", text: (copy) => showName([copy.direction, copy.memory].filter((text) => text !== "").join(", "), 60) },
    { title: "calls", text: (copy) => formatCount(copy.calls), number: (copy) => copy.calls },
    ...measured("size", copies, (copy) => copy.nbytes, formatBytes),
    ...measured("time", copies, (copy) => copy.time_ns, formatDuration),
    { title: "share", text: (copy) => formatRatio(copy.share_ratio), number: (copy) => copy.share_ratio },
    ...measured("GB/s", copies, (copy) => copy.gigabytes_per_s, (value) => value?.toPrecision(3) ?? "-"),
  ];
  const loops = new Set(copies.map((copy) => copy.loop));
  if (loops.size > 1) columns.unshift({ title: "loop", text: (copy) => String(copy.loop ?? "-"), number: (copy) => copy.loop });
  return <Table label="Copies of an iteration" columns={columns} rows={copies} id={(_, at) => at} />;
}

/** A column with a bar under each number. */
function measured(
  title: string,
  copies: CopyEntry[],
  number: (copy: CopyEntry) => number | null,
  text: (value: number | null) => string,
): TableColumn<CopyEntry>[] {
  const most = Math.max(0, ...copies.map((copy) => number(copy) ?? 0));
  const cell = (copy: CopyEntry) => (
    <>
      {text(number(copy))} <Bar value={number(copy) ?? 0} most={most} />
    </>
  );
  return [{ title, text: (copy) => text(number(copy)), number, cell }];
}

/** The least and the most memory in use of each stretch of time, as a band under the limit. */
function Series({ series }: { series: MemorySeries }) {
  const stretches = series.time_ns.map((_, at) => at);
  const peak = Math.max(0, ...series.high_nbytes);
  const limit = series.limit_nbytes === null ? "" : ` of ${formatBytes(series.limit_nbytes)}`;
  const title = showName(series.title, 60);
  return (
    <div class="evidence-part">
      <h4>
        {title}: at most {formatBytes(peak)}
        {limit}
      </h4>
      <Picture
        label={`Memory in use of ${title} over time, at most ${formatBytes(peak)}${limit}`}
        options={() => seriesOptions(series, peak)}
        table={() => (
          <Table
            label={`Memory in use of ${title}`}
            rows={stretches}
            id={(at) => at}
            columns={[
              { title: "from", text: (at) => formatDuration(series.time_ns[at]), number: (at) => series.time_ns[at] },
              { title: "at least", text: (at) => formatBytes(series.low_nbytes[at]), number: (at) => series.low_nbytes[at] },
              { title: "at most", text: (at) => formatBytes(series.high_nbytes[at]), number: (at) => series.high_nbytes[at] },
            ]}
          />
        )}
      />
    </div>
  );
}

function seriesOptions(series: MemorySeries, peak: number): Plot.PlotOptions {
  const stretches = series.time_ns.map((time_ns, at) => ({ time_ns, low: series.low_nbytes[at], high: series.high_nbytes[at] }));
  const { limit_nbytes } = series;
  return {
    height: 180,
    marginLeft: 64,
    x: { label: null, ticks: 5, tickFormat: formatDuration },
    y: { domain: [0, Math.max(peak, limit_nbytes ?? 0, 1)], label: null, ticks: byteTicks(Math.max(peak, limit_nbytes ?? 0)), tickFormat: formatBytes, grid: true },
    marks: [
      Plot.areaY(stretches, { x: "time_ns", y1: 0, y2: "low", curve: "step-after", fill: "var(--time)", fillOpacity: 0.25 }),
      Plot.areaY(stretches, { x: "time_ns", y1: "low", y2: "high", curve: "step-after", fill: "var(--time)", fillOpacity: 0.6 }),
      Plot.line(stretches, { x: "time_ns", y: "high", curve: "step-after", stroke: "var(--time)" }),
      limit_nbytes === null ? null : Plot.ruleY([limit_nbytes], { stroke: "var(--warning)", strokeDasharray: "6 3", strokeWidth: 1.5 }),
      limit_nbytes === null ? null : Plot.text(["limit"], { y: limit_nbytes, frameAnchor: "right", dy: 8, fill: "var(--warning)" }),
    ],
  };
}

export const memory: View<MemoryDocument> = { name: "memory", component: Memory };
