"""The commands against a real daemon: seen by someone who types them."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
from msgspec.structs import replace

import deepprof
from deepprof.commands import main
from deepprof.live.client.errors import DaemonError
from tests.chance import examples
from tests.deepprof.live.service.daemons import Daemon, launch, running, wait_for
from tests.deepprof.live.service.sending import check_accounts, open_client, wait_settled
from tests.patience import PATIENCE_S

DEADLINE_S = PATIENCE_S


@pytest.fixture
def real(monkeypatch: pytest.MonkeyPatch) -> Iterator[Daemon]:
    with running() as daemon:
        monkeypatch.setenv("DEEPPROF_DAEMON", daemon.address)
        yield daemon


def test_another_recording_for_the_same_rank_begins_it_anew(real, recorded, capsys) -> None:
    """One after the other, as fast as it goes: no connection is lost on the way."""
    trace = deepprof.read(recorded)
    times = 2 + examples(4)
    for number in range(times):
        assert main(["send", str(recorded), "--job", "j", "--collector", f"c{number}"]) == 0
    told = capsys.readouterr().err.splitlines()
    assert len(told) == times
    assert all(f"{trace.accounting.kept:,} acknowledged in" in line for line in told)
    with open_client(real) as client:
        wait_settled(client, "j")
        assert client.ranks("j")[0].collector == f"c{times - 1}"
        assert client.jobs()[0].iterations == deepprof.analyze(trace).iterations.height
        check_accounts(client)


def test_a_second_collector_is_refused_while_the_first_sends(real, recorded, capsys) -> None:
    trace = deepprof.read(recorded)
    slow = subprocess.Popen(
        [sys.executable, "-m", "deepprof", "send", str(recorded), "--job", "j", "--speed", "0.001"],
        stderr=subprocess.PIPE,
    )
    try:
        with open_client(real) as client:
            connected = next(state for state in client.watch(interval_ms=100) if state.jobs and state.jobs[0].connected)
            assert connected.jobs[0].job == "j"
            with pytest.raises(DaemonError, match="another collector is connected"):
                client.send(trace, "j")
            slow.terminate()
            assert slow.wait(DEADLINE_S) == 143
            next(state for state in client.watch(interval_ms=100) if not state.jobs[0].connected)
            assert client.send(trace, "j").durable == trace.accounting.kept
            check_accounts(client)
    finally:
        slow.kill()
        slow.communicate()


def test_who_watches_is_told_of_a_restart(real, recorded) -> None:
    assert main(["send", str(recorded), "--job", "j"]) == 0
    command = [sys.executable, "-m", "deepprof", "watch", "--format", "json", "--interval", "0.1"]
    watching = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    guard = threading.Timer(DEADLINE_S, watching.kill)
    guard.start()
    again = None
    try:
        looks = (json.loads(line) for line in watching.stdout)
        before = next(looks)["jobs"][0]["iterations"]
        assert before
        real.kill()
        away = next(look for look in looks if look["notice"])
        assert [job["job"] for job in away["jobs"]] == ["j"]
        again = launch(real.folder).wait_ready()
        assert any(not look["notice"] and look["jobs"][0]["iterations"] == before for look in looks)
    finally:
        guard.cancel()
        watching.kill()
        watching.communicate()
        if again is not None:
            again.kill()


def test_many_jobs_and_many_ranks_stay_readable(real, tmp_path, capsys, monkeypatch) -> None:
    assert main(["simulate", "healthy", "--iterations", "1", "-o", str(tmp_path / "s.json.gz")]) == 0
    trace = deepprof.read(tmp_path / "s.json.gz")
    with open_client(real) as client:
        assert client.send([replace(trace, rank=rank) for rank in range(40)], "wide").ranks == 40
        for number in range(12):
            client.send(trace, f"job/{number}")
        assert len(client.ranks("wide")) == 40
        wait_for(lambda: not any(job.connected for job in client.jobs()), "all streams are gone")
        check_accounts(client)
    capsys.readouterr()
    monkeypatch.setenv("COLUMNS", "60")
    assert main(["watch", "--once"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == "13 jobs · 0 of 52 ranks connected"
    assert all(len(line) <= 60 for line in lines)
    assert sum(line.startswith("job/") for line in lines) == 8
    assert any(line.split()[:2] == ["wide", "ended"] for line in lines)
    assert main(["watch", "--once", "--job", "wide"]) == 0
    assert sum("ended" in line for line in capsys.readouterr().out.splitlines()) == 40
