"""Directories and sockets of other users: refused wherever something of ours would be or be heard."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from deepprof.collectors.errors import DeepProfError, UsageError
from deepprof.collectors.live.connection import connect
from deepprof.live.agent.asking import NoAnswerReason, NotAnsweredError, ask, is_there
from deepprof.live.agent.launching import AgentSupervisor, NoAgentError
from deepprof.live.agent.node_agent import AgentSettings, NodeAgent
from deepprof.live.agent.server import bind
from deepprof.live.agent.spool import SpoolError, make_root
from deepprof.live.agent.spool.spool_folder import SpoolFolder
from deepprof.live.client.endpoint import find_endpoint
from deepprof.live.service.access.sockets import claim
from deepprof.live.service.examiner.captures import Captures
from deepprof.live.service.folder import StoreError, prepare_folder
from deepprof.ownership import find_peer, is_trusted
from tests.collectors.live.building import build
from tests.collectors.live.reader import finish_job, start_job
from tests.deepprof.live.agent.agents import running_agent
from tests.deepprof.live.service.daemons import DEADLINE_S, wait_for

STRANGER = 12345
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")

USES: list[Callable[[Path], object]] = [
    lambda folder: claim(folder / "s", ""),
    lambda folder: bind(folder / "s"),
    lambda folder: AgentSupervisor(folder / "s").find(0.0),
    make_root,
    lambda folder: SpoolFolder(folder, make=True),
    prepare_folder,
    lambda folder: Captures.open(folder, 1, 1),
]
ERRORS = (UsageError, NoAgentError, SpoolError, StoreError)


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o770, 0o702])
def test_a_directory_that_others_can_write_to_is_refused(
    use: Callable[[Path], object], mode: int, tmp_path: Path
) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(mode)
    with pytest.raises(ERRORS, match=r"others can write to the .*directory; take that away \(chmod go-w /") as caught:
        use(folder)
    assert str(folder) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("use", USES)
def test_a_directory_of_another_user_is_refused(
    use: Callable[[Path], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "theirs"
    folder.mkdir(mode=0o755)
    monkeypatch.setattr(os, "geteuid", lambda: STRANGER)
    monkeypatch.setattr("deepprof.ownership.ROOT", -1)
    with pytest.raises(ERRORS, match="belongs to another user; choose a directory of your own"):
        use(folder)
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("mode", [0o1777, 0o777])
def test_the_directories_above_may_be_open(mode: int, tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(mode)
    for number, use in enumerate(USES[3:]):
        folder = tmp_path / "open" / str(number)
        use(folder)
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_an_agent_looks_at_its_spools_before_it_sends_any(tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    spool.mkdir()
    spool.chmod(0o777)
    agent = NodeAgent(AgentSettings(socket=tmp_path / "a" / "s", spool=spool), find_endpoint("unix:/nowhere/at/all"))
    with pytest.raises(DeepProfError, match="others can write to the spool's directory"):
        asyncio.run(agent.serve())


LISTEN = """
import os, socket, sys
path, user = sys.argv[1], int(sys.argv[2])
with socket.socket(socket.AF_UNIX) as door:
    door.bind(path)
    os.chmod(path, 0o666)
    os.setgid(user)
    os.setuid(user)
    door.listen()
    print("listening", flush=True)
    while True:
        connection, _ = door.accept()
        print(len(connection.recv(1)), flush=True)  # whether we hear anything
"""

CONNECT = """
import os, socket, sys
os.setuid(int(sys.argv[2]))
with socket.socket(socket.AF_UNIX) as door:
    door.connect(sys.argv[1])
    print(len(door.recv(1)))
"""


@contextlib.contextmanager
def listening(path: Path, user: int) -> Iterator[subprocess.Popen[str]]:
    """Have a process of another user listen at `path`, and state how much it hears on every connection."""
    command = [sys.executable, "-c", LISTEN, str(path), str(user)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "listening\n"
        try:
            yield process
        finally:
            process.kill()


def hear(process: subprocess.Popen[str]) -> str:
    """Return how much the next connection brought."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def run_job(path: Path) -> None:
    """Run a job with our library that finds the agent at `path`, and does not wait until it is heard."""
    settings = {"DEEPPROF_SOCKET": path, "DEEPPROF_FINISH_MS": 300, "JOB_ALONE": 1}
    finish_job(start_job(build("plain"), ["mixed", 100], settings))


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory of root, in one of root, that everybody may enter; a socket's path must be short."""
    with tempfile.TemporaryDirectory(prefix="dp-") as name:
        Path(name).chmod(0o755)
        (Path(name) / "d").mkdir(mode=0o755)
        yield Path(name) / "d"


@as_root
def test_a_job_says_nothing_to_another_users_agent(place: Path) -> None:
    with listening(place / "s", STRANGER) as agent:
        assert connect(place / "s") is None
        assert hear(agent) == "0"
        with pytest.raises(NotAnsweredError, match="another user's agent") as caught:
            ask(place / "s")
        assert (caught.value.why, hear(agent)) == (NoAnswerReason.STRANGER, "0")
        with pytest.raises(NoAgentError, match="another user's agent"):
            AgentSupervisor(place / "s").find()
        assert hear(agent) == "0"
        assert is_there(place / "s")  # and no agent takes its place
        assert hear(agent) == "0"


@as_root
def test_nor_does_the_library_in_a_job(place: Path) -> None:
    with listening(place / "s", STRANGER) as agent:
        run_job(place / "s")
        assert hear(agent) == "0"


@as_root
@pytest.mark.parametrize(
    ("owner", "mode", "above", "trusted"),
    [
        (STRANGER, 0o755, 0o755, True),  # root gave it to them, as /run/deepprof to the system's agent
        (STRANGER, 0o775, 0o755, False),
        (STRANGER, 0o755, 0o1777, False),  # anybody could have made it
        (STRANGER + 1, 0o755, 0o755, False),
    ],
)
def test_the_systems_agent_is_heard_where_root_has_put_it(
    place: Path, owner: int, mode: int, above: int, trusted: bool
) -> None:
    with listening(place / "s", STRANGER) as agent:
        os.chown(place, owner, owner)
        place.chmod(mode)
        place.parent.chmod(above)
        with socket.socket(socket.AF_UNIX) as endpoint:
            endpoint.connect(str(place / "s"))
            assert find_peer(endpoint) == (agent.pid, STRANGER)
            assert is_trusted(endpoint, place / "s") is trusted
        assert hear(agent) == "0"
        run_job(place / "s")
        assert hear(agent) == str(int(trusted))


@as_root
def test_a_link_to_a_place_that_root_gave_is_nobodys(place: Path) -> None:
    with listening(place / "s", STRANGER):
        os.chown(place, STRANGER, STRANGER)
        link = place.parent / "link"
        link.symlink_to(place)
        assert connect(link / "s") is None
        found = connect(place / "s")
        assert found is not None
        found.close()


@as_root
def test_an_agent_hears_no_other_users_job(place: Path) -> None:
    with running_agent(place, "unix:/nowhere/at/all") as agent:
        agent.socket.chmod(0o666)
        agent.socket.parent.chmod(0o755)
        job = [sys.executable, "-c", CONNECT, str(agent.socket), str(STRANGER)]
        done = subprocess.run(job, capture_output=True, text=True, check=True, timeout=DEADLINE_S)
        assert done.stdout == "0\n"
        assert agent.answers()
        said = wait_for(lambda: [line for line in agent.log if line["event"] == "not-admitted"], "it says so")
        assert (said[0]["uid"], said[0]["why"]) == (STRANGER, "it is another user's")
