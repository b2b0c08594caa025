"""The document of the state graph: titles, sums, and what it reads from Table III."""

from __future__ import annotations

import msgspec
import pytest

from deepprof.metrics.iteration import LoopMetrics
from deepprof.render.wording import CPU, GPU
from deepprof.web.documents.states import StatesDocument, read_metrics, write_states
from tests.deepprof.builders import build_analysis, build_loop
from tests.metrics.test_states import lay


def metrics(interval_ns: int | None, overlap: float | None = 0.0) -> LoopMetrics:
    return LoopMetrics(avg_interval_ns=interval_ns, avg_operation_ns=20_000_000, avg_overlap_ratio=overlap)


def test_states_with_the_words_of_the_report() -> None:
    loop = lay([("exposed_htod_ns", 3), ("compute_ns", 5), ("idle_first_use_ns", 2)] * 3, [10, 10, 10])
    document = write_states(build_analysis(loops=(build_loop(), loop)), 1)
    assert [(node.title, node.kind, node.time_ns, node.share_ratio, node.count) for node in document.nodes] == [
        ("copies from host, exposed", "copy", 3, 0.3, 1.0),
        ("compute", "compute", 5, 0.5, 1.0),
        ("idle: other host work", "host", 2, 0.2, 1.0),
    ]
    edges = [(edge.source, edge.target, edge.count, edge.starts, edge.probability) for edge in document.edges]
    assert edges == [(0, 1, 1.0, 0.0, 1.0), (1, 2, 1.0, 0.0, 1.0), (2, 0, 1.0, 1.0, 1.0)]
    assert [(figure.title, figure.text) for figure in document.figures] == [
        ("avg interval", "12.3 ms"),
        ("max interval", "92.4 ms"),
        ("avg overlap", "1.2 %"),
        ("avg operation", "21.4 ms"),
        ("avg size", "64.0 KiB"),
    ]
    assert msgspec.json.decode(msgspec.json.encode(document), type=StatesDocument) == document


def test_a_loop_without_states_still_has_its_figures() -> None:
    document = write_states(build_analysis(), 0)
    assert (document.nodes, document.edges, len(document.figures)) == ([], [], 5)


@pytest.mark.parametrize(
    ("interval_ns", "overlap", "end"),
    [
        (
            1_000_000,
            0.5,
            "too little to blame the host or copies for; where the time within them goes, the graph shows.",
        ),
        (40_000_000, 0.01, "and copies from the host fill 1.0 % of that: the host holds iterations up."),
        (40_000_000, 0.12, "and copies from the host fill 12.0 % of that: the copies hold iterations up."),
        (3_000_000, 0.12, "and copies from the host fill 12.0 % of that: the copies hold iterations up."),
        (5_000_000, 0.02, "neither enough to blame the host alone, nor the copies."),
        (40_000_000, None, "and copies from the host fill 0 % of that: the host holds iterations up."),
        (None, None, "so that there is no interval between iterations to read."),
    ],
)
def test_what_the_paper_reads_from_its_figures(interval_ns: int | None, overlap: float | None, end: str) -> None:
    assert read_metrics(metrics(interval_ns, overlap), GPU).endswith(end)


def test_a_program_on_the_cpu_has_no_copies() -> None:
    assert read_metrics(metrics(40_000_000, None), CPU) == (
        "Between iterations nothing runs for 40.0 ms on average, beside 20.0 ms from the first operator of one to its "
        "last: the host holds iterations up."
    )
