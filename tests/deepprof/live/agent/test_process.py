"""A process's packets as tables of a rank: numbers, gaps, order, time and names; a rank that only listens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl
import pytest

from deepprof.collectors.live.packets import EVENT, RANGE, Kind, Reason
from deepprof.collectors.trace import RECORD_TABLES, TABLES
from deepprof.live.agent.hello import ProtocolError, read_hello
from deepprof.live.agent.process_decoder import EVERY_NS, LEAST_HOLD_NS, PATIENCE_NS, ProcessDecoder
from deepprof.live.agent.process_notices import MOST_LINES
from deepprof.live.agent.rank_names import RankNameTable
from tests.deepprof.live.agent import packets_made as made

SECOND = 10**9
UNIX = 1_800_000_000 * SECOND


@dataclass
class Listener:
    """What a rank was told, in order."""

    source_next: int = 0
    is_renamed: bool = False
    watermark_ns: int = -(2**62)
    rank_names: RankNameTable = field(default_factory=RankNameTable)
    said: list[tuple[str, object]] = field(default_factory=list)
    rows: list[pl.DataFrame] = field(default_factory=list)
    devices: list[dict[str, object]] = field(default_factory=list)
    source: list[int] = field(default_factory=list)
    contexts: list[Mapping[str, pl.DataFrame]] = field(default_factory=list)
    flagged: Mapping[str, int] = field(default_factory=dict)

    def name_ids(self, texts: Sequence[str]) -> np.ndarray:
        return self.rank_names.find(texts)

    def send(self, tables: Mapping[str, pl.DataFrame], until_ns: int, source_next: int = 0) -> bool:
        for table, rows in tables.items():
            assert rows.schema == TABLES[table]
            if table == "devices":
                self.devices += rows.rows(named=True)
                continue
            assert rows.to_series(0).is_sorted()
            if rows.height and "context_sums" not in tables:  # these are told when their window is over
                assert rows.to_series(0)[0] >= self.watermark_ns
                assert rows.to_series(0)[-1] < until_ns
                self.rows.append(rows)
        count = sum(rows.height for table, rows in tables.items() if table in RECORD_TABLES)
        if count:
            self.said.append(("records", count))
        self.contexts += [tables] if "context_sums" in tables else []
        assert until_ns >= self.watermark_ns
        self.watermark_ns = until_ns
        self.source.append(source_next)
        return True

    def gap(self, reason: str, lost: int = 0, source_next: int = 0) -> None:
        self.said.append((reason, lost))
        self.source.append(source_next)

    def end(self, dropped: Mapping[str, int] | None = None, flagged: Mapping[str, int] | None = None) -> None:
        self.said.append(("end", {reason: count for reason, count in (dropped or {}).items() if count}))
        self.flagged = {reason: count for reason, count in (flagged or {}).items() if count}


def make(source_next: int = 0, **hello: object) -> tuple[ProcessDecoder, Listener]:
    rank = Listener(source_next)
    return ProcessDecoder(read_hello(made.hello(**hello)), lambda: rank), rank  # type: ignore[arg-type, return-value]


def say(process: ProcessDecoder, *packets: tuple[int, bytes]) -> None:
    for kind, payload in packets:
        process.take(kind, memoryview(payload))


def device(rank: Listener) -> pl.DataFrame:
    return pl.concat(rank.rows)


def test_records_wait_for_the_clock_and_for_their_turn() -> None:
    process, rank = make()
    say(process, (Kind.NAMES, made.names(["gemm", "relu"])))
    say(process, (Kind.EVENTS, made.events(0, made.kernels([3000, 1000], name=np.array([2, 1])))))
    assert rank.said == []
    say(process, (Kind.TICK, made.tick(2 * SECOND, offset_ns=UNIX)))
    rows = device(rank)
    assert rows["start_ns"].to_list() == [UNIX + 1000, UNIX + 3000]
    assert [rank.rank_names.texts[name] for name in rows["name_id"]] == ["gemm", "relu"]
    assert rows["stream"].to_list() == [7, 7]
    assert rank.source[-1] == 2


def test_what_may_still_be_overtaken_is_held_back() -> None:
    process, rank = make()
    now = 10 * SECOND
    say(process, (Kind.TICK, made.tick(now)))
    say(process, (Kind.EVENTS, made.events(0, made.kernels([now - 1000, now - LEAST_HOLD_NS - 5000]))))
    say(process, (Kind.TICK, made.tick(now + EVERY_NS, events_until_ns=now)))
    assert device(rank)["start_ns"].to_list() == [now - LEAST_HOLD_NS - 5000]
    assert rank.source[-1] == 1
    process.end()
    assert device(rank).height == 2
    assert rank.said[-1] == ("end", {})


def test_a_driver_that_never_rests_is_followed_by_what_it_gives() -> None:
    process, rank = make()
    for number in range(10):
        now = (100 + number) * SECOND
        say(process, (Kind.EVENTS, made.events(number, made.kernels([now - 1000]))))
        say(process, (Kind.TICK, made.tick(now, events_until_ns=-(2**63))))
    assert device(rank)["start_ns"].to_list() == [(100 + number) * SECOND - 1000 for number in range(8)]


def test_what_stands_in_the_buffer_of_a_collective_that_waits_is_not_late() -> None:
    """The library promises nothing beyond the request of that buffer, although later ones come."""
    process, rank = make()
    began = 100 * SECOND
    say(process, (Kind.TICK, made.tick(began)))
    for number in range(5):
        now = began + (number + 1) * SECOND
        say(process, (Kind.EVENTS, made.events(number, made.kernels([now - 1000]))))
        say(process, (Kind.TICK, made.tick(now, events_until_ns=began)))
    say(process, (Kind.EVENTS, made.events(5, made.kernels([began + 1000, began + 2000], 5 * SECOND))))
    process.end()
    assert (device(rank).height, process.dropped) == (7, {})


def test_a_collector_that_says_what_is_complete_is_waited_for() -> None:
    process, rank = make()
    for number in range(14):  # a kernel that was launched after 100 s runs on, and others end next to it
        now = (100 + number) * SECOND
        say(process, (Kind.EVENTS, made.events(number, made.kernels([now - 1000]))))
        say(process, (Kind.TICK, made.tick(now, events_until_ns=100 * SECOND)))
        if now - 100 * SECOND <= PATIENCE_NS:
            assert process.waiting == number + 1
    given = device(rank)["start_ns"].to_list()
    assert given == [(100 + number) * SECOND - 1000 for number in range(12)]


def test_what_is_held_back_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deepprof.live.agent.process_decoder.HELD_NBYTES", 100 * EVENT.itemsize)
    process, rank = make()
    now = 100 * SECOND
    say(process, (Kind.TICK, made.tick(now)))
    for number in range(100):  # all within what is kept back: nothing of it is ripe by its time
        say(process, (Kind.EVENTS, made.events(number * 20, made.kernels(now + 20 * number + np.arange(20), 1))))
        assert process.waiting <= 120
    process.end()
    assert device(rank).height == 2000
    assert process.dropped == {}


def test_long_records_make_others_wait_longer() -> None:
    process, rank = make()
    now = 100 * SECOND
    say(process, (Kind.TICK, made.tick(now)))
    say(process, (Kind.EVENTS, made.events(0, made.kernels([now - 9 * SECOND], length=2 * SECOND))))
    say(process, (Kind.EVENTS, made.events(1, made.kernels([now - 7 * SECOND]))))
    say(process, (Kind.TICK, made.tick(now + SECOND, events_until_ns=now)))
    assert device(rank)["start_ns"].to_list() == [now - 9 * SECOND]


def test_a_jump_of_the_numbers_is_a_gap_between_what_came_before_and_after() -> None:
    process, rank = make()
    say(process, (Kind.TICK, made.tick(SECOND)))
    say(process, (Kind.EVENTS, made.events(0, made.kernels([1000, 2000]))))
    say(process, (Kind.EVENTS, made.events(12, made.kernels([90_000]), Reason.BUFFER_FULL)))
    say(process, (Kind.TICK, made.tick(4 * SECOND)))
    assert rank.said == [("records", 2), ("buffer-full", 10), ("records", 1)]
    assert process.lost == 10
    assert process.overflowed
    assert rank.source == [2, 12, 13]


def test_a_reason_alone_is_a_gap_of_unknown_length() -> None:
    process, rank = make()
    say(process, (Kind.TICK, made.tick(SECOND)))
    say(process, (Kind.EVENTS, made.events(0, made.kernels([1000]))))
    say(process, (Kind.EVENTS, made.events(1, made.kernels([5000]), Reason.DUTY_CYCLE)))
    process.end()
    assert rank.said == [("records", 1), ("duty-cycle", 0), ("records", 1), ("end", {})]


def test_a_new_agent_goes_on_where_the_former_stopped() -> None:
    process, rank = make(source_next=40, continues=1)
    say(process, (Kind.TICK, made.tick(SECOND)))
    say(process, (Kind.EVENTS, made.events(100, made.kernels([1000, 2000]), Reason.DISCONNECTED)))
    process.end()
    assert rank.said == [("agent-restarted", 60), ("records", 2), ("end", {})]
    assert process.lost == 60


def test_impossible_times_are_counted_and_left_out() -> None:
    process, rank = make()
    now = 100 * 24 * 3600 * SECOND
    say(process, (Kind.TICK, made.tick(now)))
    rows = made.kernels([now - 5000, 0, now - 4000, 2 * now])
    rows["end_ns"][2] = rows["start_ns"][2] - 1
    say(process, (Kind.EVENTS, made.events(0, rows)))
    process.end()
    assert rank.said == [("records", 1), ("end", {"invalid-time": 3})]


def test_late_records_are_counted() -> None:
    process, rank = make()
    now = 100 * SECOND
    say(process, (Kind.TICK, made.tick(now)))
    say(process, (Kind.EVENTS, made.events(0, made.kernels([now - 50 * SECOND]))))
    say(process, (Kind.TICK, made.tick(now + SECOND)))
    say(process, (Kind.EVENTS, made.events(1, made.kernels([now - 60 * SECOND, now + SECOND]))))
    process.end()
    assert rank.said == [("records", 1), ("records", 1), ("end", {"late": 1})]


def test_ranges_become_host_events_and_annotations() -> None:
    process, rank = make(collector="operators", format="torch")
    say(process, (Kind.NAMES, made.names(["aten::mm", "epoch", "Optimizer.step#SGD.step"])))
    rows = np.zeros(3, RANGE)
    rows["start_ns"], rows["end_ns"] = [1000, 2000, 3000], [1500, 2500, 3500]
    rows["name"], rows["thread"], rows["category"] = [1, 2, 3], 77, 255
    say(process, (Kind.TICK, made.tick(SECOND, device=False)), (Kind.RANGES, made.ranges(0, rows)))
    say(process, (Kind.TICK, made.tick(3 * SECOND, device=False)))
    host, marks = rank.rows
    assert host.select("start_ns", "process", "thread", "category").rows() == [(1000, 1, 77, "op")]
    assert marks.select("start_ns", "side", "framework").rows() == [(2000, "host", False), (3000, "host", True)]


def test_an_open_range_holds_its_start_back() -> None:
    process, rank = make(collector="operators")
    rows = np.zeros(2, RANGE)
    rows["start_ns"], rows["end_ns"] = [SECOND, 3 * SECOND], [SECOND + 5, 3 * SECOND + 5]
    say(process, (Kind.TICK, made.tick(0, device=False)), (Kind.RANGES, made.ranges(0, rows)))
    say(process, (Kind.TICK, made.tick(4 * SECOND, device=False, open_since_ns=2 * SECOND)))
    assert [rows.height for rows in rank.rows] == [1]
    say(process, (Kind.TICK, made.tick(20 * SECOND, device=False, open_since_ns=2 * SECOND)))
    assert [rows.height for rows in rank.rows] == [1, 1]  # one that never closes holds nothing back for ever


def test_clock_set_ahead_is_a_gap() -> None:
    process, rank = make()
    say(process, (Kind.TICK, made.tick(SECOND, offset_ns=UNIX)), (Kind.EVENTS, made.events(0, made.kernels([1000]))))
    say(process, (Kind.TICK, made.tick(2 * SECOND, offset_ns=UNIX + 3600 * SECOND)))
    assert ("clock-set", 0) in rank.said


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        (Kind.EVENTS, b""),
        (Kind.EVENTS, made.events(0, made.kernels([1]))[:-1]),
        (Kind.EVENTS, made.head(2**63, 0, 0)),
        (Kind.EVENTS, made.events(0, made.kernels([1]), 77)),
        (Kind.TICK, b"short"),
        (Kind.NAMES, made.names(["x"], first=2)),
        (Kind.NAMES, made.names(["x"])[:-1]),
        (Kind.NAMES, made.names(["x"]) + b"y"),
        (Kind.NOTICE, b"1"),
        (99, b""),
        (Kind.HELLO, made.hello()),
    ],
)
def test_packets_of_strangers_are_refused(kind: int, payload: bytes) -> None:
    process, _ = make()
    with pytest.raises(ProtocolError):
        say(process, (kind, payload))


def test_numbers_never_go_back() -> None:
    process, _ = make()
    say(process, (Kind.EVENTS, made.events(5, made.kernels([1]))))
    with pytest.raises(ProtocolError, match="numbered wrongly"):
        say(process, (Kind.EVENTS, made.events(5, made.kernels([1]))))


@pytest.mark.parametrize(
    "text", [b"", b"version=99\nsession=" + b"0" * 32, b"\xff" * 20, b"x" * 20_000, made.hello(session="../etc/passwd")]
)
def test_hello_of_strangers_is_refused(text: bytes) -> None:
    with pytest.raises(ProtocolError):
        read_hello(text)


def test_hello() -> None:
    hello = read_hello(made.hello(env__RANK=3, stand_in=1, command="a\x1bb"))
    assert (hello.pid, hello.collector, hello.format) == (1, "cupti", "cupti")
    assert hello.variables == {"RANK": "3"}
    assert hello.stand_in
    assert "\x1b" not in hello.command


def test_notices_are_kept_once_each_and_bounded() -> None:
    process, _ = make()
    for number in range(100):
        say(process, (Kind.NOTICE, made.notice(number, f"word {number}")))
    assert process.notices.texts == {number: f"word {number}" for number in range(16)}


def test_a_notice_that_changes_is_told_again_a_bounded_number_of_times(caplog: pytest.LogCaptureFixture) -> None:
    """How many iterations are left out changes; a line that comes again after a new connection is the same."""
    process, _ = make()
    for number in (1, 1, 2, 3, 3):
        say(process, (Kind.NOTICE, made.notice(7, f"word {number}")), (Kind.NOTICE, made.notice(8, "other")))
    assert list(process.notices.texts.items()) == [(8, "other"), (7, "word 3")]
    assert [vars(record)["text"] for record in caplog.records] == ["word 1", "other", "word 2", "word 3"]
    for number in range(1000):
        say(process, (Kind.NOTICE, made.notice(7, f"word {number}")))
    assert len(caplog.records) == MOST_LINES


def test_one_that_never_had_a_record_never_opens_a_rank() -> None:
    process, rank = make()
    say(process, (Kind.TICK, made.tick(SECOND)), (Kind.END, made.end(0)))
    assert process.rank is None
    assert process.ended
    assert rank.said == []


def test_one_that_is_gone_without_a_word_says_so() -> None:
    process, rank = make()
    say(process, (Kind.TICK, made.tick(SECOND)), (Kind.EVENTS, made.events(0, made.kernels([1000]))))
    process.cut()
    process.cut()
    assert rank.said == [("records", 1), ("end", {})]
    assert "may be missing" in next(iter(process.notices.texts.values()))
