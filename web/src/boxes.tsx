// Rows of boxes within boxes as one picture, for the timeline and the flame graph; every box can be reached by keys.
import { useLayoutEffect, useRef } from "preact/hooks";
import { type BoxTree, type Item, LEAST_PX, type Step, type Target, isBox, stepFrom } from "./levels";

/** How an item looks: `style` are classes, `sign` stands before its text, `detail` is all that is known of it. */
export interface Look {
  text: string;
  detail: string;
  style: string;
  sign?: string;
  hatched?: boolean;
}

interface BoxesProps {
  label: string;
  tree: BoxTree;
  rows: Item[][];
  width: number;
  gap: number; // between rows; where there is one, a row's items are drawn below the item they are in
  target: Target;
  look: (item: Item) => Look;
  choose: (target: Target, how: "push" | "replace") => void;
}

const HEIGHT = 24;
const KEYS: Record<string, Step> = {
  ArrowRight: "next",
  ArrowLeft: "previous",
  ArrowDown: "in",
  Enter: "in",
  ArrowUp: "out",
  Escape: "out",
};

export function Boxes(props: BoxesProps) {
  const { tree, rows, width, gap, target } = props;
  const picture = useRef<SVGSVGElement>(null);
  const moved = useRef(false); // the focus goes with what is chosen, though its box is drawn anew
  const chosen = rows.map((items) => items.findIndex((item) => isTarget(tree, item, target)));
  const level = chosen.findLastIndex((at) => at >= 0);
  const choose: BoxesProps["choose"] = (next, how) => {
    moved.current = true;
    props.choose(next, how);
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const step = KEYS[event.key];
    if (!step || event.ctrlKey || event.metaKey || event.altKey) return;
    const item = level < 0 ? (step === "out" ? null : rows[0][0]) : stepFrom(rows, level, chosen[level], step);
    const next = item ? targetOf(tree, item) : step === "out" ? outOf(tree, target) : besideOf(tree, target, step);
    event.preventDefault();
    if (next) choose(next, "replace");
  };
  useLayoutEffect(() => {
    if (!moved.current) return;
    moved.current = false;
    picture.current?.querySelector<SVGElement>("[tabindex='0']")?.focus({ preventScroll: true });
  });
  const height = rows.length * (HEIGHT + gap) - gap;
  return (
    <svg
      ref={picture}
      class="boxes"
      role="tree"
      aria-label={props.label}
      width={width}
      height={Math.max(height, 1)}
      onKeyDown={onKeyDown}
    >
      {gap > 0 &&
        rows
          .slice(1)
          .map((items, depth) => (
            <Connection key={`c${depth}`} {...{ items, above: rows[depth], width, gap }} y={depth * (HEIGHT + gap) + HEIGHT} />
          ))}
      {rows.map((items, depth) =>
        items.map((item, at) => (
          <Box
            key={`${depth}:${item.first}:${item.last}`}
            {...props}
            choose={choose}
            item={item}
            depth={depth}
            y={depth * (HEIGHT + gap)}
            chosen={at === chosen[depth]}
            reachable={level < 0 ? !depth && !at : depth === level && at === chosen[depth]}
          />
        )),
      )}
    </svg>
  );
}

function Box({
  tree,
  item,
  look,
  choose,
  depth,
  y,
  chosen,
  reachable,
}: BoxesProps & { item: Item; depth: number; y: number; chosen: boolean; reachable: boolean }) {
  const { text, detail, style, sign, hatched } = look(item);
  const width = Math.max(item.width - (item.width > 4 ? 1 : 0), LEAST_PX);
  const label = fitWithSign(sign, text, width - 8);
  // The label stands beside its box, not in it: what is cut off is not what the box is called.
  return (
    <>
      <g
        role="treeitem"
        aria-level={depth + 1}
        aria-selected={chosen}
        aria-label={detail}
        tabindex={reachable ? 0 : -1}
        class={`box ${style}${chosen ? " chosen" : ""}`}
        onClick={() => choose(targetOf(tree, item), "push")}
      >
        <title>{detail}</title>
        <rect x={item.x} y={y} width={width} height={HEIGHT} rx={width > 6 ? 2 : 0} />
        {hatched && <rect class="hatch" x={item.x} y={y} width={width} height={HEIGHT} />}
      </g>
      {label && (
        <text class={`label${hatched ? " on-hatch" : ""}`} x={item.x + 4} y={y + 16} aria-hidden="true">
          {label}
        </text>
      )}
    </>
  );
}

/** The shade from the item that is open to the row that shows what is in it. */
function Connection({ items, above, width, y, gap }: { items: Item[]; above: Item[]; width: number; y: number; gap: number }) {
  const open = items.length ? above[items[0].up] : undefined;
  if (!open) return null;
  const right = open.x + Math.max(open.width, 2);
  return (
    <path
      class="connection"
      d={`M${open.x} ${y}H${right}C${right} ${y + gap} ${width} ${y} ${width} ${y + gap}H0C0 ${y} ${open.x} ${y + gap} ${open.x} ${y}Z`}
    />
  );
}

/** The patterns that boxes are filled with; once in a page. */
export function Patterns() {
  return (
    <svg class="patterns" width="0" height="0" aria-hidden="true" focusable="false">
      <pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
        <path d="M0 0V6" />
      </pattern>
    </svg>
  );
}

/** Returns what choosing an item chooses. */
export function targetOf(tree: BoxTree, item: Item): Target {
  const row = tree.order[item.first];
  return isBox(item) ? { row } : { row: tree.parent[row], group: [item.first, item.last] };
}

function isTarget(tree: BoxTree, item: Item, target: Target): boolean {
  if (target.group) return item.first === target.group[0] && item.last === target.group[1];
  return isBox(item) && tree.order[item.first] === target.row;
}

function outOf(tree: BoxTree, target: Target): Target | null {
  if (target.group) return { row: target.row };
  return tree.parent[target.row] >= 0 ? { row: tree.parent[target.row] } : null;
}

/** Returns the neighbour of a box that is drawn alone in its row, as the one that fills a flame graph is. */
function besideOf(tree: BoxTree, { row, group }: Target, step: Step): Target | null {
  const parent = tree.parent[row] ?? -1;
  if (group || parent < 0 || step === "in") return null;
  const [first, last] = tree.children(parent);
  const place = tree.place[row] + (step === "next" ? 1 : -1);
  return place >= first && place < last ? { row: tree.order[place] } : null;
}

/** Returns the sign and as much of the text as fits; the sign alone where the text would say nothing. */
function fitWithSign(sign: string | undefined, text: string, width: number): string {
  if (!sign) return fit(text, width);
  const name = fit(text, width - widthOf(`${sign} `));
  return name ? `${sign} ${name}` : widthOf(sign) <= width + 4 ? sign : "";
}

const widths = new Map<string, number>();
let pen: CanvasRenderingContext2D | null | undefined;

/** Returns as much of `text` as fits into `width` pixels, empty where that says nothing. */
function fit(text: string, width: number): string {
  if (width < 12) return "";
  const full = widthOf(text);
  if (full <= width) return text;
  let kept = Math.floor((text.length * (width - 8)) / full);
  while (kept > 1 && widthOf(`${text.slice(0, kept)}…`) > width) kept--; // its first letters may be the wide ones
  return kept < 2 ? "" : `${text.slice(0, kept)}…`;
}

function widthOf(text: string): number {
  let width = widths.get(text);
  if (width === undefined) {
    pen ??= document.createElement("canvas").getContext("2d");
    if (pen) pen.font = `12px ${getComputedStyle(document.body).fontFamily}`;
    width = pen ? pen.measureText(text).width : text.length * 7;
    if (widths.size > 50_000) widths.clear();
    widths.set(text, width);
  }
  return width;
}
