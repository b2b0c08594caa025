/** The rows of a table that are shown: filtered, sorted, and never so many that a browser gets slow. */
export const MOST_ROWS = 500;

export interface Column<R> {
  title: string;
  /** What stands in the cell, and what the filter looks in. */
  text: (row: R) => string;
  /** What the column is sorted by; columns without it are sorted by their text. */
  number?: (row: R) => number | null;
}

export interface SortOrder {
  column: number;
  descending: boolean;
}

export function shownRows<R>(rows: R[], columns: Column<R>[], filter: string, order: SortOrder | null): R[] {
  const wanted = filter.trim().toLowerCase();
  const matching = wanted === "" ? rows : rows.filter((row) => matches(row, columns, wanted));
  return (order === null ? matching : sorted(matching, columns[order.column], order.descending)).slice(0, MOST_ROWS);
}

export function matchingRows<R>(rows: R[], columns: Column<R>[], filter: string): number {
  const wanted = filter.trim().toLowerCase();
  return wanted === "" ? rows.length : rows.filter((row) => matches(row, columns, wanted)).length;
}

function matches<R>(row: R, columns: Column<R>[], wanted: string): boolean {
  return columns.some((column) => column.text(row).toLowerCase().includes(wanted));
}

/** Rows without a value stand last, whichever way the others are sorted. */
function sorted<R>(rows: R[], column: Column<R>, descending: boolean): R[] {
  const sign = descending ? -1 : 1;
  const { number } = column;
  if (number === undefined) return [...rows].sort((a, b) => sign * column.text(a).localeCompare(column.text(b)));
  return [...rows].sort((a, b) => {
    const [left, right] = [number(a), number(b)];
    if (left === null || right === null) return Number(left === null) - Number(right === null);
    return sign * (left - right);
  });
}
