"""State graphs as pictures and for Graphviz: texts, geometry, and names that mean something to XML or Graphviz."""

from __future__ import annotations

import re
from itertools import combinations
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepprof.web.documents.schema import Figure
from deepprof.web.documents.states import StateEdge, StateNode, StatesDocument
from deepprof.web.state_graph import draw_svg, write_dot
from deepprof.web.state_layout import (
    LABEL_HEIGHT,
    PER_CHAR,
    GraphBox,
    choose_edges,
    draw_curves,
    place_nodes,
)

SVG = "{http://www.w3.org/2000/svg}"
KINDS = ("copy", "compute", "communication", "host", "idle")


def node(title: str, *, time_ns: int = 10, count: float = 1.0, share: float = 0.5, kind: str = "compute") -> StateNode:
    return StateNode(name=title, title=title, kind=kind, time_ns=time_ns, share_ratio=share, count=count)  # type: ignore[arg-type]


def edge(source: int, target: int, *, count: float = 1.0, starts: float = 0.0, probability: float = 1.0) -> StateEdge:
    return StateEdge(source=source, target=target, count=count, starts=starts, probability=probability)


def turn() -> StatesDocument:
    """Return the paper's iteration: the host's copy, and what the device computes with it."""
    return StatesDocument(
        loop=0,
        nodes=[
            node("copies from host, exposed", time_ns=2_000_000, share=0.2, kind="copy"),
            node("compute", time_ns=8_000_000, share=0.8),
        ],
        edges=[edge(0, 1), edge(1, 0, starts=1.0)],
        figures=[Figure(name="avg_interval_ns", title="avg interval", value=2e6, text="2.00 ms")],
        reading="The copies hold iterations up.",
    )


def parse(svg: str) -> ET.Element:
    return ET.fromstring(svg)  # noqa: S314


def read_texts(svg: str) -> list[str | None]:
    return [text.text for text in parse(svg).iter(f"{SVG}text")]


DOT = r"""digraph states {
  rankdir=LR;
  graph [label="State graph\lavg interval  2.00 ms\lThe copies hold iterations up.\l", labelloc=b, labeljust=l, fontname="sans-serif"];
  node [shape=box, style=rounded, fontname="sans-serif"];
  edge [fontname="sans-serif", fontsize=10];
  s0 [label="copies from host, exposed\n2.00 ms, 20.0 %\n1 × per iteration"];
  s1 [label="compute\n8.00 ms, 80.0 %\n1 × per iteration"];
  s0 -> s1 [label="1 ×, 100 %"];
  s1 -> s0 [label="1 ×, 100 %", style=dashed];
}
"""  # noqa: E501
TEXTS = [
    "State graph",
    "copies from host, exposed",
    "2.00 ms, 20.0 %",
    "1 × per iteration",
    "compute",
    "8.00 ms, 80.0 %",
    "1 × per iteration",
    "1 ×, 100 %",
    "1 ×, 100 %",
    "Table III",
    "avg interval",
    "2.00 ms",
    "The copies hold iterations up.",
    "Curves: how often per iteration, and how probable after that state; dashed: an iteration begins.",
]


def test_for_graphviz() -> None:
    assert write_dot(turn(), "State graph") == DOT


def test_the_picture_says_all_in_words() -> None:
    svg = parse(draw_svg(turn(), "State graph"))
    assert read_texts(draw_svg(turn(), "State graph")) == TEXTS
    assert svg.get("role") == "img"
    said = {f"#{part.get('id')}": part.text for part in svg if part.get("id")}
    assert said == {
        "#title": "State graph",
        "#desc": "States of the mean iteration: copies from host, exposed: 2.00 ms, 20.0 %, 1 × per iteration; "
        "compute: 8.00 ms, 80.0 %, 1 × per iteration. The copies hold iterations up.",
    }
    curves = [path for path in svg.iter(f"{SVG}path") if "edge" in path.get("class", "")]
    assert [path.get("class") for path in curves] == ["edge", "edge starts"]
    assert [path[0].text for path in curves] == [
        "copies from host, exposed → compute: 1 ×, 100 %",
        "compute → copies from host, exposed: 1 ×, 100 %",
    ]


def test_the_picture_is_one_file_without_scripts_or_addresses() -> None:
    svg = draw_svg(turn(), "State graph")
    assert re.findall(r"(?:href|src|url\()[^ )]*", svg.replace("url(#head)", "")) == []
    assert re.findall(r"https?://[^\"]*", svg) == ["http://www.w3.org/2000/svg"]
    assert "<script" not in svg
    assert "prefers-color-scheme: dark" in svg


@pytest.mark.parametrize("name", ["</title><script>x</script>", 'a"];b\\', "\0\x1b[31m", "a\u202eb", "x" * 10_000])
def test_hostile_names_are_text(name: str) -> None:
    document = StatesDocument(loop=0, nodes=[node(name)], edges=[edge(0, 0)], figures=[], reading=name)
    svg = parse(draw_svg(document, name))
    assert not [part for part in svg.iter() if part.tag == f"{SVG}script"]
    assert (svg.findtext(f"{SVG}title") or "").isprintable()
    dot = write_dot(document, name)
    statements = re.sub(r'"(?:[^"\\]|\\.)*"', '""', dot).splitlines()
    assert statements[5:] == ['  s0 [label=""];', '  s0 -> s0 [label=""];', "}"]


def test_a_graph_without_states_says_why() -> None:
    document = StatesDocument(loop=0, nodes=[], edges=[], figures=[], reading="Nothing to read.")
    assert " ".join(filter(None, read_texts(draw_svg(document, "none")))).endswith(
        "so that there are no states to show."
    )
    assert "s0" not in write_dot(document, "none")


def test_rare_transitions_are_left_out_and_counted() -> None:
    nodes = [node("compute", count=1002.0), node("launching", count=1000.0, kind="host"), node("copy", kind="copy")]
    edges = [edge(0, 1, count=1000), edge(1, 0, count=999), edge(0, 2), edge(1, 2, count=0.5), edge(2, 0, count=1.5)]
    assert choose_edges(edges) == [0, 1, 2, 4]
    document = StatesDocument(loop=0, nodes=nodes, edges=edges, figures=[], reading="")
    assert " ".join(filter(None, read_texts(draw_svg(document, "x")))).endswith("1 rarer transition is left out.")
    assert write_dot(document, "x").count("->") == 5


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[StateNode], list[StateEdge]]:
    many = draw(st.integers(1, 14))
    counts = st.floats(0.01, 2_000)
    nodes = [node(f"state {row}", count=draw(counts), time_ns=draw(st.integers(0, 10**9))) for row in range(many)]
    ends = draw(st.sets(st.tuples(st.integers(0, many - 1), st.integers(0, many - 1)), max_size=40))
    return nodes, [edge(*pair, count=draw(counts)) for pair in sorted(ends)]


@given(graphs())
def test_no_box_or_label_covers_another(graph: tuple[list[StateNode], list[StateEdge]]) -> None:
    nodes, edges = graph
    boxes, labels = place_nodes(nodes), [f"{edge.count:.2f} ×, 100 %" for edge in edges]
    chosen = choose_edges(edges)
    curves = draw_curves(edges, chosen, boxes, labels)
    assert [curve.edge for curve in curves] == chosen
    shown = [
        GraphBox(*curve.label, PER_CHAR * len(labels[curve.edge]), LABEL_HEIGHT) for curve in curves if curve.label
    ]
    assert not any(one.overlaps(other) for one, other in combinations([*boxes, *shown], 2))
    for curve in curves:
        ends = (edges[curve.edge].source, edges[curve.edge].target)
        for box, point in zip((boxes[row] for row in ends), (curve.points[0], curve.points[3]), strict=True):
            assert box.overlaps(GraphBox(*point, 0.0, 0.0), 1e-6)
    assert draw_curves(edges, chosen, boxes, labels) == curves


def test_every_state_keeps_a_way_in_and_out() -> None:
    edges = [edge(0, 0, count=10**6), edge(0, 1, count=0.01), edge(1, 0, count=0.01)]
    assert choose_edges(edges) == [0, 1, 2]
