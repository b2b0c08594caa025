/** A bar of neighbouring iterations, rows `first` to `last`; `longest` is the row that it is drawn as. */
export interface IterationBar {
  first: number;
  last: number;
  longest: number;
}

/** At most `most` bars, each of equally many rows but the last one. */
export function mergedBars(length_ns: number[], most: number): IterationBar[] {
  const each = Math.max(1, Math.ceil(length_ns.length / most));
  const bars: IterationBar[] = [];
  for (let first = 0; first < length_ns.length; first += each) {
    const last = Math.min(first + each, length_ns.length) - 1;
    let longest = first;
    for (let row = first; row <= last; row++) if (length_ns[row] > length_ns[longest]) longest = row;
    bars.push({ first, last, longest });
  }
  return bars;
}

export interface StackedRow {
  at: number;
  part: number;
  low: number;
  high: number;
}

/** The parts of each bar on top of each other, those of no time left out. */
export function stackedRows(bars: IterationBar[], parts: number[], times_ns: number[][]): StackedRow[] {
  return bars.flatMap((bar, at) => {
    let low = 0;
    return parts.flatMap((part) => {
      const high = low + times_ns[part][bar.longest];
      const row = { at, part, low, high };
      low = high;
      return row.high > row.low ? [row] : [];
    });
  });
}
