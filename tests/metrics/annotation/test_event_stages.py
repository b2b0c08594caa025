"""The stage of device events: by their launches, and by what is around them in iterations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
import pytest

import deepprof
from deepprof.collectors.trace import Trace
from deepprof.metrics.annotation.event_stages import EVIDENCE, find_stages
from deepprof.metrics.annotation.stage_names import STAGES
from deepprof.metrics.contexts.tree import build_tree
from tests.metrics.contexts.test_slices import op
from tests.tables import Row, copy, event, launch, make_trace, span

NAMES = (
    "Memcpy HtoD",
    "flash_fwd_kernel",
    "ampere_sgemm_128x64_tn",
    "nll_loss_forward_reduce_cuda_kernel",
    "flash_bwd_kernel",
    "ampere_sgemm_128x64_nt",
    "multi_tensor_apply_kernel<AdamFunctor>",
    "ncclDevKernel_AllReduce_Sum_f32",
    "aten::linear",
    "forward",
    "elementwise_kernel",
)
COPY, FLASH, GEMM, LOSS, FLASH_BACK, GEMM_BACK, ADAM, NCCL, LINEAR, FORWARD, PLAIN = range(11)
ITERATION = [*[FLASH, GEMM] * 4, LOSS, *[FLASH_BACK, GEMM_BACK] * 4, ADAM, ADAM]
TRUTH = ["forward"] * 8 + ["loss"] + ["backward"] * 8 + ["optimizer"] * 2
INFERENCE = [PLAIN, *[FLASH, GEMM, GEMM] * 5, PLAIN, PLAIN, COPY]
US = 1_000


def play(iterations: Sequence[Sequence[int]], **more: object) -> list[Row]:
    """Return the kernels of iterations, one after the other, with a pause before each iteration."""
    rows, at = [], 0
    for kernels in iterations:
        at += 50 * US
        for name in kernels:
            rows.append(event(name, at, at + 8 * US) | more)
            at += 10 * US
    return rows


def told(trace: Trace, *, code: bool = False) -> list[tuple[str | None, str]]:
    """Return the stage of every event, and how it is available."""
    loops = deepprof.analyze(trace).loops
    found = find_stages(trace, loops, build_tree(trace) if code else None)
    stages = [STAGES[each] if each >= 0 else None for each in found.stage.tolist()]
    return list(zip(stages, (EVIDENCE[each] for each in found.evidence.tolist()), strict=True))


def test_kernels_alone_tell_the_stages_of_iterations() -> None:
    found = told(make_trace(play([ITERATION] * 8), names=NAMES))
    whole = [stage for stage, _ in found]
    assert whole[19:-19] == TRUTH * 6
    assert {evidence for _, evidence in found[19:-19]} == {"kernels"}


def test_a_collective_is_communication_and_parts_no_pass() -> None:
    with_nccl = [*ITERATION[:11], NCCL, *ITERATION[11:]]
    found = told(make_trace(play([with_nccl] * 8), names=NAMES))
    assert [stage for stage, _ in found[20:40]] == [*TRUTH[:11], "communication", *TRUTH[11:]]
    assert found[31] == ("communication", "recorded")


def test_work_of_other_streams_is_part_of_what_the_main_one_does() -> None:
    rows = play([ITERATION] * 8)
    aside = [
        copy(int(str(row["start_ns"])) + US, int(str(row["start_ns"])) + 2 * US, 64, "DtoD", stream=9)
        for row in rows
        if row["name_id"] == GEMM_BACK
    ]
    trace = make_trace([*rows, *aside], names=NAMES)
    found = told(trace)
    mine = (trace.device_events["stream"] == 9).to_list()
    inside = [stage for (stage, _), beside in zip(found, mine, strict=True) if beside][4:-4]
    assert inside == ["backward"] * 24


def test_without_anything_that_goes_backward_kernels_are_of_no_stage() -> None:
    found = told(make_trace(play([INFERENCE] * 8), names=NAMES))
    assert set(found) == {(None, "nothing")}


def launched(kernels: Sequence[Row], *, thread: int = 1) -> tuple[list[Row], list[Row]]:
    """Return kernels with a launch call each, long before they run, and an operator around each call."""
    device, host = [], []
    for number, row in enumerate(kernels, 1):
        at = number * US
        device.append(row | {"correlation": number})
        host += [
            launch(number, at + 200, at + 300, PLAIN) | {"thread": thread},
            op(thread, at + 100, at + 400, LINEAR),
        ]
    return device, host


def test_operators_of_a_program_that_never_goes_backward_are_its_forward_pass() -> None:
    device, host = launched(play([INFERENCE] * 8))
    found = told(make_trace(device, host, names=NAMES), code=True)
    assert {each for each in found if each[1] != "nothing"} == {("forward", "between")}
    assert sum(stage == "forward" for stage, _ in found) >= 7 * len(INFERENCE)


def test_a_kernel_belongs_to_the_range_that_launched_it_however_late_it_runs() -> None:
    device, host = launched(play([[PLAIN] * 6] * 8))
    ranges = [span(FORWARD, 1 * US, (6 * 8 + 1) * US)]
    found = told(make_trace(device, host, ranges, names=NAMES), code=True)
    assert set(found) == {("forward", "recorded")}


def test_a_backward_pass_that_another_thread_launches_outside_of_ranges_is_told_by_its_kernels() -> None:
    """As Nsight Systems records PyTorch: ranges of the main thread, no operators."""
    kernels = play([ITERATION] * 8)
    device, host, ranges = [], [], []
    for number, row in enumerate(kernels, 1):
        at, inside = number * US, number % len(ITERATION) in range(1, 9)
        device.append(row | {"correlation": number})
        host.append(launch(number, at + 200, at + 300, PLAIN) | {"thread": 1 if inside else 2})
        ranges += [span(FORWARD, at + 100, at + 400)] if inside else []
    found = told(make_trace(device, host, ranges, names=NAMES), code=True)[19:-19]
    assert [stage for stage, _ in found] == TRUTH * 6
    assert {evidence for stage, evidence in found if stage == "forward"} == {"recorded"}
    assert {evidence for stage, evidence in found if stage == "backward"} == {"kernels"}


def test_evaluations_between_trainings_are_told_from_forward_passes() -> None:
    validation = ITERATION[:8]
    iterations = [ITERATION, ITERATION, ITERATION, [*ITERATION, *validation, *validation]] * 4
    found = [stage for stage, _ in told(make_trace(play(iterations), names=NAMES))]
    inner = found[92 : 3 * 92]  # the second and the third group of four
    assert inner == (TRUTH * 4 + ["evaluation"] * 16) * 2


@pytest.mark.parametrize("events", [0, 1])
def test_nothing_and_one_event(events: int) -> None:
    trace = make_trace(play([[PLAIN] * events]), names=NAMES)
    assert told(trace) == [(None, "nothing")] * events
    assert np.array(told(trace, code=True)).size == 2 * events


@pytest.mark.parametrize("activity", ["graph", "kernel"])
def test_short_iterations_are_no_evaluations_and_graphs_of_no_stage_by_themselves(activity: str) -> None:
    rows = [
        row | ({"activity": activity} if row["name_id"] == PLAIN else {}) for row in play([[PLAIN, ADAM, ADAM]] * 20)
    ]
    found = told(make_trace(rows, names=NAMES))[3:-3]
    assert {stage for stage, _ in found} == ({None, "optimizer"} if activity == "graph" else {"optimizer"})


def test_the_names_of_stages_are_in_the_order_of_an_iteration() -> None:
    assert list(STAGES)[:5] == ["data loading", "forward", "loss", "backward", "optimizer"]
    assert pl.Series(["optimizer", "forward"], dtype=pl.Enum(STAGES)).sort().to_list() == ["forward", "optimizer"]
