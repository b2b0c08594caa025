// Boxes within boxes, laid out as rows of a picture. What is too narrow to be seen is merged with its neighbours.

const NARROW_PX = 3;
const MERGED_PX = 40; // a merged box is at most so wide, so that opening it always shows less
export const LEAST_PX = 1;

/** Boxes as columns, parents before children; `order` has all children of a box side by side, in their order. */
export class BoxTree {
  readonly order: Int32Array;
  readonly place: Int32Array; // of a box in `order`
  private readonly begin: Int32Array; // of a box's children in `order`

  constructor(
    readonly parent: ArrayLike<number>,
    readonly start: ArrayLike<number>,
    readonly size: ArrayLike<number>,
  ) {
    const count = parent.length;
    this.begin = new Int32Array(count + 2);
    for (let row = 0; row < count; row++) this.begin[parent[row] + 2]++;
    for (let row = 0; row <= count; row++) this.begin[row + 1] += this.begin[row];
    const next = this.begin.slice();
    this.order = new Int32Array(count);
    this.place = new Int32Array(count);
    for (let row = 0; row < count; row++) {
      const place = next[parent[row] + 1]++;
      this.order[(this.place[row] = place)] = row;
    }
  }

  /** Returns where the children of `row` begin and end in `order`; those of -1 are the roots. */
  children(row: number): [first: number, last: number] {
    return [this.begin[row + 1], this.begin[row + 2]];
  }

  /** Returns the boxes from its root to `row`. */
  path(row: number): number[] {
    const path = [];
    for (let at = row; at >= 0; at = this.parent[at]) path.unshift(at);
    return path;
  }

  end(row: number): number {
    return this.start[row] + this.size[row];
  }

  /** Marks each box that has one of the `marked` ones within it, itself included. */
  around(marked: (row: number) => boolean): Uint8Array {
    const around = new Uint8Array(this.parent.length);
    for (let row = this.parent.length - 1; row >= 0; row--) {
      if (marked(row)) around[row] = 1;
      if (around[row] && this.parent[row] >= 0) around[this.parent[row]] = 1;
    }
    return around;
  }
}

/** What stands in a row: the boxes from `first` to `last` (exclusive) of `order`, mostly one; `up`: below which item. */
export interface Item {
  first: number;
  last: number;
  x: number;
  width: number;
  up: number;
}

/** What is chosen: a box, or some of its children that are shown as one. */
export interface Target {
  row: number;
  group?: readonly [first: number, last: number];
}

interface Room {
  from: number; // in units of the boxes
  to: number;
  x: number; // pixels
  width: number;
  up: number;
}

/** Places boxes side by side; neighbours under 3 px become one item. */
export function placeBoxes(tree: BoxTree, first: number, last: number, room: Room): Item[] {
  const items: Item[] = [];
  const evenly = room.to <= room.from; // nothing in it takes time: all get the same width
  const scale = room.width / (evenly ? last - first : room.to - room.from);
  let open: Item | null = null;
  for (let place = first; place < last; place++) {
    const row = tree.order[place];
    const x = room.x + (evenly ? place - first : tree.start[row] - room.from) * scale;
    const width = (evenly ? 1 : tree.size[row]) * scale;
    if (open && width < NARROW_PX && x - open.x - open.width < NARROW_PX && x + width - open.x <= MERGED_PX) {
      open.last = place + 1;
      open.width = Math.max(open.width, x + width - open.x);
      continue;
    }
    const item = { first: place, last: place + 1, x, width, up: room.up };
    items.push(item);
    open = width < NARROW_PX ? item : null;
  }
  return items;
}

/**
 * Returns the rows from the children of `root` down to those of the target, each in the whole width but the first. A box
 * that is alone in the last row is open, too: to open it would say nothing new.
 */
export function openLevels(tree: BoxTree, root: number, target: Target, width: number, outer: Room): Item[][] {
  const levels: Item[][] = [];
  const path = tree.path(target.row);
  for (let only = target.group ? undefined : onlyChild(tree, target.row); only !== undefined; only = onlyChild(tree, only))
    path.push(only);
  let room = outer;
  for (let at = path.indexOf(root); at < path.length; at++) {
    const next = at + 1 < path.length ? tree.place[path[at + 1]] : undefined;
    let wanted = next !== undefined ? ([next, next + 1] as const) : target.group;
    let [first, last] = tree.children(path[at]);
    while (first < last) {
      const items = placeBoxes(tree, first, last, room);
      levels.push(items);
      const inside = wanted ? items.findIndex((item) => item.first <= wanted![0] && item.last >= wanted![1]) : -1;
      const item = items[inside];
      if (!item) break;
      room = roomOf(tree, item, width, inside);
      if (isBox(item) || (item.first === first && item.last === last)) break;
      if (wanted && item.first === wanted[0] && item.last === wanted[1]) wanted = undefined;
      [first, last] = [item.first, item.last];
    }
  }
  return levels;
}

function onlyChild(tree: BoxTree, row: number): number | undefined {
  const [first, last] = tree.children(row);
  return last - first === 1 ? tree.order[first] : undefined;
}

/** Returns the rows of an icicle: the target and what is around it in the whole width, then all that is within it. */
export function placeIcicle(tree: BoxTree, target: Target, width: number): Item[][] {
  const [first, last] = tree.children(target.row);
  const zoomed = first < last ? target.row : Math.max(tree.parent[target.row], 0);
  const rows: Item[][] = tree
    .path(zoomed)
    .map((row, depth) => [{ first: tree.place[row], last: tree.place[row] + 1, x: 0, width, up: depth ? 0 : -1 }]);
  if (target.group && target.row === zoomed) {
    const [from, to] = target.group;
    rows.push(placeBoxes(tree, from, to, roomOf(tree, { first: from, last: to }, width, 0)));
  }
  for (let items = rows[rows.length - 1]; items.length; rows.push(items)) {
    items = items.flatMap((item, at) => childrenBelow(tree, item, at));
    if (!items.length) break;
  }
  return rows;
}

/** Returns whether an item is one box. */
export function isBox(item: Item): boolean {
  return item.last - item.first === 1;
}

function childrenBelow(tree: BoxTree, item: Item, up: number): Item[] {
  const row = tree.order[item.first];
  if (!isBox(item) || item.width < NARROW_PX) return [];
  const [first, last] = tree.children(row);
  return placeBoxes(tree, first, last, { from: tree.start[row], to: tree.end(row), x: item.x, width: item.width, up });
}

function roomOf(tree: BoxTree, item: { first: number; last: number }, width: number, up: number): Room {
  const from = tree.start[tree.order[item.first]];
  return { from, to: tree.end(tree.order[item.last - 1]), x: 0, width, up };
}

export type Step = "next" | "previous" | "in" | "out";

/** Returns the item that a step leads to from the one at `level` and `at`, null for none. */
export function stepFrom(rows: Item[][], level: number, at: number, step: Step): Item | null {
  if (step === "next") return rows[level][at + 1] ?? null;
  if (step === "previous") return rows[level][at - 1] ?? null;
  if (step === "out") return rows[level - 1]?.[rows[level][at].up] ?? null;
  const within = (rows[level + 1] ?? []).filter(({ up }) => up === at);
  return within.reduce<Item | null>((longest, item) => (longest && longest.width >= item.width ? longest : item), null);
}
