"""Places that the course of `every_place` does not come to, each with the reason, which states who looks there instead.

The list is checked in both directions: a place that is passed must not be in it, one that is not passed must.
"""

from __future__ import annotations

__all__ = ["NOT_PASSED"]

NOBODY_REFUSED = "nobody needs a token on a socket of their own; access/test_interceptor.py refuses callers"
NO_REQUEST = "no client that gRPC makes leaves its request out"
NOT_READY = "nobody asks before the daemon is ready, or after; test_readers.py does"
NO_LIMIT = "no limit on jobs or ranks is reached; test_room.py reaches all of them"
MINED = "everything is mined by then; test_engine_streams.py drains what is not"
ONCE_MORE = "comes only after an error elsewhere, and the next error would be a second one"
BAD_DISK = "no disk refuses anything here; test_engine_machine.py and test_housekeeping_faults.py have one that does"
ITS_OWN = "comes only after an error elsewhere; test_writer.py has one"
READERS = "no reader stalls, nor do 16 read at a time; test_readers.py has both"
WATCHERS = "not so many watch at a time; test_places.py has them"
ONE_SENDER = "nobody takes over the rank of another sender; test_shares.py has some who do"
DAY_LATER = "nobody is silent for a day"
HISTORY = "no disk refuses to be read"
MANY_WINDOWS = "no job has so many windows of contexts; history/test_windows.py has one"
NO_LOOKING_BACK = (
    "no rank sends contexts that are examined; test_looking_back.py and exporter/test_profiles.py read them"
)
ON_ITS_WAY = "nobody comes back while something of theirs is on its way; test_engine_streams.py does"

NOT_PASSED = {
    "service.access.interceptor:AccessInterceptor.checker.check: self.refuse(answer, method, context)": NOBODY_REFUSED,
    "service.access.interceptor:AccessInterceptor.refuse: context.abort(code, refusal.problem)": NOBODY_REFUSED,
    "service.access.interceptor:take: context.abort(grpc.StatusCode.INVALID_ARGUMENT, 'the call ho": NO_REQUEST,
    "service.admin:AdminServicer.CaptureWindow: context.abort(getattr(grpc.StatusCode, refusal.code), str(re": BAD_DISK,
    "service.admin:AdminServicer.check_ready: context.abort(grpc.StatusCode.UNAVAILABLE, text)": NOT_READY,
    "service.engine:Engine.drain: self._changed.wait()": MINED,
    "service.engine:Engine.expire: self.let_go(rank)": DAY_LATER,
    "service.engine:Engine.find: self.make_room(hello, owner)": ONE_SENDER,
    "service.engine:Engine.let_go: self.record(partial(self.end, rank))": NO_LIMIT,
    "service.engine:Engine.make_room: self.send_away(rank)": NO_LIMIT,
    "service.engine:Engine.quiet: changed.wait()": ON_ITS_WAY,
    "service.engine:Engine.send_away: self.let_go(rank)": NO_LIMIT,
    "service.examiner.examiner:Examiner.look_back: read_rank(self.engine, *rank.key, (now - LOOK_BACK_NS, now))": NO_LOOKING_BACK,  # noqa: E501 - the code names it so
    "service.examiner.examiner:Examiner.run: asyncio.sleep(PAUSE_S)": ONCE_MORE,
    "service.examiner.examiner:Examiner.run: asyncio.sleep(PAUSE_S) (2)": ONCE_MORE,
    "service.housekeeping:_try_again: asyncio.to_thread(try_disk, engine)": BAD_DISK,
    "service.kept_contexts:read_rank: read_contexts(engine, job, rank, within, here)": NO_LOOKING_BACK,
    "service.query:QueryServicer.GetContexts: context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))": MANY_WINDOWS,  # noqa: E501 - the code names it so
    "service.query:QueryServicer.GetContexts: context.abort(grpc.StatusCode.UNAVAILABLE, f'the history can": HISTORY,
    "service.query:QueryServicer.ListIterations: context.abort(grpc.StatusCode.UNAVAILABLE, f'the history can": HISTORY,
    "service.query:QueryServicer.ReadWindow: context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, f'nothing w": READERS,
    "service.query:QueryServicer.ReadWindow: self.refuse(refusal, context)": READERS,
    "service.query:QueryServicer.ReadWindow: stalled": READERS,
    "service.query:QueryServicer.Watch: self.refuse(refusal, context)": WATCHERS,
    "service.query:QueryServicer.refuse: context.abort(getattr(grpc.StatusCode, refusal.code), str(re": READERS,
    "service.query:QueryServicer.ranks: context.abort(grpc.StatusCode.UNAVAILABLE, text)": NOT_READY,
    "service.query:QueryServicer.ListJobs: self.past(context)": "nobody asks for past jobs; commands/test_jobs.py does",
    "service.ingest:IngestConnection.end_show: called": "all is shown before it is too late; test_ingest_answers.py waits",  # noqa: E501 - the code names it so
    "service.senders:Senders.keep_pace: asyncio.sleep(wait_ns / 10 ** 9)": "no rate is held; test_shares.py holds one",
    "service.query:QueryServicer.past: context.abort(grpc.StatusCode.UNAVAILABLE, f'the history can": HISTORY,
    "service.worker:SessionWorker._give_up: called": ONCE_MORE,
    "service.worker:SessionWorker._put_back: called": BAD_DISK,
    "service.writer:JournalWriter._append_by_rank: called": ITS_OWN,
}
