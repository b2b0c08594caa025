"""The lines that lead: few, all of the time once, and the same ones for long."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from deepprof.live.service.leading_contexts import CANDIDATES, LONGEST_NAME, MOST_EVER, OTHER_CONTEXTS, LeadingContexts
from deepprof.live.service.query import MOST_LINES, rank_of
from deepprof.live.service.views import RankView
from deepprof.live.wire.declarations import build
from deepprof.live.wire.figures import RankState
from deepprof.metrics.contexts.lines import LINES

WINDOW_NS = 60 * 10**9
TIMES = st.tuples(st.integers(0, 10**12), st.integers(0, 10**12))
WINDOWS = st.lists(st.dictionaries(st.sampled_from([f"f a.py:{n}" for n in range(30)]), TIMES), max_size=12)


def lines(taken: Mapping[str, tuple[int, int]]) -> pl.DataFrame:
    return pl.DataFrame([(line, *times) for line, times in taken.items()], schema=LINES, orient="row")


def add(leading: LeadingContexts, **host: int) -> set[str]:
    leading.add(lines({line: (ns, 0) for line, ns in host.items()}), WINDOW_NS)
    return {each.context for each in leading.show().lines}


@given(WINDOWS, st.integers(1, 5))
def test_every_nanosecond_counts_once(windows: list[dict[str, tuple[int, int]]], most: int) -> None:
    leading, seen = LeadingContexts(most), Counter[str]()
    before: dict[str, int] = {}
    for window in windows:
        leading.add(lines(window), WINDOW_NS)
        shown = leading.show()
        every = [*shown.lines, shown.other]
        assert len(shown.lines) <= most
        assert len(leading.weights) <= CANDIDATES * most
        assert sum(each.latest_host_ns for each in every) == sum(host for host, _ in window.values())
        assert sum(each.latest_device_ns for each in every) == sum(device for _, device in window.values())
        now = {each.context: each.host_ns for each in every}
        grown = {line: ns - before.get(line, 0) for line, ns in now.items()}
        assert all(ns >= 0 for ns in grown.values())
        assert sum(grown.values()) == sum(host for host, _ in window.values())
        seen.update(grown)
        before = now
    assert seen.total() == sum(host for window in windows for host, _ in window.values())


def test_those_that_take_most_lead() -> None:
    leading = LeadingContexts(2)
    assert add(leading, a=50, b=30, c=20) == {"a", "b"}
    shown = leading.show()
    assert [each.context for each in shown.lines] == ["a", "b"]
    assert (shown.other.host_ns, shown.window_ns) == (20, WINDOW_NS)


def test_lines_that_take_about_the_same_do_not_change_places() -> None:
    leading = LeadingContexts(2)
    add(leading, a=50, b=26, c=24)
    for at in range(20):
        assert add(leading, a=50, b=24 + at % 2, c=25 - at % 2) == {"a", "b"}


def test_one_that_clearly_takes_more_comes_in_and_begins_at_zero() -> None:
    leading = LeadingContexts(2)
    add(leading, a=50, b=30, c=20)
    add(leading, a=50, b=5, c=45)
    assert add(leading, a=50, b=5, c=45) == {"a", "c"}
    taken = {each.context: each.host_ns for each in leading.show().lines}
    assert taken["c"] <= 90
    assert sum(taken.values()) + leading.show().other.host_ns + 35 >= 300  # what b counted itself is gone with it


def test_time_on_devices_leads_as_well() -> None:
    leading = LeadingContexts(1)
    leading.add(lines({"a": (100, 0), "b": (0, 9)}), WINDOW_NS)
    leading.add(lines({"a": (0, 0), "b": (0, 9)}), WINDOW_NS)
    leading.add(lines({"a": (0, 0), "b": (0, 9)}), WINDOW_NS)
    assert [each.context for each in leading.show().lines] == ["b"]


def test_names_are_bounded_and_keep_their_end() -> None:
    leading = LeadingContexts(1)
    leading.add(lines({"f " + "a/" * 999 + "b.py:7": (1, 1)}), WINDOW_NS)
    (shown,) = leading.show().lines
    assert len(shown.context) == LONGEST_NAME
    assert shown.context.endswith("/b.py:7")


def test_a_rank_tells_its_first_lines_and_all_of_the_time() -> None:
    leading = LeadingContexts(20)
    leading.add(lines({f"f a.py:{n}": (100 + n, n) for n in range(30)}), WINDOW_NS)
    view = RankView(job="a", rank=0, contexts=leading.show())
    told = build(RankState, rank_of(view)).contexts
    assert told is not None
    assert told.lines == leading.show().lines[:MOST_LINES]
    every = [*told.lines, told.other]
    assert sum(each.host_ns for each in every) == sum(each.latest_host_ns for each in every) == 30 * 100 + 435
    assert sum(each.device_ns for each in every) == sum(each.latest_device_ns for each in every) == 435
    assert (told.window_ns, told.other.context) == (WINDOW_NS, "")
    assert build(RankState, rank_of(RankView(job="a", rank=0))).contexts is None


def test_lines_that_are_made_up_are_few_series_for_ever() -> None:
    leading, seen = LeadingContexts(2), set[str]()
    for at in range(200):
        seen |= add(leading, **{f"made_{at}": 90, "steady": 10})
    assert len(seen) <= MOST_EVER * 2
    assert len(leading.ever) <= MOST_EVER * 2
    assert leading.other.host_ns > 0


def test_times_beyond_all_clocks_do_not_break_the_message() -> None:
    leading = LeadingContexts(20)
    for _ in range(40):
        leading.add(lines({f"f a.py:{n}": (2**62, 2**62) for n in range(30)}), WINDOW_NS)
    leading.add(lines({"f a.py:0": (-5, -(2**62))}), WINDOW_NS)
    told = build(RankState, rank_of(RankView(job="a", rank=0, contexts=leading.show()))).contexts
    assert told is not None
    assert all(0 < each.host_ns < 2**63 for each in (*told.lines, told.other))


def test_no_line_is_taken_for_all_others() -> None:
    leading = LeadingContexts(1)
    leading.add(lines({OTHER_CONTEXTS: (1, 1)}), WINDOW_NS)
    assert [each.context for each in leading.show().lines] != [OTHER_CONTEXTS]


def test_nothing_is_nobody() -> None:
    leading = LeadingContexts(3)
    leading.add(lines({}), WINDOW_NS)
    assert leading.show().lines == ()
    assert leading.show().other.host_ns == 0
