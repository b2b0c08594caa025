"""A process's calling contexts as tables of a rank: paths, windows on the Unix clock, and time on devices joined."""

from __future__ import annotations

from collections import Counter

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepprof.collectors.context_nodes import MOST_DEPTH, find_fault, hash_context
from deepprof.collectors.live.packets import RANGE, Kind, Reason
from deepprof.live.agent import context_backlog, device_times, process_contexts
from deepprof.live.agent.device_times import PATIENCE_NS, ContextDeviceTimes
from deepprof.live.agent.hello import ProtocolError
from deepprof.live.agent.process_decoder import ProcessDecoder
from deepprof.v1 import records_pb2 as pb
from tests.deepprof.live.agent import packets_made as made
from tests.deepprof.live.agent.test_accounting import Numbers, Rank, describe
from tests.deepprof.live.agent.test_process import SECOND, UNIX, Listener, make, say

NOW = 1000 * SECOND
NAMES = ["train.py(1): main", "train.py(9): step", "aten::mm"]
TREE = [(0, 1, 3, 0), (1, 2, 12, 0), (2, 3, 0, 1)]  # main → step → aten::mm


def begin(**more: object) -> tuple[ProcessDecoder, Listener]:
    """A process that has told its clock, names and contexts."""
    process, rank = make()
    say(process, (Kind.TICK, made.tick(NOW, offset_ns=UNIX, **more)))  # type: ignore[arg-type]
    say(process, (Kind.NAMES, made.names(NAMES)), (Kind.CONTEXTS, made.contexts(TREE)))
    return process, rank


def sums_of(rank: Listener) -> pl.DataFrame:
    """All sums that a rank has, with the name of every context; every batch is its own tree."""
    found = []
    for tables in rank.contexts:
        assert find_fault(tables["context_nodes"], tables["context_sums"]) == ""
        names = pl.Series("name", rank.rank_names.texts)[tables["context_nodes"]["name_id"]]
        named = tables["context_nodes"].select("context").with_columns(name=names)
        found.append(tables["context_sums"].join(named, on="context", how="left", maintain_order="left"))
    return pl.concat(found)


def test_windows_come_with_their_paths_on_the_unix_clock() -> None:
    process, rank = begin(device=False)
    say(process, (Kind.CONTEXT_SUMS, made.sums(0, made.window(NOW, {3: (7, 500), 1: (1, 900)}))))
    say(process, (Kind.TICK, made.tick(NOW + SECOND // 2, device=False, offset_ns=UNIX, next=2)))
    assert rank.contexts == []  # the window is not over
    say(process, (Kind.TICK, made.tick(NOW + 2 * SECOND, device=False, offset_ns=UNIX, next=2)))
    rows = sums_of(rank)
    assert rows.select("time_ns", "window_ns", "name", "count", "host_ns", "device_count", "device_ns").rows() == [
        (NOW + UNIX, SECOND, "aten::mm", 7, 500, 0, 0),
        (NOW + UNIX, SECOND, "train.py(1): main", 1, 900, 0, 0),
    ]
    main = hash_context(0, 0, NAMES[0], 3)
    step = hash_context(main, 0, NAMES[1], 12)
    nodes = rank.contexts[0]["context_nodes"]
    found = dict(zip(nodes["context"], nodes["parent"], strict=True))
    assert found == {main: 0, step: main, hash_context(step, 1, NAMES[2], 0): step}
    assert rank.source[-1] == 2


def test_time_on_the_device_is_that_of_the_context_that_launched() -> None:
    process, rank = begin()
    rows = made.kernels([NOW + 100, NOW + 2000, NOW + 4000], 700)  # correlations 0, 1 and 2
    say(process, (Kind.LAUNCHES, made.launches({0: 3, 2: 3})), (Kind.EVENTS, made.events(0, rows)))
    say(process, (Kind.LAUNCHES, made.launches({1: 2})))
    say(process, (Kind.CONTEXT_SUMS, made.sums(3, made.window(NOW, {3: (2, 50), 2: (1, 60)}), kernel=3)))
    say(process, (Kind.END, made.end(5, kernel=3, context=2)))
    found = sums_of(rank).select("name", "device_count", "device_ns").rows()
    assert found == [("aten::mm", 2, 1400), ("train.py(9): step", 1, 700)]
    assert process.account.made == Counter(kernel=3, context=2)
    assert process.account.given == process.account.made
    assert rank.flagged == {}


def test_time_that_comes_after_its_window_is_in_the_next_one() -> None:
    process, rank = begin(device=True)
    say(process, (Kind.LAUNCHES, made.launches({0: 3})))
    say(process, (Kind.CONTEXT_SUMS, made.sums(0, made.window(NOW, {3: (1, 50)}))))
    for second in range(2, 16):
        say(process, (Kind.TICK, made.tick(NOW + second * SECOND, offset_ns=UNIX, next=1, events_until_ns=NOW)))
    assert sums_of(rank)["device_ns"].to_list() == [0]  # it was waited for, but not for ever
    later = NOW + 16 * SECOND
    say(process, (Kind.LAUNCHES, made.launches({0: 3})))  # the same again, else it would be too old
    say(process, (Kind.EVENTS, made.events(1, made.kernels([later], 700), context=1)))
    say(process, (Kind.CONTEXT_SUMS, made.sums(2, made.window(later, {3: (1, 50)}), kernel=1, context=1)))
    say(process, (Kind.END, made.end(3, kernel=1, context=2)))
    assert sums_of(rank)["device_ns"].to_list() == [0, 700]


def test_events_that_join_nothing_are_counted() -> None:
    process, rank = begin()
    say(process, (Kind.LAUNCHES, made.launches({0: 3, 2: 2})))
    say(process, (Kind.EVENTS, made.events(0, made.kernels([NOW, NOW, NOW]))))  # of 1 no launch is told
    say(process, (Kind.CONTEXT_SUMS, made.sums(3, made.window(NOW, {3: (1, 50)}), kernel=3)))  # of 2 no sum
    say(process, (Kind.END, made.end(4, kernel=3, context=1)))
    assert rank.flagged == {"no-context": 2}


def test_a_process_without_contexts_joins_nothing() -> None:
    process, rank = make()
    say(process, (Kind.TICK, made.tick(NOW)), (Kind.EVENTS, made.events(0, made.kernels([NOW - 1000]))))
    say(process, (Kind.END, made.end(1, kernel=1)))
    assert (rank.said, rank.flagged) == ([("records", 1), ("end", {})], {})


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("context", 0, "unknown-context"),
        ("context", 4, "unknown-context"),
        ("host_ns", -1, "invalid-sum"),
        ("host_ns", 2**62, "invalid-sum"),
        ("count", 2**63, "invalid-sum"),
        ("end_ns", NOW - 1, "invalid-time"),
        ("start_ns", -(2**63), "invalid-time"),
        ("end_ns", 2**62, "invalid-time"),
    ],
)
@pytest.mark.parametrize("early", [True, False])  # the clock comes later
def test_sums_that_cannot_be_are_left_out(field: str, value: int, reason: str, *, early: bool) -> None:
    process, rank = make() if early else begin()
    say(process, *[(Kind.NAMES, made.names(NAMES)), (Kind.CONTEXTS, made.contexts(TREE))][: 2 * early])
    rows = made.window(NOW, {3: (1, 50), 2: (1, 60)})
    rows[field][0] = value
    say(process, (Kind.CONTEXT_SUMS, made.sums(0, rows)), (Kind.TICK, made.tick(NOW)), (Kind.END, made.end(2)))
    assert rank.said == [("records", 1), ("end", {reason: 1})]
    assert process.account.missing == {reason: Counter(context=1)}


def test_sums_without_a_clock_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deepprof.live.agent.process_decoder.MOST_SUMS", 10)
    process, rank = make()
    say(process, (Kind.NAMES, made.names(NAMES)), (Kind.CONTEXTS, made.contexts(TREE)))
    for number in range(20):
        say(process, (Kind.CONTEXT_SUMS, made.sums(number, made.window(NOW, {3: (1, 50)}))))
        assert process.contexts.held <= 10
    process.end()
    assert rank.said == [("end", {"no-clock": 20})]


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        (made.contexts(TREE, first=2), "numbered wrongly"),
        (made.contexts([(1, 1, 0, 0)]), "numbered wrongly"),  # its own parent
        (made.contexts([(2, 1, 0, 0), (0, 1, 0, 0)]), "numbered wrongly"),  # after its child
        (made.contexts([(0, 4, 0, 0)]), "a kind or a name"),
        (made.contexts([(0, 1, 0, 3)]), "a kind or a name"),
        (made.contexts(TREE)[:-1], "cut"),
        (made.contexts([(0, 1, 0, 0)] * 9), "too many"),
    ],
)
def test_trees_that_cannot_be_end_the_process(monkeypatch: pytest.MonkeyPatch, payload: bytes, words: str) -> None:
    monkeypatch.setattr(process_contexts, "MOST_CONTEXTS", 8)
    process, _ = make()
    say(process, (Kind.NAMES, made.names(NAMES)))
    with pytest.raises(ProtocolError, match=words):
        say(process, (Kind.CONTEXTS, payload))


def test_launches_that_are_cut_end_the_process() -> None:
    process, _ = begin()
    with pytest.raises(ProtocolError, match="cut"):
        say(process, (Kind.LAUNCHES, made.launches({1: 1})[:-1]))


def test_a_path_deeper_than_the_daemon_takes_is_left_out() -> None:
    process, rank = make()
    say(process, (Kind.NAMES, made.names(NAMES)), (Kind.TICK, made.tick(NOW)))
    say(process, (Kind.CONTEXTS, made.contexts([(number, 1, 0, 0) for number in range(MOST_DEPTH + 2)])))
    rows = made.window(NOW, {MOST_DEPTH: (1, 5), MOST_DEPTH + 1: (1, 5), MOST_DEPTH + 2: (1, 5)})
    say(process, (Kind.CONTEXT_SUMS, made.sums(0, rows)), (Kind.END, made.end(3)))
    assert rank.said == [("records", 1), ("end", {"too-deep": 2})]
    assert rank.contexts[0]["context_nodes"].height == MOST_DEPTH


def test_large_windows_are_cut_into_trees_that_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_contexts, "PIECE_ROWS", 12)
    process, rank = make()
    say(process, (Kind.NAMES, made.names(NAMES)), (Kind.TICK, made.tick(NOW)))
    say(process, (Kind.CONTEXTS, made.contexts([(number // 2, 1, number, 0) for number in range(60)])))
    window = made.window(NOW, {number: (number, 5) for number in range(1, 61)})
    say(process, (Kind.CONTEXT_SUMS, made.sums(0, window)), (Kind.END, made.end(60)))
    assert sums_of(rank)["count"].sum() == sum(range(1, 61))
    assert len(rank.contexts) > 5
    assert all(sum(rows.height for rows in tables.values()) <= 12 for tables in rank.contexts)
    assert rank.source == sorted(rank.source)
    assert rank.source[-1] == 60


def test_contexts_come_again_after_a_new_connection() -> None:
    process, rank = begin(device=False)
    say(process, (Kind.CONTEXT_SUMS, made.sums(0, made.window(NOW, {3: (1, 5)}))))
    process.reconnect(process.hello)
    say(process, (Kind.NAMES, made.names(NAMES[::-1])))
    say(process, (Kind.CONTEXTS, made.contexts([(0, 3, 3, 0), (1, 2, 12, 0), (2, 1, 0, 1)])))
    say(process, (Kind.CONTEXT_SUMS, made.sums(1, made.window(NOW + SECOND, {3: (1, 5)}), context=1)))
    say(process, (Kind.END, made.end(2, context=2)))
    assert sums_of(rank)["name"].to_list() == ["aten::mm"] * 2
    assert sums_of(rank)["context"].n_unique() == 1


def test_sums_that_wait_for_a_clock_are_counted_at_a_new_connection() -> None:
    """Their contexts are those of the former connection."""
    process, rank = make()
    say(process, (Kind.NAMES, made.names(NAMES)), (Kind.CONTEXTS, made.contexts(TREE)))
    say(process, (Kind.CONTEXT_SUMS, made.sums(0, made.window(NOW, {3: (1, 5)}))))
    process.reconnect(process.hello)
    process.end()
    assert rank.said == [("end", {"no-clock": 1})]


def test_equal_paths_under_two_ids_are_one_context() -> None:
    process, rank = begin(device=False)
    say(process, (Kind.CONTEXTS, made.contexts([(2, 3, 0, 1)], first=4)))
    say(process, (Kind.CONTEXT_SUMS, made.sums(0, made.window(NOW, {3: (1, 5), 4: (2, 6)}))))
    say(process, (Kind.END, made.end(2)))
    assert sums_of(rank)["count"].to_list() == [1, 2]
    assert rank.contexts[0]["context_nodes"].height == 3


STEPS = st.lists(
    st.tuples(st.sampled_from(["launch", "event", "join", "take"]), st.integers(0, 5), st.integers(1, 4)), max_size=40
)


@given(STEPS)
def test_each_event_joins_its_launch_once_in_any_order(steps: list[tuple[str, int, int]]) -> None:
    """Against the sum of all events by the launch that arrived: each correlation is launched once here."""
    times, contexts, lengths, taken = ContextDeviceTimes(), dict[int, int](), Counter[int](), Counter[int]()
    seen = Counter[int]()
    for what, correlation, number in steps:
        if what == "launch":
            context = contexts.setdefault(correlation, number)
            times.add_launches(np.array([(correlation, context)], device_times._KNOWN.descr[:2]), 0)
        elif what == "event":
            row = made.kernels([100], number)
            row["correlation"] = correlation
            times.add_events(row, 0)
            lengths[correlation] += number
            seen[correlation] += 1
        elif what == "join":
            times.join(0)
        else:
            _, found = times.take(np.arange(1, 5, dtype=np.uint32))
            taken.update(dict(zip(range(1, 5), found.tolist(), strict=True)))
    times.join(0)
    _, found = times.take(np.arange(1, 5, dtype=np.uint32))
    taken.update(dict(zip(range(1, 5), found.tolist(), strict=True)))
    wanted = Counter[int]()
    for correlation, length in lengths.items():
        if correlation in contexts:
            wanted[contexts[correlation]] += length
    assert +taken == +wanted
    assert times.finish(0) == sum(count for correlation, count in seen.items() if correlation not in contexts)


def test_what_waits_to_be_joined_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_times, "MOST_LAUNCHES", 100)
    monkeypatch.setattr(device_times, "MOST_EVENTS", 100)
    times = ContextDeviceTimes()
    for number in range(20):
        times.add_events(made.kernels(np.arange(60)), number)
        times.add_launches(np.zeros(60, device_times._KNOWN), number)
        waiting = sum(map(len, (times.launches, times.events, *times.fresh_launches, *times.fresh_events)))
        assert waiting <= 400
    times.join(PATIENCE_NS + 20)
    assert (len(times.events), len(times.launches)) == (0, 0)
    assert times.finish(PATIENCE_NS + 20) == times.unjoined


def test_the_time_of_one_event_is_bounded() -> None:
    times = ContextDeviceTimes()
    row = made.kernels([0], 2**60)
    times.add_launches(np.array([(0, 1)], device_times._KNOWN.descr[:2]), 0)
    times.add_events(row, 0)
    times.join(0)
    assert times.take(np.array([1], np.uint32))[1].tolist() == [device_times.LONGEST_NS]
    assert context_backlog.PATIENCE_NS == PATIENCE_NS


def test_the_account_of_sums_holds_from_the_process_to_the_daemon() -> None:
    """Made = kept + missing by reason, where the daemon's table has another name than the packets' kind."""
    process, _ = begin()
    rows = made.window(NOW, {3: (1, 50), 2: (1, 60), 1: (1, 70), 9: (1, 80)})
    say(process, (Kind.CONTEXT_SUMS, made.sums(0, rows)))
    say(process, (Kind.CONTEXT_SUMS, made.sums(6, rows[:1], Reason.BUFFER_FULL, context=5, kernel=1)))
    say(process, (Kind.END, made.end(7, context=6, kernel=1)))
    dropped = pb.KindAccount(kind="context_sums", accepted=3, dropped={"late": 1})
    told = pb.Account(kinds=[dropped])
    rank = Rank(4, uplink=Numbers(told, 4), intake=Numbers(next=4))
    found = describe(process.account, rank)
    assert found.made == {"context": 6, "kernel": 1}
    assert found.kept == {"context": 3}
    assert found.missing == {
        "unknown-context": {"context": 1},
        "buffer-full": {"context": 1, "kernel": 1},
        "daemon-late": {"context": 1},
    }


def test_sums_promise_no_more_than_operators_that_still_wait() -> None:
    """The rank's listener refuses rows before its watermark."""
    process, rank = make(stand_in=1)
    say(process, (Kind.TICK, made.tick(NOW, device=False, offset_ns=UNIX)))
    say(process, (Kind.NAMES, made.names(NAMES)), (Kind.CONTEXTS, made.contexts(TREE)))
    number = 0
    for second in range(8):
        begin_ns = NOW + second * SECOND
        rows = np.zeros(20, RANGE)
        rows["start_ns"] = begin_ns + np.arange(20) * (SECOND // 20)
        rows["end_ns"], rows["name"], rows["thread"] = rows["start_ns"] + SECOND // 40, 3, 1
        say(process, (Kind.RANGES, made.ranges(number, rows)))
        say(process, (Kind.CONTEXT_SUMS, made.sums(number + 20, made.window(begin_ns, {3: (20, 500)}))))
        number += 21
        tick = made.tick(
            begin_ns + SECOND, device=False, offset_ns=UNIX, ranges_until_ns=begin_ns + SECOND, next=number
        )
        say(process, (Kind.TICK, tick))
    process.end()
    assert process.account.given == Counter(range=160, context=8)
    assert sums_of(rank)["count"].to_list() == [20] * 8
