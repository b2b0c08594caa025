// Which texts of a document a search finds: those that contain it, in upper or lower case.
import type { BoxTree } from "./levels";

/** Returns whether a row's texts match, by their numbers in `strings`; null without a search. */
export function matcher(strings: string[], search: string | undefined): ((...numbers: number[]) => boolean) | null {
  const wanted = search?.trim().toLowerCase();
  if (!wanted) return null;
  const matches = strings.map((text) => text.toLowerCase().includes(wanted));
  return (...numbers) => numbers.some((number) => number >= 0 && matches[number]);
}

/** What a search finds of a tree: the rows that match, all rows around them, and how many match. */
export interface Found {
  own: Uint8Array;
  around: Uint8Array;
  count: number;
}

/** Returns what is found in a tree by the texts that `columns` have of each row; null without a search. */
export function findRows(tree: BoxTree, strings: string[], search: string | undefined, ...columns: number[][]): Found | null {
  const matches = matcher(strings, search);
  if (!matches) return null;
  const own = Uint8Array.from(columns[0], (_, row) => +matches(...columns.map((column) => column[row])));
  return { own, around: tree.around((row) => own[row] === 1), count: own.reduce((sum, one) => sum + one, 0) };
}

/** Returns the class of a box of `rows`, after a space: one of them matches, or lies around what does. */
export function markRows(found: Found | null, rows: Int32Array): "" | " match" | " within" {
  if (!found) return "";
  return rows.some((row) => found.own[row] > 0) ? " match" : rows.some((row) => found.around[row] > 0) ? " within" : "";
}

/** Returns how many rows match, as a sentence. */
export function countMatches(count: number, total: number): string {
  return count === 0 ? "Nothing matches." : `${count.toLocaleString("en-US")} of ${total.toLocaleString("en-US")} match.`;
}
