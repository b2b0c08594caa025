// The bars of the strip of iterations: as many as can be clicked, the most notable mark of each.
import type { IterationStrip } from "./types.gen";

export type Mark = IterationStrip["mark"][number];

export const SIGNS: Record<Mark, string> = { "": "", "warm-up": "↗", outlier: "!", incomplete: "…" };

export interface Bar {
  first: number;
  last: number;
  longest: number; // of these the one that is drawn
  longest_ns: number;
  mark: Mark;
}

const NOTABLE: Mark[] = ["", "incomplete", "warm-up", "outlier"]; // the last one is shown of several

/** Returns at most `most` bars, each of the same number of the strip's. */
export function foldStrip(strip: IterationStrip, most: number): Bar[] {
  const count = strip.first.length;
  const each = Math.max(Math.ceil(count / Math.max(most, 1)), 1);
  return Array.from({ length: Math.ceil(count / each) }, (_, bar) =>
    foldBars(strip, bar * each, Math.min((bar + 1) * each, count)),
  );
}

function foldBars(strip: IterationStrip, from: number, to: number): Bar {
  const marks = strip.mark.slice(from, to);
  const longest_ns = Math.max(...strip.longest_ns.slice(from, to));
  return {
    first: strip.first[from],
    last: strip.last[to - 1],
    longest: strip.longest[strip.longest_ns.indexOf(longest_ns, from)],
    longest_ns,
    mark: marks.reduce((most, mark) => (NOTABLE.indexOf(mark) > NOTABLE.indexOf(most) ? mark : most), ""),
  };
}
