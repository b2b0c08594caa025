"""`deepprof run` as one types it, with an agent that only answers and a library that is not there."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from deepprof.commands.run import Run, parse_drain, parse_job, parse_socket, read_command
from deepprof.live.agent.asking import ask
from deepprof.live.agent.job_names import name_job
from tests.deepprof.live.agent.fake_agent import process
from tests.patience import PATIENCE_S
from tests.widening import slow_unless

ROOT = Path(__file__).resolve().parents[3]
DRIVER = """
import os, sys
from pathlib import Path
import deepprof.collectors.live.inject as inject
library = os.environ.get("LIBRARY")
inject.find_library = lambda: Path(library) if library else None
from deepprof.commands import main
run = sys.modules["deepprof.commands.run"]
make_supervisor = run.make_supervisor
def make_with_stand_in(*given):  # not before: what it loads starts threads
    from deepprof.live.agent.launching import AgentSupervisor
    AgentSupervisor.program = (sys.executable, "-m", "tests.deepprof.live.agent.stand_in_agent")
    AgentSupervisor.find.__defaults__ = (PATIENCE,)
    AgentSupervisor.ask.__defaults__ = (PATIENCE,)
    return make_supervisor(*given)
run.make_supervisor = make_with_stand_in
sys.exit(main(sys.argv[1:]))
""".replace("PATIENCE", str(PATIENCE_S))
LIBRARY = "/no/such/_inject.so"
OURS = re.compile("SLURM|OMPI|PMI|DEEPPROF|RANK|WORLD|TORCHELASTIC|PYTHONPATH|COMPLETION|_INJECTION64|ITTNOTIFY")


@pytest.fixture
def cli(tmp_path):
    """Runs `deepprof run` with its own socket; `said` is what the agent answers."""
    path = tmp_path / "d" / "agent.sock"

    def start(*words, said=None, library=LIBRARY, more=None, **options):
        environ = {name: text for name, text in os.environ.items() if not OURS.search(name)}
        environ |= {"ANSWER": json.dumps(said or {}), "LIBRARY": library, "DEEPPROF_SOCKET": str(path)}
        command = [sys.executable, "-c", DRIVER, "run", *map(str, words)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "cwd": ROOT}
        return subprocess.Popen(command, env=environ | (more or {}), **pipes | options)

    def run(*words, **options):
        process = start(*words, **options)
        stdout, stderr = process.communicate(timeout=PATIENCE_S)
        return subprocess.CompletedProcess(words, process.returncode, stdout, stderr)

    run.start, run.path = start, path
    yield run
    stop(path)


def stop(path):
    if path.parent.exists():
        path.with_suffix(".stop").touch()
    if path.with_suffix(".starts").exists():
        for pid in path.with_suffix(".starts").read_text().split():
            with contextlib.suppress(OSError):
                os.kill(int(pid), signal.SIGKILL)


def test_a_command_that_is_watched(cli):
    done = cli("--job", "demo", "--", "sh", "-c", "echo out; echo err >&2; exit 3", said={"processes": [process()]})
    assert (done.returncode, done.stdout) == (3, "out\n")
    # what was known before the command began is not the command's
    assert done.stderr.splitlines()[0] == "err"
    assert "deepprof: job demo: nothing was collected: " in done.stderr.splitlines()[1]


def test_what_came_of_it_is_one_line(cli):
    """The agent learns of the job's process while the command runs."""
    running = cli.start("--job", "demo", "sh", "-c", "echo up; read x", stdin=subprocess.PIPE)
    assert running.stdout.readline() == "up\n"
    knows = {"processes": [process(records=61_234, next=61_234, durable=61_234)]}
    cli.path.with_suffix(".answer").write_text(json.dumps(knows))
    _, stderr = running.communicate("\n", timeout=PATIENCE_S)
    last = (
        "deepprof: job demo: 1 rank, 61,234 records acknowledged by unix:/d, 0 lost; deepprof watch unix:/d --job demo"
    )
    assert stderr.splitlines()[-1] == last
    assert running.returncode == 0


def test_what_runs_on_is_the_commands_own(cli):
    """Of two runs of one job in one script, neither takes the other's command for its own that runs on."""
    running = cli.start("--job", "demo", "sh", "-c", "echo up; read x", stdin=subprocess.PIPE)
    assert running.stdout.readline() == "up\n"
    done = cli("--job", "demo", "true")
    assert "runs on" not in done.stderr
    _, stderr = running.communicate("\n", timeout=PATIENCE_S)
    assert "runs on" not in stderr
    left = cli("--job", "demo", "sh", "-c", "sleep 9999 >/dev/null 2>&1 & echo $!")
    assert f"its process {left.stdout.strip()} runs on" in left.stderr
    os.kill(int(left.stdout), signal.SIGKILL)


def wait_for(path):
    until_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < until_s:
        with contextlib.suppress(Exception):
            return ask(path, PATIENCE_S)
        time.sleep(0.02)
    raise AssertionError("no agent")


def test_the_command_learns_where_everything_is(cli):
    names = "DEEPPROF_SOCKET DEEPPROF_INJECT DEEPPROF_JOB CUDA_INJECTION64_PATH INTEL_LIBITTNOTIFY64 PYTHONPATH"
    done = cli("--job", "demo", "--quiet", "sh", "-c", f'for n in {names}; do eval echo "\\$$n"; done')
    hook = ROOT / "deepprof/collectors/live/hook"
    assert done.stdout.splitlines() == [str(cli.path), LIBRARY, "demo", LIBRARY, LIBRARY, str(hook)]
    assert done.stderr == ""


def test_the_agent_is_not_collected_from_and_hears_the_address(cli):
    running = cli.start("--to", "127.0.0.1:9", "--kineto", "sh", "-c", "read x", stdin=subprocess.PIPE)
    wait_for(cli.path)
    state = read_process(cli.path)
    running.communicate("\n", timeout=PATIENCE_S)
    assert state["argv"][-4:] == ["--to", "127.0.0.1:9", "--kineto", "--until-idle"]
    assert "CUDA_INJECTION64_PATH" not in state["environ"]
    assert state["environ"]["KINETO_IPC_SOCKET_DIR"] == str(cli.path.parent)


def read_process(path):
    """The stand-in's arguments and environment."""
    (pid,) = path.with_suffix(".starts").read_text().split()
    argv = Path(f"/proc/{pid}/cmdline").read_text().split("\0")[:-1]
    pairs = (line.partition("=") for line in Path(f"/proc/{pid}/environ").read_text().split("\0"))
    return {"argv": argv, "environ": {name: text for name, _, text in pairs}}


def test_an_agent_that_sends_elsewhere_is_said(cli):
    done = cli("--to", "127.0.0.1:9", "--quiet", "true", said={"to": "unix:/other"})
    assert "sends to unix:/other, not to 127.0.0.1:9; give one of its own with --agent SOCKET" in done.stderr
    assert done.returncode == 0
    done = cli("--quiet", "true", more={"DEEPPROF_DAEMON": "127.0.0.1:9"})
    assert "sends to unix:/other, not to 127.0.0.1:9; give one of its own with --agent SOCKET" in done.stderr
    done = cli("--quiet", "true", more={"DEEPPROF_DAEMON": "nonsense"})
    assert "DEEPPROF_DAEMON: address 'nonsense' is no address of a daemon" in done.stderr
    assert done.returncode == 0
    assert cli("--to", "unix:/other", "--quiet", "true", more={"DEEPPROF_DAEMON": "127.0.0.1:9"}).stderr == ""


@pytest.mark.parametrize(
    ("more", "library", "why"),
    [
        ({}, "", "DeepProf's library is not compiled"),
        ({"FAIL": "no such option"}, LIBRARY, "the agent ended as it started (no such option)"),
        ({"DEEPPROF_SOCKET": "/proc/no/agent.sock"}, LIBRARY, "No such file or directory"),
    ],
)
def test_where_nothing_can_be_collected_the_command_runs_all_the_same(cli, more, library, why):
    done = cli("--", "sh", "-c", "echo $PYTHONPATH$CUDA_INJECTION64_PATH; exit 5", more=more, library=library)
    assert (done.returncode, done.stdout) == (5, "\n")
    (line,) = done.stderr.splitlines()
    assert line.startswith("deepprof: nothing is collected: ")
    assert why in line


def test_a_slow_agent_is_not_waited_for_long(cli):
    code = DRIVER.replace(f"find.__defaults__ = ({PATIENCE_S},)", "find.__defaults__ = (0.1,)")
    command = [sys.executable, "-c", code, "run", "--agent", str(cli.path), "--quiet", "sh", "-c", "echo $DEEPPROF_JOB"]
    environ = {**os.environ, "LIBRARY": LIBRARY, "DEEPPROF_JOB": "late", "HANGS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S, env=environ)
    assert (done.returncode, done.stdout) == (0, "late\n")
    slow, gone = done.stderr.splitlines()
    assert slow == "deepprof: the agent is slow to start; the first records may be missing"
    assert gone.endswith("no agent listens there; what it had taken is on disk")


def test_exit_codes(cli):
    assert cli("sh", "-c", "kill -TERM $$").returncode == -signal.SIGTERM
    done = cli("--", "no-such-command")
    assert (done.returncode, done.stderr) == (127, "deepprof: no-such-command: command not found\n")
    assert cli("/").returncode == 126


def test_a_signal_passes_through(cli):
    code = "import os, signal; signal.signal(15, lambda *_: os._exit(9)); print(1, flush=True)\nwhile 1: signal.pause()"
    running = cli.start("--quiet", sys.executable, "-c", code)
    assert running.stdout.readline() == "1\n"
    running.send_signal(signal.SIGTERM)
    running.communicate(timeout=PATIENCE_S)
    assert running.returncode == 9


SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1]


@pytest.mark.parametrize("number", slow_unless(lambda number: number == signal.SIGINT, SIGNALS))
def test_a_signal_while_we_are_busy_changes_no_exit_code(cli, number):
    """numpy has its own threads, to which the kernel may give what the main thread does not take at once."""
    code = "trap '' INT TERM USR1; echo $$; read x; exit 7"
    running = cli.start("sh", "-c", code, stdin=subprocess.PIPE, more={"OPENBLAS_NUM_THREADS": "4"})
    command = Path("/proc") / running.stdout.readline().strip()
    agent = wait_for(cli.path).pid
    os.kill(agent, signal.SIGSTOP)
    running.stdin.write("\n")
    running.stdin.flush()
    until_s = time.monotonic() + PATIENCE_S
    while command.exists() and time.monotonic() < until_s:  # then the agent is asked, and does not answer
        time.sleep(0.01)
    running.send_signal(number)
    _, stderr = running.communicate(timeout=PATIENCE_S)
    assert (running.returncode, "the agent does not answer" in stderr) == (7, True)


def test_an_agent_that_dies_is_started_again(cli):
    running = cli.start("--job", "demo", "sh", "-c", "echo up; read x", stdin=subprocess.PIPE)
    assert running.stdout.readline() == "up\n"  # before, an agent that dies has not started
    first = wait_for(cli.path).pid
    os.kill(first, signal.SIGKILL)
    until_s = time.monotonic() + PATIENCE_S
    while wait_for(cli.path).pid == first and time.monotonic() < until_s:
        time.sleep(0.02)
    _, stderr = running.communicate("\n", timeout=PATIENCE_S)
    assert "deepprof: the agent ended (by signal 9) and is started again" in stderr
    assert "deepprof: job demo: nothing was collected" in stderr
    assert running.returncode == 0


def job_of(cli, *words, more=None):
    return cli(*words, "--quiet", "sh", "-c", "echo $DEEPPROF_JOB", more=more).stdout.strip()


def test_names_of_jobs(cli):
    slurm = {"SLURM_JOB_ID": "7", "SLURM_JOB_NAME": "big"}
    assert job_of(cli, "--job", "mine", more=slurm) == "mine"
    assert job_of(cli, more={**slurm, "DEEPPROF_JOB": "theirs"}) == "theirs"
    assert job_of(cli, more=slurm) == "big-7"
    assert re.fullmatch(r"sh-\d{8}-\d{4}", job_of(cli))
    assert name_job(["./train.py", "a.py"], 0.0) == "train-19700101-0000"
    assert name_job(["torchrun", "--x", "a/b.py"], 0.0) == "b-19700101-0000"
    assert name_job([], 0.0) == "job-19700101-0000"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ([], "no command to run; see deepprof run --help"),
        (["--"], "no command to run; see deepprof run --help"),
        (["--", ""], "no command to run; see deepprof run --help"),
        (["--to", "nonsense", "true"], "'nonsense' is no address of a daemon"),
        (["--job", "a b", "true"], "'a b' is not 1 to 128 letters"),
        (["--drain", "x", "true"], "'x' is no number of seconds"),
        (["--agent", "unix:", "true"], "'unix:' is no path of a socket"),
        (["--bogus", "true"], "--bogus"),
    ],
)
def test_arguments_that_make_no_sense(cli, words, line):
    done = cli(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert line in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "command", "job"),
    [
        (["--job", "x", "python", "a.py", "--job", "y", "--help"], ["python", "a.py", "--job", "y", "--help"], "x"),
        (["--job", "x", "--", "-odd", "--", "z"], ["-odd", "--", "z"], "x"),
        (["python", "--", "--job", "y"], ["python", "--", "--job", "y"], None),
        (["--", "--", "x"], ["--", "x"], None),
        (["--steps", "torchrun", "--nproc-per-node", "2", "t.py"], ["torchrun", "--nproc-per-node", "2", "t.py"], None),
    ],
)
def test_where_the_command_begins(words, command, job):
    parser = argparse.ArgumentParser()
    Run().prepare_parser(parser.add_subparsers().add_parser("run"))
    args = parser.parse_args(["run", *words])
    assert (read_command(args.command), args.job) == (command, job)


def test_values(tmp_path):
    assert parse_drain("0") == 0
    assert parse_drain("2.5") == 2.5
    assert parse_job("a/b:c-1") == "a/b:c-1"
    assert parse_socket("unix:/a/s") == parse_socket("/a/s") == Path("/a/s")
    for text in ("-1", "1e3", "nan", "3601", "²", ".", ""):
        with pytest.raises(argparse.ArgumentTypeError):
            parse_drain(text)
    for text in ("", "/" + "x" * 107, "/a\nb"):
        with pytest.raises(argparse.ArgumentTypeError):
            parse_socket(text)
