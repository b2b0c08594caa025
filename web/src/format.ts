// Numbers as people read them, like deepprof/render/units.py: three digits and a unit; `-` where there is no value.

const ABSENT = "-";
type Scale = readonly (readonly [size: number, unit: string])[]; // largest unit first
const TIMES: Scale = [
  [3_600_000_000_000, "h"],
  [60_000_000_000, "min"],
  [1_000_000_000, "s"],
  [1_000_000, "ms"],
  [1_000, "µs"],
  [1, "ns"],
];
const SIZES: Scale = [
  [2 ** 50, "PiB"],
  [2 ** 40, "TiB"],
  [2 ** 30, "GiB"],
  [2 ** 20, "MiB"],
  [2 ** 10, "KiB"],
  [1, "B"],
];

type Value = number | null | undefined;
export type Unit = "ns" | "bytes" | "ratio" | "count";

/** Returns nanoseconds as in `12.3 ms`. */
export function formatDuration(ns: Value): string {
  return scaled(ns, TIMES);
}

/** Returns nanoseconds with their sign as in `+12.3 ms`, 0 without. */
export function formatDifference(ns: number): string {
  return (ns > 0 ? "+" : "") + formatDuration(ns);
}

/** Returns a size as in `1.25 GiB`. */
export function formatBytes(nbytes: Value): string {
  return scaled(nbytes, SIZES);
}

/** Returns a share as in `12.3 %`; only an exact 0 or 1 reads as 0 % or 100 %. */
export function formatRatio(ratio: Value): string {
  if (ratio === null || ratio === undefined) return ABSENT;
  if (ratio === 0 || ratio === 1) return `${ratio * 100} %`;
  if (ratio > 0 && ratio < 0.0005) return "<0.1 %";
  if (ratio >= 0.9995 && ratio < 1) return ">99.9 %";
  return `${(ratio * 100).toFixed(1)} %`;
}

/** Returns a number of things as in `12,345`. */
export function formatCount(count: Value): string {
  return count === null || count === undefined ? ABSENT : count.toLocaleString("en-US", { maximumFractionDigits: 2 });
}

/** Returns a value in its unit. */
export function formatValue(value: Value, unit: Unit): string {
  return { ns: formatDuration, bytes: formatBytes, ratio: formatRatio, count: formatCount }[unit](value);
}

function scaled(value: Value, scale: Scale): string {
  if (value === null || value === undefined) return ABSENT;
  const [size, unit] = scale.find(([size]) => Math.abs(value) >= size * 0.9995) ?? scale[scale.length - 1];
  const number = value / size;
  const digits = size === 1 || Math.abs(number) >= 99.95 ? 0 : Math.abs(number) >= 9.995 ? 1 : 2;
  return `${number.toFixed(digits)} ${unit}`;
}
