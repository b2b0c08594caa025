import "./charts.css";
import { graphlib, layout } from "@dagrejs/dagre";
import { useMemo } from "preact/hooks";
import { useLoaded } from "./app";
import type { DocumentStore } from "./documents";
import { formatCount, formatDuration, formatRatio } from "./format";
import { showName } from "./names";
import { FigureTable } from "./parts/figures";
import { AsTable } from "./parts/picture";
import { Table } from "./parts/table";
import type { Figure, SessionDocument, StateNode, StatesDocument } from "./types.gen";
import type { View, ViewProps } from "./view";

const NODE = { width: 168, height: 62 };
const ARROW = 11; // pixels from its tip to the end of its line
const MOST_WIDE = 5; // pixels of the widest edge

/** The state graph of an iteration (Gu et al., Figs. 5 and 9) with Table III beside it. */
export function StateGraph({ document }: { document: StatesDocument }) {
  return (
    <section class="states">
      <h3>States of an iteration</h3>
      <div class="columns">
        <div>
          <Graph document={document} />
          <AsTable table={() => <StateTables document={document} />} />
        </div>
        <FigureTable title="Figures of the loop (Table III)" figures={document.figures} />
      </div>
      <p class="reading">{showName(document.reading)}</p>
    </section>
  );
}

interface StatesOfProps {
  session: SessionDocument;
  documents: DocumentStore;
  loop: number;
  figures: Figure[];
}

/** The state graph of `loop` where there is one, else only `figures`. */
export function StatesOf({ session, documents, loop, figures }: StatesOfProps) {
  const entries = session.views.flatMap((view) => (view.name === "states" ? view.documents : []));
  const key = entries.find((entry) => entry.loop === loop)?.key ?? `states/${loop}`;
  const { value, problem } = useLoaded(() => documents.load<StatesDocument>(key), key);
  if (value) return <StateGraph document={value} />;
  return problem ? <FigureTable title="Figures of the loop (Table III)" figures={figures} /> : null;
}

function Graph({ document }: { document: StatesDocument }) {
  const drawing = useMemo(() => arranged(document), [document]);
  return (
    <div class="graph-box" tabIndex={0} role="group" aria-label="State graph">
      <svg
        class="state-graph"
        viewBox={`0 0 ${drawing.width} ${drawing.height}`}
        width={drawing.width}
        role="img"
        aria-label={`${document.nodes.length} states and ${document.edges.length} transitions. ${showName(document.reading)}`}
      >
        <defs>
          <marker id="arrow" viewBox="0 0 8 8" refX="0" refY="4" markerWidth="12" markerHeight="12" markerUnits="userSpaceOnUse" orient="auto">
            <path d="M0 0L8 4L0 8z" class="arrow" />
          </marker>
        </defs>
        {drawing.edges.map((edge) => (
          <path class="state-edge" d={edge.path} stroke-width={1 + (MOST_WIDE - 1) * edge.probability} marker-end="url(#arrow)" />
        ))}
        {drawing.nodes.map(({ node, x, y }) => (
          <g transform={`translate(${x} ${y})`}>
            <Shape kind={node.kind} />
            <text class="state-title" text-anchor="middle" y="-12">{showName(node.title, 24)}</text>
            <text text-anchor="middle" y="5">{formatDuration(node.time_ns)} · {formatRatio(node.share_ratio)}</text>
            <text text-anchor="middle" y="21">{formatCount(node.count)} ×</text>
            <title>{showName(node.title)}</title>
          </g>
        ))}
        {drawing.edges.map((edge) => (
          <text class="edge-label" text-anchor="middle" x={edge.x} y={edge.y + 4}>{formatRatio(edge.probability)}</text>
        ))}
      </svg>
    </div>
  );
}

/** Kinds differ by shape, not only by colour: compute a box, copies a parallelogram, the host round, others cut. */
function Shape({ kind }: { kind: StateNode["kind"] }) {
  const [w, h] = [NODE.width / 2, NODE.height / 2];
  const look = `state state-${kind}`;
  if (kind === "host") return <rect class={look} x={-w} y={-h} width={2 * w} height={2 * h} rx={h} />;
  if (kind === "compute") return <rect class={look} x={-w} y={-h} width={2 * w} height={2 * h} rx={3} />;
  if (kind === "copy") return <path class={look} d={`M${-w + 14} ${-h}H${w}L${w - 14} ${h}H${-w}z`} />;
  return <path class={look} d={`M${-w + 12} ${-h}H${w - 12}L${w} 0L${w - 12} ${h}H${-w + 12}L${-w} 0z`} />;
}

interface Drawing {
  width: number;
  height: number;
  nodes: { node: StateNode; x: number; y: number }[];
  edges: { path: string; x: number; y: number; probability: number }[];
}

/** Where dagre puts states and transitions. */
export function arranged(document: Pick<StatesDocument, "nodes" | "edges">): Drawing {
  const graph = new graphlib.Graph({ multigraph: true });
  graph.setGraph({ rankdir: "TB", nodesep: 36, ranksep: 48, marginx: 8, marginy: 8 });
  document.nodes.forEach((_, row) => graph.setNode(String(row), { ...NODE }));
  document.edges.forEach((edge, row) =>
    graph.setEdge(String(edge.source), String(edge.target), { width: 48, height: 16, labelpos: "c" }, String(row)),
  );
  layout(graph);
  const size = graph.graph() as { width: number; height: number };
  return {
    width: Math.ceil(size.width),
    height: Math.ceil(size.height),
    nodes: document.nodes.map((node, row) => ({ node, ...placeOf(graph.node(String(row))) })),
    edges: document.edges.map((edge, row) => {
      const label = graph.edge({ v: String(edge.source), w: String(edge.target), name: String(row) });
      return { path: smooth(label.points), ...placeOf(label), probability: edge.probability };
    }),
  };
}

function placeOf({ x, y }: { x: number; y: number }): { x: number; y: number } {
  return { x, y };
}

/** A curve through the points of an edge, straight at its end, where it leaves room for the arrow. */
function smooth(points: { x: number; y: number }[]): string {
  const [start, ...rest] = points;
  const tip = rest.pop()!;
  const before = rest[rest.length - 1] ?? start;
  const left = 1 - ARROW / Math.max(2 * ARROW, Math.hypot(tip.x - before.x, tip.y - before.y));
  const end = { x: before.x + left * (tip.x - before.x), y: before.y + left * (tip.y - before.y) };
  const bends = rest.map((point, at) => {
    const next = rest[at + 1] ?? end;
    return `Q${point.x} ${point.y} ${(point.x + next.x) / 2} ${(point.y + next.y) / 2}`;
  });
  return `M${start.x} ${start.y}${bends.join("")}L${end.x} ${end.y}`;
}

function StateTables({ document }: { document: StatesDocument }) {
  const title = (row: number) => document.nodes[row].title;
  return (
    <div class="columns">
      <Table
        label="States"
        rows={document.nodes}
        id={(node) => node.name}
        columns={[
          { title: "state", text: (node) => showName(node.title, 40) },
          { title: "kind", text: (node) => node.kind },
          { title: "time", text: (node) => formatDuration(node.time_ns), number: (node) => node.time_ns },
          { title: "share", text: (node) => formatRatio(node.share_ratio), number: (node) => node.share_ratio },
          { title: "entered", text: (node) => formatCount(node.count), number: (node) => node.count },
        ]}
      />
      <Table
        label="Transitions"
        rows={document.edges}
        id={(_, at) => at}
        columns={[
          { title: "from", text: (edge) => showName(title(edge.source), 40) },
          { title: "to", text: (edge) => showName(title(edge.target), 40) },
          { title: "probability", text: (edge) => formatRatio(edge.probability), number: (edge) => edge.probability },
          { title: "count", text: (edge) => formatCount(edge.count), number: (edge) => edge.count },
        ]}
      />
    </div>
  );
}

export const states: View<StatesDocument> = {
  name: "states",
  component: ({ document }: ViewProps<StatesDocument>) => <StateGraph document={document} />,
};
