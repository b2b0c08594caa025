"""Device numbers, streams and correlations of AMD traces, and the words of their recorders."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepprof.collectors.importers.amd import words
from deepprof.collectors.importers.amd.places import RocmProcessor, choose_streams, number_agents, scope_correlations
from deepprof.collectors.importers.amd.rocprof_trace import ALLOCATION, DEVICE, signed_sizes


def rows(*places: tuple[int | None, int | None], activity: str = "kernel") -> pl.DataFrame:
    """Rows on (queue, stream)."""
    columns = {"queue": [q for q, _ in places], "stream_id": [s for _, s in places]}
    frame = pl.DataFrame(
        {**columns, "activity": [activity] * len(places)},
        {"queue": pl.Int64, "stream_id": pl.Int64, "activity": pl.String},
    )
    return frame.with_columns(process=pl.lit(0, pl.Int64), device=pl.lit(0, pl.Int64))


def streams(*places: tuple[int | None, int | None], activity: str = "kernel") -> list[int]:
    return choose_streams(rows(*places, activity=activity))["stream"].to_list()


def test_a_stream_over_several_queues_stays_one():
    assert streams((1, 5), (2, 5), (1, 6)) == [5, 5, 6]


def test_queues_serve_where_a_kernel_has_no_stream():
    assert streams((1, 5), (2, None)) == [1, 2]


def test_queues_serve_where_all_is_stream_0_and_queues_differ():
    assert streams((1, 0), (2, 0)) == [1, 2]
    assert streams((1, 0), (1, 0)) == [0, 0]


def test_queues_serve_where_hundreds_of_streams_hold_hardly_a_kernel_each():
    made = [(at % 4, at) for at in range(200)]
    assert streams(*made, *[(0, 999)] * 50) == [at % 4 for at in range(200)] + [0] * 50
    assert streams(*made, *[(0, 999)] * 300)[-1] == 999  # a few strays next to a main stream do no harm


def test_streams_serve_where_there_are_no_queues():
    assert streams((None, 4), (None, 7), activity="memcpy") == [4, 7]
    assert streams((None, None)) == [-1]


def test_a_row_without_a_stream_takes_the_one_its_queue_serves():
    frame = pl.concat([rows((1, 5), (2, 6), (2, 7)), rows((1, None), (2, None), (None, None), activity="memcpy")])
    assert choose_streams(frame)["stream"].to_list() == [5, 6, 7, 5, -1, -1]


@given(st.lists(st.tuples(st.none() | st.integers(0, 3), st.none() | st.integers(0, 60)), max_size=150))
def test_streams_are_always_one_column_or_the_other(places):
    found = streams(*places)
    assert len(found) == len(places)
    by_queue = [-1 if queue is None else queue for queue, _ in places]
    kept = [stream == got for (_, stream), got in zip(places, found, strict=True) if stream is not None]
    assert found == by_queue or all(kept)


def agent(key: str, number: int | None, gpu: bool = True) -> RocmProcessor:
    return RocmProcessor(key=key, number=number, gpu=gpu)


@pytest.mark.parametrize(
    ("agents", "used", "expected"),
    [
        ([], ["10", "9"], {"9": 0, "10": 1}),
        ([agent("a", 6), agent("b", 7)], ["b", "x"], {"a": 6, "b": 7, "x": 0}),
        ([agent("a", 0), agent("b", 0)], [], {"a": 0, "b": 1}),
        ([agent("a", None), agent("b", 5)], [], {"a": 0, "b": 1}),
        ([agent("c", 0, gpu=False), agent("a", 0)], ["a"], {"a": 0}),
        ([agent("a", -1)], [], {"a": 0}),
    ],
)
def test_devices_are_numbered_as_the_recorder_does_or_in_order(agents, used, expected):
    assert number_agents(agents, used) == expected


@given(
    st.lists(st.tuples(st.text("ab", max_size=2), st.none() | st.integers(-2, 3))), st.lists(st.text("bc", max_size=2))
)
def test_no_two_devices_have_one_number(listed, used):
    numbers = number_agents([agent(key, number) for key, number in listed], used)
    assert len(set(numbers.values())) == len(numbers) == len({key for key, _ in listed} | set(used))


def test_correlations_of_one_process_stay_and_those_of_others_move():
    one = pl.DataFrame({"process": [0, 0], "correlation": [1, 0]})
    assert scope_correlations(one)["correlation"].to_list() == [1, 0]
    two = pl.DataFrame({"process": [0, 1, 1, 1], "correlation": [1, 1, 0, None]})
    assert scope_correlations(two)["correlation"].to_list() == [1, 2**40 + 1, None, None]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        *(("CopyHostToDevice", "HtoD"), ("MEMORY_COPY_DEVICE_TO_HOST", "DtoH"), ("DEVICE_TO_DEVICE", "DtoD")),
        *(("hipMemcpyHtoH", "HtoH"), ("CopyDeviceToHost2D", "DtoH"), ("D2D", "DtoD"), ("PEER_TO_PEER", "PtoP")),
        *(("", None), (None, None), ("MEMORY_COPY_NONE", None), ("Copy", None)),
    ],
)
def test_directions_are_told_from_every_spelling(text, kind):
    assert words.copy_kind_of(text) == kind


def test_kernel_names_lose_what_the_code_object_appends():
    names = pl.DataFrame({"name": ["a.kd", "f(int) [clone .kd]", "x.kdy", " ", "", None, "g<.kd>"]})
    found = names.select(words.kernel_label(pl.col("name")))["name"].to_list()
    assert found == ["a", "f(int)", "x.kdy", None, None, None, "g<.kd>"]


def test_frees_take_the_size_and_the_device_of_what_was_allocated():
    steps = [
        (1, "A", 8, 10, False),
        (5, None, 8, 0, True),
        (6, "B", 8, 7, False),
        (7, None, 8, 0, True),
        (8, None, 9, 0, True),
    ]
    frame = pl.DataFrame(
        [
            {"time_ns": t, "process": 0, "agent": a, "address": at, "nbytes": n, "freed": f}
            for t, a, at, n, f in reversed(steps)
        ]
    )
    columns = [pl.lit(None, kind).alias(name) for name, kind in ALLOCATION.items() if name not in frame.columns]
    found = signed_sizes(frame.with_columns(columns).select(list(ALLOCATION)).cast(dict(ALLOCATION)))
    assert found.select("time_ns", "agent", "nbytes").rows() == [
        (8, None, 0),
        (7, "B", -7),
        (6, "B", 7),
        (5, "A", -10),
        (1, "A", 10),
    ]


def test_a_schema_names_every_column_once():
    assert len(DEVICE) == len(set(DEVICE))
