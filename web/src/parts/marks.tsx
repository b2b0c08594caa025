import type { IterationsDocument } from "../types.gen";

type Mark = IterationsDocument["mark"][number];

/** What an iteration is marked with, as icon and as word. */
export const MARKS: Record<Exclude<Mark, "">, { icon: string; title: string }> = {
  outlier: { icon: "▲", title: "outlier" },
  "warm-up": { icon: "○", title: "warm-up" },
  incomplete: { icon: "◐", title: "incomplete" },
};

export function MarkBadge({ mark }: { mark: Mark }) {
  if (mark === "") return null;
  return (
    <span class="mark">
      <span aria-hidden="true">{MARKS[mark].icon} </span>
      {MARKS[mark].title}
    </span>
  );
}

/** What the icons over bars mean. */
export function MarkLegend({ marks }: { marks: Mark[] }) {
  const used = Object.keys(MARKS).filter((mark) => marks.includes(mark as Mark)) as Exclude<Mark, "">[];
  if (used.length === 0) return null;
  return (
    <ul class="legend" aria-label="Marks of iterations">
      {used.map((mark) => (
        <li>
          <MarkBadge mark={mark} />
        </li>
      ))}
    </ul>
  );
}
