"""Clients that are, vanish or do not listen: the daemon uses none of it amiss, and every record is accounted for."""

from __future__ import annotations

import os
import resource
import socket
import threading
from collections.abc import Iterator
from itertools import count

import grpc
import pytest

import deepprof
from deepprof.live.client.daemon import Daemon as Client
from deepprof.live.wire.checking import count_records
from deepprof.live.wire.cutting import cut
from deepprof.live.wire.decoding import encode_table
from deepprof.live.wire.heads import make_end, make_hello
from deepprof.v1 import query_pb2, query_pb2_grpc
from deepprof.v1.records_pb2 import Batch, End, Hello, Table
from tests.deepprof.live.service.daemons import Daemon, running, wait_for
from tests.deepprof.live.service.raw import RawStream
from tests.deepprof.live.service.sending import check_accounts, iterations_of, open_client, wait_settled
from tests.deepprof.live.service.traces import gpu_only_trace
from tests.patience import PATIENCE_S

CODE = grpc.StatusCode
HONEST = count()  # seeds: no two traces are alike


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    with running() as found:
        yield found
        with open_client(found) as client:
            serve_honest(client)


@pytest.fixture(scope="module")
def trace() -> deepprof.Trace:
    return gpu_only_trace(iterations=30, kernels=200)


@pytest.fixture(scope="module")
def batches(trace: deepprof.Trace) -> list[Batch]:
    return list(cut(trace, records=1000))


@pytest.fixture(autouse=True)
def nothing_is_lost(daemon: Daemon) -> Iterator[None]:
    """After every test the accounts add up, the daemon is ready, and an honest client is served."""
    yield
    with open_client(daemon) as client:
        check_accounts(client)
        client.forget(serve_honest(client, settled=False))
    assert daemon.get("/readyz")[0] == 200


def serve_honest(client: Client, *, settled: bool = True) -> str:
    """Send what is right, and return its job; where it shall be `settled`, it is examined too."""
    honest = gpu_only_trace(iterations=8, kernels=50, seed=next(HONEST))
    job = f"honest-{os.urandom(4).hex()}"
    assert client.send(honest, job).durable == honest.accounting.kept
    wait_for(lambda: client.ranks(job)[0].account.accepted == honest.accounting.kept, "all is mined")
    if settled:
        wait_settled(client, job)
    return job


def hello(trace: deepprof.Trace, job: str, **more: object) -> Hello:
    return make_hello(trace, job, collector=str(more.get("collector", "test")))


def accounts(daemon: Daemon, job: str) -> object:
    with open_client(daemon) as client:
        return client.ranks(job)[0].account


def test_duplicate_batches_are_counted_once(daemon: Daemon, trace: deepprof.Trace, batches: list[Batch]) -> None:
    with RawStream(daemon) as stream:
        stream.say(hello=hello(trace, "duplicates"))
        for batch in batches:
            stream.say(batch=batch)
            stream.say(batch=batch)
            stream.say(batch=batches[0])
        stream.say(end=make_end(trace))
        assert stream.fate() is CODE.OK
    with open_client(daemon) as client:
        wait_settled(client, "duplicates")
        found = client.ranks("duplicates")[0].account
        assert found.accepted == trace.accounting.kept
        assert found.duplicate == trace.accounting.kept + len(batches) * count_records(batches[0])
        assert client.iterations("duplicates").equals(iterations_of(trace))


def test_names_and_devices_without_records_may_come_twice(
    daemon: Daemon, trace: deepprof.Trace, batches: list[Batch]
) -> None:
    devices = Table(kind="TABLE_KIND_DEVICES", arrow=encode_table(trace.devices))
    described = Batch(names=batches[0].names, tables=[devices])
    with RawStream(daemon) as stream:
        stream.say(hello=hello(trace, "described"))
        stream.say(batch=described)
        stream.say(batch=described)
        stream.say(batch=Batch(tables=batches[0].tables))
        stream.say(end=End())
        assert stream.fate() is CODE.OK


def test_a_jump_in_the_numbers_is_refused_and_mended(
    daemon: Daemon, trace: deepprof.Trace, batches: list[Batch]
) -> None:
    with RawStream(daemon) as stream:
        stream.say(hello=hello(trace, "jump"))
        stream.say(batch=batches[0])
        stream.say(batch=batches[2])
        assert stream.fate() is CODE.OUT_OF_RANGE
    with RawStream(daemon) as stream:
        stream.say(hello=hello(trace, "jump"))
        assert stream.hear().durable == count_records(batches[0])
        for batch in batches[1:]:
            stream.say(batch=batch)
        stream.say(end=make_end(trace))
        assert stream.fate() is CODE.OK
    with open_client(daemon) as client:
        wait_settled(client, "jump")
        assert client.iterations("jump").equals(iterations_of(trace))
        found = client.ranks("jump")[0].account
        assert (found.accepted, found.invalid) == (trace.accounting.kept, count_records(batches[2]))


LIES = {
    "garbage": Batch(tables=[Table(kind=1, arrow=os.urandom(4096))]),
    "nothing": Batch(tables=[Table(kind=1, arrow=b"")]),
    "kind": Batch(tables=[Table(kind=99, arrow=b"x")]),
    "number": Batch(first=2**63),
    "name": Batch(names=["x" * 100_000]),
    "first-name": Batch(first_name=7, names=["x"]),
    "promise": Batch(complete_until_ns=2**63 - 1),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_ends_its_stream_and_nothing_else(lie: str, daemon: Daemon, trace: deepprof.Trace) -> None:
    with RawStream(daemon) as stream:
        stream.say(hello=hello(trace, f"lie-{lie}"))
        stream.hear()
        stream.say(batch=LIES[lie])
        assert stream.fate() in (CODE.INVALID_ARGUMENT, CODE.OUT_OF_RANGE)
    with open_client(daemon) as client:
        client.forget(f"lie-{lie}")


@pytest.mark.parametrize("cut_at", [0.1, 0.5, 0.99])
def test_a_damaged_table_is_invalid(cut_at: float, daemon: Daemon, trace: deepprof.Trace, batches: list[Batch]) -> None:
    job = f"damaged-{int(cut_at * 100)}"
    damaged = Batch()
    damaged.CopyFrom(batches[0])
    damaged.tables[0].arrow = damaged.tables[0].arrow[: int(len(damaged.tables[0].arrow) * cut_at)]
    with RawStream(daemon) as stream:
        stream.say(hello=hello(trace, job))
        stream.say(batch=damaged)
        assert stream.fate() is CODE.INVALID_ARGUMENT


@pytest.mark.parametrize("job", ["", "../../etc/passwd", "a" * 129, "a b", "a\nb", "-rf", "é", "a/../b/", "\x1b[31m"])
def test_names_that_could_be_misunderstood_are_refused(job: str, daemon: Daemon) -> None:
    with RawStream(daemon) as stream:
        stream.say(hello=Hello(job=job, collector="c", clock="CLOCK_UNIX"))
        assert stream.fate() is CODE.INVALID_ARGUMENT
    with open_client(daemon) as client:
        assert job not in {known.job for known in client.jobs()}


def test_a_job_whose_name_has_slashes_is_one_everywhere(daemon: Daemon, trace: deepprof.Trace) -> None:
    job = "team/../llm:7b/run-1"
    with open_client(daemon) as client:
        client.send(trace, job)
        wait_settled(client, job)
        assert client.iterations(job).equals(iterations_of(trace))
        capture = client.capture(job, 0)
        assert (daemon.store / "captures" / capture.name).is_dir()
        assert f'job_id="{job}"' in daemon.get("/metrics")[1]
        assert client.findings(job) is not None
        client.forget(job)
        assert not (daemon.store / "captures" / capture.name).exists()


def test_the_first_message_must_be_a_hello(daemon: Daemon, batches: list[Batch]) -> None:
    with RawStream(daemon) as stream:
        stream.say(batch=batches[0])
        assert stream.fate() is CODE.INVALID_ARGUMENT


def test_a_message_above_the_limit_is_refused(daemon: Daemon, trace: deepprof.Trace) -> None:
    with RawStream(daemon) as stream:
        stream.say(hello=hello(trace, "oversized"))
        stream.hear()
        stream.say(batch=Batch(tables=[Table(kind=1, arrow=bytes((16 << 20) + 1))]))
        assert stream.fate() is CODE.RESOURCE_EXHAUSTED


def test_bytes_that_are_no_grpc_are_ignored(daemon: Daemon) -> None:
    for content in (
        b"GET / HTTP/1.1\r\n\r\n",
        os.urandom(65_536),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + os.urandom(999),
    ):
        with socket.socket(socket.AF_UNIX) as raw:
            raw.connect(daemon.address.removeprefix("unix:"))
            try:
                raw.sendall(content)
            except OSError:
                continue  # it had heard enough


def test_a_client_that_vanishes_amid_a_batch_loses_what_was_not_acknowledged(
    daemon: Daemon, trace: deepprof.Trace, batches: list[Batch]
) -> None:
    for _ in range(5):
        stream = RawStream(daemon)
        stream.say(hello=hello(trace, "vanishing"))
        answer = stream.hear()
        todo = [batch for batch in batches if batch.first >= answer.durable]
        for batch in todo[:2]:
            stream.say(batch=batch)
        stream.channel.close()  # at once, whatever is on its way
    with RawStream(daemon) as stream:
        stream.say(hello=hello(trace, "vanishing"))
        durable = stream.hear().durable
        for batch in batches:
            if batch.first >= durable:
                stream.say(batch=batch)
        stream.say(end=make_end(trace))
        assert stream.fate() is CODE.OK
    with open_client(daemon) as client:
        wait_settled(client, "vanishing")
        assert client.iterations("vanishing").equals(iterations_of(trace))


def test_a_newer_stream_of_the_collector_takes_over(
    daemon: Daemon, trace: deepprof.Trace, batches: list[Batch]
) -> None:
    with RawStream(daemon) as old, RawStream(daemon) as new:
        old.say(hello=hello(trace, "takeover"))
        old.hear()
        old.say(batch=batches[0])
        old.hear_durable(count_records(batches[0]))
        new.say(hello=hello(trace, "takeover"))
        assert new.hear().durable == count_records(batches[0])
        old.say(batch=batches[1])
        assert old.fate() is CODE.ABORTED
        new.say(batch=batches[1])
        new.hear_durable(batches[2].first)


def test_another_collector_waits_until_the_first_has_gone(daemon: Daemon, trace: deepprof.Trace) -> None:
    with RawStream(daemon) as first:
        first.say(hello=hello(trace, "two", collector="one"))
        first.hear()
        with RawStream(daemon) as second:
            second.say(hello=hello(trace, "two", collector="other"))
            assert second.fate() is CODE.ALREADY_EXISTS
        first.call.cancel()

    def come() -> bool:
        with RawStream(daemon) as second:
            second.say(hello=hello(trace, "two", collector="other"))
            second.say(end=End())
            return second.fate() is CODE.OK

    wait_for(come, "the first one's place is free")


def test_a_reader_that_does_not_read_holds_nobody_up(daemon: Daemon, trace: deepprof.Trace) -> None:
    with open_client(daemon) as client:
        client.send(trace, "unread")
    channel = grpc.insecure_channel(daemon.address)
    stub = query_pb2_grpc.QueryStub(channel)  # type: ignore[no-untyped-call]
    calls = [stub.ReadWindow(query_pb2.ReadWindowRequest(job="unread")) for _ in range(16)]
    calls += [stub.Watch(query_pb2.WatchRequest(interval_ms=100)) for _ in range(16)]
    with open_client(daemon) as client:
        client.send(gpu_only_trace(iterations=50, kernels=100, seed=3), "beside")
        wait_settled(client, "beside")
    for call in calls:
        call.cancel()
    channel.close()


def test_a_client_that_forks_while_it_sends_is_served(daemon: Daemon, trace: deepprof.Trace) -> None:
    code = (
        "import os, sys, threading, deepprof\n"
        "from deepprof.live.client.connection import connect\n"
        "def fork():\n"
        "    for _ in range(20):\n"
        "        child = os.fork()\n"
        "        if not child:\n"
        "            os._exit(0)\n"
        "        os.waitpid(child, 0)\n"
        "thread = threading.Thread(target=fork)\n"
        "thread.start()\n"
        "from tests.deepprof.live.service.traces import gpu_only_trace\n"
        "trace = gpu_only_trace(iterations=100, kernels=200)\n"
        "with connect(sys.argv[1]) as client:\n"
        "    total = client.send(trace, 'forking')\n"
        "thread.join()\n"
        "assert total.durable == trace.accounting.kept\n"
    )
    import subprocess
    import sys

    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code, daemon.address], timeout=PATIENCE_S, check=False)
    assert done.returncode == 0


def test_a_full_disk_stops_acknowledgements_until_there_is_room() -> None:
    trace = gpu_only_trace(iterations=150, kernels=200)
    with running(settings=["journal.segment_nbytes=1MiB", "limits.message_nbytes=512KiB"]) as daemon:
        used = sum(file.stat().st_size for file in (daemon.store / "journal").iterdir())
        pid, (_, hard) = daemon.process.pid, resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (used + 300_000, hard))  # a write beyond fails, as on a full disk
        first, *others = cut(trace, records=1000)
        with RawStream(daemon) as stream:
            stream.say(hello=hello(trace, "full"))
            stream.say(batch=first)
            stream.hear_durable(1)  # the writer takes what has come at once: all of it might not fit
            for batch in others:
                stream.say(batch=batch)
            assert stream.fate() is CODE.RESOURCE_EXHAUSTED
        assert daemon.get("/readyz")[0] == 503
        assert daemon.get("/healthz")[0] == 200
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard, hard))
        with RawStream(daemon) as stream:
            stream.say(hello=hello(trace, "full"))
            durable = stream.hear().durable
            assert 0 < durable < trace.accounting.kept
            for batch in cut(trace, records=1000):
                stream.say(batch=batch)
            stream.say(end=make_end(trace))
            assert stream.fate() is CODE.OK
        with open_client(daemon) as client:
            wait_settled(client, "full")
            check_accounts(client)
            assert client.iterations("full").equals(iterations_of(trace))
            assert client.ranks("full")[0].account.dropped["journal-failed"] > 0
        wait_for(lambda: daemon.get("/readyz")[0] == 200, "ready again")


def test_a_client_that_waits_is_told_at_once_that_the_disk_is_full() -> None:
    trace = gpu_only_trace(iterations=30, kernels=200)
    with running() as daemon:
        pid, (_, hard) = daemon.process.pid, resource.getrlimit(resource.RLIMIT_FSIZE)
        first, second, *_ = cut(trace, records=1000)
        with RawStream(daemon) as stream:
            stream.say(hello=hello(trace, "waiting"))
            stream.say(batch=first)
            stream.hear_durable(1)
            used = sum(file.stat().st_size for file in (daemon.store / "journal").iterdir())
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (used + 1000, hard))
            stream.say(batch=second)  # and nothing more until it is acknowledged
            assert stream.fate() is CODE.RESOURCE_EXHAUSTED
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard, hard))


def test_sigterm_amid_a_stream_saves_what_was_acknowledged(trace: deepprof.Trace, batches: list[Batch]) -> None:
    from tests.deepprof.live.service.daemons import launch

    with running() as daemon:
        with RawStream(daemon) as stream:
            stream.say(hello=hello(trace, "stopped"))
            stream.say(batch=batches[0])
            durable = stream.hear_durable(1).durable
            ending = threading.Thread(target=daemon.stop)
            ending.start()
            stream.fate()
            ending.join()
        assert daemon.process.returncode == 0
        assert daemon.event("stopped") is not None
        again = launch(daemon.folder).wait_ready()
        try:
            ready = again.event("ready")
            assert ready is not None
            assert ready["messages"] == 0  # all was saved: nothing had to be mined again
            with RawStream(again) as stream:
                stream.say(hello=hello(trace, "stopped"))
                assert stream.hear().durable == durable
        finally:
            again.kill()
