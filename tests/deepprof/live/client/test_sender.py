"""The sender against a daemon that fails in every way: nothing twice, nothing lost, nothing skipped silently."""

from __future__ import annotations

import asyncio
import io
import threading
from dataclasses import replace

import grpc
import polars as pl
import pytest

from deepprof.collectors.trace import DEVICE_EVENTS
from deepprof.live.client.endpoint import find_endpoint
from deepprof.live.client.errors import DaemonError
from deepprof.live.client.sender import Sender, SendPolicy, SentTotals
from deepprof.v1.records_pb2 import Batch, End, Gap, Hello, Table
from tests.patience import PATIENCE_S

from .fake_daemon import ALLOWED, FakeDaemon, Script, listen

DEADLINE_S = PATIENCE_S
POLICY = SendPolicy(window_nbytes=1 << 20, silence_s=PATIENCE_S, patience_s=10, reach_s=10)


class FastClock:
    """Time that passes at once."""

    def __init__(self):
        self.now, self.pauses = 0.0, []

    def now_s(self):
        return self.now

    async def sleep(self, seconds):
        self.pauses.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)


def hello(**changes):
    return Hello(**({"job": "job", "rank": 0, "collector": "c", "clock": 1, "rank_known": True} | changes))


def batch(first, count, names=(), first_name=0):
    rows = pl.DataFrame({"start_ns": range(first, first + count)}).with_columns(
        end_ns=pl.col("start_ns") + 1, device=0, stream=7, activity=pl.lit("kernel"), name_id=0
    )
    absent = [pl.lit(None, kind).alias(name) for name, kind in DEVICE_EVENTS.items() if name not in rows.columns]
    table = rows.with_columns(absent).select(DEVICE_EVENTS.names()).cast(dict(DEVICE_EVENTS))
    written = io.BytesIO()
    table.write_ipc_stream(written)
    tables = [Table(kind="TABLE_KIND_DEVICE_EVENTS", arrow=written.getvalue())] if count else []
    return Batch(first=first, names=names, first_name=first_name, complete_until_ns=first + count, tables=tables)


def send(endpoint, *, batches=10, size=50, policy=POLICY, clock=None, notice=None):
    """Send this many batches; returns what was sent."""

    async def run():
        async with asyncio.timeout(DEADLINE_S):
            async with Sender(endpoint, hello(), policy, clock=clock or FastClock(), notice=notice) as sender:
                for number in range(batches):
                    names = [f"n{number}"]
                    await sender.send(batch(number * size, size, names, number), size)
                return await sender.end(End(dropped={"flow": 3}))

    return asyncio.run(run())


def check_whole(daemon, batches=10, size=50):
    rank = daemon.rank()
    assert rank.durable == batches * size
    assert [each.first for each in rank.batches] == [number * size for number in range(batches)]
    assert rank.names == [f"n{number}" for number in range(batches)]
    assert rank.ended
    assert isinstance(rank.messages[-1], End)
    assert rank.messages[-1].dropped == {"flow": 3}


def test_everything_arrives_once_and_in_order(daemon, endpoint):
    sent = send(endpoint)
    check_whole(daemon)
    assert sent == SentTotals(records=500, durable=500, connections=1)
    assert daemon.rank().duplicate == 0


def test_an_end_without_records_is_an_end(daemon, endpoint):
    assert send(endpoint, batches=0) == SentTotals(connections=1)
    assert daemon.rank().ended


@pytest.mark.parametrize("taken", [False, True], ids=["untaken", "answer lost"])
@pytest.mark.parametrize("after", [0, 1, 4, 9, 10])
@pytest.mark.parametrize("code", [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN])
def test_a_connection_that_breaks_loses_nothing_and_counts_nothing_twice(daemon, endpoint, code, after, taken):
    daemon.scripts = [Script(after=after, code=code, taken=taken)]
    sent = send(endpoint)
    check_whole(daemon)
    assert (sent.durable, sent.connections, sent.lost) == (500, 2, 0)


def test_many_breaks_in_a_row_are_borne_while_something_arrives(daemon, endpoint):
    daemon.scripts = [Script(after=1, taken=True)] * 9
    clock = FastClock()
    sent = send(endpoint, clock=clock, policy=replace(POLICY, patience_s=0.15))
    check_whole(daemon)
    assert sent.connections == 6  # two batches each, and the end
    assert clock.now > 0.15
    assert max(clock.pauses) <= 0.1  # it has begun anew every time


def test_pauses_grow_to_a_limit_and_vary(daemon, endpoint):
    daemon.scripts = [Script(after=-1)] * 12
    clock, told = FastClock(), []
    send(endpoint, clock=clock, policy=replace(POLICY, patience_s=None, reach_s=None), notice=told.append)
    check_whole(daemon)
    assert len(clock.pauses) == len(told) == 12
    for number, pause in enumerate(clock.pauses):
        whole = min(0.1 * 2**number, 10)
        assert whole / 2 <= pause <= whole
    assert all("the test says so" in text for text in told)


def test_patience_has_an_end(daemon, endpoint, address):
    daemon.scripts = [Script(after=-1)] * 1000
    clock = FastClock()
    with pytest.raises(DaemonError, match="the test says so") as told:
        send(endpoint, clock=clock)
    assert clock.now == pytest.approx(POLICY.patience_s)
    assert address in str(told.value)
    assert told.value.passing


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (grpc.StatusCode.INVALID_ARGUMENT, "refused what it was told"),
        (grpc.StatusCode.ALREADY_EXISTS, "another collector is connected"),
        (grpc.StatusCode.ABORTED, "a newer stream"),
        (grpc.StatusCode.UNAUTHENTICATED, "--token-file"),
        (grpc.StatusCode.PERMISSION_DENIED, "scope"),
        (grpc.StatusCode.UNIMPLEMENTED, "versions"),
    ],
)
def test_a_refusal_is_final_and_one_line(daemon, endpoint, code, words):
    daemon.scripts = [Script(after=2, code=code, details="field\n\x1b[2J tables")]
    with pytest.raises(DaemonError, match=words) as told:
        send(endpoint)
    assert daemon.connections == 1
    assert str(told.value).isprintable()
    assert not told.value.passing


def test_a_jump_is_mended_once_by_going_on_where_the_daemon_says(daemon, endpoint):
    daemon.scripts = [Script(after=3, code=grpc.StatusCode.OUT_OF_RANGE)]
    send(endpoint)
    check_whole(daemon)
    daemon.scripts, daemon.ranks = [Script(after=0, code=grpc.StatusCode.OUT_OF_RANGE)] * 9, {}
    daemon.connections = 0
    with pytest.raises(DaemonError, match="misses records"):
        send(endpoint)
    assert daemon.connections == 2


def test_a_full_daemon_is_waited_for(daemon, endpoint):
    daemon.scripts = [Script(after=2, code=grpc.StatusCode.RESOURCE_EXHAUSTED, details="disk full")]
    told = []
    send(endpoint, notice=told.append)
    check_whole(daemon)
    assert ["has no room (disk full)" in text for text in told] == [True]


def test_a_message_that_is_too_large_is_no_matter_of_waiting(daemon, endpoint):
    details = "CLIENT: Received message larger than max (20 vs. 10)"
    daemon.scripts = [Script(after=0, code=grpc.StatusCode.RESOURCE_EXHAUSTED, details=details)]
    with pytest.raises(DaemonError, match="takes no message of this size"):
        send(endpoint)


def test_a_daemon_that_falls_silent_is_called_anew(daemon, endpoint):
    daemon.scripts = [Script(after=4, silent=True)]
    sent = send(endpoint, policy=replace(POLICY, silence_s=0.2, patience_s=None, reach_s=None))
    check_whole(daemon)
    assert sent.connections >= 2  # more where the machine is as silent


def test_a_daemon_that_never_answers_is_given_up(daemon, endpoint):
    daemon.scripts = [Script(after=0, silent=True)] * 50
    with pytest.raises(DaemonError, match="did not answer in time"):
        send(endpoint, policy=replace(POLICY, silence_s=0.05, patience_s=1))


def test_answers_may_come_late_and_together(daemon, endpoint):
    daemon.scripts = [Script(ack_every=1000)]
    assert send(endpoint).durable == 500
    check_whole(daemon)


def test_what_the_daemon_has_is_not_sent_again(daemon, endpoint):
    send(endpoint, batches=4)
    daemon.rank().ended = False
    daemon.order.clear()
    sent = send(endpoint)
    assert (sent.present, sent.durable) == (200, 500)
    assert [each.first for each in daemon.rank().batches] == [number * 50 for number in range(10)]
    assert send(endpoint).present == 500


def test_a_daemon_that_lost_what_it_acknowledged_is_told_apart(daemon, endpoint):
    daemon.scripts = [Script(after=5), Script(forget=True)]
    with pytest.raises(DaemonError, match="its store was replaced"):
        send(endpoint)


def test_a_daemon_that_is_not_there_is_one_line(folder):
    with pytest.raises(DaemonError, match="there is no such socket; start it with deepprof serve --listen unix:"):
        send(find_endpoint(f"unix:{folder}/none.sock", environ={}))


def test_a_daemon_that_never_answered_is_given_up_sooner(folder):
    clock = FastClock()
    with pytest.raises(DaemonError):
        send(find_endpoint(f"unix:{folder}/none.sock", environ={}), clock=clock, policy=SendPolicy())
    assert clock.now == pytest.approx(SendPolicy().reach_s)


def test_a_daemon_that_goes_for_good_is_one_line(folder):
    daemon = FakeDaemon()
    with listen(daemon, folder) as address:
        endpoint = find_endpoint(address, environ={})
        send(endpoint, batches=1)
    with pytest.raises(DaemonError):
        send(endpoint)


def test_a_daemon_that_comes_late_is_waited_for(folder):
    daemon, endpoint = FakeDaemon(), find_endpoint(f"unix:{folder}/d.sock", environ={})
    away, back = threading.Event(), threading.Event()

    def notice(_):
        away.set()
        assert back.wait(DEADLINE_S)

    def begin():
        assert away.wait(DEADLINE_S)
        with listen(daemon, folder):
            back.set()
            assert done.wait(DEADLINE_S)

    done = threading.Event()
    thread = threading.Thread(target=begin)
    thread.start()
    try:
        send(endpoint, notice=notice)
    finally:
        done.set()
        thread.join(DEADLINE_S)
    check_whole(daemon)


def run(coroutine):
    async def limited():
        async with asyncio.timeout(DEADLINE_S):
            return await coroutine

    return asyncio.run(limited())


def test_a_slow_daemon_holds_the_caller_up(daemon, endpoint):
    hold = threading.Event()
    daemon.scripts = [Script(hold=hold)]
    size = batch(0, 50).ByteSize()

    async def flood():
        policy = replace(POLICY, window_nbytes=3 * size)
        async with Sender(endpoint, hello(), policy, clock=FastClock()) as sender:
            for number in range(3):
                await sender.send(batch(number * 50, 50), 50)
            fourth = asyncio.create_task(sender.send(batch(150, 50), 50))
            done, _ = await asyncio.wait({fourth}, timeout=0.2)
            assert not done
            assert sender.window.nbytes <= 3 * size + 100
            hold.set()
            await fourth
            return await sender.end(End())

    assert run(flood()).durable == 200


def test_a_live_collector_lets_go_and_says_how_much(daemon, endpoint):
    hold = threading.Event()
    daemon.scripts = [Script(hold=hold)]
    size = batch(0, 50, ["n0"]).ByteSize()

    async def flood():
        policy = replace(POLICY, window_nbytes=2 * size, on_full="gap")
        async with Sender(endpoint, hello(), policy, clock=FastClock()) as sender:
            for number in range(7):
                await sender.send(batch(number * 50, 50, [f"n{number}"], number), 50)
            hold.set()
            while sender.window.entries:
                await sender.wait()
            await sender.send(batch(350, 50, ["n7"], 7), 50)
            return await sender.end(End())

    sent = run(flood())
    rank = daemon.rank()
    assert rank.gaps == [Gap(first=100, lost=250, reason="buffer-full")]
    assert rank.names == [f"n{number}" for number in range(8)]
    assert (sent.records, sent.durable, sent.lost) == (400, 400, 250)
    assert sum(each.first == 350 and len(each.tables) for each in rank.batches) == 1


def test_what_is_let_go_at_the_end_is_said_too(daemon, endpoint):
    hold = threading.Event()
    daemon.scripts = [Script(hold=hold)]

    async def flood():
        async with Sender(
            endpoint, hello(), replace(POLICY, window_nbytes=1, on_full="gap"), clock=FastClock()
        ) as sender:
            for number in range(3):
                await sender.send(batch(number * 50, 50), 50)
            hold.set()
            return await sender.end(End())

    assert run(flood()).lost == 100
    assert [(gap.first, gap.lost) for gap in daemon.rank().gaps] == [(50, 100)]
    assert daemon.rank().ended


def test_a_live_collector_bears_a_daemon_that_is_not_there(folder):
    async def flood():
        policy = replace(POLICY, window_nbytes=5000, on_full="gap", reach_s=None)
        async with Sender(find_endpoint(f"unix:{folder}/x", environ={}), hello(), policy, clock=FastClock()) as sender:
            for number in range(100):
                await sender.send(batch(number * 50, 50), 50)
            assert sender.window.nbytes < 5000 + batch(0, 50).ByteSize()
            return sender.sent

    assert run(flood()).lost > 0


def test_a_gap_of_the_collector_goes_through(daemon, endpoint):
    daemon.scripts = [Script(after=1, taken=True)]

    async def tell():
        async with Sender(endpoint, hello(), POLICY, clock=FastClock()) as sender:
            await sender.send(batch(0, 50), 50)
            await sender.gap(Gap(first=50, lost=10, reason="duty-cycle"))
            await sender.gap(Gap(first=60, lost=0, reason="unknown"))
            await sender.send(batch(60, 50), 50)
            return await sender.end(End())

    assert run(tell()).durable == 110
    assert [(gap.first, gap.lost) for gap in daemon.rank().gaps] == [(50, 10), (60, 0)]


def test_leaving_early_leaves_no_task_behind(daemon, endpoint):
    async def leave():
        async with Sender(endpoint, hello(), POLICY, clock=FastClock()) as sender:
            await sender.send(batch(0, 50), 50)
        return [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]

    assert all(task.done() or "limited" in repr(task) for task in run(leave()))


def test_a_token_goes_along_and_a_wrong_one_is_refused(daemon, address, tmp_path):
    from deepprof.live.client.credentials import Credentials

    file = tmp_path / "token"
    file.write_text("let-me-in\n")
    file.chmod(0o600)
    daemon.token = ALLOWED
    send(find_endpoint(address, Credentials(token_file=str(file)), environ={}))
    check_whole(daemon)
    with pytest.raises(DaemonError, match="wants a token"):
        send(find_endpoint(address, environ={}))
