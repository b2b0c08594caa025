import "./charts.css";
import { useEffect, useState } from "preact/hooks";
import type { DocumentStore } from "./documents";
import { formatCount, formatDuration, formatRatio } from "./format";
import { showName } from "./names";
import { latestOnly } from "./parts/latest";
import { Name } from "./parts/name";
import { SeverityBadge } from "./parts/severity";
import { Sparkline } from "./parts/sparkline";
import { Table, type TableColumn } from "./parts/table";
import type { LiveDocument, LiveFinding, LiveJob, LiveRank } from "./types.gen";
import type { View, ViewProps } from "./view";

const GAP_MS = 250; // between two drawings, however many events come

/** The jobs that a daemon sees, as they run. */
function Live({ document, documents, entry }: ViewProps<LiveDocument>) {
  const { live, isConnected } = useLive(document, documents, entry.key);
  return (
    <div class={`live ${isConnected ? "" : "stale"}`}>
      <p role="status" class={isConnected ? "quiet" : "problem"}>
        {isConnected ? `${counted(live)} Updated as events come.` : `The connection is lost; this is as of ${timeOf(live)}. Trying again…`}
      </p>
      {!live.ready && <p class="problem">The daemon is not ready: {showName(live.why_not)}</p>}
      <Findings findings={live.findings} />
      {live.jobs.map((job) => (
        <Job key={job.name} job={job} />
      ))}
      {live.jobs.length === 0 && <p>No job has connected yet.</p>}
      {live.left_out > 0 && <p class="quiet">{formatCount(live.left_out)} more ranks are not shown.</p>}
      {live.left_out_findings > 0 && <p class="quiet">{formatCount(live.left_out_findings)} more findings are not shown.</p>}
    </div>
  );
}

/** The latest of the daemon's documents, and whether more can come. */
function useLive(first: LiveDocument, documents: DocumentStore, key: string): { live: LiveDocument; isConnected: boolean } {
  const [live, setLive] = useState(first);
  const [isConnected, setConnected] = useState(true);
  useEffect(() => {
    const show = latestOnly((text: string) => setLive(JSON.parse(text) as LiveDocument), GAP_MS);
    const stop = documents.follow("live", show, setConnected);
    return () => (stop(), show.cancel(), documents.forget(key)); // it is old when the view is opened again
  }, [documents, key]);
  return { live, isConnected };
}

function timeOf(live: LiveDocument): string {
  return new Date(live.now_unix_ns / 1e6).toLocaleTimeString();
}

function counted(live: LiveDocument): string {
  const ranks = live.jobs.reduce((sum, job) => sum + job.ranks.length, 0);
  return `${live.jobs.length} ${live.jobs.length === 1 ? "job" : "jobs"}, ${ranks} ${ranks === 1 ? "rank" : "ranks"}.`;
}

/** Findings as they come; those that come while the page is open are read out. */
function Findings({ findings }: { findings: LiveFinding[] }) {
  return (
    <section>
      <h3>Findings</h3>
      {findings.length === 0 && <p class="quiet">None so far.</p>}
      <ul class="live-findings" aria-live="polite">
        {findings.map((finding) => (
          <li key={`${finding.job} ${finding.rank} ${finding.rule}`} class={`finding finding-${finding.severity}`}>
            <div class="finding-head">
              <SeverityBadge severity={finding.severity} /> <Name text={finding.job} longest={40} />
              {finding.rank !== null && <span class="quiet">rank {finding.rank}</span>}
            </div>
            <strong>{showName(finding.title, 200)}</strong>
            {finding.headroom_ns !== null && <span> up to {formatDuration(finding.headroom_ns)} per iteration</span>}
            <p class="advice">{showName(finding.advice)}</p>
          </li>
        ))}
      </ul>
    </section>
  );
}

function Job({ job }: { job: LiveJob }) {
  const title = showName(job.title, 60);
  return (
    <section>
      <h3>
        {title} {job.examined && <a href={`jobs/${encodeURIComponent(job.name)}/`}>Open its page →</a>}
      </h3>
      <Table label={`Ranks of ${title}`} columns={RANK_COLUMNS} rows={job.ranks} id={(rank) => rank.rank} />
    </section>
  );
}

const RANK_COLUMNS: TableColumn<LiveRank>[] = [
  { title: "rank", text: (rank) => String(rank.rank), number: (rank) => rank.rank },
  { title: "state", text: stateOf },
  { title: "iterations", text: (rank) => formatCount(rank.iterations), number: (rank) => rank.iterations },
  { title: "median", text: (rank) => formatDuration(rank.median_ns), number: (rank) => rank.median_ns },
  { title: "latest", text: latestText, cell: (rank) => <Sparkline values={rank.latest_ns} label={latestText(rank)} /> },
  { title: "interval", text: (rank) => formatDuration(rank.interval_ns), number: (rank) => rank.interval_ns },
  { title: "overlap", text: (rank) => formatRatio(rank.overlap_ratio), number: (rank) => rank.overlap_ratio },
  { title: "longest stage", text: longestStage },
  { title: "dropped", text: (rank) => formatCount(rank.dropped), number: (rank) => rank.dropped },
];

function stateOf(rank: LiveRank): string {
  return rank.connected ? `● ${showName(rank.state, 40)}` : `○ ${showName(rank.state, 40)}, not connected`;
}

function latestText(rank: LiveRank): string {
  const latest = rank.latest_ns;
  return latest.length === 0 ? "no iteration yet" : `the last ${latest.length} iterations, the latest ${formatDuration(latest[latest.length - 1])}`;
}

function longestStage(rank: LiveRank): string {
  const [first, ...others] = rank.stages;
  if (first === undefined) return "-";
  const [name, time_ns] = others.reduce((most, stage) => (stage[1] > most[1] ? stage : most), first);
  return `${showName(name, 24)} ${formatDuration(time_ns)}`;
}

export const live: View<LiveDocument> = { name: "live", component: Live };
