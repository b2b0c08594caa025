import { showName } from "../names";
import type { TimePart } from "../types.gen";

/**
 * How parts of the time look: busy ones plain in cool colours, idle ones hatched in warm ones, so that the two are told
 * apart without colours too. The order is that of the report; a part that it does not know takes the next look.
 */
const BUSY = [
  "compute_ns",
  "exposed_communication_ns",
  "exposed_htod_ns",
  "exposed_dtoh_ns",
  "exposed_dtod_ns",
  "exposed_ptop_ns",
  "exposed_copy_ns",
  "exposed_memset_ns",
];
const IDLE = [
  "idle_host_ns",
  "idle_input_ns",
  "idle_sync_ns",
  "idle_launch_ns",
  "idle_dependency_ns",
  "idle_allocator_ns",
  "idle_first_use_ns",
  "idle_startup_ns",
  "idle_shared_ns",
  "idle_unknown_ns",
  "idle_blocked_ns",
  "idle_submission_ns",
];
const BUSY_LOOKS = 8;
const IDLE_LOOKS = 12;

/** The number of an idle part's look, the same in all views. */
export function idleLook(part: TimePart): number {
  return Number(partLook({ ...part, idle: true }).replace("idle-", ""));
}

/** The name of a part's look: `busy-0`, `idle-3`, a pattern of `PartPatterns` and a colour of charts.css. */
export function partLook(part: TimePart): string {
  const known = (part.idle ? IDLE : BUSY).indexOf(part.name);
  const looks = part.idle ? IDLE_LOOKS : BUSY_LOOKS;
  return `${part.idle ? "idle" : "busy"}-${known >= 0 ? known : lengthOf(part.name) % looks}`;
}

/** Any number that is the same each time. */
function lengthOf(name: string): number {
  return [...name].length;
}

export function partFill(part: TimePart): string {
  return `url(#${partLook(part)})`;
}

/** The patterns that `partFill` names; they stand once in a view. */
export function PartPatterns() {
  return (
    <svg class="part-patterns" aria-hidden="true">
      <defs>
        {Array.from({ length: BUSY_LOOKS }, (_, at) => (
          <pattern id={`busy-${at}`} width="8" height="8" patternUnits="userSpaceOnUse">
            <rect width="8" height="8" class={`look-busy-${at % 4}`} />
            {at >= 4 && <path d="M0 2h4M4 6h4" class="part-hatch" />}
          </pattern>
        ))}
        {Array.from({ length: IDLE_LOOKS }, (_, at) => (
          <pattern id={`idle-${at}`} width="6" height="6" patternUnits="userSpaceOnUse">
            <rect width="6" height="6" class={`look-idle-${at % 4}`} />
            <path d={HATCHES[Math.floor(at / 4)]} class="part-hatch" />
          </pattern>
        ))}
        <pattern id="marked" width="6" height="6" patternUnits="userSpaceOnUse">
          <path d={HATCHES[0]} class="mark-hatch" />
        </pattern>
      </defs>
    </svg>
  );
}

const HATCHES = ["M-1 1l2-2M0 6l6-6M5 7l2-2", "M-1 5l2 2M0 0l6 6M5-1l2 2", "M0 3h6"];

/** A square that looks as the part does. */
export function PartSwatch({ part }: { part: TimePart }) {
  return (
    <svg class="swatch" viewBox="0 0 14 14" aria-hidden="true">
      <rect width="14" height="14" fill={partFill(part)} />
    </svg>
  );
}

/** Which look is which part. */
export function PartLegend({ parts }: { parts: TimePart[] }) {
  return (
    <ul class="legend" aria-label="Parts of the time">
      {parts.map((part) => (
        <li>
          <PartSwatch part={part} /> {showName(part.title, 60)}
        </li>
      ))}
    </ul>
  );
}
