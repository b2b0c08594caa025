"""A daemon of the tests' own: the three services over a unix socket, with faults that a script names."""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
import polars as pl

from deepprof.v1 import admin_pb2, admin_pb2_grpc, ingest_pb2, ingest_pb2_grpc, query_pb2, query_pb2_grpc, records_pb2
from tests.patience import PATIENCE_S

ALLOWED = "Bearer let-me-in"
RECORD_KINDS = (1, 2, 3, 4)
DEADLINE_S = PATIENCE_S


@dataclass
class Script:
    """What befalls one connection of `Send`. `after` counts messages behind the Hello; None: nothing befalls it."""

    after: int | None = None
    code: grpc.StatusCode = grpc.StatusCode.UNAVAILABLE
    details: str = "the test says so"
    taken: bool = False  # the message at which it breaks is taken, and its answer lost
    silent: bool = False  # from `after` on nothing is read nor answered, and the connection stays
    ack_every: int = 1
    hold: threading.Event | None = None  # nothing is read before it is set
    forget: bool = False  # the store was replaced


@dataclass
class Rank:
    """What was taken of one collector's rank."""

    hello: records_pb2.Hello
    messages: list[Any] = field(default_factory=list)
    durable: int = 0
    kept: int = 0  # of them in batches
    duplicate: int = 0
    names: list[str] = field(default_factory=list)
    ended: bool = False
    statuses: list[records_pb2.Status] = field(default_factory=list)

    def take(self, request: ingest_pb2.SendRequest) -> bool:
        """Take a message; False: it does not follow."""
        kind = request.WhichOneof("message")
        message = getattr(request, kind)
        if kind == "status":
            self.statuses.append(message)
            return True
        if kind == "end":
            self.ended = True
        else:
            count = message.lost if kind == "gap" else count_rows(message)
            if message.first > self.durable:
                return False
            if message.first + count < self.durable or (count and message.first + count == self.durable):
                self.duplicate += count
                return True
            self.durable += count
            self.kept += count if kind == "batch" else 0
        if kind == "batch":
            assert message.first_name <= len(self.names) or not message.names
            self.names[message.first_name :] = (
                list(message.names) if message.names else self.names[message.first_name :]
            )
        self.messages.append(message)
        return True

    @property
    def batches(self) -> list[records_pb2.Batch]:
        return [message for message in self.messages if isinstance(message, records_pb2.Batch)]

    @property
    def gaps(self) -> list[records_pb2.Gap]:
        return [message for message in self.messages if isinstance(message, records_pb2.Gap)]


def count_rows(batch: records_pb2.Batch) -> int:
    return sum(pl.read_ipc_stream(table.arrow).height for table in batch.tables if table.kind in RECORD_KINDS)


class FakeDaemon(ingest_pb2_grpc.IngestServicer, query_pb2_grpc.QueryServicer, admin_pb2_grpc.AdminServicer):
    """The services, with everything they were told in plain sight, and answers that a test can set."""

    def __init__(self) -> None:
        self.scripts: list[Script] = []
        self.ranks: dict[tuple[str, int, str], Rank] = {}
        self.connections = 0
        self.token: str | None = None
        self.takes_status = True
        self.says_account = True
        self.counting: threading.Event | None = None  # nothing is counted before it is set
        self.released = threading.Event()
        self.answers: dict[str, Any] = {}
        self.asked: dict[str, list[Any]] = defaultdict(list)
        self.order: list[tuple[int, str]] = []
        self.lock = threading.Lock()

    def rank(self, number: int = 0) -> Rank:
        (found,) = [rank for (_, rank, _), rank in self.ranks.items() if rank.hello.rank == number]
        return found

    def admit(self, context: grpc.ServicerContext) -> None:
        shown = dict(context.invocation_metadata()).get("authorization")
        if self.token is not None and shown != self.token:
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "no valid token")

    def Send(self, requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:  # noqa: N802
        self.admit(context)
        with self.lock:
            self.connections += 1
            script = self.scripts.pop(0) if self.scripts else Script()
        hello = next(requests).hello
        key = (hello.job, hello.rank, hello.collector)
        if script.forget:
            self.ranks.pop(key, None)
        rank = self.ranks.setdefault(key, Rank(hello))
        if script.after == -1:
            self.fail(script, context)
        yield self.answer(rank)
        if script.hold is not None:
            assert script.hold.wait(DEADLINE_S)
        for number, request in enumerate(requests):
            breaks = script.after is not None and number >= script.after
            if breaks and not script.taken:
                self.fail(script, context)
            self.order.append((hello.rank, request.WhichOneof("message")))
            if not rank.take(request):
                context.abort(grpc.StatusCode.OUT_OF_RANGE, f"expected {rank.durable}")
            if breaks:
                self.fail(script, context)
            if number % script.ack_every == 0 or rank.ended:
                yield self.answer(rank)
            if rank.ended:
                if self.counting is not None and request.end.await_account:
                    assert self.counting.wait(DEADLINE_S)
                    yield self.answer(rank)
                return

    def fail(self, script: Script, context: grpc.ServicerContext) -> None:
        if script.silent:
            self.released.wait(DEADLINE_S)
        context.abort(script.code, script.details)

    def answer(self, rank: Rank) -> ingest_pb2.SendResponse:
        known: dict[str, Any] = {"names": len(rank.names), "takes_status": self.takes_status}
        if self.says_account:
            is_counted = self.counting is None or self.counting.is_set()
            kept = rank.kept if is_counted else 0
            kinds = [records_pb2.KindAccount(kind="kernel", accepted=kept)]
            known |= {"account": records_pb2.Account(accepted=kept, kinds=kinds)}
            known |= {"counted": rank.durable if is_counted else 0}
        return ingest_pb2.SendResponse(durable=rank.durable, ended=rank.ended, **known)

    def give(self, name: str, request: Any, context: grpc.ServicerContext, default: Any) -> Any:
        """Return what a test has set for a call: a message, an error's code, or a function of the request."""
        self.admit(context)
        self.asked[name].append(request)
        answer = self.answers.get(name, default)
        answer = answer(request) if callable(answer) else answer
        if isinstance(answer, grpc.StatusCode):
            context.abort(answer, "the test says so")
        return answer

    def ListJobs(self, request: Any, context: Any) -> Any:  # noqa: N802
        return self.give("ListJobs", request, context, query_pb2.ListJobsResponse())

    def ListRanks(self, request: Any, context: Any) -> Any:  # noqa: N802
        return self.give("ListRanks", request, context, query_pb2.ListRanksResponse())

    def ListLoops(self, request: Any, context: Any) -> Any:  # noqa: N802
        return self.give("ListLoops", request, context, query_pb2.ListLoopsResponse())

    def ListIterations(self, request: Any, context: Any) -> Any:  # noqa: N802
        return self.give("ListIterations", request, context, query_pb2.ListIterationsResponse())

    def GetMetrics(self, request: Any, context: Any) -> Any:  # noqa: N802
        return self.give("GetMetrics", request, context, query_pb2.GetMetricsResponse())

    def GetContexts(self, request: Any, context: Any) -> Any:  # noqa: N802
        return self.give("GetContexts", request, context, query_pb2.GetContextsResponse())

    def GetFindings(self, request: Any, context: Any) -> Any:  # noqa: N802
        return self.give("GetFindings", request, context, query_pb2.GetFindingsResponse())

    def ListCaptures(self, request: Any, context: Any) -> Any:  # noqa: N802
        return self.give("ListCaptures", request, context, query_pb2.ListCapturesResponse())

    def Watch(self, request: Any, context: Any) -> Any:  # noqa: N802
        yield from self.give("Watch", request, context, ())

    def ReadWindow(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Give back what was sent, as a daemon does that has kept it all."""
        self.admit(context)
        known = [rank for (job, *_), rank in sorted(self.ranks.items()) if job == request.job]
        if not known:
            context.abort(grpc.StatusCode.NOT_FOUND, f"no job {request.job}")
        for rank in known:
            if request.ranks and rank.hello.rank not in request.ranks:
                continue
            yield query_pb2.ReadWindowResponse(rank=rank.hello.rank, hello=rank.hello, skipped=0)
            for message in rank.messages:
                kind = type(message).__name__.lower()
                yield query_pb2.ReadWindowResponse(rank=rank.hello.rank, **{kind: message})

    def Drain(self, request: Any, context: Any) -> Any:  # noqa: N802
        return self.give("Drain", request, context, admin_pb2.DrainResponse(records=5))

    def ForgetJob(self, request: Any, context: Any) -> Any:  # noqa: N802
        return self.give("ForgetJob", request, context, admin_pb2.ForgetJobResponse(iterations=7))

    def ListSenders(self, request: Any, context: Any) -> Any:  # noqa: N802
        return self.give("ListSenders", request, context, admin_pb2.ListSendersResponse())

    def CaptureWindow(self, request: Any, context: Any) -> Any:  # noqa: N802
        return self.give("CaptureWindow", request, context, admin_pb2.CaptureWindowResponse())


@contextmanager
def listen(daemon: FakeDaemon, folder: str, credentials: grpc.ServerCredentials | None = None) -> Iterator[str]:
    """Serve `daemon`, and give its address: a unix socket in `folder`, or with `credentials` a port with TLS."""
    server = grpc.server(ThreadPoolExecutor(32))
    ingest_pb2_grpc.add_IngestServicer_to_server(daemon, server)
    query_pb2_grpc.add_QueryServicer_to_server(daemon, server)
    admin_pb2_grpc.add_AdminServicer_to_server(daemon, server)
    if credentials is None:
        address = f"unix:{folder}/d.sock"
        assert server.add_insecure_port(address)
    else:
        address = f"localhost:{server.add_secure_port('localhost:0', credentials)}"
    server.start()
    try:
        yield address
    finally:
        daemon.released.set()
        server.stop(0).wait(DEADLINE_S)


@contextmanager
def short_folder() -> Iterator[str]:
    """Give a folder whose sockets' paths are short enough, wherever pytest keeps its own."""
    folder = tempfile.mkdtemp(prefix="dp-")
    try:
        yield folder
    finally:
        shutil.rmtree(folder)
