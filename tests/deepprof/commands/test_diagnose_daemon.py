"""`deepprof diagnose --daemon`: the same report as from the files that were sent."""

from __future__ import annotations

import itertools
import json

import pytest

from deepprof.commands import main
from deepprof.simulation import simulate, write
from deepprof.simulation.sharing import simulate_shared
from deepprof.v1 import records_pb2
from tests.deepprof.live.client.fake_daemon import FakeDaemon, Rank
from tests.widening import slow_unless


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """A directory with the two ranks of a job."""
    folder = tmp_path_factory.mktemp("ranks")
    for rank in range(2):
        write(simulate("healthy", iterations=8, seed=rank), folder / f"rank{rank}.json.gz")
    return folder


def report(capsys, *argv):
    assert main(["diagnose", *map(str, argv)]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


JSON = ["--format", "json"]
OPTIONS = [
    [*JSON, "--all"],
    [],
    [*JSON, "--from", "50ms"],
    [*JSON, "--iterations", "8"],
    [*JSON, "--stream", "0:7"],
]


def is_quick(asked):
    """Every option is asked of two ranks; one rank without any is enough."""
    options, several = asked
    return several or options == OPTIONS[0]


@pytest.mark.parametrize(
    ("options", "several"),
    slow_unless(is_quick, itertools.product(OPTIONS, [False, True])),
    ids=lambda value: " ".join(value) if isinstance(value, list) else ["one rank", "two ranks"][value],
)
def test_the_report_is_that_of_the_files(capsys, address, job, options, several):
    path = job if several else job / "rank1.json.gz"
    assert main(["send", str(path), "--to", address, "--job", "j"]) == 0
    capsys.readouterr()
    online = report(capsys, "--daemon", address, "j", *options)
    assert online == report(capsys, path, *options)


@pytest.mark.traces
@pytest.mark.parametrize(
    "name",
    slow_unless(
        lambda name: name in {"hta-amd-mi250-minitoy", "hta-cpu-only"},
        ["tb-resnet50-nw0", "hta-negqueue", "hta-amd-mi250-minitoy", "hta-cpu-only"],
    ),
)
def test_the_report_on_a_real_job_is_that_of_the_files(capsys, address, traces, name):
    path = traces / name
    assert main(["send", str(path), "--to", address, "--job", name]) == 0
    capsys.readouterr()
    online = json.loads(report(capsys, "--daemon", address, name, "--format", "json", "--all"))
    files = report(capsys, path, "--no-shapes", "--format", "json", "--all")  # shapes are not sent
    assert online == json.loads(files)


def test_two_jobs_on_one_device_are_told_together(capsys, address, tmp_path):
    runs = simulate_shared(["compute", "io"], memory_share=0.25, iterations=5)
    paths = [tmp_path / f"{name}.json.gz" for name in ("one", "two")]
    for run, path in zip(runs, paths, strict=True):
        write(run.simulation, path)
        assert main(["send", str(path), "--to", address, "--job", path.name.partition(".")[0]]) == 0
    capsys.readouterr()
    options = "--same-device", "--format", "json", "--all"
    online = json.loads(report(capsys, "--daemon", address, "one", "two", *options))
    offline = json.loads(report(capsys, *paths, *options))
    assert len(online["shared_devices"][0]["processes"]) == 2
    assert online["shared_devices"] == offline["shared_devices"]
    assert online["findings"] == offline["findings"]


def test_findings_decide_the_exit_code(capsys, address, recorded):
    assert main(["send", str(recorded), "--to", address, "--job", "j"]) == 0
    assert main(["diagnose", "--daemon", address, "j", "--fail-on", "warning"]) == 1
    assert main(["diagnose", "--daemon", address, "j", "--fail-on", "critical"]) == 0


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["j", "k"], "name one"),
        (["absent"], "knows nothing of it (no job absent)"),
        (["j", "--columns", "start=a,end=b,name=c"], "--columns is for files"),
        (["j", "--cluster", "local"], "--cluster is for files"),
    ],
)
def test_what_cannot_be_meant_is_one_line(capsys, address, argv, words):
    assert main(["diagnose", "--daemon", address, *argv]) == 2
    err = capsys.readouterr().err
    assert words in err
    assert err.count("\n") == 1


def test_a_daemon_that_is_not_there_is_one_line(capsys, folder):
    assert main(["diagnose", "--daemon", f"unix:{folder}/none", "j"]) == 2
    assert "there is no such socket" in capsys.readouterr().err


def test_records_that_make_no_trace_are_one_line(capsys, daemon: FakeDaemon, address, recorded):
    assert main(["send", str(recorded), "--to", address, "--job", "j"]) == 0
    capsys.readouterr()
    daemon.rank().messages[0].tables[0].arrow = b"nonsense"
    assert main(["diagnose", "--daemon", address, "j"]) == 2
    err = capsys.readouterr().err
    assert "sent records that cannot be read" in err
    assert err.count("\n") == 1


def test_the_token_is_asked_for(capsys, daemon: FakeDaemon, address, tmp_path):
    file = tmp_path / "token"
    file.write_text("let-me-in")
    file.chmod(0o600)
    daemon.token = "Bearer let-me-in"  # noqa: S105 - a fake's
    assert main(["diagnose", "--daemon", address, "j"]) == 2
    assert "--token-file" in capsys.readouterr().err
    assert main(["diagnose", "--daemon", address, "j", "--token-file", str(file)]) == 2
    assert "no job j" in capsys.readouterr().err


def test_without_an_address_it_is_the_default_daemon(capsys, address, recorded, monkeypatch):
    assert main(["send", str(recorded), "--to", address, "--job", "j"]) == 0
    capsys.readouterr()
    monkeypatch.setenv("DEEPPROF_DAEMON", address)
    assert report(capsys, "j", "--daemon") == report(capsys, recorded)
    assert main(["diagnose", "--daemon", "j"]) == 2
    assert "PATH" in capsys.readouterr().err


def test_records_that_come_from_no_file_have_the_jobs_name(capsys, daemon: FakeDaemon, address, recorded):
    assert main(["send", str(recorded), "--to", address, "--job", "a/job"]) == 0
    daemon.rank().hello.source = ""
    capsys.readouterr()
    assert report(capsys, "--daemon", address, "a/job").splitlines()[0] == "a/job"


def test_a_job_that_sent_nothing_is_a_report(capsys, daemon: FakeDaemon, address):
    hello = records_pb2.Hello(job="j", collector="c", clock=records_pb2.CLOCK_UNIX)
    daemon.ranks["j", 0, "c"] = Rank(hello)
    assert "No work of a device was recorded" in report(capsys, "--daemon", address, "j")
    assert json.loads(report(capsys, "--daemon", address, "j", "--format", "json"))["trace"]["paths"] == ["j"]
