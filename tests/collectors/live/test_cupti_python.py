"""Collecting with cupti-python, against a stand-in for the package: no GPU is needed, and nothing of CUPTI is proven.

What the real one does is in tests/gpu.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from deepprof.collectors.errors import UsageError
from deepprof.collectors.live import cupti_python
from deepprof.collectors.live.cupti_records import decode
from deepprof.collectors.live.packets import NO_COPY, CollectionLevel, Kind, Reason
from deepprof.collectors.trace import ACTIVITIES, COPY_KINDS
from tests.collectors.live.listener import Listener


class ActivityKind(IntEnum):
    MEMCPY = 1
    MEMSET = 2
    CONCURRENT_KERNEL = 10
    MEMCPY2 = 22
    SYNCHRONIZATION = 38
    GRAPH_TRACE = 51


class CuptiError(Exception):
    pass


def record(kind: int, start: int, end: int, **more: Any) -> Any:
    common = {"correlation_id": start, "context_id": 1, "stream_id": 7, "start": start, "end": end}
    return SimpleNamespace(kind=kind, **(common | more))


def kernel(start: int, end: int, name: str = "_Z4gemm") -> Any:
    return record(10, start, end, device_id=2, graph_id=5, graph_node_id=9, name=name)


@dataclass
class Cupti:
    """Records which are made while a kind is enabled come with the next flush, all of them on the calling thread."""

    busy: bool = False
    now_ns: int = 10**6
    made: deque[Any] = field(default_factory=deque)
    enabled: set[int] = field(default_factory=set)
    request: Callable[[], tuple[int, int]] | None = None
    complete: Callable[[list[Any]], None] | None = None
    ActivityKind: Any = ActivityKind
    cuptiError: Any = CuptiError  # noqa: N815  # as the package calls it

    def activity_register_callbacks(self, request: Any, complete: Any) -> None:
        if self.busy:
            raise CuptiError("MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED")
        self.request, self.complete = request, complete

    def activity_enable(self, kind: int) -> None:
        self.enabled.add(kind)

    def activity_disable(self, kind: int) -> None:
        self.enabled.discard(kind)

    def activity_flush_all(self, flag: int) -> None:
        made = [self.made.popleft() for _ in range(len(self.made))]  # the test makes others meanwhile
        if made and self.request is not None and self.complete is not None:
            assert self.request()[0] > 0
            self.complete(made)

    def activity_get_num_dropped_records(self, context: int, stream: int, dropped: int) -> None:
        assert dropped

    def get_timestamp(self) -> int:
        return self.now_ns


def intern(texts: Any) -> Any:
    return np.arange(1, len(texts) + 1, dtype=np.uint32)


@pytest.fixture
def cupti(monkeypatch: pytest.MonkeyPatch) -> Cupti:
    made = Cupti()
    package = ModuleType("cupti")
    package.cupti = made  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cupti", package)
    return made


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[Listener]:
    started = Listener(tmp_path / "a.sock").start()
    yield started
    started.stop()


def test_every_kind_of_record() -> None:
    made = [
        kernel(50, 60),
        record(1, 10, 20, device_id=2, copy_kind=2, bytes=4096, graph_node_id=0, graph_id=0),
        record(22, 10, 25, device_id=1, copy_kind=10, bytes=8),
        record(2, 12, 13, device_id=2, bytes=16),
        record(38, 5, 70, type=3, stream_id=2**32 - 1),
        record(51, 30, 40, device_id=2, graph_id=5),
        record(99, 1, 2),
        kernel(0, 0),
        kernel(9, 8),
        record(10, 2**63, 2**64 - 1, correlation_id=1, name="_Z4gemm"),
    ]
    names: list[str] = []

    def keep(texts: Any) -> Any:
        names.extend(texts)
        return intern(texts)

    decoded = decode(made, keep)
    rows = decoded.events
    assert (decoded.invalid, decoded.skipped) == (3, 1)
    assert rows["end_ns"].tolist() == [70, 20, 25, 13, 40, 60]
    assert [ACTIVITIES[at] for at in rows["activity"]] == ["sync", "memcpy", "memcpy", "memset", "graph", "kernel"]
    assert [names[name - 1] for name in rows["name"]] == [
        *("Stream Sync", "Memcpy DtoH", "Memcpy PtoP", "Memset", "CUDA graph 5", "_Z4gemm")
    ]
    assert rows["nbytes"].tolist() == [0, 4096, 8, 16, 0, 0]
    assert [at if at == NO_COPY else COPY_KINDS[at] for at in rows["copy_kind"]][1:3] == ["DtoH", "PtoP"]
    assert rows["device"].tolist() == [0, 2, 1, 2, 2, 2]
    assert (rows["graph"][5], rows["graph_node"][5], rows["correlation"][5], rows["flags"][5]) == (5, 9, 50, 1)


def test_nothing_is_nothing() -> None:
    assert len(decode([], intern).events) == 0


def test_windows_are_what_the_agent_wants(cupti: Cupti, listener: Listener) -> None:
    collector = cupti_python.start(job="j", rank=1, socket=str(listener.path))
    listener.wait(lambda at: at.connections and at.last.ticks)
    assert {int(kind) for kind in cupti.enabled} == {1, 2, 10, 22, 38}
    cupti.made.extend([kernel(5, 6), kernel(7, 8)])
    heard = listener.wait(lambda at: len(at.last.events) == 2 and at.last)  # a flush has found them
    cupti.made.extend([kernel(9, 10)])
    listener.say(CollectionLevel.OFF)
    listener.wait(lambda at: at.last.ticks[-1]["level"] == CollectionLevel.OFF)
    assert not cupti.enabled
    listener.say(CollectionLevel.ON)
    listener.wait(lambda at: at.last.ticks[-1]["level"] == CollectionLevel.ON and len(at.last.events) == 3)
    cupti.made.extend([kernel(20, 21)])
    collector.stop()
    listener.wait(lambda at: at.last.ended)
    assert heard.events["start_ns"].tolist() == [5, 7, 9, 20]
    assert [head[3] for head in heard.heads[:3]] == [Reason.NONE, Reason.NONE, Reason.DUTY_CYCLE]
    assert heard.ticks[-1]["device_ns"] == 10**6
    assert heard.hello["collector"] == "cupti-python"
    assert heard.hello["env:DEEPPROF_RANK"] == "1"
    assert collector.records == 4
    assert not cupti.enabled


def test_what_is_complete_is_promised_unless_cupti_holds_a_buffer(cupti: Cupti, listener: Listener) -> None:
    collector = cupti_python.start(socket=str(listener.path))
    listener.wait(lambda at: at.last.ticks[-1]["events_until_ns"] == 10**6)
    assert cupti.request is not None
    cupti.request()
    cupti.now_ns = 10**7
    collector.flush_once()
    collector.stop()
    heard = listener.wait(lambda at: at.last.ended and at.last)
    assert heard.ticks[-1]["device_ns"] == 10**7
    assert heard.ticks[-1]["events_until_ns"] == 10**6


def test_records_without_sane_times_are_counted_and_said(cupti: Cupti, listener: Listener) -> None:
    collector = cupti_python.start(socket=str(listener.path))
    listener.wait(lambda at: at.connections and at.last.ticks)
    cupti.made.extend([kernel(0, 0), kernel(7, 8)])
    collector.stop()
    heard = listener.wait(lambda at: at.last.ended and at.last)
    assert heard.heads[0][1:] == (1, 1, Reason.DRIVER_DROPPED)
    assert collector.invalid == 1
    assert len(heard.notices) == 1


def test_a_buffer_of_nothing_else_is_counted_too(cupti: Cupti, listener: Listener) -> None:
    collector = cupti_python.start(socket=str(listener.path))
    listener.wait(lambda at: at.connections and at.last.ticks)
    cupti.made.extend([kernel(0, 0), kernel(0, 0)])
    collector.stop()
    heard = listener.wait(lambda at: at.last.ended and at.last)
    assert heard.heads == [(Kind.END, 2, 0, Reason.DRIVER_DROPPED)]


def test_nothing_is_enabled_before_an_agent_wants_it(cupti: Cupti, tmp_path: Path) -> None:
    listener = Listener(tmp_path / "a.sock", CollectionLevel.OFF).start()
    collector = cupti_python.start(socket=str(listener.path))
    listener.wait(lambda at: at.connections and at.last.ticks)
    assert not cupti.enabled
    assert cupti.complete is None
    collector.stop()
    listener.stop()


def test_another_profiler_is_said_and_left_alone(
    cupti: Cupti, listener: Listener, caplog: pytest.LogCaptureFixture
) -> None:
    cupti.busy = True
    collector = cupti_python.start(socket=str(listener.path))
    listener.wait(lambda at: at.connections and at.last.ticks)
    collector.stop()
    heard = listener.wait(lambda at: at.last.ended and at.last)
    assert len(heard.notices) == 1
    assert "another profiler" in heard.notices[0]
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert not cupti.enabled


def test_a_missing_package_is_one_line_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupti", None)
    with pytest.raises(UsageError, match=r'pip install "deepprof\[cupti\]"'):
        cupti_python.start()


def test_a_missing_driver_is_one_line(cupti: Cupti, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> int:
        raise RuntimeError("libcuda.so.1 not found")

    monkeypatch.setattr(cupti, "get_timestamp", fail)
    with pytest.raises(UsageError, match=r"libcuda.so.1 not found; it needs NVIDIA's driver"):
        cupti_python.start()


def test_an_unknown_way_with_graphs_is_refused(cupti: Cupti) -> None:
    with pytest.raises(UsageError, match="graphs must be"):
        cupti_python.start(graphs="all")
