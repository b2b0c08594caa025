/** The path of a line through `values`, from 0 at the bottom to the largest at the top. */
export function sparkPath(values: number[], width: number, height: number): string {
  const most = Math.max(1, ...values);
  const step = values.length > 1 ? width / (values.length - 1) : 0;
  const points = values.map((value, at) => `${round(at * step)},${round(height - (value / most) * height)}`);
  return points.length === 0 ? "" : `M${points.join("L")}${points.length === 1 ? "h1" : ""}`;
}

function round(value: number): number {
  return Math.round(10 * value) / 10;
}

const [WIDTH, HEIGHT] = [96, 20];

/** A small line without axes, cheap enough to be drawn for each rank several times a second. */
export function Sparkline({ values, label }: { values: number[]; label: string }) {
  return (
    <svg class="sparkline" viewBox={`-1 -1 ${WIDTH + 2} ${HEIGHT + 2}`} role="img" aria-label={label}>
      <path d={sparkPath(values, WIDTH, HEIGHT)} />
      <path class="ground" d={`M0,${HEIGHT}h${WIDTH}`} />
    </svg>
  );
}
