"""Stages and layers in text, on any width, and in the JSON report."""

from __future__ import annotations

import io
import json

import polars as pl
import pytest
from msgspec.structs import replace
from rich.console import Console

from deepprof.analysis import Analysis
from deepprof.metrics.loop import Loop
from deepprof.render.anatomy import describe_anatomy, print_anatomy
from deepprof.render.page import TextPage
from tests.metrics.annotation.test_anatomy import run
from tests.metrics.annotation.test_layers import BACK, BLOCK, train


def shown(loop: Loop, width: int = 80, encoding: str = "utf-8") -> list[str]:
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding)
    print_anatomy(loop, TextPage(Console(file=file, width=width)))
    file.flush()
    return raw.getvalue().decode(encoding).splitlines()


def test_stages_stand_in_their_order_with_bars_and_the_layers_by_their_own_time() -> None:
    (loop,) = train().loops
    lines = shown(loop)
    assert lines[1] == f"  stages, mean of {loop.usual.height} iterations; iteration 0 is the typical one"
    stages = [line.split()[0] for line in lines[3:] if line.startswith("    ")]
    assert stages[:3] == ["forward", "backward", "optimizer"]
    assert any("█" in line for line in lines)
    assert "  the layers with the most own time, of 3 layers known by modules; forward and" in lines
    assert "    backward include inner layers" in lines
    layers = [line.split()[0] for line in lines if "Net_0" in line]
    assert layers == ["Net_0/Linear_1", "Net_0/Linear_0"], "Net_0 has no time of its own"


@pytest.mark.parametrize("width", [30, 44, 60, 80, 200])
def test_nothing_is_wider_than_the_page(width: int) -> None:
    for analysis in (train(), run()):
        lines = shown(analysis.loops[0], width)
        assert max(map(len, lines)) <= max(width, 30)
        assert all(line == line.rstrip() for line in lines)


def test_plain_terminals_get_plain_bars() -> None:
    lines = shown(train().loops[0], encoding="ascii")
    assert any("#" in line for line in lines)
    assert "".join(lines).isascii()


def test_stages_that_only_kernels_tell_say_how_sure_they_are() -> None:
    assert any("forward (0.80 sure)" in line for line in shown(run().loops[0]))


def test_blocks_that_all_take_as_long_are_one_line() -> None:
    from deepprof import analyze
    from tests.metrics.annotation.test_event_stages import ADAM, LOSS, NAMES, PLAIN, play
    from tests.tables import make_trace

    analysis = analyze(make_trace(play([[*BLOCK * 4, LOSS, PLAIN, *BACK * 4, ADAM, ADAM]] * 8), names=NAMES))
    lines = [line for line in shown(analysis.loops[0]) if "block" in line]
    assert lines == ["  4 repeated blocks, mostly ampere_sgemm_128x64_tn: 88.0 µs each"]


def test_what_is_unknown_is_not_shown_and_has_no_blocks() -> None:
    (loop,) = run().loops
    assert loop.anatomy is not None
    unknown = loop.anatomy.stages.head(1).with_columns(stage=pl.lit("unknown", loop.anatomy.stages["stage"].dtype))
    assert shown(replace(loop, anatomy=replace(loop.anatomy, stages=unknown))) == []
    both = pl.concat([loop.anatomy.stages, unknown])
    lines = shown(replace(loop, anatomy=replace(loop.anatomy, stages=both)))
    assert "unknown" not in "".join(lines)
    assert lines[-1].startswith("    in no known stage: "), "what is unknown is no row"
    assert shown(replace(loop, anatomy=None)) == []
    assert describe_anatomy(replace(loop, anatomy=None)) is None


def block_of(analysis: Analysis) -> dict:
    return json.loads(analysis.to_json())["loops"][0]["anatomy"]


def test_the_report_has_what_adds_up_and_what_spreads() -> None:
    analysis = train()
    block = block_of(analysis)
    (loop,) = analysis.loops
    usual = loop.usual["busy_ns"] + loop.usual["idle_ns"]
    assert sum(row["busy_ns"] + row["idle_ns"] for row in block["stages"]) == pytest.approx(usual.mean(), abs=5)
    assert [row["stage"] for row in block["stages"]][:3] == ["forward", "backward", "optimizer"]
    assert block["stages"][0]["confidence"] == 1
    assert set(block["stages"][0]["device_ns"]) == {"median", "p5", "p95"}
    assert (block["layers_from"], block["layers_total"]) == ("modules", 3)
    assert block["layers"][0]["path"] == "Net_0/Linear_1"
    assert block["representative_iteration"] == 0


def test_the_report_of_a_program_without_layers() -> None:
    block = block_of(run())
    assert (block["layers_from"], block["layers_total"], block["layers"]) == (None, 0, [])
    assert block["stages"][0]["host_ns"] is None
