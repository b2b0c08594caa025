"""Calling contexts in a daemon: what came is what is answered, after a crash, after a day, and over gRPC."""

from __future__ import annotations

import asyncio
import io
import random
import resource
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import polars as pl
import pytest

import deepprof
from deepprof.collectors.trace import Trace
from deepprof.live.client.errors import DaemonError
from deepprof.live.service import housekeeping, query
from deepprof.live.service.context_windows import HOUR_NS, MINUTE_NS, ContextWindow, MergedWindows
from deepprof.live.service.daemon_rank import DaemonRank
from deepprof.live.service.history.context_rows import SHARE
from deepprof.live.service.history.values import ContextAnswer
from deepprof.live.wire.checking import check_batch
from deepprof.live.wire.decoding import encode_table
from deepprof.live.wire.limits import LIMITS
from deepprof.live.wire.records import KINDS
from deepprof.v1 import records_pb2 as pb
from tests.deepprof.live.service.context_making import (
    SECOND,
    Totals,
    batch_tables,
    made_tree,
    paths_of,
    totals_of,
    trace_of,
    window_rows,
)
from tests.deepprof.live.service.daemons import launch, running
from tests.deepprof.live.service.inside import Inside, ManualClock, inside, until
from tests.deepprof.live.service.sending import open_client
from tests.deepprof.live.service.test_context_windows import tree_of

CHANCE = random.Random(11)
NODES = made_tree([-1, *(CHANCE.randrange(max(0, number - 9), number) for number in range(1, 400))])
CONTEXTS = NODES["context"].to_list()
NAMES = [f"name {number}" for number in range(NODES.height)]
START = 1_800_000_000 * SECOND  # where a `ManualClock` is
ALWAYS = (-(2**62), 2**62)


def seconds(first: int, count: int, seed: int, active: int = 20) -> Trace:
    """Return the sums of some seconds, in each of which some contexts did something."""
    chance = random.Random(seed)
    rows = []
    for second in range(first, first + count):
        amounts = {c: [chance.randrange(9) for _ in range(4)] for c in chance.sample(CONTEXTS, active)}
        rows += window_rows(START + second * SECOND, amounts)
    return trace_of(NODES, rows)


def batch_of(trace: Trace, rank: DaemonRank) -> pb.Batch:
    """Return a trace's sums as the next batch of a rank, with all names in its first one."""
    tables = batch_tables(NODES, trace.context_sums.rows(named=True))
    packed = [pb.Table(kind=KINDS[name], arrow=encode_table(rows)) for name, rows in tables.items()]
    names = [] if rank.names else NAMES
    return pb.Batch(first=rank.next, tables=packed, names=names, first_name=rank.names)


async def mined(rank: DaemonRank) -> None:
    await until(lambda: not rank.submitted and not rank.queue, "it is mined")


async def stream(parts: Inside, hours: float, every_s: int = 60) -> tuple[Totals, list[int], list[int]]:
    """Send sums for some hours of the daemon's clock; return what was sent, and what the rank and the process held."""
    sent, held, resident = Totals(), [], []
    connection = object()
    rank = await parts.attach(seconds(0, 1, 0), "long", connection)
    for number in range(int(hours * 3600) // every_s):
        trace = seconds(number * every_s, every_s, number)
        sent += totals_of([trace.context_sums])
        await parts.submit(rank, batch_of(trace, rank))
        await mined(rank)
        parts.clock.pass_by(every_s * SECOND)
        if number % 10 == 9:
            await housekeeping.tidy(parts.engine)
            held.append(rank.session.nbytes + rank.state_nbytes)
            resident.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    parts.engine.detach(rank, connection)
    return sent, held, resident


def total(parts: Inside, job: str = "long") -> Totals:
    """Return what a question would be answered with."""
    ranks = list(parts.engine.roster.jobs[job].values())
    parts.engine.worker.save(ranks)
    waiting = [window for rank in ranks for window in rank.look_at_contexts()]
    return totals_of([parts.engine.history.contexts(job, None, ALWAYS, waiting).sums])


def stored(parts: Inside) -> tuple[int, int]:
    """Return the number and bytes of the windows in the history."""
    with closing(sqlite3.connect(parts.engine.history.path)) as db:
        count, nbytes = db.execute("SELECT count(*), sum(nbytes) FROM contexts").fetchone()
    return count, nbytes


@pytest.mark.parametrize(
    ("hours", "every_s", "minutes"),
    [(3, 120, 1), pytest.param(24, 60, 6, marks=pytest.mark.slow)],
    ids=["short", "day"],
)
def test_a_day_is_kept_exactly_in_bounded_memory(tmp_path: Path, hours: int, every_s: int, minutes: int) -> None:
    """`minutes`: for this many hours they are kept."""

    async def run() -> None:
        async with inside(tmp_path, {"history.merge_contexts_after": f"{minutes}h"}, ManualClock()) as parts:
            sent, held, resident = await stream(parts, hours, every_s)
            await parts.engine.order(lambda: parts.engine.worker.save(parts.engine.roster))
            await housekeeping.tidy(parts.engine)
            count, nbytes = stored(parts)
            assert count <= hours + (minutes + 1) * 60 + 2
            assert nbytes < count * NODES.height * 80
            assert total(parts) == sent
            half = len(held) // 2
            assert max(held[half:]) <= 1.1 * max(held[:half])
            assert resident[-1] - resident[half] < 64 << 10  # KiB

    asyncio.run(run())


def test_the_bytes_of_a_store_have_a_limit_whatever_comes(tmp_path: Path) -> None:
    limit = 1 << 20

    async def run() -> None:
        async with inside(tmp_path, {"history.keep_nbytes": "1MiB"}, ManualClock()) as parts:
            await stream(parts, 1, 120)
            await parts.engine.order(lambda: parts.engine.worker.save(parts.engine.roster))
            await housekeeping.tidy(parts.engine)
            assert 0 < stored(parts)[1] <= limit // SHARE

    asyncio.run(run())


def test_what_is_sent_again_counts_once_and_what_is_late_counts(tmp_path: Path) -> None:
    async def run() -> None:
        async with inside(tmp_path) as parts:
            connection = object()
            rank = await parts.attach(seconds(0, 1, 0), "job", connection)
            early, late = seconds(0, 200, 1), seconds(30, 5, 2)
            batch = batch_of(early, rank)
            await parts.submit(rank, batch)
            await parts.submit(rank, batch_of(late, rank))
            await mined(rank)
            assert total(parts, "job") == totals_of([early.context_sums, late.context_sums])
            assert check_batch(batch, LIMITS, rank.names).first < rank.next  # the door calls that a duplicate
            parts.engine.detach(rank, connection)

    asyncio.run(run())


def test_a_daemon_that_starts_again_has_what_it_had(tmp_path: Path) -> None:
    """Without a word to the old one: its state is that of some time before, and the journal gives the rest."""

    async def run() -> None:
        sent = Totals()
        for life in range(4):
            async with inside(tmp_path / str(life), clock=ManualClock()) as parts:
                if life:
                    assert total(parts, "job") == sent
                connection = object()
                rank = await parts.attach(seconds(0, 1, 0), "job", connection)
                for number in range(3):
                    trace = seconds((3 * life + number) * 100, 100, 10 * life + number)
                    sent += totals_of([trace.context_sums])
                    await parts.submit(rank, batch_of(trace, rank))
                    await mined(rank)
                    if number == life % 2:
                        await parts.engine.order(lambda: parts.engine.worker.save(parts.engine.roster))
                shutil.copytree(tmp_path / str(life), tmp_path / str(life + 1))  # as kill -9 would leave it
                parts.engine.detach(rank, connection)

    asyncio.run(run())


def test_an_answer_has_only_so_many_bytes_of_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query, "NAMES_NBYTES", 3 * query.NAME_CHARS)
    merged = MergedWindows(100, 100)
    tree = tree_of((-1, 0, 1, 2, 3), {number: (number, 1, 1, 1) for number in range(5)})
    long = pl.lit("x" * 2 * query.NAME_CHARS)
    merged.add(ContextWindow(START, MINUTE_NS, tree.with_columns(name=long)))
    found = query._contexts_of(ContextAnswer(*merged.finish(), 1, 10, MINUTE_NS, START))
    nodes, sums = pl.read_ipc_stream(io.BytesIO(found.nodes)), pl.read_ipc_stream(io.BytesIO(found.sums))
    assert nodes["name"].to_list() == ["x" * query.NAME_CHARS] * 3
    assert sums["count"].to_list() == [0, 1, 2]
    assert found.folded == 10 + 3 + 4
    paths_of(nodes)


@pytest.fixture
def folder() -> Iterator[Path]:
    found = Path(tempfile.mkdtemp(prefix="dp-"))
    yield found
    shutil.rmtree(found, ignore_errors=True)


def test_a_daemon_that_is_killed_answers_the_same_afterwards(folder: Path) -> None:
    traces = [seconds(0, 150, 1), seconds(0, 150, 2)]
    daemon = launch(folder).wait_ready()
    with open_client(daemon) as client:
        client.send([trace_of(NODES, t.context_sums.rows(named=True), rank) for rank, t in enumerate(traces)], "job")
        before = client.contexts("job")
    daemon.kill()
    daemon = launch(folder).wait_ready()
    with open_client(daemon) as client:
        after, one = client.contexts("job"), client.contexts("job", rank=1)
    assert daemon.stop() == 0
    assert totals_of([before.sums]) == totals_of([after.sums]) == totals_of(trace.context_sums for trace in traces)
    assert totals_of([one.sums]) == totals_of([traces[1].context_sums])
    assert paths_of(before.nodes).items() == paths_of(after.nodes).items()


def test_questions_over_grpc() -> None:
    trace = seconds(0, 300, 5)
    with running() as daemon, open_client(daemon) as client:
        client.send(trace, "job")
        whole = client.contexts("job")
        assert (whole.job, whole.rank, whole.folded, whole.earliest_ns) == ("job", None, 0, START)
        assert totals_of([whole.sums]) == totals_of([trace.context_sums])
        assert whole.sums["time_ns"].unique().sort().to_list() == [START + minute * MINUTE_NS for minute in range(5)]
        assert set(paths_of(whole.nodes)) - {0} == set(trace.context_sums["context"]) | (
            set(paths_of(whole.nodes)) - {0}
        )
        part = client.contexts("job", rank=0, start_ns=START + MINUTE_NS, end_ns=START + 2 * MINUTE_NS)
        rows = trace.context_sums.filter(
            trace.context_sums["time_ns"].is_between(START + MINUTE_NS, START + 2 * MINUTE_NS, closed="left")
        )
        assert totals_of([part.sums]) == totals_of([rows])
        assert part.windows == 1
        assert client.contexts("job", rank=5).sums.is_empty()
        assert client.contexts("job", start_ns=START + HOUR_NS).windows == 0
        with pytest.raises(DaemonError, match="no job"):
            client.contexts("nobody")
        (again,) = client.window("job")
        assert totals_of([again.context_sums]) == totals_of([trace.context_sums])
        assert isinstance(again, deepprof.Trace)
