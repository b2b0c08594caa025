import type { ComponentChildren } from "preact";
import { useMemo, useState } from "preact/hooks";
import { type Column, MOST_ROWS, matchingRows, shownRows, type SortOrder } from "./rows";

export interface TableColumn<R> extends Column<R> {
  /** What is drawn instead of the text. */
  cell?: (row: R) => ComponentChildren;
}

interface TableProps<R> {
  label: string;
  columns: TableColumn<R>[];
  rows: R[];
  /** What tells rows apart, also when they move. */
  id: (row: R, index: number) => string | number;
  isChosen?: (row: R) => boolean;
  /** With it the first cell of each row is a button. */
  choose?: (row: R) => void;
}

const FEWEST_TO_FILTER = 12;

/** A table that sorts by its headings; a long one has a field to filter it, and shows at most `MOST_ROWS` rows. */
export function Table<R>({ label, columns, rows, id, isChosen, choose }: TableProps<R>) {
  const [filter, setFilter] = useState("");
  const [order, setOrder] = useState<SortOrder | null>(null);
  const shown = useMemo(() => shownRows(rows, columns, filter, order), [rows, columns, filter, order]);
  const matching = useMemo(() => matchingRows(rows, columns, filter), [rows, columns, filter]);
  return (
    <div class="table-block">
      {rows.length >= FEWEST_TO_FILTER && (
        <label class="table-filter">
          Filter <input type="search" value={filter} onInput={(event) => setFilter(event.currentTarget.value)} />
          <span class="quiet" aria-live="polite">{rowsShown(shown.length, matching, rows.length)}</span>
        </label>
      )}
      <div class="table-box" tabIndex={0} role="group" aria-label={label}>
        <table>
          <caption class="unseen">{label}</caption>
          <thead>
            <tr>
              {columns.map((column, at) => (
                <Heading column={column} at={at} order={order} setOrder={setOrder} />
              ))}
            </tr>
          </thead>
          <tbody>
            {shown.map((row, index) => (
              <tr key={id(row, index)} aria-current={isChosen?.(row) ? "true" : undefined} onClick={() => choose?.(row)}>
                {columns.map((column, at) => (
                  <td class={column.number ? "number" : ""}>{cellOf(column, row, at === 0 && choose !== undefined)}</td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </div>
  );
}

function cellOf<R>(column: TableColumn<R>, row: R, isButton: boolean): ComponentChildren {
  const content = column.cell ? column.cell(row) : column.text(row);
  // The click reaches the row, which is what a mouse hits too.
  return isButton ? <button type="button" class="plain">{content}</button> : content;
}

interface HeadingProps<R> {
  column: TableColumn<R>;
  at: number;
  order: SortOrder | null;
  setOrder: (order: SortOrder) => void;
}

/** Numbers are sorted the largest first at the first click, texts from A. */
function Heading<R>({ column, at, order, setOrder }: HeadingProps<R>) {
  const isSorted = order?.column === at;
  const descending = isSorted ? !order.descending : column.number !== undefined;
  const sort = isSorted ? (order.descending ? "descending" : "ascending") : undefined;
  return (
    <th scope="col" class={column.number ? "number" : ""} aria-sort={sort}>
      <button type="button" class="plain" onClick={() => setOrder({ column: at, descending })}>
        {column.title}
        <span aria-hidden="true">{sort === "descending" ? " ↓" : sort === "ascending" ? " ↑" : ""}</span>
      </button>
    </th>
  );
}

function rowsShown(shown: number, matching: number, all: number): string {
  if (shown < matching) return `the first ${MOST_ROWS} of ${matching} rows`;
  return matching < all ? `${matching} of ${all} rows` : `${all} rows`;
}
