from __future__ import annotations

import pytest

from deepprof.metrics.streams import classify_streams
from tests.tables import Row, copy, event, make_trace

NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)"


def roles(
    rows: list[Row], chosen: tuple[int, int] | None = None, names: tuple[str, ...] = ()
) -> dict[tuple[int, int], str]:
    table = classify_streams(make_trace(rows, names=names), chosen)
    return {(d, s): str(r) for d, s, r in table.select("device", "stream", "role").rows()}


def test_main_computes_most_and_the_others_are_copy_communication_and_assist() -> None:
    rows = [event(1, t, t + 5) for t in range(0, 100, 10)]
    rows += [copy(0, 9, 100, stream=20), event(0, 10, 99, stream=40), event(2, 3, 4, stream=50)]
    expected = {(0, 7): "main", (0, 20): "copy", (0, 40): "communication", (0, 50): "assist"}
    assert roles(rows, names=(NCCL,)) == expected


def test_collectives_never_make_a_stream_main() -> None:
    rows = [event(0, t, t + 9, stream=40) for t in range(0, 100, 10)] + [event(1, 0, 1)]
    assert roles(rows, names=(NCCL,)) == {(0, 7): "main", (0, 40): "communication"}


def test_every_device_has_its_own_main_stream() -> None:
    rows = [
        event(1, 0, 1),
        event(1, 2, 3, device=1, stream=9),
        event(1, 3, 4, device=1, stream=8),
        event(1, 4, 5, device=1, stream=8),
    ]
    assert roles(rows) == {(0, 7): "main", (1, 8): "main", (1, 9): "assist"}


def test_the_user_may_name_the_main_stream() -> None:
    rows = [event(1, 0, 1), event(1, 1, 2), event(1, 2, 3, stream=9)]
    assert roles(rows, chosen=(0, 9)) == {(0, 7): "assist", (0, 9): "main"}


def test_few_long_kernels_compute_more_than_many_short_ones() -> None:
    rows = [event(1, t, t + 1, stream=3) for t in range(40)] + [event(1, 0, 20), event(1, 50, 71)]
    assert roles(rows) == {(0, 3): "assist", (0, 7): "main"}


def test_a_tie_goes_to_the_stream_with_more_kernels() -> None:
    assert roles([event(1, 0, 2), event(1, 0, 1, stream=9), event(1, 1, 2, stream=9)])[0, 9] == "main"


def test_busy_time_is_a_union() -> None:
    rows = [event(1, 0, 10), event(1, 5, 20), event(1, 6, 8), event(1, 30, 31)]
    assert classify_streams(make_trace(rows))["busy_ns"].to_list() == [21]


@pytest.mark.parametrize("rows", [[], [event(1, 0, 1, activity="sync")]])
def test_nothing_that_runs_means_no_stream(rows: list[Row]) -> None:
    assert roles(rows) == {}


def test_copies_alone_make_no_main_stream() -> None:
    assert roles([copy(0, 5, 10)]) == {(0, 7): "copy"}


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        ("all-gather-start.4", True),
        ("reduce-scatter.60", True),
        ("all-reduce", True),
        ("all-to-all.3", True),
        ("collective-permute-done.1", True),
        ("all-reduce-scatter-fusion", False),
        ("fusion.12", False),
        ("ncclDevKernel_AllGather_RING_LL", True),
        ("reduce_kernel", False),
    ],
)
def test_collectives_have_the_names_of_nccl_and_of_xla(name: str, is_one: bool) -> None:
    rows = [event(0, 0, 90, stream=40), event(1, 0, 10)]
    table = classify_streams(make_trace(rows, names=(name,)))
    assert table.filter(stream=40)["collectives"].item() == int(is_one)
