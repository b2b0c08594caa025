"""Which phase of the iteration a collective belongs to, and what it is."""

from __future__ import annotations

import polars as pl
import pytest
from msgspec.structs import replace

from deepprof.collectors.trace import COLLECTIVES, Trace
from deepprof.metrics.memory.parallelism import EXCHANGES, read_exchanges
from tests.tables import Row, event, launch, make_trace, span, table

NODE = "autograd::engine::evaluate_function: AddmmBackward0"
ADDING = "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"
KERNEL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
NAMES = ("cudaLaunchKernel", NODE, ADDING, "Optimizer.step#AdamW.step", KERNEL, "ncclDevKernel_SendRecv(ncclArgs)")
CALL, BACKWARD, GRADIENT, UPDATE, ALL_REDUCE, SEND_RECV = range(len(NAMES))


def op(name: int, start: int, end: int) -> Row:
    return {"start_ns": start, "end_ns": end, "process": 1, "thread": 2, "category": "op", "name_id": name}


def make(asked: list[int], said: list[str | None], *, trained: bool = True, stepped: bool = True) -> Trace:
    """Return two iterations, of 100 ns each: forward to 40, backward to 80, where gradients are added up from 60 on.

    A collective is requested at each of the times, and runs 1,000 ns later. `said` is what the recording states of it.
    """
    device = [
        event(ALL_REDUCE if what else SEND_RECV, t + 1000, t + 1001, correlation=t)
        for t, what in zip(asked, said, strict=True)
    ]
    host = [launch(t, t, t + 1, CALL) for t in asked]
    for at in (0, 100):
        host += [op(BACKWARD, at + 40, at + 60), op(GRADIENT, at + 60, at + 80)] if trained else []
    ranges = [span(UPDATE, at + 90, at + 95) for at in (0, 100)] if stepped else []
    trace = make_trace(device, host, ranges, names=NAMES)
    rows: list[Row] = [
        {"event": k, "collective": what, "in_elements": 8, "out_elements": 16} for k, what in enumerate(said) if what
    ]
    return replace(trace, collectives=table(rows, COLLECTIVES))


def phases(trace: Trace) -> list[str]:
    return read_exchanges(trace)["phase"].to_list()


def test_a_collective_is_of_the_phase_in_which_the_host_asks_for_it() -> None:
    asked = [10, 45, 60, 79, 85, 92, 97, 139, 199]
    found = read_exchanges(make(asked, ["allreduce"] * len(asked)))
    assert found["time_ns"].to_list() == asked
    assert found["phase"].to_list() == [
        *("forward", "backward", "gradient", "gradient", "update", "update", "forward", "forward", "unknown")
    ]
    assert found["elements"].to_list() == [16] * len(asked)


def test_without_steps_of_an_optimizer_nobody_knows_what_follows_the_backward_pass() -> None:
    assert phases(make([10, 45, 85], ["allreduce"] * 3, stepped=False)) == ["unknown", "backward", "unknown"]


def test_without_training_all_is_forward() -> None:
    assert phases(make([10, 85], ["allreduce"] * 2, trained=False, stepped=False)) == ["forward", "forward"]


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("allreduce", "all-reduce"),
        ("allreduce_coalesced", "all-reduce"),
        ("_allgather_base", "all-gather"),
        ("all_gather", "all-gather"),
        ("_reduce_scatter_base", "reduce-scatter"),
        ("reduce_scatter_tensor_coalesced", "reduce-scatter"),
        ("all_to_allv", "all-to-all"),
        ("broadcast", "broadcast"),
        ("send", "send"),
        ("recv", "receive"),
        ("barrier", "other"),
        (None, "other"),
    ],
)
def test_what_the_recording_says_of_a_kernel(said: str | None, kind: str) -> None:
    assert read_exchanges(make([10], [said]))["kind"].to_list() == [kind]


def test_the_name_of_a_kernel_tells_where_nothing_else_does() -> None:
    assert read_exchanges(make_trace([event(0, 5, 6)], names=[KERNEL])).row(0) == (5, "all-reduce", "forward", None)


def test_nothing_exchanged() -> None:
    assert read_exchanges(make_trace()).schema == pl.Schema(EXCHANGES)
    assert read_exchanges(make_trace([event(0, 1, 2)], names=["sgemm"])).height == 0
