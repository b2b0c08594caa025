"""`deepprof send` against a fake daemon: what arrives, what is stated, and the exit code."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import grpc
import polars as pl
import pytest

import deepprof
from deepprof.commands import main
from deepprof.live.wire.assembly import TraceAssembly
from tests.deepprof.live.client.fake_daemon import Script
from tests.patience import PATIENCE_S


def assembled(rank):
    assembly = TraceAssembly(rank.hello)
    for message in rank.messages:
        getattr(assembly, f"add_{type(message).__name__.lower()}")(message)
    return assembly.trace()


def test_a_trace_arrives_whole(capsys, daemon, address, recorded):
    assert main(["send", str(recorded), "--to", address, "--job", "a/job"]) == 0
    out, err = capsys.readouterr()
    trace = deepprof.read(recorded)
    assert out == ""
    kept = f"{trace.accounting.kept:,}"
    assert err.startswith(f"{address}: 1 rank, {kept} records, {kept} acknowledged in ")
    assert err.endswith(" records/s\n")
    assert err.count("\n") == 1
    arrived = assembled(daemon.rank())
    assert daemon.rank().hello.job == "a/job"
    assert arrived.device_events.equals(trace.device_events)
    assert arrived.host_events.equals(trace.host_events)
    assert arrived.accounting == trace.accounting


def test_what_arrived_is_not_sent_again(capsys, daemon, address, recorded):
    for _ in range(2):
        assert main(["send", str(recorded), "--to", address, "--job", "j"]) == 0
    kept = deepprof.read(recorded).accounting.kept
    first, second = capsys.readouterr().err.splitlines()
    assert "already" not in first
    assert f"{kept:,} acknowledged ({kept:,} were there already)" in second
    assert len(daemon.ranks) == 1
    assert daemon.rank().durable == kept


def test_a_break_is_told_and_mended(capsys, daemon, address, recorded):
    daemon.scripts = [Script(after=0)]
    assert main(["send", str(recorded), "--to", address, "--job", "j"]) == 0
    told, summary = capsys.readouterr().err.splitlines()
    assert "the test says so" in told
    assert summary.startswith(f"{address}: 1 rank")


@pytest.mark.parametrize("code", [grpc.StatusCode.ALREADY_EXISTS, grpc.StatusCode.INVALID_ARGUMENT])
def test_a_refusal_is_one_line_and_exit_2(capsys, daemon, address, recorded, code):
    daemon.scripts = [Script(after=0, code=code)]
    assert main(["send", str(recorded), "--to", address, "--job", "j"]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"deepprof: daemon at {address}: ")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--job", "no job", "--to", "unix:/x"], "job"),
        (["--job", "j", "--to", "nowhere"], "is no address"),
        (["--job", "j", "--to", "host:0"], "port 0"),
        (["--job", "j", "--speed", "0"], "is no speed"),
        (["--job", "j", "--speed", "fast"], "is no speed"),
        (["--job", "j", "--speed", "1e3"], "is no speed"),
        (["--job", "j", "--repeat", "0"], "at least 1"),
        (["--job", "j", "--to", "host:1", "--cert", "c"], "needs its key"),
        (["--to", "host:1"], "--job"),
    ],
)
def test_what_cannot_be_meant_is_one_line(capsys, recorded, arguments, words):
    assert main(["send", str(recorded), *arguments]) == 2
    err = capsys.readouterr().err
    assert words in err
    assert err.count("\n") == 1


def test_repetitions_are_one_recording(daemon, address, recorded):
    assert main(["send", str(recorded), "--to", address, "--job", "j", "--repeat", "3"]) == 0
    trace, arrived = deepprof.read(recorded), assembled(daemon.rank())
    assert arrived.accounting.kept == 3 * trace.accounting.kept
    assert arrived.accounting.read == 3 * trace.accounting.read
    assert arrived.names.equals(trace.names, check_names=False)
    assert arrived.devices.equals(trace.devices)
    events, rows = arrived.device_events, trace.device_events
    for number in range(3):
        part = events.slice(number * rows.height, rows.height)
        moved = part["start_ns"] - part["start_ns"][0]
        assert moved.equals(rows["start_ns"] - rows["start_ns"][0], check_names=False)
        assert part["name_id"].equals(rows["name_id"])
    starts = events["start_ns"]
    assert starts.is_sorted()
    launches = arrived.host_events.filter(pl.col("category") == "runtime")["correlation"].drop_nulls()
    once = trace.host_events.filter(pl.col("category") == "runtime")["correlation"].drop_nulls()
    assert launches.n_unique() == 3 * once.n_unique()


def test_all_ranks_go_with_their_numbers(daemon, address, recorded, tmp_path):
    for rank in (1, 3):
        (tmp_path / f"rank{rank}.json.gz").write_bytes(recorded.read_bytes())
    assert main(["send", str(tmp_path), "--to", address, "--job", "j"]) == 0
    offline = deepprof.read_job(tmp_path)
    assert sorted(rank.hello.rank for rank in daemon.ranks.values()) == [trace.rank for trace in offline]


def test_ctrl_c_ends_it_without_a_traceback(daemon, address, recorded):
    command = [
        sys.executable,
        "-m",
        "deepprof",
        "send",
        str(recorded),
        "--to",
        address,
        "--job",
        "j",
        "--speed",
        "0.001",
    ]
    run = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + PATIENCE_S
        while not daemon.order:
            assert time.monotonic() < deadline
            assert run.poll() is None
            time.sleep(0.01)
        run.send_signal(signal.SIGINT)
        _, err = run.communicate(timeout=PATIENCE_S)
    finally:
        run.kill()
        run.wait()
    assert run.returncode == 130
    assert err == ""
    assert not daemon.rank().ended


@pytest.mark.parametrize("words", [["--job", "no job"], ["--job", "\x1b[31mj"], ["--job", "j", "--collector", "a b"]])
def test_names_are_looked_at_before_anything_is_read(capsys, tmp_path, words):
    assert main(["send", str(tmp_path / "none.json"), "--to", "host:1", *words]) == 2
    err = capsys.readouterr().err
    assert "choose another name" in err
    assert "\x1b" not in err
