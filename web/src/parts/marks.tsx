import { type Mark, SIGNS } from "../strip";

/** What an iteration is marked with, as sign and as word. */
export function MarkBadge({ mark }: { mark: Mark }) {
  if (mark === "") return null;
  return (
    <span class="mark">
      <b aria-hidden="true">{SIGNS[mark]}</b> {mark}
    </span>
  );
}

/** What the signs over bars mean. */
export function MarkLegend({ marks }: { marks: Mark[] }) {
  const used = [...new Set(marks)].filter((mark) => mark !== "");
  if (used.length === 0) return null;
  return (
    <ul class="legend" aria-label="Marks of iterations">
      {used.map((mark) => (
        <li key={mark}>
          <MarkBadge mark={mark} />
        </li>
      ))}
    </ul>
  );
}
