"""What the sender states of its collector: the latest counts, on every connection, and nothing waits for it."""

from __future__ import annotations

import threading

import grpc

from deepprof.live.client.endpoint import find_endpoint
from deepprof.live.client.sender import Sender
from deepprof.live.client.stream import IngestStream
from deepprof.v1.ingest_pb2 import SendRequest
from deepprof.v1.records_pb2 import End, Status
from tests.deepprof.live.client.fake_daemon import Script
from tests.deepprof.live.client.test_sender import POLICY, FastClock, batch, hello, run


def status(lost):
    return Status(level="COLLECTOR_LEVEL_FULL", duty_ratio=1, lost=lost)


def tell(endpoint, *, batches=2, before=(), between=()):
    """Send batches, with statuses told before and between them."""

    async def talk():
        async with Sender(endpoint, hello(), POLICY, clock=FastClock()) as sender:
            for each in before:
                sender.tell(each)
            for number in range(batches):
                await sender.send(batch(number * 50, 50), 50)
                while sender.window.entries:
                    await sender.wait()
                for each in between:
                    sender.tell(each)
            return await sender.end(End())

    return run(talk())


def test_a_status_arrives_before_what_follows_it(daemon, endpoint):
    tell(endpoint, before=[status(1), status(2)])
    assert daemon.rank().statuses == [status(2)]
    assert [kind for _, kind in daemon.order] == ["status", "batch", "batch", "end"]


def test_the_latest_is_told_once_and_each_later_one(daemon, endpoint):
    told = status(3)
    tell(endpoint, batches=3, between=[told])
    assert daemon.rank().statuses == [told]
    assert daemon.rank().durable == 150


def test_it_is_told_again_on_a_new_connection(daemon, endpoint):
    daemon.scripts = [Script(after=2, code=grpc.StatusCode.UNAVAILABLE)]
    sent = tell(endpoint, before=[status(4)])
    assert sent.connections == 2
    assert daemon.rank().statuses == [status(4), status(4)]


def test_a_daemon_that_does_not_understand_it_is_not_told(daemon, endpoint):
    daemon.takes_status = False
    assert tell(endpoint, before=[status(5)]).durable == 100
    assert daemon.rank().statuses == []


def test_telling_nobody_is_no_failure(folder):
    async def talk():
        async with Sender(
            find_endpoint(f"unix:{folder}/none", environ={}), hello(), POLICY, clock=FastClock()
        ) as sender:
            for number in range(1000):
                sender.tell(status(number))
            return sender.sent

    assert run(talk()).connections == 0


def test_of_those_that_nobody_takes_one_waits(endpoint):
    stream = IngestStream(endpoint, hello(), 1.0)
    for number in range(1000):
        stream.tell(SendRequest(status=status(number)))
    assert stream.requests.qsize() == 1
    stream.write(SendRequest(end=End()))
    stream.requests.put(None)
    assert list(stream.take()) == [SendRequest(status=status(999)), SendRequest(end=End())]


def test_none_is_left_waiting_however_the_threads_meet(endpoint):
    stream, taken = IngestStream(endpoint, hello(), 1.0), []
    reader = threading.Thread(target=lambda: taken.extend(each.status.lost for each in stream.take()))
    reader.start()
    for number in range(1, 5001):
        stream.tell(SendRequest(status=status(number)))
    stream.requests.put(None)
    reader.join()
    assert taken[-1] == 5000
    assert taken == sorted(taken)
