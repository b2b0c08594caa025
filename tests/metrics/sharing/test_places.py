"""Which ranks share a device: proof, or the user's word, and never a number alone."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from deepprof.collectors.errors import UsageError
from deepprof.collectors.trace import Process
from deepprof.metrics.cpu_fallback import stand_ins
from deepprof.metrics.sharing.shared_places import RankDevices, find_shared, list_devices, read_shared
from tests.tables import copy, event, launch, make_trace


def rank(number: int, *devices: tuple[int, str | None], clock: str | None = "unix") -> RankDevices:
    return RankDevices(number, devices, clock)


def test_one_number_on_two_ranks_is_no_shared_device() -> None:
    """As the ranks of a job on several hosts, or of one with CUDA_VISIBLE_DEVICES, all use device 0."""
    assert find_shared([rank(0, (0, None)), rank(1, (0, None))]) == ()
    assert find_shared([rank(0, (0, "GPU-a")), rank(1, (0, "GPU-b"))]) == ()
    assert find_shared([rank(0, (0, "GPU-a")), rank(1, (0, None))]) == ()
    assert find_shared([rank(0, (0, "GPU-a"), (1, "GPU-a"))]) == ()  # one process


def test_one_identity_is_one_device_whatever_its_numbers() -> None:
    (found,) = find_shared([rank(0, (0, "GPU-a"), (1, "GPU-b")), rank(1, (0, "GPU-b")), rank(2, (0, "GPU-c"))])
    assert (found.identity, found.places) == ("GPU-b", ((0, 1), (1, 0)))


def test_times_that_cannot_be_compared_show_nothing() -> None:
    a, b = rank(0, (0, "GPU-a"), clock="a.sqlite"), rank(1, (0, "GPU-a"), clock="b.sqlite")
    assert find_shared([a, b]) == ()
    assert find_shared([a, replace(b, clock=None)]) == ()
    assert find_shared([replace(a, clock=None), replace(b, clock=None)]) == ()
    assert len(find_shared([a, replace(b, clock="a.sqlite")])) == 1


def test_the_users_word_makes_only_devices_one_and_of_several_those_of_one_number() -> None:
    (found,) = find_shared([rank(0, (0, None)), rank(1, (3, "GPU-b")), rank(2)], same_device=True)
    assert (found.identity, found.places) == (None, ((0, 0), (1, 3)))
    (found,) = find_shared([rank(0, (0, None), (1, None)), rank(1, (1, None))], same_device=True)
    assert found.places == ((0, 1), (1, 1))


@pytest.mark.parametrize(
    ("ranks", "words"),
    [
        ([], "two processes"),
        ([rank(0, (0, None))], "two processes"),
        ([rank(0, (0, None)), rank(1)], "two processes"),
        ([rank(0, (0, None), clock=None), rank(1, (0, None), clock=None)], "clocks"),
        ([rank(0, (0, None)), rank(1, (0, None), clock="a.sqlite")], "clocks"),
    ],
)
def test_a_word_that_cannot_be_is_refused(ranks: list[RankDevices], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        find_shared(ranks, same_device=True)


def test_a_trace_says_which_devices_it_uses() -> None:
    work = [event(0, 1, 2), event(0, 3, 4, device=2), event(0, 5, 6, device=3, activity="sync")]
    trace = replace(make_trace(work, rank=5), processes=(Process(7, devices=((0, "GPU-a"), (9, "GPU-z"))),))
    assert list_devices(trace) == rank(5, (0, "GPU-a"), (2, None))
    assert list_devices(replace(trace, clock="session", path="x:7")).clock == "x"
    assert list_devices(replace(trace, clock="session", path="x")).clock is None


def test_operators_that_stand_for_kernels_are_on_no_device() -> None:
    operators = [launch(i, 10 * i, 10 * i + 5, name=0) | {"category": "op"} for i in range(30)]
    (trace,) = stand_ins([make_trace([], operators, names=["aten::add"])])
    assert trace.device_events.height
    assert list_devices(trace).devices == ()


def test_work_is_read_as_kernels_and_copies_of_the_link() -> None:
    rows = [
        event(0, 0, 10),
        event(0, 5, 20, activity="memset"),
        copy(30, 40, 8, "DtoD"),
        copy(50, 60, 8),
        copy(55, 70, 8, "DtoH"),
        event(0, 80, 90, activity="sync"),
        event(0, 0, 99, device=1),
    ]
    traces = [make_trace(rows, rank=0), make_trace(rows[:1], rank=1)]
    shared = find_shared([list_devices(replace(t, processes=(Process(1, devices=((0, "a"),)),))) for t in traces])
    ((first, second),) = (each.works for each in read_shared(shared, traces))
    assert list(zip(first.kernels.starts, first.kernels.ends, strict=True)) == [(0, 20), (30, 40)]
    assert list(zip(first.copies.starts, first.copies.ends, strict=True)) == [(50, 70)]
    assert (second.rank, second.device, second.busy.total_ns) == (1, 0, 10)
