import * as Plot from "@observablehq/plot";
import { formatValue } from "../format";
import { showName } from "../names";
import type { Bars, TrendPicture } from "../types.gen";
import { Bar } from "./bar";
import { Name } from "./name";
import { Picture } from "./picture";

const HEIGHT = 120;

/** Values by iteration as a line of small points. */
export function FindingTrend({ trend }: { trend: TrendPicture }) {
  const points = trend.index.map((index, at) => ({ index, value: trend.value[at] }));
  const [first, last] = [points[0], points[points.length - 1]];
  if (first === undefined) return null;
  const text = (value: number) => formatValue(value, trend.unit);
  const label = `${showName(trend.title, 120)}: ${text(first.value)} at iteration ${first.index}, ${text(last.value)} at ${last.index}`;
  const options = (): Plot.PlotOptions => ({
    height: HEIGHT,
    marginLeft: 56,
    marginTop: 8,
    marginBottom: 30,
    x: { label: "iteration", ticks: 4 },
    y: { label: null, ticks: 3, tickFormat: text, zero: true, nice: true },
    marks: [
      Plot.gridY({ ticks: 3 }),
      Plot.line(points, { x: "index", y: "value", stroke: "var(--accent)", strokeWidth: 1 }),
      Plot.dot(points, { x: "index", y: "value", r: 1.8, fill: "var(--accent)" }),
    ],
  });
  return (
    <div class="evidence-part">
      <h4>{showName(trend.title, 120)}</h4>
      <Picture label={label} options={options} />
    </div>
  );
}

/** Parts of a whole; those that the finding is about are hatched, and say so. */
export function FindingBars({ bars }: { bars: Bars }) {
  const most = Math.max(0, ...bars.value);
  return (
    <div class="evidence-part">
      <table class="evidence">
        <caption>{showName(bars.title, 120)}</caption>
        <tbody>
          {bars.label.map((label, at) => (
            <tr>
              <th scope="row">
                {bars.marked[at] && <span title="what the finding is about">▸ </span>}
                <Name text={label} longest={36} />
              </th>
              <td class="number">{formatValue(bars.value[at], bars.unit)}</td>
              <td>
                <Bar value={bars.value[at]} most={most} look={bars.marked[at] ? "marked" : ""} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
