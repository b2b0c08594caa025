"""`deepprof flame --daemon`, with a daemon whose answers are made up."""

from __future__ import annotations

import gzip
import json
from types import SimpleNamespace

import grpc
import polars as pl
import pytest

from deepprof.collectors.times import TIME_LIMIT_NS
from deepprof.commands import main
from deepprof.live.client.daemon import Daemon
from deepprof.v1 import query_pb2
from tests.deepprof.render.test_pprof import profile_class
from tests.metrics.contexts.test_sent import nodes_of, sums_of

BEGUN_NS = 1_700_000_000_000_000_000
MINUTE_NS = 60 * 10**9
NODES = nodes_of(
    (1, 0, "python", "train.py(5): step", 7),
    (2, 1, "operator", "aten::linear"),
    (3, 0, "python", "train.py(20): load", 22),
)
SUMS = sums_of((1, 4, 700_000_000, 0, 0), (2, 4, 500_000_000, 8, 90_000_000), (3, 4, 300_000_000, 0, 0)).with_columns(
    time_ns=pl.lit(BEGUN_NS), window_ns=pl.lit(MINUTE_NS)
)


@pytest.fixture
def asked(daemon, monkeypatch):
    """What was asked of a daemon with one job; the answers are `sums` of its `nodes`."""
    asked = SimpleNamespace(calls=[], nodes=NODES, sums=SUMS)
    daemon.answers["ListRanks"] = lambda request: query_pb2.ListRanksResponse(
        ranks=[query_pb2.Rank(job="train", rank=rank, first_seen_unix_ns=BEGUN_NS + rank) for rank in (0, 1)]
    )

    def contexts(_, job, *, rank=None, start_ns=None, end_ns=None):
        asked.calls.append((job, rank, start_ns, end_ns))
        return SimpleNamespace(nodes=asked.nodes, sums=asked.sums)

    monkeypatch.setattr(Daemon, "contexts", contexts, raising=False)
    return asked


def shown(capsys, address, *args):
    assert main(["flame", "train", "--daemon", address, *args]) == 0
    return capsys.readouterr().out


def test_the_tree_is_drawn(capsys, asked, address):
    title, *lines = shown(capsys, address).splitlines()
    assert title == "device time: 90.0 ms"
    assert [line.split()[-1] for line in lines] == ["aten::linear"]
    assert "step train.py:7 › aten::linear" in lines[0]
    assert asked.calls == [("train", 0, None, None)]


def test_what_was_left_out_is_told(capsys, asked, address):
    assert "left out" not in shown(capsys, address)
    left_out = nodes_of((4, 0, "operator", "(iterations left out)"))
    asked.sums = pl.concat([SUMS, sums_of((4, 1500, 0, 0, 0)).with_columns(SUMS["time_ns", "window_ns"][:1])])
    asked.nodes = pl.concat([NODES, left_out])
    last = "1,500 iterations left out to keep the cost down: sums are of the others."
    assert shown(capsys, address).splitlines()[-1] == last
    assert shown(capsys, address, "--bottom-up", "--search", "nothing of that").splitlines()[-1] == last
    seconds = sums_of((5, 1, 0, 0, 0)).with_columns(SUMS["time_ns", "window_ns"][:1])
    asked.sums, asked.nodes = (
        pl.concat([SUMS, seconds]),
        pl.concat([NODES, nodes_of((5, 0, "operator", "(seconds left out)"))]),
    )
    assert shown(capsys, address).splitlines()[-1] == "1 second left out to keep the cost down: sums are of the others."


def test_host_time_is_divided_up_where_no_device_was_in_use(capsys, asked, address):
    asked.sums = SUMS.with_columns(device_ns=pl.lit(0, pl.Int64))
    title, first, *_ = shown(capsys, address).splitlines()
    assert title == "host time: 1.00 s"
    assert first.split()[0] == "70.0"
    assert "step train.py:7" in first
    assert shown(capsys, address, "--by", "device").startswith("device time: 0 ns")


def test_time_counts_from_the_begin_of_the_job(capsys, asked, address):
    shown(capsys, address, "--from", "2min", "--to", "3min", "--rank", "1")
    assert asked.calls == [("train", 1, BEGUN_NS + 2 * MINUTE_NS, BEGUN_NS + 3 * MINUTE_NS)]


def test_times_beyond_all_clocks_are_asked_for_as_the_last(capsys, asked, address):
    """The message has 64 bits for them."""
    shown(capsys, address, "--from", "999999999998min", "--to", "999999999999min")
    assert asked.calls == [("train", 0, TIME_LIMIT_NS, TIME_LIMIT_NS)]


def test_a_search_and_the_other_direction(capsys, asked, address):
    assert "300 ms of it in 'load'" in shown(capsys, address, "--by", "host", "--search", "load")
    assert "aten::linear" in shown(capsys, address, "--bottom-up").splitlines()[1]


def test_json_has_every_context(capsys, asked, address):
    told = json.loads(shown(capsys, address, "--format", "json"))
    assert (told["schema"], told["job"], told["rank"]) == ("deepprof.flame/1", "train", 0)
    assert (told["start_unix_ns"], told["end_unix_ns"]) == (BEGUN_NS, BEGUN_NS + MINUTE_NS)
    assert [each["name"] for each in told["measures"]] == ["device", "host", "launches"]
    (linear,) = [each for each in told["contexts"] if each["name"] == "aten::linear"]
    step = told["contexts"][linear["parent"]]
    assert (step["name"], step["file"], step["line"], step["count"]) == ("step", "train.py", 7, 4)
    assert (step["host"], step["own_host"], step["device"], step["own_device"]) == (
        700_000_000,
        200_000_000,
        90_000_000,
        0,
    )


def test_other_formats_have_the_same(capsys, asked, address, tmp_path):
    assert shown(capsys, address, "--format", "collapsed", "--by", "launches") == "step train.py:7;aten::linear 8\n"
    speedscope = json.loads(shown(capsys, address, "--format", "speedscope"))
    assert [sum(each["weights"]) for each in speedscope["profiles"]] == [90_000_000, 1_000_000_000, 8]
    path = tmp_path / "a.pb.gz"
    shown(capsys, address, "--format", "pprof", "-o", str(path))
    profile = profile_class().FromString(gzip.decompress(path.read_bytes()))
    assert [sum(sample.value[at] for sample in profile.sample) for at in range(3)] == [90_000_000, 1_000_000_000, 8]
    assert (profile.time_nanos, profile.duration_nanos) == (BEGUN_NS, MINUTE_NS)
    texts = list(profile.string_table)
    assert {(texts[each.key], texts[each.str]) for sample in profile.sample for each in sample.label} == {
        ("job_id", "train"),
        ("rank", "0"),
    }


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--rank", "7"], "--rank 7: there is no such rank; there are 0 to 1"),
        (["--by", "idle"], "--by idle: a running job sends no such numbers; choose device, host, launches"),
        (["--iteration", "3"], "--iteration is for traces; leave it out with --daemon"),
        (["--range", "step"], "--range is for traces; leave it out with --daemon"),
        (["--stacks"], "--stacks is for traces; leave it out with --daemon"),
        (["--from", "2s", "--to", "1s"], "holds nothing"),
        (["--format", "json", "--bottom-up"], "--bottom-up: --format json has all contexts; leave one out"),
        (["--format", "pprof", "--depth", "3"], "--depth: --format pprof has all contexts; leave one out"),
        (["--format", "speedscope", "--by", "host"], "--by host: --format speedscope has all measures; leave one out"),
        (["--layer", "1"], "--layer is for traces; leave it out with --daemon"),
        (["--stream", "0:7"], "--stream is for traces; leave it out with --daemon"),
        (["--iterations", "3"], "--iterations is for traces; leave it out with --daemon"),
        (["--same-device"], "--same-device is for traces; leave it out with --daemon"),
    ],
)
def test_what_cannot_be_meant_is_one_line(capsys, asked, address, args, message):
    assert main(["flame", "train", "--daemon", address, *args]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert err.count("\n") == 1


def test_two_jobs_are_too_many(capsys, asked, address):
    assert main(["flame", "one", "two", "--daemon", address]) == 2
    assert "2 jobs named; with --daemon name one" in capsys.readouterr().err


def test_a_job_that_sends_none_is_told_how(capsys, asked, address):
    asked.sums = SUMS.clear()
    assert main(["flame", "train", "--daemon", address]) == 2
    assert "has sent no calling contexts; start it with deepprof run --contexts python" in capsys.readouterr().err
    assert main(["flame", "train", "--daemon", address, "--from", "1s"]) == 2
    assert "sent no calling contexts in this time" in capsys.readouterr().err


@pytest.mark.parametrize("answer", [grpc.StatusCode.NOT_FOUND, lambda _: query_pb2.ListRanksResponse()])
def test_an_unknown_job_is_one_line(capsys, daemon, address, answer):
    daemon.answers["ListRanks"] = answer
    assert main(["flame", "nobody", "--daemon", address]) == 2
    assert capsys.readouterr().err.count("\n") == 1
