"""Unmodified PyTorch programs under `deepprof run`, a daemon on: their true numbers of iterations, in all views."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from deepprof.live.wire.figures import RankState
from tests.deepprof.live.agent.agents import AgentProcess, running_agent
from tests.deepprof.live.service.daemons import Daemon, running, wait_for
from tests.deepprof.live.service.sending import open_client
from tests.patience import PATIENCE_S, UNHURRIED
from tests.widening import slow_unless

PROGRAMS = Path(__file__).parents[3] / "programs" / "unmodified"
ITERATIONS = {"convnet": 60, "language_model": 100, "accumulation": 50, "epochs": 150, "recurrent": 80}
DEADLINE_S = PATIENCE_S

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="torch is not installed (pip install 'deepprof[programs]')"
)


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    with running() as started:
        yield started


@pytest.fixture(scope="module")
def agent(daemon: Daemon) -> Iterator[AgentProcess]:
    with running_agent(daemon.folder, daemon.address) as started:
        yield started


def environment() -> dict[str, str]:
    """Return what programs run with: no one is left behind because the machine is busy, neither first nor last."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("DEEPPROF_")}
    return env | UNHURRIED


def run(agent: AgentProcess, job: str, *command: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "deepprof", "run", "--job", job, "--agent", str(agent.socket)]
    words += ["--drain", str(PATIENCE_S), "--", *command]
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=DEADLINE_S, env=environment())


def watched(daemon: Daemon, job: str) -> dict[int, int]:
    """Return the iterations of every rank as `deepprof watch` shows them."""
    command = [sys.executable, "-m", "deepprof", "watch", daemon.address, "--once", "--format", "json", "--job", job]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=DEADLINE_S)
    [found] = json.loads(done.stdout)["jobs"]
    return {rank["rank"]: sum(each["iterations"] for each in rank["devices"]) for rank in found["rank_states"]}


def look(daemon: Daemon, job: str) -> list[RankState]:
    """Return the ranks of a job without the cost of a command, which is for what is examined until it is right."""
    with open_client(daemon) as client:
        return list(client.ranks(job))


def is_settled(daemon: Daemon, job: str) -> bool:
    """Say whether all records of every rank were analysed as a whole; until then the number is what was seen so far."""
    ranks = look(daemon, job)
    return bool(ranks) and all(rank.settled for rank in ranks)


def counted(daemon: Daemon, job: str) -> dict[int, int]:
    """Return the iterations of every rank as a client gets them."""
    return {rank.rank: sum(device.iterations for device in rank.devices) for rank in look(daemon, job)}


def exported(daemon: Daemon, job: str) -> dict[int, int]:
    """Return them as Prometheus gets them."""
    begin = f'deepprof_iterations_total{{job_id="{job}",rank="'
    lines = [line for line in daemon.get("/metrics")[1].splitlines() if line.startswith(begin)]
    return {int(line.removeprefix(begin).partition('"')[0]): int(float(line.split()[-1])) for line in lines}


@pytest.mark.parametrize("program", slow_unless(lambda program: program == "language_model", ITERATIONS))
def test_the_true_number_of_iterations(program: str, daemon: Daemon, agent: AgentProcess) -> None:
    plain = subprocess.run([sys.executable, PROGRAMS / f"{program}.py"], capture_output=True, text=True, check=True)
    done = run(agent, program, sys.executable, str(PROGRAMS / f"{program}.py"))
    assert done.returncode == 0, done.stderr
    assert done.stdout == plain.stdout
    assert "1 rank" in done.stderr
    assert ", 0 lost" in done.stderr
    wait_for(lambda: is_settled(daemon, program), "the daemon has analysed it as a whole")
    assert watched(daemon, program) == {0: ITERATIONS[program]}
    wait_for(lambda: exported(daemon, program) == {0: ITERATIONS[program]}, "the exporter tells them")


@pytest.mark.slow  # `test_hook_processes` hears several processes of a job, `test_true_numbers` has two ranks of a run
def test_ranks_that_torchrun_starts(daemon: Daemon, agent: AgentProcess) -> None:
    launch = "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"
    done = run(agent, "distributed", sys.executable, *launch, str(PROGRAMS / "distributed.py"))
    assert done.returncode == 0, done.stderr
    assert "2 ranks" in done.stderr
    wait_for(lambda: is_settled(daemon, "distributed"), "the daemon has analysed both ranks as a whole")
    assert watched(daemon, "distributed") == {0: 120, 1: 120}


@pytest.mark.slow  # `test_true_numbers` and `test_launching` kill agents of jobs without PyTorch
def test_a_kill_of_the_agent_does_the_job_no_harm(daemon: Daemon) -> None:
    own = AgentProcess(daemon.folder / "own", daemon.address)
    own.folder.mkdir()
    own.start()
    program = PROGRAMS / "language_model.py"
    text = program.read_text().replace("range(100)", "range(3000)")
    command = [
        sys.executable,
        "-m",
        "deepprof",
        "run",
        "--job",
        "killed",
        "--agent",
        str(own.socket),
        "--to",
        daemon.address,
    ]
    env = environment() | {"XDG_STATE_HOME": str(own.folder / "state")}
    job = subprocess.Popen(
        [*command, "--", sys.executable, "-c", text], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env
    )
    try:
        wait_for(lambda: exported(daemon, "killed").get(0, 0) > 100, "it is watched")
        own.process.send_signal(signal.SIGKILL)
        own.process.wait(DEADLINE_S)
        out, said = job.communicate(timeout=DEADLINE_S)
    finally:
        job.kill()
        own.kill()
    assert job.returncode == 0
    assert out.splitlines()[-1].startswith("2980 ")
    assert "started again" in said
    found = exported(daemon, "killed")[0]
    assert 1000 < found <= 3000


@pytest.mark.slow  # `test_agent` does it without PyTorch
def test_a_job_s_name_that_is_used_again_shows_the_iterations_of_the_new_run(
    daemon: Daemon, agent: AgentProcess
) -> None:
    for program in ("convnet", "recurrent"):
        done = run(agent, "again", sys.executable, str(PROGRAMS / f"{program}.py"))
        assert done.returncode == 0
        wait_for(lambda program=program: counted(daemon, "again") == {0: ITERATIONS[program]}, "it is the run's own")
        assert watched(daemon, "again") == {0: ITERATIONS[program]}
        wait_for(lambda program=program: exported(daemon, "again") == {0: ITERATIONS[program]}, "so does the exporter")
