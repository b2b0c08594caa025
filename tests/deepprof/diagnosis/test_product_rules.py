"""Rules on products next to the peaks: with their numbers on planted mistakes, silent without shapes or peaks."""

from __future__ import annotations

import polars as pl
import pytest
from msgspec.structs import replace

import deepprof
from benchmarks.cases.contexts import REST, Call, write
from benchmarks.cases.peaks import MM, MULTIPLY, PEAK_CASES, PEAK_RULES, multiply
from deepprof.collectors.trace import LAUNCH_SHAPES, OPERANDS, Trace, empty_table
from deepprof.diagnosis.finding import Finding
from deepprof.diagnosis.rules.low_efficiency import FILL, OTHER
from tests.deepprof.diagnosis.test_context_rules import of_rule
from tests.tables import table

FAR = PEAK_CASES["a product far from its roof"][0]
HALF = "c10::BFloat16"
PLANTED = {rule: name for name, (_, rule, _) in PEAK_CASES.items() if rule}
BY_SHAPES = [name for rule, name in PLANTED.items() if rule != "wrong-precision"]  # which names of kernels show, too


def found_in(trace: Trace) -> list[Finding]:
    return [each for each in deepprof.analyze(trace).findings if each.rule in PEAK_RULES]


@pytest.mark.parametrize("name", BY_SHAPES)
def test_without_shapes_or_peaks_nothing_is_said(name: str) -> None:
    (trace,) = write(PEAK_CASES[name][0], iterations=8)
    assert len(found_in(trace)) == 1
    assert found_in(replace(trace, operands=empty_table(OPERANDS))) == []
    assert found_in(replace(trace, devices=trace.devices.with_columns(name=pl.lit("Some Card")))) == []
    assert found_in(replace(trace, devices=trace.devices.with_columns(multiprocessors=pl.lit(16, pl.UInt32)))) == []


@pytest.mark.parametrize("name", PLANTED.values())
def test_one_iteration_shows_it_with_less_confidence(name: str) -> None:
    calls = PEAK_CASES[name][0]
    (once,), (often,) = (found_in(write(calls, iterations=many)[0]) for many in (1, 24))
    assert once.rule == often.rule
    assert once.confidence < often.confidence
    assert found_in(write([])[0]) == []
    assert found_in(write([Call(MULTIPLY, [(MM, 5.0)], operands=calls[0].operands)], iterations=1)[0]) == []


def test_what_a_slow_product_loses_is_beyond_half_of_its_roof() -> None:
    (trace,) = write(FAR)
    found = of_rule(deepprof.analyze(trace), "low-efficiency")
    ideal_ns = 2 * 8192 * 1024 * 8192 / 989.4e3  # FLOP over FLOP/ns
    assert found.headroom_ns_per_iteration == pytest.approx(1_500_000 - 2 * ideal_ns, abs=500)
    assert found.parts == {"compute_ns": found.headroom_ns_per_iteration}
    assert found.evidence["roof_ratio"] == pytest.approx(ideal_ns / 1_500_000, abs=1e-4)
    assert (found.evidence["shapes"], found.evidence["dtype"]) == ("8192x1024, 1024x8192", "bfloat16")
    assert found.location is not None
    assert (found.location["operator"], found.location["line"]) == (MM, 110)


def test_few_blocks_are_a_reason() -> None:
    (trace,) = write(FAR)
    assert of_rule(deepprof.analyze(trace), "low-efficiency").advice == OTHER  # 64 tiles by 64, on 132 multiprocessors
    kernels = trace.device_events.with_row_index("event").filter(pl.col("name_id") == trace.names.index_of("mm_kernel"))
    rows = [{"event": event, "grid": 66} for event in kernels["event"]]
    found = of_rule(deepprof.analyze(replace(trace, launch_shapes=table(rows, LAUNCH_SHAPES))), "low-efficiency")
    assert (found.advice, found.evidence["blocks_per_multiprocessor"]) == (FILL, 0.5)
    (small,) = write([multiply(MULTIPLY, 600.0, (256, 65536, 1024), HALF), *REST])
    found = of_rule(deepprof.analyze(small), "low-efficiency")
    assert (found.advice, found.evidence["blocks_per_multiprocessor"]) == (FILL, 0.12)  # 2 × 8 tiles


def test_what_is_faster_than_the_peak_allows_is_left_out() -> None:
    # A peak that is too low makes no other product look slower than it is.
    impossible = multiply("model.py(99): wonder", 50.0, (8192, 8192, 8192), HALF)
    (found,), (alone,) = (found_in(write(calls)[0]) for calls in ([*FAR, impossible], FAR))
    assert (found.rule, found.evidence["products"]) == ("low-efficiency", 1)
    assert found.headroom_ns_per_iteration == alone.headroom_ns_per_iteration
    most = multiply("model.py(99): wonder", 2000.0, (65536, 65536, 65536), HALF)
    assert found_in(write([*FAR, most])[0]) == []


def test_float32_products_name_the_share_that_could_be_faster() -> None:
    (trace,) = write(PEAK_CASES["products in float32"][0])
    found = of_rule(deepprof.analyze(trace), "wrong-precision")
    saved = 350_000 - 2 * 2048**3 / 494.7e3  # at the roof of TF32
    assert found.headroom_ns_per_iteration == pytest.approx(saved, rel=1e-3)
    assert (found.evidence["faster_type"], found.evidence["kernel_ns_per_iteration"]) == ("tf32", 350_000)
    assert "roof" in found.summary
    without = of_rule(deepprof.analyze(replace(trace, operands=empty_table(OPERANDS))), "wrong-precision")
    assert without.headroom_ns_per_iteration == pytest.approx(350_000 * (1 - 66.9 / 494.7), rel=1e-3)
    assert "come as close to the higher peak" in without.summary


def test_a_padded_vocabulary_is_named() -> None:
    (trace,) = write(PEAK_CASES["a vocabulary of 50257"][0])
    found = of_rule(deepprof.analyze(trace), "padding-waste")
    assert (found.evidence["side"], found.evidence["multiple"], found.evidence["padded_side"]) == (50_257, 8, 50_264)
    assert "50,264" in found.advice
    aligned_ratio = 2 * 4096 * 1024 * 4096 / 989.4e3 / 55_000
    expected = 1_400_000 - 2 * 4096 * 1024 * 50_264 / 989.4e3 / aligned_ratio
    assert found.headroom_ns_per_iteration == pytest.approx(expected, rel=1e-3)


def test_tiles_that_are_half_empty_are_no_matter_of_padding() -> None:
    (trace,) = write(PEAK_CASES["half of each tile for nothing"][0])
    found = of_rule(deepprof.analyze(trace), "padding-waste")
    assert found.evidence["waste_ratio"] == pytest.approx(1 - 520 / 768, abs=1e-4)
    assert found.headroom_ns_per_iteration == pytest.approx(900_000 * (1 - 520 / 768), rel=1e-3)
    assert "Pad" not in found.advice


def test_a_finding_names_a_launch_that_was_recorded_where_most_were_not() -> None:
    """Kernels of unknown launch are like recorded ones, so that their cost is known; their context names no code."""
    (trace,) = write(FAR)
    events = trace.device_events.with_row_index("row")
    kernel = of_rule(deepprof.analyze(trace), "low-efficiency")
    lost = pl.col("row") < int(0.6 * events.height)
    links = [pl.when(~lost).then(name).alias(name) for name in ("correlation", "external_id")]
    found = of_rule(
        deepprof.analyze(replace(trace, device_events=events.with_columns(links).drop("row"))), "low-efficiency"
    )
    assert kernel.location is not None
    assert found.location == kernel.location
