"""Where the states and transitions of a state graph are: plain geometry, the same for the same graph.

The state that is entered most is in the middle of the others, which are on an ellipse; up to three are on it all. A
transition is a curve that bends to its left, so that the way back is another one. Labels are put where they cover
neither a box nor another label; one without such a place is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from math import cos, hypot, pi, sin
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from deepprof.web.documents.states import StateEdge, StateNode

WIDTH, HEIGHT = 196.0, 66.0  # of a box
LABEL_HEIGHT, PER_CHAR = 13.0, 6.4
APART = 46.0  # between boxes, so that curves and labels are seen
FIRST_RADII, GROWTH = (170.0, 130.0), 1.08
ABOUT = 0.9  # as often entered: then the longer state is in the middle
ROUND = 3  # states on an ellipse without one in the middle
# How far a curve bends, of its length; the first with which it crosses no other box. To the left, then to the right.
BENDS = (0.16, 0.3, 0.44, 0.58, 0.72, -0.23, -0.37, -0.51, -0.65)
CLEAR = 8.0  # between a curve and boxes that it does not belong to
LOOP = 34.0  # how far a state's way to itself leaves its box
ON_CURVE = (0.5, 0.42, 0.58, 0.34, 0.66, 0.26, 0.74)  # where a label may be
SHOWN = 0.985  # of all transitions: rarer ones are left out, unless a state had none without them

Point = tuple[float, float]


class GraphBox(Struct, frozen=True):
    """A rectangle by its middle."""

    x: float
    y: float
    width: float = WIDTH
    height: float = HEIGHT

    def overlaps(self, other: GraphBox, apart: float = 0.0) -> bool:
        """Return whether the boxes are nearer to each other than `apart`, across and down."""
        across = abs(self.x - other.x) - (self.width + other.width) / 2
        down = abs(self.y - other.y) - (self.height + other.height) / 2
        return across < apart and down < apart

    def leave(self, toward: Point) -> Point:
        """Return where a line from the middle toward a point leaves the box."""
        dx, dy = toward[0] - self.x, toward[1] - self.y
        reach = max(abs(dx) / (self.width / 2), abs(dy) / (self.height / 2), 1e-9)
        return self.x + dx / reach, self.y + dy / reach


class GraphCurve(Struct, frozen=True):
    """A transition, the row `edge`: a Bézier curve by four points, and the middle of its label, None: no place."""

    edge: int
    points: tuple[Point, Point, Point, Point]
    label: Point | None = None

    def at(self, t: float) -> Point:
        """Return the point of the curve at `t`, from 0 to 1."""
        weights = ((1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t**2 * (1 - t), t**3)
        x, y = (sum(w * point[k] for w, point in zip(weights, self.points, strict=True)) for k in (0, 1))
        return x, y


def choose_edges(edges: Sequence[StateEdge]) -> list[int]:
    """Return the rows of the transitions that are drawn, in their order: the most frequent, and two of every state."""
    order = sorted(range(len(edges)), key=lambda row: (-edges[row].count, row))
    most = SHOWN * sum(edge.count for edge in edges)
    chosen, taken = set[int](), 0.0
    for row in order:
        if taken < most:
            chosen.add(row)
        taken += edges[row].count
    for ends in ([edge.source for edge in edges], [edge.target for edge in edges]):
        chosen |= {next(row for row in order if ends[row] == node) for node in set(ends)}
    return sorted(chosen)


def place_nodes(nodes: Sequence[StateNode]) -> list[GraphBox]:
    """Return the boxes of the states, around (0, 0)."""
    if len(nodes) < 2:
        return [GraphBox(0.0, 0.0)] * len(nodes)
    hub = _find_hub(nodes) if len(nodes) > ROUND else None
    outer = [row for row in range(len(nodes)) if row != hub]
    radii = FIRST_RADII
    while True:
        places = {row: _on_ellipse((turn - 0.5) / len(outer), radii) for turn, row in enumerate(outer)}
        boxes = [places.get(row, GraphBox(0.0, 0.0)) for row in range(len(nodes))]
        if not any(one.overlaps(other, APART) for one, other in combinations(boxes, 2)):
            return boxes
        radii = radii[0] * GROWTH, radii[1] * GROWTH


def _find_hub(nodes: Sequence[StateNode]) -> int:
    """Return the row of the state in the middle: of those that are entered about most often, the longest."""
    most = max(node.count for node in nodes)
    often = [row for row, node in enumerate(nodes) if node.count >= ABOUT * most]
    return max(often, key=lambda row: (nodes[row].time_ns, -row))


def _on_ellipse(turn: float, radii: tuple[float, float]) -> GraphBox:
    angle = 2 * pi * turn - pi / 2
    return GraphBox(radii[0] * cos(angle), radii[1] * sin(angle))


def draw_curves(
    edges: Sequence[StateEdge], chosen: Iterable[int], boxes: Sequence[GraphBox], labels: Sequence[str]
) -> list[GraphCurve]:
    """Return the curves of the chosen transitions; `labels` are the texts of all, the most frequent placed first."""
    curves = [_choose_curve(row, edges[row].source, edges[row].target, boxes) for row in chosen]
    taken, placed = list(boxes), dict[int, GraphCurve]()
    for curve in sorted(curves, key=lambda each: (-edges[each.edge].count, each.edge)):
        width = PER_CHAR * len(labels[curve.edge])
        free = (box for box in _list_places(curve, width) if not any(box.overlaps(other, 2.0) for other in taken))
        found = next(free, None)
        taken += [] if found is None else [found]
        placed[curve.edge] = GraphCurve(curve.edge, curve.points, None if found is None else (found.x, found.y))
    return [placed[row] for row in sorted(placed)]


def _list_places(curve: GraphCurve, width: float) -> Iterator[GraphBox]:
    """Yield where the label of a curve may be, the best place first."""
    yield from (GraphBox(*curve.at(t), width, LABEL_HEIGHT) for t in ON_CURVE)


def _choose_curve(edge: int, source: int, target: int, boxes: Sequence[GraphBox]) -> GraphCurve:
    """Return the first curve from a box to another that crosses no third one, or the first of all."""
    others = [box for row, box in enumerate(boxes) if row not in {source, target}]
    tried = [GraphCurve(edge, _bend(boxes[source], boxes[target], bend)) for bend in BENDS]
    return next((curve for curve in tried if not _crosses(curve, others)), tried[0])


def _crosses(curve: GraphCurve, boxes: Iterable[GraphBox]) -> bool:
    dots = [GraphBox(*curve.at(part / 16), 0.0, 0.0) for part in range(17)]
    return any(box.overlaps(dot, CLEAR) for box in boxes for dot in dots)


def _bend(source: GraphBox, target: GraphBox, bend: float) -> tuple[Point, Point, Point, Point]:
    dx, dy = target.x - source.x, target.y - source.y
    if not hypot(dx, dy):
        return _turn_back(source)
    side = bend * dy, -bend * dx
    first, second = ((source.x + part * dx + side[0], source.y + part * dy + side[1]) for part in (1 / 3, 2 / 3))
    return source.leave(first), first, second, target.leave(second)


def _turn_back(box: GraphBox) -> tuple[Point, Point, Point, Point]:
    """Return the curve of a state that follows itself: next to the corner that is farthest from the graph's middle."""
    down = 1 if box.y > 0 else -1
    right = -1 if box.x < 0 else 1
    edge, corner = box.y + down * box.height / 2, box.x + right * box.width / 2
    inner, outer = corner - right * 70.0, corner - right * 24.0
    return (
        (inner, edge),
        (inner - right * 12.0, edge + down * LOOP),
        (outer + right * 12.0, edge + down * LOOP),
        (outer, edge),
    )
