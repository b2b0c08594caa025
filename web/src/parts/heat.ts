/** Cividis at nine places (Nuñez, Anderton and Renslow 2018): read the same with and without colour vision. */
const CIVIDIS = [
  [0, 34, 78],
  [18, 53, 112],
  [59, 73, 108],
  [87, 93, 109],
  [112, 113, 115],
  [138, 134, 120],
  [165, 156, 116],
  [195, 179, 105],
  [254, 232, 56],
];

/** Red, green and blue of a share from 0 to 1. */
export function cividis(share: number): [number, number, number] {
  const at = Math.min(1, Math.max(0, share)) * (CIVIDIS.length - 1);
  const low = Math.min(CIVIDIS.length - 2, Math.floor(at));
  const mix = (channel: number) => Math.round(CIVIDIS[low][channel] + (at - low) * (CIVIDIS[low + 1][channel] - CIVIDIS[low][channel]));
  return [mix(0), mix(1), mix(2)];
}

export interface Heat {
  low: number;
  high: number;
  /** There are values above `high`, drawn as it: a few long iterations must not make all others look alike. */
  isCut: boolean;
  /** Red, green, blue and opacity of each cell, row by row; unknown cells are clear. */
  pixels: Uint8ClampedArray<ArrayBuffer>;
}

const SHARE_BELOW_HIGH = 0.98;

export function heatPixels(cells: (number | null)[][], columns: number): Heat {
  const known = Float64Array.from(cells.flat().filter((value) => value !== null)).sort();
  const low = known[0] ?? 0;
  const high = known[Math.floor(SHARE_BELOW_HIGH * (known.length - 1))] ?? 0;
  const pixels = new Uint8ClampedArray(4 * columns * cells.length);
  cells.forEach((row, at) =>
    row.forEach((value, column) => {
      if (value !== null) pixels.set([...cividis((value - low) / (high - low || 1)), 255], 4 * (at * columns + column));
    }),
  );
  return { low, high, isCut: known.length > 0 && known[known.length - 1] > high, pixels };
}
