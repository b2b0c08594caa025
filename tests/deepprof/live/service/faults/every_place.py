"""A daemon with an error at one place of its code, for every place: does it serve on, or end and state why?

`python -m tests.deepprof.live.service.faults.every_place FOLDER SHARD SHARDS` prints a line of JSON for every place:
where, how it went (`served`, `ended`, `not passed`), and what is wrong with that, if anything is; `--list` lists them.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import grpc

from tests.deepprof.live.service.faults.injection import PLAN, InjectedError, install
from tests.deepprof.live.service.faults.not_passed import NOT_PASSED
from tests.deepprof.live.service.faults.trying import StuckError, main
from tests.patience import PATIENCE_S

install("deepprof.live.service", "deepprof.live.process", "deepprof.live.segments")

import msgspec  # noqa: E402
import polars as pl  # noqa: E402

from benchmarks.kernels import kernels_and_copies  # noqa: E402
from deepprof.live.client.connection import connect  # noqa: E402
from deepprof.live.client.daemon import Daemon as Client  # noqa: E402
from deepprof.live.client.errors import DaemonError  # noqa: E402
from deepprof.live.service import daemon, housekeeping, ingest  # noqa: E402
from deepprof.live.service.config import load_config  # noqa: E402
from deepprof.live.service.config.sections import IngestLimits  # noqa: E402
from deepprof.live.service.examination import ExaminationResult  # noqa: E402
from deepprof.live.service.examiner import examiner  # noqa: E402
from deepprof.live.service.query import to_arrow  # noqa: E402
from deepprof.live.service.views import HISTORY  # noqa: E402
from deepprof.live.wire.cutting import cut  # noqa: E402
from deepprof.live.wire.heads import make_end, make_hello  # noqa: E402
from deepprof.v1 import ingest_pb2_grpc, query_pb2, query_pb2_grpc, records_pb2  # noqa: E402
from deepprof.v1.ingest_pb2 import SendRequest  # noqa: E402

trace = cache(lambda: kernels_and_copies(iterations=8, kernels=20))
batches = cache(lambda: list(cut(trace(), records=100)))
CALL_S = PATIENCE_S  # for one call
STUCK_S = 120.0  # from the end of all connections to that of who waits for them
CHORE = "service.housekeeping:take_measure: asyncio.to_thread(_measure, engine.history.path.parent)"
NO_ROOM = "service.admission:Admission.room: waiting.woken.wait()"
NO_TURN = "service.fair_lock:FairLock.hold: self._wait(owner, job)"
EXAMINED = (  # what the daemon does in its own time, and has done before the course ends
    "service.examiner.examiner:Examiner.look: self.settle(ended)",
    "service.examiner.examiner:Examiner.look: self.examine(job)",
    "service.examiner.examiner:Examiner.look: self.capture(*self._wanted.pop(0))",
)
assert {CHORE, NO_ROOM, NO_TURN, *EXAMINED} <= PLAN.passed.keys()  # else the course waits for what never comes
TIGHT = IngestLimits(rank_queue_nbytes=1)  # a rank's message waits until the one before is mined
EXAMINER = """#!/bin/sh
while read -r word; do :; done
for word; do [ "$keep" ] && mkdir -p "$word"; keep=; [ "$word" = --keep ] && keep=1; done
cat {result}
"""


@dataclass
class Life:
    """One run of the daemon in this process, and what its clients were told."""

    folder: Path
    stop: Callable[[], None] = lambda: None
    metrics: str = ""
    listening: threading.Event = field(default_factory=threading.Event)
    over: threading.Event = field(default_factory=threading.Event)
    engine: Any = None
    error: BaseException | None = None
    durable: dict[str, int] = field(default_factory=dict)  # as acknowledged, by job
    collectors: dict[str, str] = field(default_factory=dict)  # whom the daemon has answered last, by job
    problems: list[str] = field(default_factory=list)
    connections: list[Callable[[], object]] = field(default_factory=list)  # how each is ended

    @property
    def address(self) -> str:
        return f"unix:{self.folder}/{LIVES.index(self)}"

    def run(self, course: Callable[[Life], None]) -> None:
        """Run the daemon, and `course` next to it, until both are over."""
        thread = threading.Thread(target=self.follow, args=(course,))
        thread.start()
        try:
            asyncio.run(self.serve())
        except Exception as error:
            self.error = error
        finally:
            self.over.set()
            self.listening.set()
            cut_s = time.monotonic()
            while thread.is_alive():  # with a process its connections end; this one's own may hang
                if time.monotonic() > cut_s + STUCK_S:
                    raise StuckError(self.folder.name)
                for end in list(self.connections):
                    end()
                thread.join(0.05)

    async def serve(self) -> None:
        stopping, loop = asyncio.Event(), asyncio.get_running_loop()

        def stop() -> None:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(stopping.set)

        self.stop = stop
        daemon.stop_on_signals = lambda: contextlib.nullcontext(stopping)
        await daemon.serve(load_config(None, settings(self), {}))

    def follow(self, course: Callable[[Life], None]) -> None:
        try:
            self.listening.wait()
            if self.metrics and not self.over.is_set():
                course(self)
                self.check_alive()
        except BaseException as error:
            if not self.over.is_set():
                self.problems.append(f"{type(error).__name__}: {error}")
        finally:
            self.stop()

    @property
    def has_ended(self) -> bool:
        """Whether the daemon ends by itself; it may take a moment to report it."""
        return self.over.wait(0.05) or self.has_problem

    @property
    def has_problem(self) -> bool:
        """Whether the daemon has found a reason to end."""
        return bool(self.engine and self.engine.vitals.problem)

    def check_alive(self) -> None:
        """Note where a daemon that goes on does not state that it lives; of two questions one may meet the error."""
        said = [] if self.has_ended else [ask_page(self, "/healthz") for _ in range(2)]
        if said and not any(answer.startswith(b"HTTP/1.1 200") for answer in said) and not self.has_ended:
            self.problems.append(f"/healthz: {said}")

    def judge(self) -> Iterator[str]:
        """Yield what is wrong with how it ended."""
        yield from self.problems
        if self.error is None and self.engine is not None and self.engine.vitals.problem:
            yield f"it has ended without a word of {self.engine.vitals.problem}"
        if self.error is not None and InjectedError.__name__ not in f"{type(self.error).__name__}: {self.error}":
            yield f"it ended with {type(self.error).__name__}: {self.error}"


LIVES: list[Life] = []


def settings(life: Life) -> dict[str, str]:
    return {
        "store.path": str(life.folder / "store"),
        "listen.addresses": life.address,  # of its own: the process does not end with a daemon whose end is disturbed
        "metrics.address": "127.0.0.1:0",
        "examine.every": "1s",
        "history.seal_after": "1s",
    }


def prepare(folder: Path) -> None:
    """Have everything that is done now and then be done at once, examinations cost nothing, and nothing be too late."""
    daemon.GRACE_S, ingest.SHOWN_S = 0.2, CALL_S
    housekeeping.EVERY_S = examiner.LOOK_S = examiner.PAUSE_S = 0.02
    result = ExaminationResult("{}", [], [], to_arrow(pl.DataFrame(schema=HISTORY)))
    (folder / "result").write_bytes(msgspec.msgpack.encode(result))
    script = folder / "examiner"
    script.write_text(EXAMINER.format(result=folder / "result"))
    script.chmod(0o700)
    examiner.sys = type("Sys", (), {"executable": str(script)})  # type: ignore[attr-defined]
    begin = daemon.begin

    async def begun(engine: Any, looking: Any, doors: Any, metrics: str) -> None:
        LIVES[-1].metrics, LIVES[-1].engine = metrics, engine
        engine.admission.limits = TIGHT
        engine.find = hold_turn(LIVES[-1], engine.find)
        try:
            await begin(engine, looking, doors, metrics)
        finally:
            LIVES[-1].listening.set()

    daemon.begin = begun


def send(
    life: Life, job: str, *, collector: str = "one", gap: bool = False, end: bool = True, crowded: bool = False
) -> bool:
    """Send the trace as one stream and return whether all was acknowledged; what was is noted.

    `crowded`: nothing is mined until one of its messages has had to wait for room.
    """
    answered, over = threading.Event(), threading.Event()

    def messages() -> Iterator[SendRequest]:
        yield SendRequest(hello=make_hello(trace(), job, collector=collector))
        yield SendRequest(status=records_pb2.Status(level=records_pb2.COLLECTOR_LEVEL_DUTY, reason="load"))
        if crowded and answered.wait(CALL_S):
            hold_miner(life, over)
        for batch in batches():
            yield SendRequest(batch=batch)
        if gap:
            yield SendRequest(gap=records_pb2.Gap(first=trace().accounting.kept, lost=5, reason="test"))
        if end:
            closing = make_end(trace())
            closing.await_account = True
            yield SendRequest(end=closing)

    if life.over.is_set():
        return False
    with grpc.insecure_channel(life.address, (("grpc.use_local_subchannel_pool", 1),)) as channel:
        try:
            stub = ingest_pb2_grpc.IngestStub(channel)  # type: ignore[no-untyped-call]
            call = stub.Send(messages(), timeout=CALL_S)
            life.connections.append(call.cancel)
            for answer in call:
                life.durable[job], life.collectors[job] = answer.durable, collector
                answered.set()
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED and not life.has_ended:
                life.problems.append(f"{job}: no answer within {CALL_S:.0f} s")
            return False
        finally:
            over.set()
            answered.set()
    return life.durable.get(job, 0) >= trace().accounting.kept + 5 * gap


def try_to(what: Callable[[], object]) -> None:
    """Do what may fail: one call may, of which the error is."""
    with contextlib.suppress(DaemonError, OSError):
        what()


def ask_page(life: Life, page: str) -> bytes:
    """Ask for a page, or for none in a way that is no HTTP, and return the answer's beginning."""
    host, port = life.metrics.rsplit(":", 1)
    answer = b""
    with contextlib.suppress(OSError), socket.create_connection((host, int(port)), CALL_S) as plug:
        plug.sendall(f"GET {page} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode() if page else b"GARBAGE\r\n\r\n")
        while b"event:" not in answer and (piece := plug.recv(1 << 16)):  # a stream of events does not end
            answer = (answer + piece)[:1000]
    return answer


def hold_miner(life: Life, over: threading.Event) -> None:
    """Have nothing mined until a message waits for room, or all is over."""
    before = PLAN.passed[NO_ROOM]
    with contextlib.suppress(InjectedError):
        life.engine.worker.call(lambda: wait_until(lambda: over.is_set() or PLAN.passed[NO_ROOM] > before))


def hold_turn(life: Life, find: Callable[..., Any]) -> Callable[..., Any]:
    """Return the engine's `find`, which holds up who attaches the job `open` until someone waits to be the next."""

    async def found(hello: Any, owner: str) -> Any:
        while hello.job == "open" and not PLAN.passed[NO_TURN] and not PLAN.over and not life.has_problem:
            await asyncio.sleep(0.005)
        return await find(hello, owner)

    return found


def wait_until(what: Callable[[], bool], patience_s: float = CALL_S) -> bool:
    """Return whether `what` is true within a while."""
    until_s = time.monotonic() + patience_s
    while not (found := what()) and time.monotonic() < until_s:
        time.sleep(0.005)
    return found


def ask(life: Life, client: Client) -> None:
    """Ask everything that can be asked."""
    for what in (client.jobs, client.captures, client.look):
        try_to(what)
    for question in (
        client.ranks,
        client.loops,
        client.iterations,
        client.contexts,
        client.metrics,
        client.findings,
        client.look,
    ):
        try_to(lambda question=question: question("first"))  # type: ignore[misc]
        try_to(lambda question=question: question("nobody"))  # type: ignore[misc]
    try_to(lambda: client.window("first"))
    try_to(lambda: client.capture("first", 0))
    try_to(lambda: client.capture("first", 9))
    of_job = ("/jobs/first/", "/jobs/first/api/documents/session")
    of_contexts = ("/debug/pprof/contexts", "/api/documents/flame/first/0/down")
    own = ("/metrics", "/readyz", "/healthz", "/nothing", "", "/api/documents/live", "/api/events")
    for page in (*own, *of_job, *of_contexts):
        if not life.has_ended:  # its exporter may still listen, with no one behind it
            ask_page(life, page)


WRONG = (
    ("ListJobs", query_pb2.ListJobsRequest(page_size=10**6)),
    ("ListJobs", query_pb2.ListJobsRequest(page_token="none")),  # noqa: S106 - a page's
    ("ListIterations", query_pb2.ListIterationsRequest(job="first", page_token="none")),  # noqa: S106
    ("ReadWindow", query_pb2.ReadWindowRequest(job="first", after=[query_pb2.ReadPosition()] * 2)),
    ("Watch", query_pb2.WatchRequest(interval_ms=1)),
)


def be_wrong(life: Life) -> None:
    """Send and ask what is refused."""
    with grpc.insecure_channel(life.address, (("grpc.use_local_subchannel_pool", 1),)) as channel:
        query = query_pb2_grpc.QueryStub(channel)  # type: ignore[no-untyped-call]
        ingest = ingest_pb2_grpc.IngestStub(channel)  # type: ignore[no-untyped-call]
        calls = [(getattr(query, method), request) for method, request in WRONG]
        life.connections.append(channel.close)
        gap = SendRequest(gap=records_pb2.Gap(first=10**6, lost=1, reason="test"))
        hello = SendRequest(hello=make_hello(trace(), "wrong", collector="one"))
        for call, request in (*calls, (ingest.Send, iter([gap])), (ingest.Send, iter([hello, gap]))):
            with contextlib.suppress(grpc.RpcError):
                answer = call(request, timeout=CALL_S)
                list(answer) if hasattr(answer, "__next__") else None


def course(life: Life) -> None:
    """Do all that clients do, with one of them unlucky; then an honest one has to be served if there is a daemon."""
    for job in ("first", "gone"):
        send(life, job) or send(life, job)
    send(life, "first", end=False)
    send(life, "first", collector="two", gap=True) or send(life, "first", collector="two", gap=True)
    send(life, "open", end=False, crowded=True) or send(life, "open", end=False)
    client = connect(life.address, timeout_s=CALL_S)
    life.connections.append(client.close)
    with contextlib.closing(client):
        ask(life, client)
        be_wrong(life)
        life.durable.pop("gone", None)
        try_to(lambda: client.forget("gone"))
        try_to(lambda: client.forget("nobody"))
        if not life.has_ended:
            wait_for_chores(life)
        if not life.has_ended and not any(send(life, "honest") for _ in range(3)) and not life.has_ended:
            life.problems.append("an honest client was not served")
        if wait_until(lambda: life.has_ended or is_quiet(life)) and not life.has_ended:
            try_to(client.drain)


def is_quiet(life: Life) -> bool:
    """Whether nothing is on its way to be mined."""
    return not any(rank.submitted or rank.queue for rank in life.engine.roster)


def wait_for_chores(life: Life) -> None:
    """Have the house kept twice, and jobs examined meanwhile."""
    wanted = PLAN.passed[CHORE] + 2

    def done() -> bool:
        return PLAN.passed[CHORE] >= wanted and all(PLAN.passed[place] for place in EXAMINED)

    if not wait_until(lambda: life.over.is_set() or done()):
        life.problems.append("the house is not kept, or nothing examined")


def check_kept(life: Life, before: Life) -> None:
    """Assert that a daemon which starts on what was left has all that was acknowledged, once, and takes the rest."""
    with contextlib.closing(connect(life.address, timeout_s=CALL_S)) as client:
        for job, durable in before.durable.items():
            have = count_kept(client, job, durable)
            if have < durable:
                life.problems.append(f"{job}: {durable} were acknowledged, {have} are kept")
            if not send(life, job, collector=before.collectors[job], end=False):
                life.problems.append(f"{job} cannot be sent again")
            have = count_kept(client, job, life.durable[job])
            if have != life.durable[job]:
                life.problems.append(f"{job}: {life.durable[job]} records were taken, {have} are counted")


def count_kept(client: Client, job: str, wanted: int) -> int:
    """Return how many records the daemon has mined, or has to be lost, once it has come to `wanted`."""

    def count() -> int:
        account = client.ranks(job)[0].account
        return account.accepted + account.lost + sum(account.dropped.values())

    wait_until(lambda: count() >= wanted)
    return count()


def try_place(place: str, folder: Path) -> tuple[str, list[str]]:
    """Return how the daemon fares with an error at a place, and what is wrong with that."""
    prepare(folder)
    PLAN.place = place
    life = live(folder, course)
    passed = PLAN.end()
    problems = list(life.judge())
    again = live(folder, lambda later: check_kept(later, life))
    problems += [f"afterwards: {problem}" for problem in again.problems]
    if again.error is not None:
        problems.append(f"it does not start again: {again.error}")
    return ("ended" if life.error is not None else "served") if passed else "not passed", problems


def live(folder: Path, course: Callable[[Life], None]) -> Life:
    """Return a life of the daemon on a store, once it is over."""
    life = Life(folder)
    LIVES.append(life)
    life.run(course)
    return life


if __name__ == "__main__":
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    main(lambda: contextlib.nullcontext(try_place), NOT_PASSED)
