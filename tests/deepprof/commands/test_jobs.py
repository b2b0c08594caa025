"""`deepprof jobs` against a fake daemon, and against a real one with tokens of two teams."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from deepprof.commands import main
from deepprof.v1 import admin_pb2, query_pb2
from tests.deepprof.live.service.daemons import running, wait_for

NOW_NS = 1_700_000_000_000_000_000


@pytest.fixture
def operated(daemon):
    """The daemon with a job that runs, one of which the history is left, and two senders."""
    jobs = [
        query_pb2.Job(job="now", ranks=2, connected=1, iterations=9, sender="team-a", kept_nbytes=3 << 20),
        query_pb2.Job(job="past\x1b[31m", ranks=1, ended=1, kept_nbytes=5, last_record_unix_ns=NOW_NS),
    ]
    daemon.answers["ListJobs"] = lambda request: query_pb2.ListJobsResponse(jobs=jobs if request.past else jobs[:1])
    senders = [
        admin_pb2.Sender(sender="", refused={"unauthenticated": 3}, share=admin_pb2.Share(jobs=["*"])),
        admin_pb2.Sender(
            sender="team-a",
            jobs=1,
            ranks=2,
            connected=1,
            records=12_345,
            paced_ns=1_500_000_000,
            waiting_nbytes=1 << 20,
            kept_nbytes=3 << 20,
            refused={"share.ranks": 7, "invalid-message": 1},
            share=admin_pb2.Share(ranks=2, records_per_s=1000, kept_nbytes=1 << 30, jobs=["a-*", "shared"]),
        ),
    ]
    daemon.answers["ListSenders"] = lambda request: admin_pb2.ListSendersResponse(senders=senders)
    daemon.answers["ForgetJob"] = lambda request: admin_pb2.ForgetJobResponse(iterations=len(request.job))
    return daemon


def test_jobs_are_listed_with_who_sends_them_and_what_is_kept(capsys, monkeypatch, operated, address):
    monkeypatch.setenv("COLUMNS", "120")
    assert main(["jobs", "--daemon", address]) == 0
    heading, now, past = capsys.readouterr().out.splitlines()
    assert heading.split() == ["job", "state", "sender", "connected", "iterations", "kept", "heard"]
    assert now.split()[:3] == ["now", "running", "team-a"]
    assert "3.00 MiB" in now
    assert "\x1b" not in past
    assert "(not known)" in past


def test_a_narrow_terminal_has_the_name_and_what_is_kept(capsys, monkeypatch, operated, address):
    monkeypatch.setenv("COLUMNS", "30")
    assert main(["jobs", "--daemon", address]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert all(len(line) <= 30 for line in lines)
    assert "kept" in lines[0]


def test_one_job(capsys, operated, address):
    assert main(["jobs", "list", "now", "--daemon", address]) == 0
    assert "past" not in capsys.readouterr().out
    assert main(["jobs", "list", "none", "--daemon", address]) == 2
    assert "no job 'none'; deepprof jobs lists them" in capsys.readouterr().err


def test_senders(capsys, monkeypatch, operated, address):
    monkeypatch.setenv("COLUMNS", "160")
    assert main(["jobs", "senders", "--daemon", address]) == 0
    heading, nobody, team = capsys.readouterr().out.splitlines()
    assert "may write" in heading
    assert "3 unauthenticated" in nobody
    for part in ("2 of 2", "12,345", "1,000", "1.50 s", "3.00 MiB of 1.00 GiB", "7 share.ranks +1", "a-*, shared"):
        assert part in team


def test_json(capsys, operated, address):
    assert main(["jobs", "--daemon", address, "--format", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["schema"], [job["sender"] for job in told["jobs"]]) == ("deepprof.jobs/1", ["team-a", ""])
    assert main(["jobs", "senders", "--daemon", address, "--format", "json"]) == 0
    (_, team) = json.loads(capsys.readouterr().out)["senders"]
    assert team["refused"] == {"share.ranks": 7, "invalid-message": 1}
    assert team["share"] == {"ranks": 2, "records_per_s": 1000, "kept_nbytes": 1 << 30, "jobs": ["a-*", "shared"]}
    assert main(["jobs", "forget", "now", "--daemon", address, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["forgotten"] == [{"job": "now", "iterations": 3}]


def test_jobs_are_forgotten(capsys, operated, address):
    assert main(["jobs", "forget", "now", "a", "--daemon", address]) == 0
    assert capsys.readouterr().out == "now: forgotten, 3 iterations\na: forgotten, 1 iteration\n"
    assert [request.job for request in operated.asked["ForgetJob"]] == ["now", "a"]


@pytest.mark.parametrize(
    ("argv", "problem"),
    [
        (["forget"], "forget needs the names of jobs"),
        (["senders", "now"], "senders takes no job"),
        (["remove", "now"], "invalid choice: 'remove'"),
    ],
)
def test_wrong_arguments(capsys, argv, problem):
    assert main(["jobs", *argv]) == 2
    out, err = capsys.readouterr()
    assert problem in err
    assert (out, err.count("\n")) == ("", 1)


def test_two_teams_and_their_operator(capsys, recorded, tmp_path):
    """The way of the documentation: tokens with limits, refusals that name them, and who made them."""
    tokens = {name: f"token-of-{name}-{name}" for name in ("team-a", "team-b", "ops")}
    limits = {"team-a": "ranks=1 jobs=a-*,shared", "team-b": "records_per_s=1000000", "ops": ""}
    scopes = {"team-a": "ingest", "team-b": "ingest", "ops": "read,admin"}
    file = tmp_path / "tokens"
    file.write_text("".join(f"{name} {scopes[name]} {token} {limits[name]}\n" for name, token in tokens.items()))
    file.chmod(0o600)

    def call(name: str, *argv: str) -> tuple[int, str, str]:
        shown = tmp_path / name
        shown.write_text(tokens[name])
        shown.chmod(0o600)
        code = main([*argv, "--token-file", str(shown)])
        return code, *capsys.readouterr()

    with running(settings=[f"tokens.file={file}"]) as daemon:
        to = ("--to", daemon.address)
        assert call("team-a", "send", str(recorded), "--job", "a-1", *to)[0] == 0
        code, _, err = call("team-a", "send", str(recorded), "--job", "b-1", *to)
        assert code == 2
        assert "team-a may write the jobs a-*, shared, not 'b-1'" in err
        assert call("team-b", "send", str(recorded), "--job", "b-1", *to)[0] == 0
        code, out, err = call("ops", "jobs", "senders", "--daemon", daemon.address, "--format", "json")
        assert (code, err) == (0, "")
        senders = {each["sender"]: each for each in json.loads(out)["senders"]}
        refused = {name: each["refused"].get("share.jobs", 0) for name, each in senders.items()}
        assert (refused["team-a"], refused["team-b"]) == (1, 0)
        assert senders["team-a"]["records"] == senders["team-b"]["records"] > 0
        assert 'deepprof_refusals_total{reason="share.jobs",token="team-a"} 1' in daemon.get("/metrics")[1]
        assert 'deepprof_sender_ranks_limit{token="team-a"} 1' in daemon.get("/metrics")[1]
        code, _, err = call("team-a", "jobs", "forget", "b-1", "--daemon", daemon.address)
        assert code == 2
        assert "team-a lacks the scope admin" in err
        wait_for(lambda: call("ops", "jobs", "forget", "b-1", "--daemon", daemon.address)[0] == 0, "its stream is gone")
        out = call("ops", "jobs", "--daemon", daemon.address)[1]
        assert "a-1" in out
        assert "b-1" not in out
    assert not list(Path(tmp_path).glob("deepprof*"))
