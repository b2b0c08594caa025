"""Jobs that end before their time, on disks that fill and in containers: one line, and nothing is left behind."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from deepprof.commands import main
from deepprof.commands.signals import tidying
from deepprof.simulation import simulate, write
from tests.patience import PATIENCE_S
from tests.widening import slow_unless

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals and limits are those of POSIX")
WRITING = [("diagnose", "2"), ("convert", "1"), ("convert", "2")]  # what puts something on the disk
FULL = """
import resource, sys
from deepprof.commands import main
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
sys.exit(main(sys.argv[1:]))
"""
# Goes no further once something is on the disk, and reports it.
HELD = """
import glob, os, sys, time
import polars
from deepprof.commands import main
from deepprof.job import parallel

def hold(*_, **__):
    own = os.environ["TMPDIR"]
    while not glob.glob(own + "/*/*") + glob.glob(own + "/.*/*"):
        time.sleep(0.01)
    print("something is there", flush=True)
    while True:
        time.sleep(0.01)

def write(*given, real=polars.DataFrame.write_parquet, **more):
    real(*given, **more)
    hold()

parallel.wait, polars.DataFrame.write_parquet = hold, write
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    write(simulate("healthy", iterations=8, seed=1), folder / "rank0.json.gz")
    for rank in range(1, 30):
        (folder / f"rank{rank}.json.gz").hardlink_to(folder / "rank0.json.gz")
    return folder


@pytest.fixture
def own(tmp_path):
    """A directory for temporary files and results, which must be empty at the end."""
    folder = tmp_path / "own"
    folder.mkdir()
    yield folder
    assert list(folder.iterdir()) == []


def start(own: Path, *argv: str) -> "subprocess.Popen[bytes]":
    environment = os.environ | {"TMPDIR": str(own)}
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, *argv], stdin=pipe, stdout=pipe, stderr=pipe, env=environment)


@pytest.mark.parametrize(("command", "jobs"), slow_unless(lambda case: case == ("convert", "2"), WRITING))
def test_a_request_to_end_leaves_nothing(ranks, own, command, jobs):
    """As SLURM, Kubernetes and systemd send it; of what was begun nothing stays, and no process complains."""
    output = ["-o", str(own / "job.deepprof")] if command == "convert" else []
    process = start(own, "-c", HELD, command, str(ranks), "--jobs", jobs, *output)
    assert process.stdout.readline() == b"something is there\n"
    assert list(own.glob("*/*")) + list(own.glob(".*/*"))
    process.send_signal(signal.SIGTERM)
    assert (process.communicate(timeout=PATIENCE_S), process.returncode) == ((b"", b""), 128 + signal.SIGTERM)


def test_a_second_request_does_not_interrupt_the_first():
    done = []

    def work():
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        finally:
            os.kill(os.getpid(), signal.SIGTERM)
            done.append("tidied")

    with pytest.raises(SystemExit) as ended, tidying():
        work()
    assert (ended.value.code, done) == (143, ["tidied"])
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_a_signal_that_somebody_handles_is_left_alone():
    heard = []
    before = signal.signal(signal.SIGTERM, lambda *_: heard.append("theirs"))
    try:
        with tidying():
            os.kill(os.getpid(), signal.SIGTERM)
        assert heard == ["theirs"]
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_process_whose_parent_is_gone_ends_without_a_word(ranks, own):
    process = start(own, "-P", "-m", "deepprof.job.reader")
    process.stdout.close()
    process.stdin.write(b'{"path": "%b", "shown": null, "folder": "/dev/null/x"}\n' % os.fsencode(ranks / "none"))
    process.stdin.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(PATIENCE_S) == 1


@pytest.mark.parametrize(("command", "jobs"), slow_unless(lambda case: case[0] == "convert", WRITING))
def test_a_full_disk_is_a_line(ranks, own, command, jobs):
    """polars shows of it in its own error, which is neither an `OSError` nor a bug."""
    output = ["-o", str(own / "job.deepprof")] if command == "convert" else []
    process = start(own, "-c", FULL, command, *(f"{ranks}/rank{n}.json.gz" for n in range(3)), "--jobs", jobs, *output)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out, err.count(b"\n")) == (2, b"", 1)
    assert b"File too large; check the path and the disk" in err


def test_what_a_killed_process_of_the_same_number_left_is_no_obstacle(ranks, tmp_path, capsys):
    """In a container a command has the same number every time."""
    left = tmp_path / f".job.deepprof.{os.getpid()}.part"
    (left / "000000").mkdir(parents=True)
    for _ in range(2):
        assert main(["convert", str(ranks / "rank0.json.gz"), "-o", str(tmp_path / "job.deepprof")]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == [left.name, "job.deepprof"]


@pytest.mark.filterwarnings("always")
def test_a_store_beside_the_files_it_was_made_from_does_not_count_twice(ranks, tmp_path, capsys, monkeypatch):
    for rank in range(2):
        (tmp_path / f"rank{rank}.json.gz").hardlink_to(ranks / "rank0.json.gz")
    monkeypatch.chdir(tmp_path)
    assert main(["convert", ".", "-o", "job.deepprof"]) == 0
    capsys.readouterr()
    for command in (["convert", ".", "-o", "job.deepprof"], ["diagnose", "."]):
        assert main(command) == 0
        out, err = capsys.readouterr()
        assert "2 ranks" in out + err
        assert "warning: job.deepprof/rank=0 is in a store beside other traces and was left out" in err
    assert main(["diagnose", "job.deepprof", "rank0.json.gz"]) == 0  # what is named is read
    assert "3 ranks" in capsys.readouterr().out


def test_a_directory_of_stores_alone_is_read(ranks, tmp_path, capsys):
    for run in "ab":
        assert main(["convert", str(ranks / "rank0.json.gz"), "-o", f"{tmp_path}/{run}.deepprof"]) == 0
    capsys.readouterr()
    assert main(["diagnose", str(tmp_path)]) == 0
    out, err = capsys.readouterr()
    assert (" 2 ranks " in out, err) == (True, "")
