"""The history against plain lists, through everything that can be done to it, and through kills."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from deepprof.live.service.history import Checkpoint, History
from deepprof.live.service.history.sealed import list_sealed
from deepprof.live.service.journal import JournalPlace
from tests.chance import examples
from tests.deepprof.live.service.history.building import Clock, checkpoint, iterations, read_all

KILLS = examples(8)  # each costs the start of an interpreter with polars; the journal, which is the truth, has 20
JOBS = ("job", "other")


class Machine(RuleBasedStateMachine):
    """`rows` has every session's iterations with the time they were given at, oldest first."""

    @initialize()
    def begin(self) -> None:
        self.folder, self.clock = Path(tempfile.mkdtemp()), Clock()
        self.history = History.open(self.folder, clock=self.clock)
        self.jobs: dict[int, tuple[str, int]] = {}
        self.rows: dict[int, list[tuple[int, int]]] = {}
        self.number = self.sessions = 0

    def teardown(self) -> None:
        if hasattr(self, "history"):
            self.history.close()
            shutil.rmtree(self.folder)

    @rule(job=st.sampled_from(JOBS), rank=st.integers(0, 1))
    def new_session(self, job: str, rank: int) -> None:
        session = self.history.begin(job, rank, "c", b"", self.clock.now)
        self.sessions += 1
        assert session == self.sessions
        self.jobs[session], self.rows[session] = (job, rank), []

    def numbers(self, count: int) -> list[int]:
        self.number += count
        return list(range(self.number - count, self.number))

    @rule(counts=st.lists(st.integers(0, 4), max_size=3))
    def save(self, counts: list[int]) -> None:
        saved = []
        for session, count in zip(sorted(self.jobs, reverse=True), counts, strict=False):
            numbers = self.numbers(count)
            saved.append(checkpoint(session, *numbers))
            self.rows[session] += [(number, self.clock.now) for number in numbers]
        self.history.checkpoint(saved)

    @precondition(lambda self: self.jobs)
    @rule(data=st.data(), count=st.integers(0, 3))
    def settle(self, data: st.DataObject, count: int) -> None:
        session = data.draw(st.sampled_from(sorted(self.jobs)))
        numbers = self.numbers(count)
        self.history.settle(session, iterations(*numbers))
        self.rows[session] = [(number, self.clock.now) for number in numbers]

    @rule(back=st.integers(0, 5))
    def seal(self, back: int) -> None:
        self.history.seal(self.clock.now - back, window_ns=0)

    @rule()
    def wait(self) -> None:
        self.clock.now += 1

    @rule(job=st.sampled_from(JOBS))
    def forget(self, job: str) -> None:
        gone = [session for session, (of, _) in self.jobs.items() if of == job]
        assert self.history.forget(job) == len(gone)
        for session in gone:
            del self.jobs[session], self.rows[session]

    @rule(age=st.integers(0, 6))
    def retain(self, age: int) -> None:
        """Everything young enough stays; what is too old goes unless its file has younger rows."""
        self.history.retain(age, 1 << 40, self.clock.now)
        left = {number for job in JOBS for _, number in read_all(self.history, job, limit=1000)}
        for session in list(self.jobs):
            if self.is_closed(session):  # no one is shown a former run's iterations
                continue
            kept = [pair for pair in self.rows[session] if pair[0] in left]
            assert all(pair in kept for pair in self.rows[session] if pair[1] >= self.clock.now - age)
            assert kept == self.rows[session][len(self.rows[session]) - len(kept) :]  # the oldest go
            self.rows[session] = kept
        known = {stored.session for stored in self.history.restore()}
        for session in [one for one in self.jobs if one not in known]:
            assert self.rows[session] == [] or self.is_closed(session)
        if not self.history.jobs():
            self.jobs, self.rows = {}, {}
        self.history.checkpoint([checkpoint(session) for session in self.jobs])  # closed ones may be forgotten

    def is_closed(self, session: int) -> bool:
        return any(self.jobs[other] == self.jobs[session] and other > session for other in self.jobs)

    @rule(sync=st.booleans())
    def reopen(self, sync: bool) -> None:
        if sync:
            self.history.sync()
        self.history.close()
        self.history = History.open(self.folder, clock=self.clock)

    @rule()
    def crash_while_sealing(self) -> None:
        """Leave what a kill after the rename, or while writing, leaves."""
        last = max(list_sealed(self.folder / "sealed"), default=0)
        known = self.history._db.execute("SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name='sealed'")
        following = known.fetchone()[0] + 1
        assert last < following
        (self.folder / "sealed" / f"{following:012d}.parquet").write_bytes(b"rows that are hot still")
        (self.folder / "sealed" / f"{following + 1:012d}.parquet.tmp").write_bytes(b"half")
        self.reopen(sync=False)

    @invariant()
    def all_is_there(self) -> None:
        if not hasattr(self, "history"):
            return
        for job in JOBS:
            wanted = [
                (rank, number)
                for session, (of, rank) in sorted(self.jobs.items())
                if of == job and not self.is_closed(session)
                for number, _ in self.rows[session]
            ]
            assert read_all(self.history, job, limit=4) == wanted
            assert read_all(self.history, job, limit=1000, rank=1) == [pair for pair in wanted if pair[0] == 1]
        listed = [number for (number,) in self.history._db.execute("SELECT number FROM sealed ORDER BY number")]
        assert list_sealed(self.folder / "sealed") == listed


Machine.TestCase.settings = settings(
    max_examples=examples(25), stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck)
)
TestMachine = Machine.TestCase

WRITER = """
import os, random, sys
from pathlib import Path
from deepprof.live.service.history import Checkpoint, History
from deepprof.live.service.journal import JournalPlace
from tests.deepprof.live.service.history.building import iterations
random.seed(int(sys.argv[2]))
history = History.open(Path(sys.argv[1]))
sessions = [stored.session for stored in history.restore()] or [history.begin("job", n, "c", b"", 1) for n in range(3)]
number = max([stored.position.offset for stored in history.restore() if stored.position], default=0)
while True:
    count = random.randint(0, 30)
    rows = iterations(*range(number, number + count))
    number += count
    at = JournalPlace(1, number, 0)
    history.checkpoint([Checkpoint(session, at, b"%d" % number, rows) for session in sessions])
    os.write(1, b"%d\\n" % number)
    if random.random() < 0.3:
        history.seal(2**62, window_ns=0)
    if random.random() < 0.1:
        history.sync()
"""


def test_state_and_iterations_stay_together_through_kills(tmp_path: Path) -> None:
    seed = random.randrange(10**6)
    print(f"seed {seed}")  # noqa: T201
    chance = random.Random(seed)
    for kill in range(KILLS):
        arguments = [sys.executable, "-c", WRITER, str(tmp_path), str(seed + kill)]
        writer = subprocess.Popen(arguments, stdout=subprocess.PIPE, cwd=Path(__file__).parents[5])
        assert writer.stdout is not None
        for _ in range(chance.randint(1, 12)):
            saved = int(writer.stdout.readline())
        writer.send_signal(signal.SIGKILL)
        rest = writer.stdout.read().split(b"\n")
        writer.stdout.close()
        writer.wait()
        saved = int(rest[-2]) if len(rest) > 1 else saved
        history = History.open(tmp_path)
        stored = history.restore()
        places = {one.position for one in stored}
        assert len(places) == 1
        (place,) = places
        assert place is not None
        assert place.offset >= saved
        assert {one.state for one in stored} == {b"%d" % place.offset}
        assert read_all(history, limit=10_000) == [
            (rank, number) for rank in range(3) for number in range(place.offset)
        ]
        history.close()


def test_many_sessions_and_rows_per_page(tmp_path: Path) -> None:
    """Pages over many small sessions in many files, against one list."""
    history = History.open(tmp_path)
    sessions = [history.begin("job", rank, "c", b"", 1) for rank in range(40)]
    chance, wanted = random.Random(5), dict.fromkeys(sessions, 0)
    for _ in range(12):
        saved = []
        for session in sessions:
            count = chance.randint(0, 3)
            numbers = range(wanted[session], wanted[session] + count)
            saved.append(Checkpoint(session, JournalPlace(1, 1, 0), b"", iterations(*numbers)))
            wanted[session] += count
        history.checkpoint(saved)
        if chance.random() < 0.4:
            history.seal(2**62, window_ns=0)
    expected = [(rank, number) for rank, session in enumerate(sessions) for number in range(wanted[session])]
    for limit in (7, 64, 10_000):
        assert read_all(history, limit=limit) == expected
    history.close()
