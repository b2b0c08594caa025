"""The state graph of an iteration as a picture (SVG) and for Graphviz (DOT), with the paper's Table III next to it."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from deepprof.plurals import counted
from deepprof.render.plain import printable
from deepprof.render.roofline.svg import escape_text, write_text
from deepprof.render.units import format_duration, format_ratio
from deepprof.web.state_layout import (
    LABEL_HEIGHT,
    PER_CHAR,
    GraphBox,
    GraphCurve,
    choose_edges,
    draw_curves,
    place_nodes,
)

if TYPE_CHECKING:
    from deepprof.web.documents.states import StateEdge, StateNode, StatesDocument

TIMES = "\u00d7"
MARGIN, PANEL, LINE = 24.0, 250.0, 20.0
LEAST_HEIGHT = 190.0  # of the graph: Table III is next to it
THINNEST, THICKEST = 1.0, 4.0  # of a curve
NEW = 0.5  # of a transition begin an iteration: it is drawn dashed
CHARS = 28  # of a title in its box
# Okabe and Ito's colours, which people distinguish who do not see all colours.
STYLE = """
svg { font: 12px system-ui, sans-serif; }
text { fill: #1b1b1f; }
.back { fill: #ffffff; }
.under { fill-opacity: 0.8; }
.title { font-size: 15px; font-weight: 600; }
.name { font-weight: 600; }
.quiet { fill: #55555e; }
.edge { fill: none; stroke: #6a6a73; }
.starts { stroke-dasharray: 6 4; }
.head { fill: #6a6a73; }
.state { stroke-width: 1.5px; fill-opacity: 0.14; }
.bar { fill-opacity: 0.9; }
.copy { fill: #d55e00; stroke: #d55e00; }
.compute { fill: #009e73; stroke: #009e73; }
.communication { fill: #cc79a7; stroke: #cc79a7; }
.host { fill: #0072b2; stroke: #0072b2; }
.idle { fill: #808080; stroke: #808080; }
@media (prefers-color-scheme: dark) {
  text { fill: #ececf1; }
  .back { fill: #17181c; }
  .quiet { fill: #b4b4bd; }
  .edge { stroke: #a2a2ac; }
  .head { fill: #a2a2ac; }
  .state { fill-opacity: 0.3; }
  .host { fill: #56b4e9; stroke: #56b4e9; }
}
""".strip()


def draw_svg(document: StatesDocument, title: str) -> str:
    """Return the picture: one file, readable in light and dark, that states in words what it shows."""
    nodes, edges = document.nodes, document.edges
    chosen, labels = choose_edges(edges), [_label(edge) for edge in edges]
    boxes = place_nodes(nodes)
    curves = draw_curves(edges, chosen, boxes, labels)
    width, height, origin = _measure(boxes, curves)
    wide = int((width + PANEL - 2 * MARGIN) / PER_CHAR)
    foot = [line for said in (document.reading, _explain(document, len(chosen))) for line in textwrap.wrap(said, wide)]
    top = MARGIN + 2 * LINE
    whole = width + PANEL, top + height + LINE * len(foot) + MARGIN
    parts = [
        *_open(whole, title, _describe(document)),
        write_text(MARGIN, MARGIN + 12, title, "title"),
        f'<g transform="translate({origin[0]:.1f} {origin[1] + top:.1f})">',
        *(_draw_curve(curve, edges[curve.edge], document) for curve in curves),
        *(part for node, box in zip(nodes, boxes, strict=True) for part in _draw_node(node, box)),
        *(_draw_label(curve, labels[curve.edge]) for curve in curves),
        "</g>",
        *_draw_figures(document, width + MARGIN, top + LINE),
        *(write_text(MARGIN, top + height + LINE * (row + 1), line) for row, line in enumerate(foot)),
        "</svg>\n",
    ]
    return "\n".join(part for part in parts if part)


def write_dot(document: StatesDocument, title: str) -> str:
    """Return the whole graph, all transitions of it, in Graphviz's language."""
    figures = [f"{each.title}  {each.text}" for each in document.figures]
    label = "\\l".join(map(_quote, [title, *figures, document.reading, ""]))
    lines = [
        "digraph states {",
        "  rankdir=LR;",
        f'  graph [label="{label}", labelloc=b, labeljust=l, fontname="sans-serif"];',
        '  node [shape=box, style=rounded, fontname="sans-serif"];',
        '  edge [fontname="sans-serif", fontsize=10];',
    ]
    for row, node in enumerate(document.nodes):
        text = "\\n".join(map(_quote, (node.title, *_count(node))))
        lines.append(f'  s{row} [label="{text}"];')
    for edge in document.edges:
        style = ", style=dashed" if _is_new(edge) else ""
        lines.append(f'  s{edge.source} -> s{edge.target} [label="{_label(edge)}"{style}];')
    return "\n".join([*lines, "}\n"])


def _quote(text: str) -> str:
    """Return a text as it is between quotation marks in Graphviz's language."""
    return printable(text).replace("\\", "\\\\").replace('"', '\\"')


def _label(edge: StateEdge) -> str:
    """Return how often a transition happens, and how probable it is."""
    return f"{_format_count(edge.count)} {TIMES}, {format_ratio(edge.probability)}"


def _format_count(count: float) -> str:
    """Return a mean number per iteration: `3`, `2.5`, `0.04`, `1,240`."""
    if count >= 100 or round(count, 2) == round(count):
        return f"{count:,.0f}" if count >= 0.005 else "<0.01"
    return f"{count:.1f}" if count >= 10 else f"{count:.2f}".rstrip("0")


def _is_new(edge: StateEdge) -> bool:
    """Return whether a transition mostly begins a new iteration."""
    return edge.starts > NEW * edge.count


def _count(node: StateNode) -> tuple[str, str]:
    return (
        f"{format_duration(node.time_ns)}, {format_ratio(node.share_ratio)}",
        f"{_format_count(node.count)} {TIMES} per iteration",
    )


def _explain(document: StatesDocument, shown: int) -> str:
    if not document.nodes:
        return "No complete iteration after warm-up is followed by another one, so that there are no states to show."
    hidden = len(document.edges) - shown
    more = f" {counted(hidden, 'rarer transition')} {'is' if hidden == 1 else 'are'} left out." if hidden else ""
    new = "; dashed: an iteration begins" if any(map(_is_new, document.edges)) else ""
    return f"Curves: how often per iteration, and how probable after that state{new}.{more}"


def _describe(document: StatesDocument) -> str:
    states = "; ".join(f"{node.title}: {', '.join(_count(node))}" for node in document.nodes)
    return f"States of the mean iteration: {states or 'none'}. {document.reading}"


def _measure(boxes: Sequence[GraphBox], curves: Sequence[GraphCurve]) -> tuple[float, float, tuple[float, float]]:
    """Return width and height of the graph with its margins, and where its (0, 0) is."""
    points = [curve.at(t / 8) for curve in curves for t in range(9)]
    xs = [x for box in boxes for x in (box.x - box.width / 2, box.x + box.width / 2)] + [x for x, _ in points]
    ys = [y for box in boxes for y in (box.y - box.height / 2, box.y + box.height / 2)] + [y for _, y in points]
    left, right, top, bottom = (*_bounds(xs), *_bounds(ys))
    height = max(LEAST_HEIGHT, bottom - top + MARGIN)
    return right - left + 2 * MARGIN, height, (MARGIN - left, (height - top - bottom) / 2)


def _bounds(values: Iterable[float]) -> tuple[float, float]:
    """Return the least and the greatest value, zeros for none."""
    known = [*values] or [0.0]
    return min(known), max(known)


def _open(whole: tuple[float, float], title: str, said: str) -> Iterator[str]:
    width, height = whole
    size = f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
    yield f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-labelledby="title desc">'
    yield f'<title id="title">{escape_text(title)}</title>'
    yield f'<desc id="desc">{escape_text(said)}</desc>'
    yield f"<style>{STYLE}</style>"
    head = '<path class="head" d="M0 0 L9 4 L0 8 Z"/>'
    place = 'markerWidth="9" markerHeight="8" refX="8" refY="4" markerUnits="userSpaceOnUse" orient="auto"'
    yield f'<defs><marker id="head" {place}>{head}</marker></defs>'
    yield '<rect class="back" width="100%" height="100%"/>'


def _draw_curve(curve: GraphCurve, edge: StateEdge, document: StatesDocument) -> str:
    start, first, second, end = (f"{x:.1f} {y:.1f}" for x, y in curve.points)
    most = max(each.count for each in document.edges)
    thick = THINNEST + (THICKEST - THINNEST) * edge.count / most
    kind = "edge starts" if _is_new(edge) else "edge"
    names = " → ".join(document.nodes[row].title for row in (edge.source, edge.target))
    said = f"<title>{escape_text(f'{names}: {_label(edge)}')}</title>"
    path = f'd="M{start} C{first} {second} {end}" stroke-width="{thick:.1f}" marker-end="url(#head)"'
    return f'<path class="{kind}" {path}>{said}</path>'


def _draw_label(curve: GraphCurve, label: str) -> str:
    """Return the text on a curve, nothing where it has no place."""
    if curve.label is None:
        return ""
    x, y, width = *curve.label, PER_CHAR * len(label)
    place = f'x="{x - width / 2:.1f}" y="{y - LABEL_HEIGHT / 2:.1f}" width="{width:.1f}" height="{LABEL_HEIGHT:.0f}"'
    return f'<rect class="back under" {place}/>' + write_text(x, y + 4, label, "quiet", anchor="middle")


def _draw_node(node: StateNode, box: GraphBox) -> Iterator[str]:
    """Yield a state: its box, a bar as long as its share, and its texts."""
    left, top = box.x - box.width / 2, box.y - box.height / 2
    place = f'x="{left:.1f}" y="{top:.1f}" width="{box.width:.0f}" height="{box.height:.0f}" rx="8"'
    yield f'<rect class="back" {place}/><rect class="state {node.kind}" {place}/>'
    length = (box.width - 20) * node.share_ratio
    yield f'<rect class="bar {node.kind}" x="{left + 10:.1f}" y="{top + 57:.1f}" width="{length:.1f}" height="4"/>'
    title = textwrap.shorten(node.title, CHARS, placeholder="…")
    for row, (line, kind) in enumerate(zip((title, *_count(node)), ("name", "", "quiet"), strict=True)):
        yield write_text(box.x, top + 18 + 16 * row, line, kind, anchor="middle")


def _draw_figures(document: StatesDocument, left: float, top: float) -> Iterator[str]:
    yield write_text(left, top, "Table III", "name")
    for row, figure in enumerate(document.figures, 1):
        yield write_text(left, top + LINE * row, figure.title, "quiet")
        yield write_text(left + PANEL - 2 * MARGIN, top + LINE * row, figure.text, anchor="end")
