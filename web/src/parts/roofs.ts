// Numbers of a roofline: places on its axes, sizes of points, rates as people read them.
import type { DecadeAxis } from "../types.gen";

const ABSENT = "-";
const PREFIXES = [[1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""]] as const;
const LARGEST = 24; // radius of a point that takes all the time
const SMALLEST = 2.5;

/** Returns where a positive value lies on a logarithmic axis, 0 to 1; what is beyond it lies on its border. */
export function placeOn({ low, high }: DecadeAxis, value: number): number {
  return Math.min(1, Math.max(0, (Math.log10(value) - low) / (high - low)));
}

/** Returns the radius of a point: its area is its share of the time. */
export function radiusOf(share: number): number {
  return Math.max(SMALLEST, LARGEST * Math.sqrt(Math.max(0, share)));
}

/** Returns the rows, which are sorted by their share, that together take the part `most` of the time. */
export function chosenRows(shares: number[], most: number): number[] {
  const rows: number[] = [];
  let sum = 0;
  for (let row = 0; row < shares.length; row++) {
    if (most < 1 && sum >= most) break;
    rows.push(row);
    sum += shares[row];
  }
  return rows;
}

/** Returns a rate with its prefix, as in `12.3 TFLOP/s`. */
export function formatRate(value: number | null | undefined, unit: string): string {
  if (value === null || value === undefined) return ABSENT;
  const [size, prefix] = PREFIXES.find(([size]) => Math.abs(value) >= size * 0.9995) ?? PREFIXES[PREFIXES.length - 1];
  return `${amountOf(value / size)} ${prefix}${unit}`.trim();
}

/** Returns three digits of a number. */
export function amountOf(value: number | null | undefined): string {
  if (value === null || value === undefined) return ABSENT;
  if (Math.abs(value) >= 99.95) return Math.round(value).toLocaleString("en-US");
  return String(Number(value.toPrecision(3)));
}

/** Returns a power of ten as people read it. */
export function tickName(exponent: number): string {
  return exponent >= -3 && exponent <= 4 ? amountOf(10 ** exponent) : `1e${exponent}`;
}
