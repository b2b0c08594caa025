// The slowest and the fastest operations of what the timeline shows: the first question that one has about it.
import { formatDuration } from "./format";
import { showName } from "./names";
import type { TimelineDocument, TimelineTrack } from "./types.gen";

const OPERATIONS = { host: "operator", device: "kernel" } as const;

interface ExtremesProps {
  document: TimelineDocument;
  track: TimelineTrack | undefined; // of the rank that is meant
  choose: (row: number) => void;
}

/** A line for the host and one for the device; each operation is a button that opens it. */
export function Extremes({ document: doc, track: chosen, choose }: ExtremesProps) {
  const tracks = doc.tracks.filter(({ rank, loop }) => rank === chosen?.rank && loop === chosen.loop);
  const lines = tracks.map((track) => ({ track, ends: findExtremes(doc, track) })).filter(({ ends }) => ends !== null);
  if (lines.length === 0) return null;
  const name = (row: number) => (
    <button type="button" class="link" onClick={() => choose(row)}>
      {showName(doc.strings[doc.title[row]] ?? "", 80)}
    </button>
  );
  return (
    <dl class="extremes" aria-label="Slowest and fastest">
      {lines.map(({ track, ends }) => (
        <div key={track.first}>
          <dt>
            rank {track.rank}, {track.title}
          </dt>
          <dd>
            slowest {name(ends!.slowest)} {formatDuration(doc.duration_ns[ends!.slowest])}
          </dd>
          <dd>
            fastest {name(ends!.fastest)} {formatDuration(doc.duration_ns[ends!.fastest])}
          </dd>
        </div>
      ))}
    </dl>
  );
}

/** Returns the boxes of the operations of a track that take most and least time; null where it has none. */
export function findExtremes(doc: TimelineDocument, track: TimelineTrack): { slowest: number; fastest: number } | null {
  const kind = doc.kinds.indexOf(OPERATIONS[track.side]);
  let [slowest, fastest] = [-1, -1];
  for (let row = track.first; row < track.first + track.count; row++) {
    if (doc.kind[row] !== kind) continue;
    if (slowest < 0 || doc.duration_ns[row] > doc.duration_ns[slowest]) slowest = row;
    if (fastest < 0 || doc.duration_ns[row] < doc.duration_ns[fastest]) fastest = row;
  }
  return slowest < 0 ? null : { slowest, fastest };
}
