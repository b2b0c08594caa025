"""The pprof endpoint: whose contexts of which minutes, in a form that profilers take."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import yaml

from deepprof.live.service.exporter import Exporter, ExporterSettings, profiles
from deepprof.live.service.exporter.exporter import PROFILES
from deepprof.live.service.exporter.profiles import LAG_NS, ProfileRequest, write_profile
from deepprof.live.service.folder import StoreError
from deepprof.live.wire.figures import LeadingFigures
from deepprof.metrics.contexts.history import ContextsOfRank
from deepprof.render import pprof
from tests.deepprof.live.service.exporter.jobs import START_NS, S, make_device, make_rank, make_snapshot
from tests.deepprof.render.test_pprof import check_invariants
from tests.deepprof.web.asking import ask, ask_bytes
from tests.metrics.contexts.test_sent import nodes_of, sums_of

MINUTE_NS = 60 * S
NOW_NS = START_NS + 17 * S
NODES = nodes_of((1, 0, "python", "train.py(5): step", 7), (2, 1, "operator", "aten::mm"))
SUMS = sums_of((1, 3, 50, 0, 0), (2, 6, 40, 6, 9))


class Sent:
    """What ranks sent; notes what was requested."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int | None, int, int]] = []

    def __call__(self, job: str, rank: int | None, start_ns: int, end_ns: int) -> Sequence[ContextsOfRank]:
        self.asked.append((job, rank, start_ns, end_ns))
        return [ContextsOfRank(job, rank or 0, NODES, SUMS.with_columns(pl.col("device_ns") + (rank or 0)))]


RANKS = [
    replace(make_rank(job, rank, START_NS, make_device(1)), contexts=None if job == "silent" else LeadingFigures())
    for job, rank in (("a", 0), ("a", 1), ("b", 0), ("silent", 0))
]
SNAPSHOT = make_snapshot(*RANKS, now_ns=NOW_NS)


def values(profile: Any) -> dict[tuple[str, str, str], list[int]]:
    """Return the values of samples by job, rank and innermost frame."""
    texts = list(profile.string_table)
    names = {each.id: texts[each.name] for each in profile.function}
    places = {each.id: names[each.line[0].function_id] for each in profile.location}
    found = {}
    for sample in profile.sample:
        labels = {texts[each.key]: texts[each.str] for each in sample.label}
        found[labels["job_id"], labels["rank"], places[sample.location_id[0]]] = list(sample.value)
    return found


def test_every_rank_that_sends_contexts_is_in_it() -> None:
    sent = Sent()
    body = write_profile(ProfileRequest(), SNAPSHOT, sent)
    assert body is not None
    profile = check_invariants(body)
    texts = list(profile.string_table)
    assert [(texts[each.type], texts[each.unit]) for each in profile.sample_type] == [
        ("host", "nanoseconds"),
        ("device", "nanoseconds"),
        ("count", "count"),
    ]
    assert values(profile) == {
        **{("a", "0", "step"): [10, 0, 3], ("a", "0", "aten::mm"): [40, 9, 6]},
        **{("a", "1", "step"): [10, 1, 3], ("a", "1", "aten::mm"): [40, 10, 6]},
        **{("b", "0", "step"): [10, 0, 3], ("b", "0", "aten::mm"): [40, 9, 6]},
    }
    assert (texts[profile.period_type.type], profile.period) == ("host", 1)


def test_minutes_are_whole_and_each_is_in_one_scrape() -> None:
    sent, ends = Sent(), []
    for at in range(5):
        snapshot = make_snapshot(*RANKS[:1], now_ns=NOW_NS + at * MINUTE_NS + at % 3 * S)
        profile = check_invariants(write_profile(ProfileRequest.read({"seconds": "59"}), snapshot, sent) or b"")
        assert profile.time_nanos % MINUTE_NS == 0
        assert profile.duration_nanos == MINUTE_NS
        assert snapshot.now_unix_ns - 2 * MINUTE_NS < profile.time_nanos + MINUTE_NS + LAG_NS <= snapshot.now_unix_ns
        ends.append(profile.time_nanos)
    assert [later - earlier for earlier, later in pairwise(ends)] == [MINUTE_NS] * 4
    assert [(start, end) for _, _, start, end in sent.asked] == [(start, start + MINUTE_NS) for start in ends]


def test_a_longer_pause_between_scrapes_is_of_more_minutes() -> None:
    sent = Sent()
    write_profile(ProfileRequest.read({"seconds": "300", "job": "a", "rank": "1"}), SNAPSHOT, sent)
    ((job, rank, start, end),) = sent.asked
    assert (job, rank, end - start) == ("a", 1, 5 * MINUTE_NS)


def test_what_is_too_much_is_bounded_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiles, "MOST_RANKS", 2)
    monkeypatch.setattr(profiles, "MOST_SAMPLES", 2)
    profile = check_invariants(write_profile(ProfileRequest(), SNAPSHOT, Sent()) or b"")
    assert len(profile.sample) == 2
    assert [profile.string_table[each] for each in profile.comment] == [
        "1 more rank left out",
        "4 small contexts put together",
    ]


def test_stacks_are_cut_and_nothing_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pprof, "MOST_FRAMES", 4)
    chain = nodes_of(*((n + 1, n, "operator", f"level {n}") for n in range(40)))
    found = ContextsOfRank("a", 0, chain, sums_of(*((n + 1, 1, 40 - n, 0, 0) for n in range(40))))
    profile = check_invariants(write_profile(ProfileRequest(job="b"), SNAPSHOT, lambda *_: [found]) or b"")
    assert max(len(each.location_id) for each in profile.sample) == 4
    assert sum(each.value[0] for each in profile.sample) == 40


def test_times_beyond_all_clocks_are_a_profile(monkeypatch: pytest.MonkeyPatch) -> None:
    """The profile is of all jobs: one that sends what cannot be must not keep the others out."""
    monkeypatch.setattr(profiles, "MOST_SAMPLES", 2)
    many = nodes_of(*((n + 1, 0, "operator", f"aten::op{n}") for n in range(9000)))
    sums = sums_of(*((n + 1, 1, 0, 2**50, 2**50) for n in range(9000)))
    found = ContextsOfRank("a", 0, many, sums)
    profile = check_invariants(write_profile(ProfileRequest(job="b"), SNAPSHOT, lambda *_: [found]) or b"")
    assert max(each.value[1] for each in profile.sample) == pprof.LARGEST


def test_ranks_that_take_too_long_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = iter(range(0, 100, 6))
    monkeypatch.setattr(profiles, "monotonic", lambda: next(seconds))
    sent = Sent()
    profile = check_invariants(write_profile(ProfileRequest(), SNAPSHOT, sent) or b"")
    assert [job for job, *_ in sent.asked] == ["a"]
    assert [profile.string_table[each] for each in profile.comment] == ["2 more ranks left out"]


def test_the_documented_configurations_ask_for_it() -> None:
    page = (Path(__file__).resolve().parents[5] / "docs" / "prometheus.md").read_text()
    (parca,) = [each for each in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL) if "pprof_config" in each]
    (scraped,) = yaml.safe_load(parca)["scrape_configs"]
    enabled = {name: each for name, each in scraped["profiling_config"]["pprof_config"].items() if each["enabled"]}
    assert enabled == {"contexts": {"enabled": True, "path": PROFILES, "delta": True}}
    (alloy,) = re.findall(r"```river\n(.*?)```", page, re.DOTALL)
    assert re.findall(r'path *= "(.*?)"', alloy) == [PROFILES]
    assert (scraped["scrape_interval"], re.findall(r'scrape_interval *= "(.*?)"', alloy)) == ("1m", ["1m"])


@pytest.fixture(scope="module")
def exporter() -> Iterator[Exporter]:
    running = Exporter(("127.0.0.1", 0), lambda: SNAPSHOT, settings=ExporterSettings(contexts=Sent()))
    yield running
    running.close()


def test_a_history_that_cannot_be_read_is_said() -> None:
    def damaged(*_: object) -> Sequence[ContextsOfRank]:
        raise StoreError("/store/history.db", "a window of contexts has other columns")

    running = Exporter(("127.0.0.1", 0), lambda: SNAPSHOT, settings=ExporterSettings(contexts=damaged))
    try:
        for path in ("/debug/pprof/contexts", "/api/documents/flame/a/0/down"):
            status, text, _ = ask(running.address, path)
            assert (status, text.count("\n")) == (503, 1)
            assert "a window of contexts has other columns" in text
    finally:
        running.close()


def test_a_page_of_somebody_else_cannot_read_it(exporter: Exporter) -> None:
    """Its name may lead here (DNS rebinding); the page, which shows the same, is not given to it either."""
    status, _, _ = ask(exporter.address, "/debug/pprof/contexts", host="evil.example")
    assert status == 400


def test_it_is_scraped(exporter: Exporter) -> None:
    status, body, headers = ask_bytes(exporter.address, "/debug/pprof/contexts?job=a&rank=1&seconds=60")
    assert (status, headers["Content-Type"]) == (200, "application/octet-stream")
    assert values(check_invariants(body)).keys() == {("a", "1", "step"), ("a", "1", "aten::mm")}


@pytest.mark.parametrize(
    ("query", "status", "told"),
    [
        ("job=nobody", 404, "deepprof run --contexts python"),
        ("job=silent", 404, "deepprof run --contexts python"),
        ("job=a&rank=7", 404, "deepprof run --contexts python"),
        ("rank=-1", 400, "rank: '-1' is no whole number"),
        ("seconds=0", 400, "seconds: 0 is not between 1 and 3600"),
        ("seconds=3601", 400, "seconds: 3601 is not between"),
        ("seconds=" + "9" * 99, 400, "is no whole number"),
        ("debug=1", 400, "'debug' is none of job, rank and seconds"),
    ],
)
def test_what_cannot_be_meant_is_one_line(exporter: Exporter, query: str, status: int, told: str) -> None:
    found, text, _ = ask(exporter.address, f"/debug/pprof/contexts?{query}")
    assert found == status
    assert told in text
    assert text.count("\n") == 1
