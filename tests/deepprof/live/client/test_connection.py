"""`deepprof.connect`: every question, all pages, and errors as one line."""

from __future__ import annotations

import io
import subprocess
import sys

import grpc
import polars as pl
import pytest

import deepprof
from deepprof.collectors.errors import UsageError
from deepprof.live.client.errors import DaemonError, explain
from deepprof.live.client.stream import StreamBrokenError
from deepprof.live.wire import figures
from deepprof.live.wire.addresses import parse_address
from deepprof.live.wire.declarations import build
from deepprof.live.wire.figures import (
    ActiveFinding,
    Capture,
    LoopFigures,
    RankState,
)
from deepprof.simulation import simulate, write
from deepprof.v1 import admin_pb2, query_pb2, records_pb2
from tests.patience import PATIENCE_S


@pytest.fixture
def connection(address, monkeypatch):
    monkeypatch.delenv("DEEPPROF_TOKEN_FILE", raising=False)
    with deepprof.connect(address, timeout_s=PATIENCE_S) as connected:
        yield connected


def test_a_value_is_that_of_the_message():
    message = query_pb2.Rank(job="j", rank=3, account=records_pb2.Account(received=5, dropped={"late": 2}))
    message.devices.add(device=1, state=2, last_iteration_ns=7)
    rank = build(RankState, message)
    assert (rank.job, rank.rank, rank.account.received, dict(rank.account.dropped)) == ("j", 3, 5, {"late": 2})
    assert rank.devices == (figures.DeviceState(1, state="locked", last_iteration_ns=7),)
    assert build(LoopFigures, query_pb2.LoopMetrics(avg_interval_ns=0)).avg_interval_ns == 0
    assert build(LoopFigures, query_pb2.LoopMetrics()).avg_interval_ns is None


def test_a_state_that_is_new_to_us_is_unknown():
    assert build(figures.DeviceState, query_pb2.DeviceState(state=99)).state == "unknown"


def paged(items, field, response):
    """Answers with two items a page."""

    def answer(request):
        at = int(request.page_token or 0)
        token = str(at + 2) if at + 2 < len(items) else ""
        return response(**{field: items[at : at + 2]}, next_page_token=token)

    return answer


@pytest.mark.parametrize("number", [0, 1, 2, 5])
def test_lists_come_whole(daemon, connection, number):
    jobs = [query_pb2.Job(job=f"j{at}") for at in range(number)]
    daemon.answers["ListJobs"] = paged(jobs, "jobs", query_pb2.ListJobsResponse)
    assert [job.job for job in connection.jobs()] == [f"j{at}" for at in range(number)]
    ranks = [query_pb2.Rank(rank=at) for at in range(number)]
    daemon.answers["ListRanks"] = paged(ranks, "ranks", query_pb2.ListRanksResponse)
    assert [rank.rank for rank in connection.ranks("j")] == list(range(number))
    loops = [query_pb2.Loop(loop=at) for at in range(number)]
    daemon.answers["ListLoops"] = paged(loops, "loops", query_pb2.ListLoopsResponse)
    assert [loop.loop for loop in connection.loops("j", rank=0)] == list(range(number))
    assert all(request.HasField("rank") for request in daemon.asked["ListLoops"])


def test_iterations_come_as_one_table(daemon, connection):
    def arrow(rows):
        file = io.BytesIO()
        pl.DataFrame({"rank": rows, "index": rows}, schema={"rank": pl.Int64, "index": pl.Int64}).write_ipc_stream(file)
        return file.getvalue()

    pages = {"": ([0, 1], "a"), "a": ([], "b"), "b": ([2], "")}
    daemon.answers["ListIterations"] = lambda request: query_pb2.ListIterationsResponse(
        arrow=arrow(pages[request.page_token][0]), next_page_token=pages[request.page_token][1]
    )
    assert connection.iterations("j")["index"].to_list() == [0, 1, 2]
    assert not daemon.asked["ListIterations"][0].HasField("rank")
    daemon.answers["ListIterations"] = lambda request: query_pb2.ListIterationsResponse(arrow=arrow([]))
    assert connection.iterations("j", 0, 1).columns == ["rank", "index"]
    daemon.answers["ListIterations"] = lambda request: query_pb2.ListIterationsResponse(arrow=b"nonsense")
    with pytest.raises(DaemonError, match="a table that cannot be read"):
        connection.iterations("j")


def test_contexts_come_as_two_tables(daemon, connection):
    def arrow(**columns):
        file = io.BytesIO()
        pl.DataFrame(columns).write_ipc_stream(file)
        return file.getvalue()

    daemon.answers["GetContexts"] = query_pb2.GetContextsResponse(
        nodes=arrow(context=[7]), sums=arrow(context=[7, 7]), windows=3, folded=2, step_ns=60, earliest_ns=0
    )
    found = connection.contexts("j", rank=0, end_ns=9)
    assert (found.nodes.height, found.sums.height, found.windows, found.folded) == (1, 2, 3, 2)
    assert (found.job, found.rank, found.step_ns, found.earliest_ns) == ("j", 0, 60, 0)
    asked = daemon.asked["GetContexts"][0]
    assert (asked.HasField("rank"), asked.HasField("start_ns"), asked.end_ns) == (True, False, 9)
    daemon.answers["GetContexts"] = query_pb2.GetContextsResponse(nodes=arrow(context=[]), sums=arrow(context=[]))
    assert connection.contexts("j").earliest_ns is None
    daemon.answers["GetContexts"] = query_pb2.GetContextsResponse(nodes=b"nonsense")
    with pytest.raises(DaemonError, match="a table that cannot be read"):
        connection.contexts("j")


def test_figures_findings_and_captures(daemon, connection):
    daemon.answers["GetMetrics"] = query_pb2.GetMetricsResponse(metrics=[query_pb2.LoopMetrics(p95_iteration_ns=9)])
    assert connection.metrics("j") == (LoopFigures(0, 0, 0, p95_iteration_ns=9),)
    finding = query_pb2.Finding(rule="drift", severity="warning")
    daemon.answers["GetFindings"] = query_pb2.GetFindingsResponse(findings=[finding], examined_unix_ns=5, report="{}")
    assert connection.findings("j") == figures.Findings((ActiveFinding("drift", "warning"),), 5, "{}")
    daemon.answers["ListCaptures"] = query_pb2.ListCapturesResponse(captures=[query_pb2.Capture(name="c")])
    assert connection.captures() == (Capture("c"),)


def test_orders(daemon, connection):
    assert connection.forget("j") == 7
    assert connection.drain() == 5
    daemon.answers["CaptureWindow"] = admin_pb2.CaptureWindowResponse(capture=query_pb2.Capture(name="c", rank=2))
    assert connection.capture("j", 2) == Capture("c", rank=2)


def test_watching_yields_until_one_has_seen_enough(daemon, connection):
    daemon.answers["Watch"] = lambda request: (query_pb2.WatchResponse(now_unix_ns=at) for at in range(1_000_000))
    states = connection.watch("j", 100)
    assert [next(states).now_unix_ns for _ in range(3)] == [0, 1, 2]
    states.close()
    assert connection.look().now_unix_ns == 0
    daemon.answers["Watch"] = ()
    with pytest.raises(DaemonError, match="did not tell"):
        connection.look()


def test_what_is_sent_can_be_read_back(daemon, connection, tmp_path):
    path = tmp_path / "job.json.gz"
    write(simulate("healthy", iterations=6), path)
    (trace,) = deepprof.read_job(path)
    totals = connection.send(deepprof.read(path), "j")
    assert (totals.ranks, totals.records, totals.durable) == (1, trace.accounting.kept, trace.accounting.kept)
    (back,) = connection.window("j")
    assert back.device_events.equals(trace.device_events)
    assert deepprof.analyze(back).to_json() == deepprof.analyze(trace).to_json()
    assert len(connection.window("j", ranks=(rank for rank in [0, 0]))) == 1
    with pytest.raises(DaemonError, match="knows no rank 5, 7 of job 'j'"):
        connection.window("j", ranks=[7, 0, 5])


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (grpc.StatusCode.NOT_FOUND, "knows nothing of it"),
        (grpc.StatusCode.PERMISSION_DENIED, "scope"),
        (grpc.StatusCode.DEADLINE_EXCEEDED, "did not answer in time"),
        (grpc.StatusCode.DATA_LOSS, "failed with DATA_LOSS"),
    ],
)
def test_an_error_is_one_line(daemon, connection, code, words):
    daemon.answers["ListRanks"] = code
    with pytest.raises(DaemonError, match=words) as told:
        connection.ranks("j")
    assert str(told.value).isprintable()


def test_a_list_without_an_end_is_told(daemon, connection, monkeypatch):
    monkeypatch.setattr("deepprof.live.client.daemon.PAGES", 3)
    daemon.answers["ListJobs"] = query_pb2.ListJobsResponse(next_page_token="again")  # noqa: S106
    with pytest.raises(DaemonError, match="no end"):
        connection.jobs()


def test_a_closed_connection_is_told(connection):
    connection.close()
    for ask in (connection.jobs, lambda: next(connection.watch()), lambda: connection.window("j")):
        with pytest.raises(DaemonError, match="the connection was closed; open another"):
            ask()


UNREACHED = "failed to connect to all addresses; last error: "


@pytest.mark.parametrize(
    ("details", "words"),
    [
        (
            "errors resolving no:1: [field:hostname lookup error:address lookup failed: Domain name not found]",
            "its host name is not known",
        ),
        (
            f"{UNREACHED}INTERNAL: ipv4:127.0.0.1:1: Failed parsing HTTP/2 (Trying to connect an http1.x server)",
            "what answers there is no daemon",
        ),
        (f"{UNREACHED}UNKNOWN: ipv4:127.0.0.1:1: Failed to create security handshaker.", "its key do not fit"),
        (f"{UNREACHED}UNAVAILABLE: ipv4:127.0.0.1:1: Socket closed", "where it wants TLS give --ca, and --cert"),
        (f"{UNREACHED}UNKNOWN: hostname mismatch, certificate is not for this", "not for this name"),
    ],
)
def test_why_a_daemon_is_not_available(daemon, details, words):
    failure = StreamBrokenError(grpc.StatusCode.UNAVAILABLE, details)
    assert words in str(explain(failure, parse_address("127.0.0.1:1")))


def test_a_socket_has_no_certificates_to_ask_for():
    closed = StreamBrokenError(grpc.StatusCode.UNAVAILABLE, f"{UNREACHED}UNAVAILABLE: unix:/d: Socket closed")
    assert "broke the connection off; try again" in str(explain(closed, parse_address("unix:/d")))


def test_an_address_that_cannot_be_meant():
    with pytest.raises(UsageError, match="is no address"):
        deepprof.connect("nowhere")


@pytest.mark.parametrize("module", ["grpc", "google.protobuf"])
def test_without_grpc_the_line_that_installs_it_is_told(module):
    """In its own process, in which the library cannot be found."""
    code = f"""
import importlib.util, sys
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == {module!r} else find(name, *rest)
from deepprof.commands import main
sys.exit(main(["watch", "unix:/x"]))
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert run.returncode == 2
    assert run.stderr.count("\n") == 1
    assert 'pip install "deepprof[service]"' in run.stderr
