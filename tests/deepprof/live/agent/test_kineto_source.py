"""Kineto on demand with processes that are played: who is asked, whose files are read, and what is refused."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import struct
from pathlib import Path
from types import SimpleNamespace

import pytest

from deepprof.collectors.errors import UsageError
from deepprof.live.agent.kineto import kineto_source as module
from deepprof.live.agent.kineto.datagrams import find_address, open_datagrams
from deepprof.live.agent.kineto.handler import DROPPED_S, read_credentials
from deepprof.live.agent.kineto.kineto_source import KinetoSource, identify
from deepprof.live.agent.kineto.processes import KinetoProcess, KinetoProcesses, read_birth, read_command, read_place
from deepprof.live.agent.kineto.schedule import WindowSchedule
from deepprof.live.agent.kineto.window_folder import WindowFolder
from deepprof.live.agent.notices import NoticeLog
from deepprof.live.agent.rank_places import RankPlace
from deepprof.live.agent.ranks import ProcessRefusedError
from tests.deepprof.live.client.fake_daemon import short_folder
from tests.patience import PATIENCE_S

from .receiving import Opening, TurningClock
from .test_kineto_messages import datagram, request

UNIX_S = 1_700_000_000.0
ME = os.getpid()


class Played:
    """A process at the source's socket: asks, and writes what it is instructed to."""

    def __init__(self, folder: str, name: str = "client") -> None:
        self.endpoint = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.endpoint.bind(os.path.join(folder, name))
        self.endpoint.setblocking(False)
        self.address = os.path.join(folder, "dynolog")

    def say(self, data: bytes) -> None:
        self.endpoint.sendto(data, self.address)

    def hear(self) -> bytes | None:
        try:
            return self.endpoint.recv(8192)
        except BlockingIOError:
            return None

    async def ask(self, pid: int = ME, ready: bool = True) -> dict[str, str] | None:
        """Return the configuration that is given, None for none."""
        self.say(datagram(b"req", request([pid, 1], purpose=3 if ready else 1)))
        for _ in range(200):
            await asyncio.sleep(0.001)
            if (answer := self.hear()) is not None:
                return dict(line.split("=") for line in answer[40:].decode().splitlines())
        return None


def write_trace(path: Path, first_us: int, events: int = 3) -> None:
    """A window as Kineto writes it: this many kernels 10 µs apart."""
    rows = [
        {"ph": "X", "cat": "kernel", "name": f"k{at % 3}", "pid": 0, "tid": 7, "ts": first_us + 10 * at, "dur": 5}
        | {"args": {"device": 0, "stream": 7, "correlation": at + 1}}
        for at in range(events)
    ]
    path.write_text(json.dumps({"schemaVersion": 1, "baseTimeNanoseconds": int(UNIX_S) * 10**9, "traceEvents": rows}))


def window_file(config: dict[str, str], pid: int = ME) -> Path:
    path = Path(config["ACTIVITIES_LOG_FILE"])
    return path.with_name(f"{path.stem}_{pid}.json")


@contextlib.asynccontextmanager
async def serving(every_s=10.0, **changes):
    """A source that runs, a process, and the ranks that were opened."""
    clock, ranks, lines = TurningClock(), Opening(), []
    with short_folder() as folder:
        source = KinetoSource(
            find_address(folder),
            WindowFolder(Path(folder) / "windows"),
            ranks,
            NoticeLog(lines.append),
            WindowSchedule(every_s, 1000),
            **({"job": "job", "clock": clock, "unix_s": lambda: UNIX_S + clock.now} | changes),
        )
        task = asyncio.create_task(source.run())
        await asyncio.sleep(0.01)
        played = Played(folder)
        try:
            where = {"folder": Path(folder), "source": source, "played": played}
            yield SimpleNamespace(ranks=ranks, clock=clock, lines=lines, **where)
        finally:
            played.endpoint.close()
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


async def until(condition) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.001)


def test_windows_become_records_with_gaps_between():
    async def play():
        async with serving() as at:
            for number in range(3):
                config = await at.played.ask()
                while not config:
                    config = await at.played.ask()
                assert await at.played.ask() == {}  # one window at a time
                write_trace(window_file(config), 1000 * (number + 1), 3 + number)
                await until(lambda n=number: at.source.counts["windows"] == n + 1)
            assert list((at.folder / "windows").iterdir()) == []
            assert at.source.state()["counts"]["records"] == 12
            json.dumps(at.source.state())
        return at.ranks

    (rank,) = asyncio.run(play())
    assert rank.log == [3, "duty-cycle", 4, "duty-cycle", 5, {"late": 0}]
    assert rank.identity.job == "job"
    assert rank.identity.collector.startswith("kineto-")
    starts = rank.rows("device_events")["start_ns"].to_list()
    assert starts[0] == int(UNIX_S) * 10**9 + 1_000_000
    assert starts == sorted(starts)


def test_a_process_that_cannot_trace_now_is_given_nothing():
    async def play():
        async with serving() as at:
            assert await at.played.ask(ready=False) == {}
            assert await at.played.ask() != {}

    asyncio.run(play())


def test_a_file_that_still_grows_is_waited_for():
    async def play():
        async with serving() as at:
            config = await at.played.ask()
            path = window_file(config)
            write_trace(path, 1000)
            whole = path.read_bytes()
            path.write_bytes(whole[:-20])
            before = at.clock.now
            await until(lambda: at.clock.now > before + 20)
            assert at.ranks == []
            path.write_bytes(whole)
            await until(lambda: at.source.counts["windows"])
            assert at.ranks[0].log == [3]

    asyncio.run(play())


def test_a_window_that_never_comes_is_given_up_and_said():
    async def play():
        async with serving() as at:
            assert await at.played.ask()
            await until(lambda: at.source.counts["missed"])
            assert at.source.processes.found[ME].window is None
            assert f"process {ME} was asked for a window and wrote none" in at.lines[0]

    asyncio.run(play())


def test_a_process_that_has_dropped_what_it_was_asked_for_is_asked_again():
    """Kineto does so where its thread wakes too late to warm up, and is ready for another one."""

    async def play():
        async with serving() as at:
            assert await at.played.ask()
            (process,) = at.source.processes
            at.clock.now = process.window.end_s + 1
            assert await at.played.ask() == {}  # its file may still come
            until_s = at.clock.now + 2 * DROPPED_S
            await until(lambda: process.window is None)
            assert at.source.counts["missed"] == 1
            assert at.clock.now < until_s
            assert await at.played.ask()

    asyncio.run(play())


def test_a_process_that_still_works_on_a_window_is_waited_for():
    async def play():
        async with serving() as at:
            config = await at.played.ask()
            (process,) = at.source.processes
            at.clock.now = process.window.end_s + 1
            assert await at.played.ask() == {}  # what it stated before it began may be heard late
            assert await at.played.ask(ready=False) == {}
            later_s = at.clock.now + 5 * DROPPED_S
            await until(lambda: at.clock.now > later_s)
            write_trace(window_file(config), 1000)
            await until(lambda: at.source.counts["windows"])
            assert at.source.counts["missed"] == 0

    asyncio.run(play())


@pytest.mark.parametrize("content", [b"{}", b"x}", b'{"traceEvents": [}', b"\x1f\x8b}"])
def test_a_file_that_is_no_trace_is_a_line(content):
    async def play():
        async with serving() as at:
            window_file(await at.played.ask()).write_bytes(content)
            await until(lambda: at.source.counts["unreadable"])
            assert at.ranks == []
            assert "cannot be read" in at.lines[0]
            assert list((at.folder / "windows").iterdir()) == []

    asyncio.run(play())


def test_a_link_is_not_followed(tmp_path):
    async def play():
        async with serving() as at:
            write_trace(tmp_path / "elsewhere.json", 1000)
            window_file(await at.played.ask()).symlink_to(tmp_path / "elsewhere.json")
            await until(lambda: at.source.counts["missed"])
            assert at.ranks == []
            assert (tmp_path / "elsewhere.json").exists()

    asyncio.run(play())


def test_a_file_beyond_all_bounds_is_not_read(monkeypatch):
    monkeypatch.setattr(module, "MOST_NBYTES", 100)

    async def play():
        async with serving() as at:
            write_trace(window_file(await at.played.ask()), 1000)
            await until(lambda: at.source.counts["too-large"])
            assert at.ranks == []

    asyncio.run(play())


def test_a_rank_that_is_taken_is_not_asked_again():
    async def play():
        async with serving() as at:
            at.ranks.error = ProcessRefusedError("rank 0 of job job is collected already")
            write_trace(window_file(await at.played.ask()), 1000)
            await until(lambda: at.source.counts["not-collected"])
            now = at.clock.now
            await until(lambda: at.clock.now > now + 60)
            assert await at.played.ask() == {}
            assert "collected already" in at.lines[0]

    asyncio.run(play())


def test_garbage_is_counted_and_not_answered():
    async def play():
        async with serving() as at:
            for data in (b"", b"x", datagram(b"req", request([1] * 300)), datagram(b"what", b""), b"\xff" * 9000):
                at.played.say(data)
            await until(lambda: at.source.counts["refused"] == 5)
            assert at.played.hear() is None
            assert await at.played.ask()

    asyncio.run(play())


def test_who_does_not_read_answers_holds_nobody_up():
    async def play():
        async with serving() as at:
            for _ in range(2000):
                with contextlib.suppress(BlockingIOError):
                    at.played.say(datagram(b"ctxt", struct.pack("<iiq", 0, ME, 0)))
                await asyncio.sleep(0)
            await until(lambda: at.source.counts["unanswered"])
            other = Played(str(at.folder), "other")
            assert await other.ask()
            other.endpoint.close()

    asyncio.run(play())


def test_another_user_is_refused(monkeypatch):
    async def play():
        async with serving() as at:
            monkeypatch.setattr(os, "geteuid", lambda: 4_000_000)
            assert await at.played.ask() is None
            assert "runs as user" in at.lines[0]
            monkeypatch.undo()

    asyncio.run(play())


def test_more_processes_than_there_is_room_for(monkeypatch):
    monkeypatch.setattr("deepprof.live.agent.kineto.processes.MAX_KINETO_PROCESSES", 3)
    processes = KinetoProcesses()
    assert [processes.hear(pid, 0.0) is not None for pid in (1, 2, 3, 4, 2)] == [True, True, True, False, True]


def make_proc(root: Path, pid: int, birth: int, environ: str = "", command: str = "python\0train.py\0") -> None:
    folder = root / str(pid)
    folder.mkdir(exist_ok=True)
    fields = ["S", *["0"] * 18, str(birth), "0"]
    (folder / "stat").write_text(f"{pid} (a) b( c) {' '.join(fields)}\n")
    (folder / "environ").write_text(environ)
    (folder / "cmdline").write_text(command)


def test_a_process_is_known_by_its_beginning(tmp_path):
    make_proc(tmp_path, 5, 900, "RANK=3\0WORLD_SIZE=8\0SECRET=x\0DEEPPROF_JOB=mine\0")
    assert (read_birth(5, tmp_path), read_command(5, tmp_path)) == (900, ("python", "train.py"))
    assert (read_birth(6, tmp_path), read_command(6, tmp_path), read_place(6, tmp_path).rank) == (0, (), None)
    place = read_place(5, tmp_path)
    assert (place.rank, place.world_size, place.job) == (3, 8, "mine")
    processes = KinetoProcesses(tmp_path)
    process = processes.hear(5, 0.0)
    assert process is not None
    assert not processes.is_gone(process, 599.0)
    assert processes.is_gone(process, 601.0)
    make_proc(tmp_path, 5, 901)
    assert processes.is_gone(process, 1.0)


def test_a_process_that_ends_ends_its_rank(tmp_path):
    async def play():
        make_proc(tmp_path, ME, 1, "RANK=3\0WORLD_SIZE=8\0")
        async with serving(processes=KinetoProcesses(tmp_path), job=None) as at:
            write_trace(window_file(await at.played.ask()), 1000)
            await until(lambda: at.source.counts["windows"])
            make_proc(tmp_path, ME, 2)
            former = at.source.processes.found[ME]
            assert at.source.handler.ask_for(former) == ""  # whoever asks now has to wait until the former is let go
            await until(lambda: not at.source.processes)
            (rank,) = at.ranks
            assert rank.log == [3, {"late": 0}]
            assert (rank.identity.rank, rank.identity.world_size) == (3, 8)
            assert rank.identity.job.startswith("train-")
            assert await at.played.ask() is not None  # the next one of this number is another process
            assert len(at.source.processes) == 1

    asyncio.run(play())


def test_ranks_of_one_command_are_one_job(tmp_path):
    async def play():
        for pid, birth in ((11, 1), (12, 2)):
            make_proc(tmp_path, pid, birth)
        async with serving(processes=KinetoProcesses(tmp_path), job=None) as at:
            first = at.source.handler.find(11)
            at.clock.now += 3600
            second = at.source.handler.find(12)
            assert first.job == second.job

    asyncio.run(play())


def test_the_environment_says_the_rank_before_the_trace_does():
    trace = SimpleNamespace(rank=5, world_size=6, notes=("n",))
    told = KinetoProcess(1, 2, 0.0, job="j", place=RankPlace(0, 4))
    silent = KinetoProcess(1, 2, 0.0, job="j")
    assert (identify(told, trace).rank, identify(told, trace).world_size) == (0, 4)
    assert (identify(silent, trace).rank, identify(silent, trace).world_size) == (5, 6)
    assert identify(told, trace).collector == identify(silent, trace).collector


def test_credentials_are_the_kernels():
    packed = struct.pack("3i", 7, 8, 9)
    assert read_credentials([(socket.SOL_SOCKET, socket.SCM_CREDENTIALS, packed)]) == (7, 8)
    assert read_credentials([]) == (0, -1)
    assert read_credentials([(socket.SOL_SOCKET, socket.SCM_RIGHTS, packed)]) == (0, -1)


def test_the_socket_of_another_is_left_alone():
    with short_folder() as folder:
        endpoint = open_datagrams(find_address(folder))
        assert (os.stat(find_address(folder)).st_mode & 0o777) == 0o600
        with pytest.raises(UsageError, match="listens there"):
            open_datagrams(find_address(folder))
        endpoint.close()  # without removing the path: the agent was killed
        open_datagrams(find_address(folder)).close()


def test_an_abstract_name_that_is_taken():
    name = f"\0deepprof-test-{ME}"
    endpoint = open_datagrams(name)
    with pytest.raises(UsageError, match="@deepprof-test"):
        open_datagrams(name)
    endpoint.close()
    assert find_address(None, abstract=True) == "\0dynolog"


@pytest.mark.parametrize("directory", [None, "", "/" + "x" * 120])
def test_a_directory_that_cannot_have_the_socket(directory):
    with pytest.raises(UsageError, match="KINETO_IPC_SOCKET_DIR"):
        find_address(directory)


def test_a_folder_that_others_see_is_refused(tmp_path):
    (tmp_path / "open").mkdir(mode=0o755)
    with pytest.raises(UsageError, match="yours alone"):
        WindowFolder(tmp_path / "open")
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot hold windows"):
        WindowFolder(tmp_path / "file" / "below")
    (tmp_path / "mine").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "mine")
    with pytest.raises(UsageError, match="yours alone"):
        WindowFolder(tmp_path / "link")


def test_a_folder_is_removed_with_what_is_ours(tmp_path):
    folder = WindowFolder(tmp_path / "windows")
    token = folder.new_token()
    (folder.path / f"{token}_5.json.tmp").write_text("half")
    folder.close()
    assert not folder.path.exists()
    again = WindowFolder(tmp_path / "windows")
    (again.path / "somebody else's").write_text("")
    again.close()
    assert again.path.exists()
