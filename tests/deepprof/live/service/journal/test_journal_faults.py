"""The journal and a disk that fails, and a process that is killed."""

from __future__ import annotations

import errno
import os
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from deepprof.live.service.journal import Journal, JournalFrame, JournalPlace
from deepprof.live.service.journal.segments import HEADER, path_of
from tests.chance import draw_seed, examples
from tests.deepprof.live.service.journal.building import contents, frame, oldest, opened, segments

KILLS = examples(20)


def refuse(*_: Any) -> None:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


@pytest.mark.parametrize("call", ["pread", "fsync"])
def test_a_disk_that_fails_at_the_start_is_told_with_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    journal = opened(tmp_path)
    journal.append([frame(1, 0, b"a")])
    journal.sync()
    journal.close()
    monkeypatch.setattr(os, call, refuse)
    with pytest.raises(OSError, match="Input/output") as told:
        opened(tmp_path)
    assert told.value.filename == str(path_of(journal.folder, 1))
    monkeypatch.undo()
    assert contents(opened(tmp_path)) == [frame(1, 0, b"a")]


@pytest.mark.parametrize("written", [0, 1, HEADER, HEADER + 3, HEADER + 100, HEADER + 150])
@pytest.mark.parametrize("mended", [True, False])
def test_full_disk_leaves_the_journal_as_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: int, mended: bool
) -> None:
    journal = opened(tmp_path)
    journal.append([frame(1, 0, b"a" * 100)])
    write, truncate, room = os.pwritev, os.ftruncate, [written]

    def write_some(file: int, buffers: list[memoryview], offset: int) -> int:
        if not room[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        part = b"".join(buffers)[: room[0]]
        room[0] -= len(part)
        return write(file, [part], offset)

    monkeypatch.setattr(os, "pwritev", write_some)
    monkeypatch.setattr(os, "ftruncate", truncate if mended else refuse)
    for _ in range(2):
        with pytest.raises(OSError, match=r"No space left|Input/output"):
            journal.append([frame(2, 0, b"b" * 100), frame(3, 0, b"c" * 100)])
    assert contents(journal) == [frame(1, 0, b"a" * 100)]
    assert journal.window(2) == []
    monkeypatch.undo()
    journal.append([frame(4, 0, b"d" * 100)])  # as long as what was taken back: nothing of that may come back
    journal.sync()
    journal.close()
    assert contents(opened(tmp_path)) == [frame(1, 0, b"a" * 100), frame(4, 0, b"d" * 100)]


def test_no_room_for_a_new_segment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = opened(tmp_path)
    journal.append([frame(1, 0, b"a" * 400)])
    create = os.pwritev

    def refuse(*_: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwritev", refuse)
    with pytest.raises(OSError, match="No space"):
        journal.append([frame(2, 0, b"b" * 400)])
    monkeypatch.setattr(os, "pwritev", create)
    assert len(segments(tmp_path)) == 1
    journal.append([frame(3, 0, b"c" * 400)])
    assert [one.session for one in contents(journal)] == [1, 3]


def test_failed_sync_takes_back_what_is_not_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = opened(tmp_path)
    journal.append([frame(1)])
    journal.sync()
    journal.append([frame(2), frame(1, 7)])

    def refuse(*_: Any) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fdatasync", refuse)
    with pytest.raises(OSError, match="Input/output"):
        journal.sync()
    monkeypatch.undo()
    assert contents(journal) == [frame(1)]
    assert (len(journal.window(1)), journal.window(2)) == (1, [])
    journal.append([frame(3)])
    journal.sync()
    assert contents(opened(tmp_path)) == [frame(1), frame(3)]


def test_file_size_limit_is_an_error_like_any_other(tmp_path: Path) -> None:
    code = """
import resource, signal, sys
from pathlib import Path
from deepprof.live.service.journal import Journal, JournalFrame
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
journal = Journal.open(Path(sys.argv[1]))
journal.append([JournalFrame(1, "batch", 0, 1, b"a" * 1000)])
resource.setrlimit(resource.RLIMIT_FSIZE, (5000, resource.RLIM_INFINITY))
try:
    journal.append([JournalFrame(2, "batch", 0, 1, b"b" * 3000), JournalFrame(3, "batch", 0, 1, b"c" * 3000)])
except OSError as error:
    print(error.errno)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
journal.append([JournalFrame(4, "batch", 0, 1, b"d" * 9000)])
journal.sync()
"""
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, capture_output=True, text=True)
    assert int(done.stdout) == errno.EFBIG
    assert [one.session for one in contents(opened(tmp_path))] == [1, 4]


WRITER = """
import os, random, sys
from pathlib import Path
from deepprof.live.service.journal import Journal, JournalFrame
folder, seed = Path(sys.argv[1]), int(sys.argv[2])
random.seed(seed)
journal = Journal.open(folder, segment_nbytes=20_000, total_nbytes=1 << 30)
number = max([one.first for _, one in journal.replay()], default=-1) + 1
while True:
    group = []
    for _ in range(random.randint(1, 6)):
        payload = number.to_bytes(8, "little") * random.randint(0, 300)
        group.append(JournalFrame(number % 5, "batch", number, 1, payload))
        number += 1
    journal.append(group)
    if random.random() < 0.7:
        journal.sync()
        os.write(1, b"%d\\n" % (number - 1))  # acknowledged
"""


def test_nothing_acknowledged_is_lost_to_kills(tmp_path: Path) -> None:
    seed = draw_seed("journal kills")
    chance, acknowledged = random.Random(seed), -1
    for kill in range(KILLS):
        writer = subprocess.Popen([sys.executable, "-c", WRITER, tmp_path, str(seed + kill)], stdout=subprocess.PIPE)
        assert writer.stdout is not None
        for _ in range(chance.randint(1, 40)):
            acknowledged = int(writer.stdout.readline())
        writer.send_signal(signal.SIGKILL)
        rest = writer.stdout.read().split(b"\n")
        writer.stdout.close()
        writer.wait()
        acknowledged = int(rest[-2]) if len(rest) > 1 else acknowledged
        journal = Journal.open(tmp_path, segment_nbytes=20_000, total_nbytes=1 << 30)
        found = contents(journal)
        journal.close()
        assert [one.first for one in found] == list(range(len(found)))  # each once, in order, whole
        assert len(found) > acknowledged
        assert journal.damages == ()
        assert all(one.payload == one.first.to_bytes(8, "little") * (len(one.payload) // 8) for one in found)


class Machine(RuleBasedStateMachine):
    """A journal against plain lists: `kept` is what must be there, in order."""

    @initialize(total=st.sampled_from([0, 1000, 3000]))
    def begin(self, total: int) -> None:
        import tempfile

        self.folder, self.total = Path(tempfile.mkdtemp()), total
        self.journal = opened(self.folder / "journal", total_nbytes=total)
        self.kept: list[tuple[JournalPlace, JournalFrame]] = []
        self.synced = self.number = 0
        self.highest, self.oldest = self.journal.end, 1

    def teardown(self) -> None:
        if hasattr(self, "journal"):
            self.journal.close()
            shutil.rmtree(self.folder)

    @rule(sizes=st.lists(st.integers(0, 200), max_size=4))
    def append(self, sizes: list[int]) -> None:
        frames = [frame(size % 4, self.number + at, bytes([size]) * size) for at, size in enumerate(sizes)]
        self.number += len(frames)
        before = self.journal.end.segment
        places = self.journal.append(frames)
        self.synced = len(self.kept) if self.journal.end.segment > before else self.synced
        assert all(place.stop > self.highest.stop for place in places)
        self.kept += zip(places, frames, strict=True)
        self.highest = max(self.highest, self.journal.end, key=lambda place: place.stop)

    @rule()
    def sync(self) -> None:
        self.journal.sync()
        self.synced = len(self.kept)

    @rule()
    def reopen(self) -> None:
        self.journal.close()
        self.journal = opened(self.folder / "journal", total_nbytes=self.total, beyond=self.highest)
        assert self.journal.repaired == 0
        self.synced = len(self.kept)

    @rule(data=st.data())
    def lose_power(self, data: st.DataObject) -> None:
        """Lose what was not synced, from some byte on."""
        stop, end = (self.kept[self.synced - 1][0].stop if self.synced else None), self.journal.end
        start = stop[1] if stop and stop[0] == end.segment else 40
        size = data.draw(st.integers(start, end.offset))
        self.journal.close()
        os.truncate(self.folder / "journal" / f"{end.segment:012d}.seg", size)
        self.kept = [pair for pair in self.kept if pair[0].stop <= (end.segment, size)]
        self.journal = opened(self.folder / "journal", total_nbytes=self.total, beyond=self.highest)
        self.synced = len(self.kept)

    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        before = data.draw(st.sampled_from([place for place, _ in self.kept] + [self.journal.end]))
        self.journal.release(before)
        first = oldest(self.journal).segment
        assert first <= max(before.segment, self.oldest)  # what is needed stays
        assert self.journal.nbytes + 512 <= self.total or first >= before.segment
        self.oldest = first
        gone = len(self.kept)
        self.kept = [pair for pair in self.kept if pair[0].segment >= oldest(self.journal).segment]
        self.synced = max(0, self.synced - (gone - len(self.kept)))

    @invariant()
    def all_is_there(self) -> None:
        if not hasattr(self, "journal"):
            return
        assert list(self.journal.replay()) == self.kept
        for session in range(4):
            assert self.journal.window(session) == [place for place, one in self.kept if one.session == session]
        assert all(self.journal.read(place) == one for place, one in self.kept[-3:])
        for place, _ in self.kept[-2:]:
            assert list(self.journal.replay(place)) == [pair for pair in self.kept if pair[0] > place]


Machine.TestCase.settings = settings(
    max_examples=examples(40), stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)
TestMachine = Machine.TestCase
