const MOST_TICKS = 5;

/** Sizes for an axis from 0 to `most`: multiples of a power of two, so that they read as whole GiB. */
export function byteTicks(most: number): number[] {
  const step = 2 ** Math.max(0, Math.ceil(Math.log2(Math.max(1, most) / MOST_TICKS)));
  return Array.from({ length: Math.floor(most / step) + 1 }, (_, at) => at * step);
}
