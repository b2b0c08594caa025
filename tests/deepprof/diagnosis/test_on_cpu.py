"""Findings on programs without a device: no one who trains on a CPU reads of kernels, devices or nvidia-smi."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from deepprof.diagnosis import coverage, host_work
from deepprof.diagnosis.fallbacks import HALF_ON_PROCESSOR
from deepprof.diagnosis.on_cpu import DEVICE_WORDS, say_for_cpu, speak_of_cpu
from deepprof.diagnosis.rules import (
    capture_incomplete,
    communication_bound,
    double_precision,
    drift,
    elementwise_chains,
    embedding_bound,
    host_bound,
    input_bound,
    late_start,
    layout_conversions,
    normalization_bound,
    other_thread,
    recomputed_forward,
    slow_iterations,
    straggler,
    unfused_attention,
    unfused_dropout,
    unfused_loss,
    unfused_optimizer,
)
from tests.deepprof.builders import build_finding

# Kinds of time that a program without a device does not have.
ABSENT = {"allocator", "copies", "copy", "another process", "first use", "builds"}


def fixed_texts() -> Iterator[str]:
    """Yield what the rules that speak of a CPU state whatever the numbers are."""
    causes = (*slow_iterations.CAUSES, slow_iterations.UNKNOWN, slow_iterations.RECORDER)
    for cause in (*causes, *drift.CARRIERS, drift.ANYTHING):
        if cause.word not in ABSENT:
            yield from (cause.title, cause.advice)
    for words in (slow_iterations.WORDS, drift.WORDS, straggler.ADVICE, straggler.SPENDS):
        yield from (text for word, text in words.items() if word not in ABSENT)
    yield from (host_bound.ADVICE, input_bound.LOAD_AHEAD, input_bound.LOAD_AHEAD_IN["pytorch"])
    yield from (communication_bound.OVERLAP, *(how for _, _, how in communication_bound.KINDS))
    yield next(text for prefix, text in capture_incomplete.ADVICE if prefix == "kineto")
    yield coverage.WHY["idle_launch_ns"]
    yield from (unfused_attention.FUSE, unfused_attention.FUSE_IN["pytorch"], recomputed_forward.TRADE)
    for known in (elementwise_chains, unfused_optimizer, unfused_loss, unfused_dropout):
        yield from (known.FUSE, known.FUSE_IN["pytorch"])
    for access in (embedding_bound.OF_TABLES, embedding_bound.ADDING, embedding_bound.READING):
        yield from (access.what, access.assumption, access.advice, access.special["pytorch"])
    for kind in (layout_conversions.CONVERSIONS, layout_conversions.COPIES):
        yield from (kind.what, kind.advice, kind.special["pytorch"])
    yield from (normalization_bound.FOLD, normalization_bound.FOLD_IN["pytorch"])
    yield from (double_precision.FLOAT, double_precision.FLOAT_IN["pytorch"])
    yield from (host_bound.TITLE, other_thread.LESS, other_thread.RECORD, other_thread.ENGINE_ADVICE, late_start.ADVICE)
    yield from (text for _, text in (*host_work.ADVICE, host_work.WAITS, ("", host_work.ANY)))
    yield from (HALF_ON_PROCESSOR.what, HALF_ON_PROCESSOR.advice)


@pytest.mark.parametrize("text", sorted(set(fixed_texts())))
def test_no_word_of_a_device_is_left(text: str) -> None:
    assert not DEVICE_WORDS.search(speak_of_cpu(text)), speak_of_cpu(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "25.6 ms of an iteration (61.4 %) the device is idle, and the host neither launches, waits nor "
            "loads data: it does other work in save.",
            "25.6 ms of an iteration (61.4 %) no operator runs and no data is loaded: the program does other work in "
            "save.",
        ),
        (
            "The device waits 89.8 ms before an iteration at the end of the trace and waited 8.1 ms at its start, "
            "+2.21 ms per iteration, while an iteration's own work takes 21.7 ms and copies fill 0 % of the wait.",
            "Before an iteration no operator runs for 89.8 ms at the end of the trace and for 8.1 ms at its start, "
            "+2.21 ms per iteration, while an iteration's own work takes 21.7 ms.",
        ),
        (
            "In 11 of 11 iterations the host compiles for 164.2 ms (dynamo); the device idles for 164.2 ms of an "
            "iteration (96 %) meanwhile.",
            "In 11 of 11 iterations the program compiles for 164.2 ms (dynamo); no operator runs for 164.2 ms of an "
            "iteration (96 %) meanwhile.",
        ),
        (
            "An iteration runs 118 device events at the end of the trace and ran 38 at its start (+10 per iteration).",
            "An iteration runs 118 operators at the end of the trace and ran 38 at its start (+10 per iteration).",
        ),
        ("in my_kernel.py, at kernel_size=3", "in my_kernel.py, at kernel_size=3"),
    ],
)
def test_sentences_with_numbers(text: str, said: str) -> None:
    assert speak_of_cpu(text) == said


def test_only_the_texts_of_a_finding_change() -> None:
    finding = build_finding(title="Every iteration runs more kernels", location={"kernel": "aten::linear"})
    (said,) = say_for_cpu([finding])
    assert said.title == "Every iteration runs more operators"
    assert replace(said, title=finding.title, summary=finding.summary, advice=finding.advice) == finding
