"""Numbers of ranks: what the trace states, then what the file is called, then the next free one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepprof.job.ranks import assign_ranks, rank_in_name


@pytest.mark.parametrize(
    ("path", "rank"),
    [
        ("rank-3", 3),
        ("run/rank3.json.gz", 3),
        ("profile_trace_rank_0.json.gz", 0),
        ("worker0.pt.trace.json.gz", 0),
        ("worker12.1623143089861.pt.trace.json.gz", 12),
        ("sampled_rank-1.json.gz", 1),
        ("rank-34.Jul_15_10_52_41.1074.pt.trace.json.gz", 34),
        ("job.deepprof/rank=7", 7),
        ("RANK_5.sqlite", 5),
        ("rank7/trace.json", 7),
        ("job.tar.gz:ranks/rank2.json", 2),
        ("rank1/rank2.json", 2),
        ("frank3.json", None),
        ("ranks.json", None),
        ("trace.json", None),
        ("rank7/deeper/trace.json", None),
        ("rank12345678901.json", None),
        ("", None),
    ],
)
def test_the_rank_in_a_name(path, rank):
    assert rank_in_name(path) == rank


def numbers(*traces):
    return [found.rank for found in assign_ranks(traces)]


def test_what_the_trace_says_comes_first():
    assert numbers((5, "rank0.json"), (4, "rank1.json")) == [5, 4]
    assert not any(found.note for found in assign_ranks([(5, "rank0.json"), (None, "rank1.json")]))


def test_names_are_believed_when_they_are_distinct():
    assert numbers((None, "rank3.json"), (None, "rank1.json")) == [3, 1]
    assert numbers((None, "rank3.json"), (None, "other.json"), (0, "x")) == [3, 1, 0]


def test_names_that_clash_are_not_believed():
    assert numbers((None, "worker3.111.json"), (None, "worker3.222.json")) == [0, 1]
    assert numbers((3, "x"), (None, "rank3.json")) == [3, 0]
    assert "worker3.111.json names no rank" in str(
        assign_ranks([(None, "worker3.111.json"), (None, "worker3.2")])[0].note
    )


def test_one_file_alone_is_rank_0_whatever_it_is_called():
    (found,) = assign_ranks([(None, "rank7.json")])
    assert (found.rank, found.note) == (0, None)


def test_names_count_where_all_traces_state_one_rank():
    files = [(0, f"rank{rank}.json") for rank in (0, 1, 10, 2)]
    found = assign_ranks(files)
    assert [number.rank for number in found] == [0, 1, 10, 2]
    assert [bool(number.note) for number in found] == [True, False, False, False]
    assert str(found[0].note).startswith("each of 4 traces names rank 0;")
    assert numbers((0, "rank1.json"), (0, "rank1.json")) == [0, 1]  # names that clash
    assert numbers((0, "rank1.json"), (0, "other.json")) == [0, 1]  # a name that does not show
    assert numbers((0, "rank1.json"), (1, "rank0.json")) == [0, 1]  # traces that know


PATHS = st.sampled_from(["rank0.json", "rank1.json", "worker1", "x", "rank9/y"])


@given(st.lists(st.tuples(st.none() | st.integers(0, 4), PATHS), max_size=8))
def test_every_trace_gets_a_number_of_its_own_and_keeps_its_own_where_it_can(traces):
    found = assign_ranks(traces)
    ranks = [number.rank for number in found]
    assert len(set(ranks)) == len(traces)
    stated = [rank for rank, _ in traces if rank is not None]
    if len(set(stated)) != 1:  # else the names may decide
        assert set(stated) <= set(ranks)
    for (rank, _), number in zip(traces, found, strict=True):
        if rank is not None and stated.count(rank) == 1:
            assert (number.rank, number.note) == (rank, None)
