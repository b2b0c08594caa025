"""What a rank writes to its spool, read as a daemon reads it: numbers, names and promises hold whatever has room."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deepprof.collectors.trace import DEVICE_EVENTS, empty_table
from deepprof.live.agent import rank_spool as module
from deepprof.live.agent.identity import CollectorRun, make_hello
from deepprof.live.agent.rank_names import OTHERS, RankNameTable
from deepprof.live.agent.rank_spool import RankSpool
from deepprof.live.agent.spool import Spool, SpoolBudget
from deepprof.live.wire.limits import LIMITS
from deepprof.v1.ingest_pb2 import SendRequest
from tests.chance import examples

ME = CollectorRun(job="demo", collector="cupti-a", rank=0)


class NoUplink:
    """No one carries the spool."""

    def wake(self) -> None:
        pass


def make(root: Path, budget: SpoolBudget) -> RankSpool:
    return RankSpool(ME, 0, Spool.open(root, make_hello(ME, 0), budget), NoUplink())  # type: ignore[arg-type]


def kernels(starts: list[int], names: list[int]) -> pl.DataFrame:
    rows = pl.DataFrame({"start_ns": starts, "end_ns": starts, "name_id": names}).with_columns(
        activity=pl.lit("kernel"), device=0, context=1, stream=7
    )
    missing = [pl.lit(None).alias(name) for name in DEVICE_EVENTS if name not in rows.columns]
    return rows.with_columns(missing).select(DEVICE_EVENTS.names()).cast(dict(DEVICE_EVENTS))


def listen(spool: Spool) -> dict[str, int]:
    """Check all messages as the daemon does; returns the records that arrived and those stated to be lost."""
    following, promised, known = 0, -(2**63), 0
    counts = {"came": 0, "lost": 0}
    for message in spool.read():
        request = SendRequest.FromString(message.payload)
        if request.WhichOneof("message") == "gap":
            assert request.gap.first == following
            counts["lost"] += request.gap.lost
            following += request.gap.lost
        elif request.WhichOneof("message") == "batch":
            batch = request.batch
            assert batch.first == following
            assert not batch.names or batch.first_name == known
            known += len(batch.names)
            for table in batch.tables:
                rows = decode(table)
                assert rows["start_ns"].is_sorted()
                assert rows["start_ns"][0] >= promised
                assert rows["name_id"].max() < known  # type: ignore[operator]
                following += rows.height
                counts["came"] += rows.height
            if batch.complete_until_ns:
                promised = max(promised, batch.complete_until_ns)
    return counts


def decode(table: Any) -> pl.DataFrame:
    return pl.read_ipc_stream(table.arrow)


sends = st.tuples(
    st.just("send"),
    st.lists(st.integers(0, 50), max_size=60),
    st.lists(st.text(max_size=20), min_size=1, max_size=4),
)
steps = st.one_of(
    sends, sends, sends, st.tuples(st.just("gap"), st.integers(0, 9)), st.tuples(st.just("room"), st.booleans())
)


@settings(deadline=None, max_examples=examples(60))
@given(st.lists(steps, max_size=15), st.integers(1, 20))
def test_what_is_in_the_spool_is_what_a_daemon_takes(steps: list[tuple[Any, ...]], most: int) -> None:
    with tempfile.TemporaryDirectory() as root, pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BATCH_RECORDS", most)
        budget = SpoolBudget(1 << 30)
        rank = make(Path(root), budget)
        now, given_in, missing = 1000, 0, 0
        for what, *more in steps:
            if what == "send":
                starts = sorted(now + after for after in more[0])
                ids = rank.name_ids(more[1])
                rows = kernels(starts, [int(ids[number % len(ids)]) for number in range(len(starts))])
                now += 51
                rank.send({"device_events": rows}, now, given_in + len(starts))
                given_in += len(starts)
            elif what == "gap":
                rank.gap("buffer-full", more[0], given_in + missing)
                missing += more[0]
            else:
                budget.limit_nbytes = 1 << 30 if more[0] else 0
        budget.limit_nbytes = 1 << 30
        rank.end()
        found = listen(rank.spool)
        assert found["came"] + rank.intake.lost == given_in
        assert found["lost"] == missing + rank.intake.lost
        rank.spool.remove()


def test_nothing_is_sent_as_nothing(tmp_path: Path) -> None:
    rank = make(tmp_path, SpoolBudget())
    assert rank.send({"device_events": empty_table(DEVICE_EVENTS)}, 5)
    rank.end()
    assert listen(rank.spool) == {"came": 0, "lost": 0}
    rank.spool.remove()


@given(st.lists(st.text("ab", max_size=30), max_size=12), st.integers(50, 120), st.integers(2, 12))
def test_names_stay_within_what_a_daemon_takes(texts: list[str], most_nbytes: int, most: int) -> None:
    rank_names = RankNameTable(limits=replace(LIMITS, names_nbytes=most_nbytes, names=most))
    for text in texts:
        assert rank_names.texts[rank_names.one(text)] in (text, OTHERS)
    assert rank_names.nbytes == sum(len(text.encode()) for text in rank_names.texts) <= most_nbytes
    assert len(rank_names.texts) <= most


def test_a_spool_that_is_closed_takes_no_room(tmp_path: Path) -> None:
    budget = SpoolBudget()
    rank = make(tmp_path, budget)
    rank.spool.close()
    assert not rank.send({"device_events": kernels([1], [int(rank.name_ids(["gemm"])[0])])}, 2)
    rank.spool.trim(1)
    assert (rank.lost, budget.nbytes) == (1, 0)
