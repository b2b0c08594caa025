// The strip of iterations on top of all views: a bar an iteration, or several; the marked ones by pattern and sign.
import { useRef } from "preact/hooks";
import { useWidth } from "./chart";
import { formatDuration } from "./format";
import { showName } from "./names";
import type { Select, Selection } from "./selection";
import { type Bar, SIGNS, foldStrip } from "./strip";
import type { LoopEntry, SessionDocument } from "./types.gen";

const HEIGHT = 38;
const NARROWEST = 5;
const TALLEST = 1.7; // medians; longer ones are cut off, with a sign

interface StripProps {
  session: SessionDocument;
  selection: Selection;
  select: Select;
}

export function IterationStrip({ session, selection, select }: StripProps) {
  const place = useRef<HTMLDivElement>(null);
  const width = useWidth(place);
  const loop = chosenLoop(session, selection);
  if (!loop) return null;
  const bars = foldStrip(loop.strip, Math.floor(width / NARROWEST));
  const iteration = selection.iteration ?? loop.typical ?? loop.strip.first[0];
  const at = bars.findIndex(({ first, last }) => iteration >= first && iteration <= last);
  const go = (bar: Bar | undefined, how?: "replace") => bar && select({ loop: loop.loop, iteration: bar.longest }, how);
  const onKeyDown = (event: KeyboardEvent) => {
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: bars.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    go(bars[to], "replace");
  };
  const step = (by: number) => select({ loop: loop.loop, iteration: Math.min(Math.max(iteration + by, 0), loop.iterations - 1) });
  const choose = ({ loop, rank }: LoopEntry) => select({ loop, rank });
  const marks = [...new Set(bars.map(({ mark }) => mark))].filter((mark) => mark);
  return (
    <section class="strip" aria-label="Iterations">
      <div class="strip-tools">
        {session.loops.length > 1 ? (
          <select
            aria-label="Loop"
            value={loop.loop}
            onChange={(event) => choose(session.loops[event.currentTarget.selectedIndex])}
          >
            {session.loops.map(({ loop, title }) => (
              <option key={loop} value={loop}>
                {showName(title, 100)}
              </option>
            ))}
          </select>
        ) : (
          <span class="name">{showName(loop.title, 100)}</span>
        )}
        <span class="steps">
          <button type="button" aria-label="Iteration before" onClick={() => step(-1)} disabled={iteration <= 0}>
            ‹
          </button>
          <span>
            iteration <b>{iteration}</b> of {loop.iterations}
            {at >= 0 && bars[at].mark && (
              <>
                {" "}
                · {SIGNS[bars[at].mark]} {bars[at].mark}
              </>
            )}
          </span>
          <button type="button" aria-label="Next iteration" onClick={() => step(1)} disabled={iteration >= loop.iterations - 1}>
            ›
          </button>
        </span>
        <span class="quiet">
          median {formatDuration(loop.strip.median_ns)}
          {marks.map((mark) => (
            <span key={mark}>
              {" "}
              · {SIGNS[mark]} {mark}
            </span>
          ))}
        </span>
      </div>
      <div ref={place} class="bars">
        {width > 0 && bars.length > 0 && (
          <svg
            width={width}
            height={HEIGHT}
            role="slider"
            tabindex={0}
            aria-label="Iteration"
            aria-valuemin={0}
            aria-valuemax={loop.iterations - 1}
            aria-valuenow={iteration}
            aria-valuetext={`Iteration ${iteration}${at >= 0 ? `, ${describe(bars[at])}` : ""}`}
            onKeyDown={onKeyDown}
          >
            {bars.map((bar, index) => (
              <StripBar
                key={index}
                {...{ bar, index, loop }}
                width={width / bars.length}
                chosen={index === at}
                choose={() => go(bar)}
              />
            ))}
          </svg>
        )}
      </div>
    </section>
  );
}

function StripBar({
  bar,
  index,
  loop,
  width,
  chosen,
  choose,
}: {
  bar: Bar;
  index: number;
  loop: LoopEntry;
  width: number;
  chosen: boolean;
  choose: () => void;
}) {
  const tallest = (loop.strip.median_ns ?? Math.max(...loop.strip.longest_ns)) * TALLEST;
  const height = Math.max(Math.min(bar.longest_ns / (tallest || 1), 1) * (HEIGHT - 10), 1);
  const mark = bar.mark || "usual";
  return (
    <g class={`bar ${mark}${chosen ? " chosen" : ""}`} onClick={choose}>
      <title>{describe(bar)}</title>
      <rect class="room" x={index * width} y={0} width={width} height={HEIGHT} />
      <rect class="filled" x={index * width + 0.5} y={HEIGHT - height} width={Math.max(width - 1, 1)} height={height} />
      {bar.mark && (
        <rect
          class="hatch"
          x={index * width + 0.5}
          y={HEIGHT - height}
          width={Math.max(width - 1, 1)}
          height={height}
          fill="url(#strip-hatch)"
        />
      )}
      {bar.mark && (
        <text x={(index + 0.5) * width} y={HEIGHT - height - 2} aria-hidden="true">
          {SIGNS[bar.mark]}
        </text>
      )}
      {index === 0 && (
        <pattern id="strip-hatch" width="4" height="4" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
          <path d="M0 0V4" />
        </pattern>
      )}
    </g>
  );
}

function describe({ first, last, longest_ns, mark }: Bar): string {
  const which = first === last ? `iteration ${first}` : `iterations ${first} to ${last}, the longest`;
  return `${which}: ${formatDuration(longest_ns)}${mark ? `, ${mark}` : ""}`;
}

/** Returns the loop that is chosen: the selection's, else the first of its rank, else the first. */
export function chosenLoop(session: SessionDocument, { loop, rank }: Selection): LoopEntry | undefined {
  const { loops } = session;
  return loops.find((entry) => entry.loop === loop) ?? loops.find((entry) => entry.rank === rank) ?? loops[0];
}
