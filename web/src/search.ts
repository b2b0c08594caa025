// Which texts of a document a search finds: those that contain it, in upper or lower case.

/** Returns whether a row's texts match, by their numbers in `strings`; null without a search. */
export function matcher(strings: string[], search: string | undefined): ((...numbers: number[]) => boolean) | null {
  const wanted = search?.trim().toLowerCase();
  if (!wanted) return null;
  const matches = strings.map((text) => text.toLowerCase().includes(wanted));
  return (...numbers) => numbers.some((number) => number >= 0 && matches[number]);
}

/** Returns how many rows match, as a sentence. */
export function countMatches(count: number, total: number): string {
  return count === 0 ? "Nothing matches." : `${count.toLocaleString("en-US")} of ${total.toLocaleString("en-US")} match.`;
}
