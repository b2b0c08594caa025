// One iteration as boxes within boxes, at several scales: what is open is shown below in the whole width. Host above device.
import { useMemo, useRef, useState } from "preact/hooks";
import { Boxes, type Look, Patterns } from "./boxes";
import { useWidth } from "./chart";
import { Extremes } from "./extremes";
import { formatCount, formatDuration, formatRatio } from "./format";
import { idleLook } from "./parts/partlooks";
import { Code } from "./code";
import { FindingLink, Inspector, Source, splitSource } from "./inspector";
import { BoxTree, type Item, type Target, isBox, openLevels } from "./levels";
import { chosenLoop } from "./iteration-strip";
import { labelOf, showName } from "./names";
import { RegionButtons } from "./region";
import { type Found, countMatches, findRows, markRows } from "./search";
import type { TimelineDocument, TimelineTrack } from "./types.gen";
import type { View, ViewProps } from "./view";

const HEAT = [0.01, 0.05, 0.15, 0.35]; // shares of the iteration from which on a box is darker
const GAP = 9;
const WORTH = 0.01; // of the iteration: without less it would take as long

function Timeline(props: ViewProps<TimelineDocument>) {
  const { document: doc, selection, select } = props;
  const place = useRef<HTMLDivElement>(null);
  const width = useWidth(place);
  const [longest, setLongest] = useState(true);
  const [group, setGroup] = useState<Target | null>(null);
  const boxes = useMemo(() => new TimelineBoxes(doc), [doc]);
  const found = useMemo(() => boxes.find(selection.search), [boxes, selection.search]);
  const row = selection.box !== undefined && selection.box < doc.parent.length ? selection.box : (chosenTrack(props)?.first ?? 0);
  const target: Target = group?.row === row ? group : { row };
  const choose = (next: Target, how?: "push" | "replace") => {
    setGroup(next.group ? next : null);
    select({ box: next.row }, how);
  };
  const tracks = longest ? boxes.longest : doc.tracks;
  if (!doc.tracks.length) return <p class="problem">There is no iteration to show.</p>;
  return (
    <div class="with-inspector">
      <section aria-label="Timeline" class="picture">
        <div class="tools">
          {boxes.longest.length < doc.tracks.length && (
            <label>
              <input type="checkbox" checked={longest} onChange={() => setLongest(!longest)} /> longest resource only
            </label>
          )}
          {found && <span role="status">{countMatches(found.count, doc.parent.length)}</span>}
          <Shown {...props} />
        </div>
        <div ref={place} class="tracks">
          {width > 0 && tracks.map((track) => <Track key={track.first} {...{ boxes, track, width, target, found, choose }} />)}
        </div>
        <Extremes document={doc} track={boxes.trackOf(row)} choose={(found) => choose({ row: found }, "push")} />
        <Legend boxes={boxes} />
      </section>
      <Chosen {...props} boxes={boxes} row={row} target={target} choose={choose} />
      <Patterns />
    </div>
  );
}

/** What is computed once for a document. */
class TimelineBoxes {
  readonly tree: BoxTree;
  readonly hasFinding: Uint8Array;
  readonly longest: TimelineTrack[];
  readonly span: number; // of the longest rank
  private readonly begin = new Map<number, number>(); // by rank

  constructor(readonly doc: TimelineDocument) {
    this.tree = new BoxTree(doc.parent, doc.start_ns, doc.duration_ns);
    this.hasFinding = this.tree.around((row) => doc.finding[row] >= 0);
    const best = new Map<string, TimelineTrack>();
    for (const track of doc.tracks) {
      const side = `${track.rank} ${track.side}`;
      const other = best.get(side);
      if (!other || doc.busy_ns[track.first] > doc.busy_ns[other.first]) best.set(side, track);
      this.begin.set(track.rank, Math.min(this.begin.get(track.rank) ?? Infinity, track.start_ns));
    }
    this.longest = doc.tracks.filter((track) => best.get(`${track.rank} ${track.side}`) === track);
    this.span = Math.max(...doc.tracks.map((track) => this.offset(track) + this.tree.end(track.first)), 1);
  }

  /** Returns how long after the first track of its rank a track begins. */
  offset(track: TimelineTrack): number {
    return track.start_ns - this.begin.get(track.rank)!;
  }

  /** Returns the number of a part among the causes of idle time, for its colour. */
  causeOf(part: number): number {
    return idleLook(this.doc.parts[part]);
  }

  trackOf(row: number): TimelineTrack {
    return this.doc.tracks.find(({ first, count }) => row >= first && row < first + count) ?? this.doc.tracks[0];
  }

  /** Returns what a box is called: idle time by its cause. */
  titleOf(row: number): string {
    return this.doc.strings[this.doc.title[row]] || (this.doc.parts[this.doc.part[row]]?.title ?? "");
  }

  fullOf(row: number): string {
    return this.doc.strings[this.doc.full[row]] ?? this.titleOf(row);
  }

  /** Returns what is open in `track` while `target` is: itself, or the same stage or layer on the other side. */
  openIn(track: TimelineTrack, target: Target): Target {
    const within = (row: number) => row >= track.first && row < track.first + track.count;
    if (within(target.row)) return target;
    const twin = this.tree
      .path(target.row)
      .map((row) => this.doc.twin[row])
      .findLast((row) => row >= 0 && within(row));
    return { row: twin ?? track.first };
  }

  find(search: string | undefined): Found | null {
    return findRows(this.tree, this.doc.strings, search, this.doc.title, this.doc.full);
  }
}

interface TrackProps {
  boxes: TimelineBoxes;
  track: TimelineTrack;
  width: number;
  target: Target;
  found: Found | null;
  choose: (target: Target, how?: "push" | "replace") => void;
}

function Track({ boxes, track, width, target, found, choose }: TrackProps) {
  const open = boxes.openIn(track, target);
  const isHere = open === target;
  // The same picture again where nothing in it changes: a click redraws the tracks of one rank, not of all.
  return useMemo(() => {
    const from = boxes.tree.start[track.first] - boxes.offset(track);
    const outer = { from, to: from + boxes.span, x: 0, width, up: -1 };
    const rows = openLevels(boxes.tree, track.first, open, width, outer);
    const name = trackName(track);
    return (
      <div class={`track ${track.side}`}>
        <button type="button" class="link track-name" onClick={() => choose({ row: track.first })}>
          {name} <span class="quiet">{formatDuration(boxes.doc.duration_ns[track.first])}</span>
        </button>
        {rows.length > 0 && (
          <Boxes
            label={name}
            tree={boxes.tree}
            gap={GAP}
            choose={choose}
            look={lookOf(boxes, found, isHere ? -1 : open.row)}
            rows={rows}
            width={width}
            target={isHere ? open : { row: -1 }}
          />
        )}
      </div>
    );
  }, [boxes, track, width, found, isHere, open.row, open.group?.[0], open.group?.[1]]);
}

function trackName(track: TimelineTrack): string {
  return labelOf(`Rank ${track.rank} · ${track.side} · ${track.title}`);
}

/** Returns how the boxes of a track look: darker the longer, idle ones by their cause. */
function lookOf(boxes: TimelineBoxes, found: Found | null, twin: number): (item: Item) => Look {
  const { doc, tree } = boxes;
  return (item) => {
    const rows = tree.order.subarray(item.first, item.last);
    const around = markRows(found, rows);
    const sign = around ? "◆" : "";
    if (!isBox(item)) {
      const warning = rows.some((row) => boxes.hasFinding[row]);
      return {
        text: `+${rows.length}`,
        detail: `${rows.length} boxes too narrow to show${warning ? ", with a finding" : ""}`,
        style: `merged${around}`,
        sign: warning ? `${sign}⚠` : sign,
      };
    }
    const row = rows[0];
    const { [row]: time } = doc.duration_ns;
    const total = doc.duration_ns[boxes.trackOf(row).first] || 1;
    const part = doc.part[row];
    const style = part >= 0 ? `idle part-${boxes.causeOf(part)}` : `heat-${HEAT.filter((share) => time / total >= share).length}`;
    const hatched = doc.finding[row] >= 0;
    const signs = [sign, boxes.hasFinding[row] ? "⚠" : "", doc.twin[row] >= 0 ? "~" : ""].join("");
    const text = labelOf(boxes.titleOf(row));
    const detail = `${text}, ${formatDuration(time)}, ${formatRatio(time / total)} of the iteration${hatched ? ", has a finding" : ""}`;
    return { text, detail, style: style + around + (row === twin ? " twin" : ""), sign: signs, hatched };
  };
}

function Legend({ boxes }: { boxes: TimelineBoxes }) {
  const { doc } = boxes;
  const used = useMemo(() => new Set(doc.part), [doc]);
  const causes = doc.parts.map((part, at) => ({ ...part, at })).filter(({ at }) => used.has(at));
  return (
    <ul class="legend" aria-label="Legend">
      <li>
        <span class="scale" aria-hidden="true">
          {[0, 1, 2, 3, 4].map((step) => (
            <i key={step} class={`swatch heat-${step}`} />
          ))}
        </span>{" "}
        share of the iteration
      </li>
      {causes.map(({ at, title }) => (
        <li key={at}>
          <i class={`swatch part-${boxes.causeOf(at)}`} aria-hidden="true" /> {showName(title)}
        </li>
      ))}
      <li>
        <i class="swatch hatched" aria-hidden="true" /> ⚠ finding
      </li>
      <li>~ on host and device</li>
      {doc.left_out > 0 && <li>{formatCount(doc.left_out)} boxes, the deepest, are left out</li>}
    </ul>
  );
}

/** Says which iteration is shown where it is not the one that is chosen, and which others there are. */
function Shown(props: ViewProps<TimelineDocument>) {
  const { document: doc, entries, selection, select } = props;
  const shown = chosenTrack(props)?.iteration;
  const wanted = selection.iteration;
  if (wanted === undefined || wanted === shown) return <span>Iteration {shown}</span>;
  const others = entries.filter(({ loop }) => loop === null || loop === doc.tracks[0].loop);
  return (
    <span>
      Iteration {shown} is shown: this file has no boxes of iteration {wanted}.{" "}
      {others.length > 1 &&
        others.map(({ key, title }) => (
          <button key={key} type="button" class="link next" onClick={() => select({ document: key, iteration: undefined })}>
            {showName(title)}
          </button>
        ))}
    </span>
  );
}

function Chosen({
  boxes,
  row,
  target,
  choose,
  ...props
}: ViewProps<TimelineDocument> & { boxes: TimelineBoxes; row: number; target: Target; choose: TrackProps["choose"] }) {
  const { doc, tree } = boxes;
  const { session, select, documents } = props;
  const track = boxes.trackOf(row);
  const time = doc.duration_ns[row];
  const total = doc.duration_ns[track.first];
  const parent = doc.parent[row];
  const source = doc.strings[doc.source[row]];
  const part = doc.parts[doc.part[row]];
  const start = track.start_ns + doc.start_ns[row]; // since the iteration's
  const title = boxes.titleOf(row);
  const flames = session.views.some(({ name, documents }) => name === "flame" && documents.length);
  const region = {
    key: props.entry.key.replace(/timeline(\/.*)?$/s, "") + `region/${track.loop}/${track.iteration}`,
    from_ns: start,
    to_ns: start + time,
    title,
  };
  return (
    <Inspector
      kind={`${doc.kinds[doc.kind[row]] ?? ""} · rank ${track.rank} · ${track.side}`}
      title={title}
      full={boxes.fullOf(row)}
      facts={[
        ["time", formatDuration(time)],
        parent >= 0 && ["share of parent", formatRatio(doc.duration_ns[parent] ? time / doc.duration_ns[parent] : null)],
        parent >= 0 && ["share of iteration", formatRatio(total ? time / total : null)],
        ["starts at", formatDuration(start)],
        ["busy", `${formatDuration(doc.busy_ns[row])} (${formatRatio(time ? doc.busy_ns[row] / time : null)})`],
        ["events", formatCount(doc.events[row])],
        part && ["cause", showName(part.title)],
        source !== undefined && ["source", <Source {...splitSource(source)} />],
        doc.finding[row] >= 0 && ["finding", <FindingLink finding={doc.finding[row]} select={select} session={session} />],
        !!target.group && [
          "opened",
          `${target.group[1] - target.group[0]} of ${formatCount(tree.children(row)[1] - tree.children(row)[0])} boxes in it`,
        ],
      ]}
    >
      {track.side === "device" && parent >= 0 && time >= WORTH * total && (
        <p class="what-if">
          If this took no time, the iteration would take {formatDuration(Math.max(total - time, 0))} at best, not{" "}
          {formatDuration(total)}.
        </p>
      )}
      <div class="actions">
        {doc.twin[row] >= 0 && (
          <button type="button" onClick={() => choose({ row: doc.twin[row] })}>
            Show on the {track.side === "host" ? "device" : "host"}
          </button>
        )}
        {flames && parent >= 0 && !part && (
          <button
            type="button"
            onClick={() => select({ view: "flame", rank: track.rank, search: boxes.titleOf(row).slice(0, 200) })}
          >
            Show in Flame
          </button>
        )}
      </div>
      <RegionButtons region={region} documents={documents} session={session} />
      {source !== undefined && <Code {...splitSource(source)} session={session} documents={documents} />}
    </Inspector>
  );
}

/** Returns the track of the loop that is chosen, the first one where none is. */
function chosenTrack({ document: doc, session, selection }: ViewProps<TimelineDocument>): TimelineTrack | undefined {
  const { loop, rank } = selection;
  const chosen = loop === undefined && rank === undefined ? undefined : chosenLoop(session, selection);
  const named = chosen && doc.tracks.find((track) => track.loop === chosen.loop);
  return named ?? doc.tracks.find((track) => track.rank === rank) ?? doc.tracks[0];
}

export const timeline: View<TimelineDocument> = {
  name: "timeline",
  component: Timeline,
  searches: true,
  key(entry, view, session, selection) {
    const { iteration } = selection;
    const base = /^(.*timeline)(\/\d+\/\d+)?$/.exec(entry.key)?.[1];
    const loop = chosenLoop(session, selection);
    if (base === undefined || loop === undefined) return entry.key;
    const has = (wanted: string) => view.documents.some(({ key }) => key === wanted);
    const shared = view.documents.find(({ key }) => key === base)?.loops.includes(loop.loop); // of several ranks
    const wanted = iteration ?? (shared || selection.loop === undefined ? undefined : loop.typical);
    if (wanted === undefined || wanted === null) return entry.key;
    if (loop.typical === wanted && shared) return base;
    const own = `${base}/${loop.loop}/${wanted}`;
    return session.server || has(own) ? own : entry.key;
  },
};
