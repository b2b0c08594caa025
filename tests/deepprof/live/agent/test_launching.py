"""An agent is found, started once, and started again when it dies."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest

from deepprof.live.agent import launching
from deepprof.live.agent.asking import ask, is_there
from deepprof.live.agent.launching import AgentSupervisor, NoAgentError
from tests.patience import PATIENCE_S

from .fake_agent import answer, answering

ROOT = Path(__file__).resolve().parents[4]
PROGRAM = (sys.executable, "-m", "tests.deepprof.live.agent.stand_in_agent")


@pytest.fixture
def path(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(AgentSupervisor, "program", PROGRAM)
    for wait in (AgentSupervisor.find, AgentSupervisor.ask):
        monkeypatch.setattr(wait, "__defaults__", (PATIENCE_S,))
    folder = tmp_path / "d"
    yield folder / "agent.sock"
    (folder / "agent.stop").touch() if folder.exists() else None
    for pid in starts(folder / "agent.sock"):
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)


def starts(path):
    with contextlib.suppress(FileNotFoundError):
        return [int(line) for line in path.with_suffix(".starts").read_text().split()]
    return []


def until(condition):
    end_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end_s
        time.sleep(0.01)


def test_one_that_is_there_is_taken(path):
    path.parent.mkdir()
    with answering(path, lambda: answer(pid=4)):
        supervisor = AgentSupervisor(path)
        assert supervisor.find().pid == 4
        assert supervisor.pid is None


def test_where_there_is_none_one_is_started_in_a_session_of_its_own(path):
    supervisor = AgentSupervisor(path, ["--to", "unix:/d"])
    found = supervisor.find()
    assert [found.pid] == [supervisor.pid] == starts(path)
    assert os.getsid(found.pid) == found.pid
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert supervisor.log.stat().st_mode & 0o777 == 0o600
    assert supervisor.command[-6:] == ["agent", "--socket", str(path), "--to", "unix:/d", "--until-idle"]
    assert AgentSupervisor(path).find().pid == found.pid


def test_a_socket_that_was_left_behind_is_no_agent(path):
    path.parent.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as endpoint:
        endpoint.bind(str(path))
    assert AgentSupervisor(path).find().pid == starts(path)[0]


def test_many_runs_at_once_start_one(path):
    code = "import sys\nfrom pathlib import Path\nfrom deepprof.live.agent.launching import AgentSupervisor\n"
    code += f"AgentSupervisor.program = {PROGRAM!r}\nprint(AgentSupervisor(Path(sys.argv[1])).find({PATIENCE_S}).pid)"
    runs = [subprocess.Popen([sys.executable, "-c", code, path], stdout=subprocess.PIPE, text=True) for _ in range(4)]
    found = {run.communicate(timeout=PATIENCE_S)[0] for run in runs}
    assert found == {f"{starts(path)[0]}\n"}
    assert len(starts(path)) == 1


def test_it_holds_none_of_the_shells_files(path):
    read, write = os.pipe()
    os.set_inheritable(write, True)
    AgentSupervisor(path).find()
    os.close(write)
    with os.fdopen(read) as reader:
        assert reader.read() == ""  # else it would not end


def test_one_that_ends_as_it_starts_says_why(path):
    supervisor = AgentSupervisor(path, environ={**os.environ, "FAIL": "address 'x' is no address"})
    with pytest.raises(NoAgentError, match=r"the agent ended as it started \(address 'x' is no address\)"):
        supervisor.find()
    with pytest.raises(NoAgentError, match="the agent ended as it started"):
        supervisor.find()


def test_one_that_cannot_be_executed(path, monkeypatch):
    monkeypatch.setattr(AgentSupervisor, "program", ("/no/such/python",))
    with pytest.raises(NoAgentError, match="No such file or directory"):
        AgentSupervisor(path).find()


def test_one_that_is_slow(path, monkeypatch):
    monkeypatch.setattr(AgentSupervisor, "program", ("/bin/sh", "-c", "exec sleep 9999"))
    supervisor = AgentSupervisor(path)
    assert supervisor.find(0.1) is None
    assert supervisor.pid is not None
    os.kill(supervisor.pid, signal.SIGKILL)
    os.waitpid(supervisor.pid, 0)


def test_one_that_another_run_is_starting(path):
    holder = AgentSupervisor(path)
    with holder.only_starter(0):
        assert AgentSupervisor(path).find(0.1) is None
        holder.restart()  # as someone does it already
    assert holder.pid is None


def test_something_else_that_listens_is_left_alone(path):
    path.parent.mkdir()
    with answering(path, lambda: b"hello, I am somebody else"), pytest.raises(NoAgentError, match="no agent of this"):
        AgentSupervisor(path).find()


def test_a_folder_to_which_others_write_is_refused(path):
    path.parent.mkdir()
    path.parent.chmod(0o777)
    with pytest.raises(NoAgentError, match="others can write"):
        AgentSupervisor(path).find()


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(NoAgentError, match="file"):
        AgentSupervisor(tmp_path / "file" / "x" / "agent.sock").find()


def test_a_log_that_is_a_link_is_not_followed(path, tmp_path):
    path.parent.mkdir(mode=0o700)
    path.with_suffix(".log").symlink_to(tmp_path / "victim")
    with pytest.raises(NoAgentError, match=r"agent\.log"):
        AgentSupervisor(path).find()
    assert not (tmp_path / "victim").exists()


def test_one_that_is_killed_is_started_again_and_it_is_said_once(path):
    said = []
    supervisor = AgentSupervisor(path, say=said.append)
    supervisor.find()
    for count in (2, 3):
        os.kill(supervisor.pid, signal.SIGKILL)
        pid, status = os.waitpid(supervisor.pid, 0)
        supervisor.check({pid: status})
        until(lambda: (supervisor.check({}), len(starts(path)) == count)[1])  # noqa: B023
        until(lambda: is_there(path))
        assert ask(path, PATIENCE_S).pid == supervisor.pid
    assert said == ["the agent ended (by signal 9) and is started again; what it had taken is on disk"]


def test_one_that_had_nothing_to_do_is_started_again_without_a_word(path):
    said = []
    supervisor = AgentSupervisor(path, say=said.append)
    first = supervisor.find().pid
    path.unlink()
    supervisor.check({first: os.waitpid(first, 0)[1]})
    until(lambda: is_there(path))
    assert ask(path, PATIENCE_S).pid == supervisor.pid != first
    assert said == []


def test_why_an_agent_is_gone(path):
    supervisor = AgentSupervisor(path)
    path.parent.mkdir()
    assert supervisor.explain_end() == "nobody listens any more"
    supervisor.status = 2 << 8
    assert supervisor.explain_end() == "it wrote nothing"
    supervisor.log.write_text("deepprof: the disk is full; make room\n\n")
    assert supervisor.explain_end() == "the disk is full; make room"
    supervisor.log.write_text('{"event":"listening"}\n')
    assert supervisor.explain_end() == "with status 2"


class Clock:
    now_s = 100.0

    def __call__(self):
        return self.now_s


@pytest.fixture
def dying(path, monkeypatch):
    """A supervisor whose agent dies at once whenever it is started; gives it, its clock, and when it was started."""
    clock, started = Clock(), []

    def start(self):
        started.append(clock.now_s)
        self.pid, self.started_s = 10**9, clock.now_s

    monkeypatch.setattr(AgentSupervisor, "start", start)
    return AgentSupervisor(path, clock=clock), clock, started


def test_the_pauses_between_starts_grow(dying):
    supervisor, clock, started = dying
    for _ in range(4000):
        supervisor.check({10**9: 9} if supervisor.pid else {})
        clock.now_s += 0.01
    pauses = [round(after - before, 1) for before, after in pairwise(started)]
    assert pauses[:6] == [0.5, 1.0, 2.0, 4.0, 8.0, 10.0]
    assert max(pauses) == 10.0


def test_one_that_lived_long_is_started_again_at_once(dying):
    supervisor, clock, started = dying
    for _ in range(500):
        supervisor.check({10**9: 9} if supervisor.pid else {})
        clock.now_s += 0.01
    clock.now_s = supervisor.next_s
    supervisor.check({})
    clock.now_s += launching.CALM_S + 1
    supervisor.check({10**9: 9})
    assert started[-1] == clock.now_s
    assert supervisor.next_s == clock.now_s + launching.FIRST_PAUSE_S


def test_the_systems_agent_is_the_systems_to_start(dying, monkeypatch):
    supervisor, _, started = dying
    monkeypatch.setattr(launching, "SYSTEM", supervisor.socket.parent)
    supervisor.check({})
    assert started == []


def test_one_that_another_run_started_is_looked_at_and_left(path, dying):
    supervisor, clock, started = dying
    path.parent.mkdir()
    with answering(path, answer):
        supervisor.check({})
        assert supervisor.next_s == clock.now_s + launching.LOOK_S
    supervisor.check({})
    assert started == []
    clock.now_s += launching.LOOK_S
    supervisor.check({})
    assert started == [clock.now_s]


def test_a_long_log_begins_anew(path):
    path.parent.mkdir(mode=0o700)
    path.with_suffix(".log").write_text("x" * (launching.LOG_NBYTES + 1))
    supervisor = AgentSupervisor(path)
    supervisor.find()
    assert supervisor.log.stat().st_size < launching.LOG_NBYTES
