"""The stages and layers of two runs as text on every width, and as JSON."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest
from msgspec import structs
from rich.console import Console

from deepprof.comparison.layer_changes import compare_layers
from deepprof.comparison.loop_changes import compare_times
from deepprof.comparison.stage_changes import compare_stages
from deepprof.diagnosis.on_cpu import DEVICE_WORDS
from deepprof.render.comparison_json import encode
from deepprof.render.comparison_text import print_comparison
from deepprof.results.analysis_result import AnswerBlock
from deepprof.results.comparison_result import (
    Comparison,
    Headline,
    LayersInBoth,
    LoopPair,
    LoopPlace,
    PartChange,
    StagesInBoth,
)
from tests.deepprof.comparison.annotated_loops import Layers, annotate_loop

MS = 1_000_000
STAGES = {"forward": [10 * MS], "backward": [20 * MS]}
SLOWER = {"forward": [10 * MS], "backward": [30 * MS], "checkpoint": [1 * MS]}
HOST = {"forward": MS, "backward": 2 * MS}
LAYERS: Layers = {
    "net": (9 * MS, MS, 4 * MS, 5 * MS),
    "net/wide": (8 * MS, 8 * MS, 3 * MS, 5 * MS),
    "old": (7, 7, 7, 0),
}
WIDER: Layers = {"net": (19 * MS, MS, 4 * MS, 15 * MS), "net/wide": (18 * MS, 18 * MS, 3 * MS, 15 * MS)}


def pair_of(host: dict[str, int] | None = None, confidence: float = 1.0) -> LoopPair:
    a = annotate_loop(STAGES, host=host, layers=LAYERS, source="modules", confidence=confidence)
    b = annotate_loop(SLOWER, host=host and host | {"checkpoint": 4 * MS}, layers=WIDER, source="modules")
    return LoopPair(
        a=LoopPlace(0, 0, 7, 3),
        b=LoopPlace(0, 0, 7, 3),
        time=compare_times([30 * MS], [41 * MS]),
        a_mean_ns=30 * MS,
        b_mean_ns=41 * MS,
        parts=(PartChange("compute_ns", 30 * MS, 41 * MS),),
        counts=(),
        stages=compare_stages(a, b),
        layers=compare_layers(a, b),
    )


ANSWER = AnswerBlock(
    kind="loop", part=None, part_share=None, cause=None, share=None, confidence=None, summary="A loop.", text=[]
)


def comparison_of(pair: LoopPair, *, on_cpu: bool = False) -> Comparison:
    return Comparison(
        a_paths=("a",),
        b_paths=("b",),
        headline=Headline("More."),
        pairs=(pair,),
        missing=(),
        a_answer=ANSWER,
        b_answer=ANSWER,
        on_cpu=on_cpu,
    )


def shown(pair: LoopPair, width: int = 80, encoding: str = "utf-8", *, on_cpu: bool = False, limit: int = 10) -> str:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding)
    print_comparison(comparison_of(pair, on_cpu=on_cpu), Console(file=stream, width=width), limit=limit)
    stream.flush()
    return raw.getvalue().decode(encoding)


def words_of(text: str, label: str) -> str:
    """Return the first line with a label, its columns apart by one blank."""
    return " ".join(next(line for line in text.splitlines() if label in line).split())


def test_stages_come_first_then_layers_then_parts() -> None:
    text = shown(pair_of(HOST))
    places = [text.index(title) for title in ("Stages, per mean", "Layers, their own", "Where the time went")]
    assert places == sorted(places)
    assert words_of(text, "host A") == "A B difference host A host B difference"
    assert words_of(text, "backward ") == "backward 20.0 ms 30.0 ms +10.0 ms 2.00 ms 2.00 ms 0 ns"
    assert words_of(text, "checkpoint") == "+ checkpoint 0 ns 1.00 ms +1.00 ms 0 ns 4.00 ms +4.00 ms"
    assert words_of(text, "together") == "together 30.0 ms 41.0 ms +11.0 ms 3.00 ms 7.00 ms +4.00 ms"
    assert words_of(text, "net/wide") == "net/wide 8.00 ms 18.0 ms +10.0 ms - +10.0 ms"
    assert "1 layer only in A (7 ns)\n" in text


@pytest.mark.parametrize("width", [30, 60, 80])
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_narrow_pages_have_fewer_columns(width: int, encoding: str) -> None:
    text = shown(pair_of(HOST), width, encoding)
    assert max(map(len, text.splitlines())) <= width
    assert ("host A" in text) == (width == 80)
    assert "+ checkpoint" in text
    assert words_of(text, "20.0 ms").endswith("20.0 ms 30.0 ms +10.0 ms" + " 2.00 ms 2.00 ms 0 ns" * (width == 80))


def test_without_times_on_the_host_there_are_no_columns_for_them() -> None:
    assert "host A" not in shown(pair_of())


def test_a_cpu_has_no_device_beside_its_host() -> None:
    text = shown(pair_of(HOST), on_cpu=True)
    assert "host A" not in text
    assert DEVICE_WORDS.findall(text) == []


def test_a_stage_that_is_not_sure_is_marked() -> None:
    pair = pair_of()
    rows = tuple(replace(row, a_confidence=0.7) if row.stage == "forward" else row for row in pair.stages.rows)
    text = shown(structs.replace(pair, stages=StagesInBoth(rows=rows)))
    assert "forward (0.70 sure) " in text
    assert text.count(" sure)") == 1


def test_what_did_not_change_has_no_table() -> None:
    pair = pair_of(HOST)
    same = structs.replace(pair, a_mean_ns=10_000 * MS, b_mean_ns=10_000 * MS)
    assert "Stages" not in shown(same)
    assert "Layers" not in shown(same)


def test_one_line_says_why_nothing_is_compared() -> None:
    text = shown(structs.replace(pair_of(confidence=0.6), layers=LayersInBoth(problem="the layers of A are unknown")))
    assert "\n  not compared by stage: the stages of A are only 0.60 sure\n" in text
    assert "\nNot compared by layer: the layers of A are unknown\n" in text
    assert "Stages" not in text
    assert "Layers" not in text


def test_layers_of_one_run_alone_are_counted() -> None:
    only = LayersInBoth(source="modules", matched=1, a_only=1, b_only=2, a_only_ns=3 * MS, b_only_ns=MS)
    text = shown(structs.replace(pair_of(), layers=only))
    assert "1 layer only in A (3.00 ms), 2 layers only in B (1.00 ms)\n" in text


def test_hidden_layers_are_counted() -> None:
    pair = pair_of()
    assert pair.layers is not None
    (row,) = pair.layers.rows
    many = structs.replace(pair.layers, rows=tuple(replace(row, path=f"layer {k}") for k in range(5)))
    text = shown(structs.replace(pair, layers=many), limit=3)
    assert ("layer 2" in text, "layer 3" in text) == (True, False)
    assert "and 2 more rows; --top shows more" in text


def test_stages_that_both_runs_have_need_no_mark() -> None:
    pair = pair_of()
    rows = tuple(row for row in pair.stages.rows if row.presence == "both")
    text = shown(structs.replace(pair, stages=StagesInBoth(rows=rows)))
    assert "\nStages, per mean iteration\n" in text
    assert "\n  backward  " in text


def test_json_has_stages_and_layers() -> None:
    (pair,) = json.loads(encode(comparison_of(pair_of(HOST, confidence=0.87654))))["pairs"]
    assert pair["stages"]["problem"] is None
    assert [row["stage"] for row in pair["stages"]["rows"]] == ["forward", "backward", "checkpoint"]
    assert pair["stages"]["rows"][1] == {
        "stage": "backward",
        "presence": "both",
        "a_ns": 20 * MS,
        "b_ns": 30 * MS,
        "difference_ns": 10 * MS,
        "a_idle_ns": 0,
        "b_idle_ns": 0,
        "a_host_ns": 2 * MS,
        "b_host_ns": 2 * MS,
        "host_difference_ns": 0,
        "a_confidence": 0.877,
        "b_confidence": 1.0,
    }
    rows = pair["layers"].pop("rows")
    assert pair["layers"] == {
        "source": "modules",
        "problem": None,
        "matched": 2,
        "changed": 1,
        "a_only": 1,
        "b_only": 0,
        "a_only_ns": 7,
        "b_only_ns": 0,
    }
    assert rows == [
        {
            "path": "net/wide",
            "a_ns": 8 * MS,
            "b_ns": 18 * MS,
            "difference_ns": 10 * MS,
            "a_forward_ns": 3 * MS,
            "b_forward_ns": 3 * MS,
            "a_backward_ns": 5 * MS,
            "b_backward_ns": 15 * MS,
        }
    ]


def test_json_limits_layers_and_writes_any_path() -> None:
    pair = pair_of()
    assert pair.layers is not None
    (row,) = pair.layers.rows
    odd = structs.replace(pair.layers, rows=(replace(row, path="\ud800" + "x" * 2_000), row))
    (told,) = json.loads(encode(comparison_of(structs.replace(pair, layers=odd)), limit=1))["pairs"]
    (path,) = [each["path"] for each in told["layers"]["rows"]]
    assert len(path) == 1_000
    (none,) = json.loads(encode(comparison_of(structs.replace(pair, layers=None))))["pairs"]
    assert none["layers"] is None
