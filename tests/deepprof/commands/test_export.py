"""`deepprof export`: tables, options, and what goes wrong."""

import gzip
import io
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from msgspec.structs import replace
from polars.testing import assert_frame_equal

import deepprof
from deepprof.commands import export, main
from deepprof.metrics.breakdown.parts import PART_NAMES
from deepprof.render import tabular
from deepprof.simulation import simulate, write
from tests.deepprof.builders import build_analysis, build_finding
from tests.deepprof.render.test_perfetto import job
from tests.patience import PATIENCE_S
from tests.tables import make_trace
from tests.widening import slow_unless

PAGE = Path(__file__).resolve().parents[3] / "docs" / "export.md"


@pytest.fixture(scope="module")
def capture(tmp_path_factory):
    """A job of two ranks."""
    folder = tmp_path_factory.mktemp("job")
    for rank in range(2):
        write(simulate("healthy", iterations=6, seed=rank), folder / f"rank{rank}.json.gz")
    return str(folder)


@pytest.fixture
def analysed(monkeypatch):
    """Makes `export` see a finished analysis, whatever the path."""

    def prepare(analysis):
        monkeypatch.setattr(export, "analyze_paths", lambda args, **_: analysis)

    prepare(deepprof.analyze(job()))
    return prepare


def complaint(capsys, *argv):
    """The one line that a command which cannot be carried out states."""
    assert main(["export", *argv]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith("deepprof: ")
    return err


def exported(capsys, target, path, *more):
    """What the command states when it writes `path`."""
    assert main(["export", "x", "--to", target, "-o", str(path), *more]) == 0
    out, err = capsys.readouterr()
    assert out == ""
    return err


def test_the_table_of_iterations(analysed, capsys, tmp_path):
    analysis = deepprof.analyze([replace(job(), rank=rank) for rank in range(2)])
    analysed(analysis)
    said = exported(capsys, "parquet", tmp_path / "t.parquet")
    assert said == f"{tmp_path}/t.parquet: 16 rows of {analysis.iterations.width} columns\n"
    assert_frame_equal(pl.read_parquet(tmp_path / "t.parquet"), analysis.iterations)
    exported(capsys, "csv", tmp_path / "t.csv")
    table = pl.read_csv(tmp_path / "t.csv", schema=analysis.iterations.schema)
    assert_frame_equal(table, analysis.iterations)
    assert table["rank"].unique().sort().to_list() == [0, 1]
    assert (table.select(PART_NAMES).sum_horizontal() == table["busy_ns"] + table["idle_ns"]).all()


def test_the_tables_of_events_and_findings(analysed, capsys, tmp_path):
    findings = (build_finding(), build_finding(rule="drift", rank=None, iterations=None, location=None))
    analysed(build_analysis(traces=(job(),), loops=(), findings=findings))
    exported(capsys, "parquet", tmp_path / "events", "--what", "events")
    assert pl.read_parquet(tmp_path / "events").height == job().device_events.height
    exported(capsys, "csv", tmp_path / "findings", "--what", "findings")
    rows = pl.read_csv(tmp_path / "findings", schema=tabular.FINDINGS)
    assert rows["rule"].to_list() == ["graph-growth", "drift"]
    assert rows.select("rank", "first_iteration", "last_iteration").rows() == [(0, 1, 39), (None, None, None)]
    assert [json.loads(text) for text in rows["evidence"]] == [dict(f.evidence) for f in findings]


def test_a_job_without_findings_has_an_empty_table(analysed, capsys, tmp_path):
    analysed(build_analysis(findings=()))
    assert "0 rows" in exported(capsys, "csv", tmp_path / "f.csv", "--what", "findings")
    assert pl.read_csv(tmp_path / "f.csv").columns == list(tabular.FINDINGS)


def test_a_name_that_ends_with_gz_is_compressed(analysed, capsys, tmp_path):
    for target in export.TARGETS:
        for name in (target, f"{target}.gz"):
            exported(capsys, target, tmp_path / name)
        assert gzip.decompress((tmp_path / f"{target}.gz").read_bytes()) == (tmp_path / target).read_bytes()


def test_the_line_on_stderr_counts_what_is_in_the_file(analysed, capsys, tmp_path):
    said = exported(capsys, "perfetto", tmp_path / "t.json", "--flows")
    events = json.loads((tmp_path / "t.json").read_bytes())["traceEvents"]
    slices = [e for e in events if e["ph"] == "X"]
    tracks, arrows = len({e["tid"] for e in slices}), sum(e["ph"] == "s" for e in events)
    assert said.endswith(f": {len(slices):,} slices on {tracks} tracks (0 dropped), {arrows} arrows\n")


def test_ranks_and_a_part_of_the_time(capture, capsys, tmp_path):
    whole, part = tmp_path / "whole.json", tmp_path / "part.json"
    assert main(["export", capture, "--to", "perfetto", "-o", str(whole), "--jobs", "1"]) == 0
    span = ["--from", "50ms", "--until", "200ms"]
    assert main(["export", capture, "--to", "perfetto", "-o", str(part), "--jobs", "1", *span]) == 0
    counts = [
        len([e for e in json.loads(path.read_bytes())["traceEvents"] if e.get("cat") == "kernel"])
        for path in (whole, part)
    ]
    traces = deepprof.read_job(capture), deepprof.read_job(capture, between=(50_000_000, 200_000_000))
    assert counts == [sum(int((t.device_events["activity"] == "kernel").sum()) for t in ranks) for ranks in traces]
    assert 0 < counts[1] < counts[0]


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["x"], "--to"),
        (["x", "--to", "svg", "-o", "y"], "invalid choice: 'svg'"),
        (["x", "--to", "csv"], "-o"),
        (["--to", "csv", "-o", "y"], "PATH"),
        (["x", "--to", "csv", "-o", "-"], "-o names no file"),
        (["x", "--to", "csv", "-o", "."], "is a directory"),
        (["x", "--to", "csv", "-o", "no/where/y"], "there is no directory"),
        (["x", "--to", "csv", "-o", "y", "--flows"], "--flows"),
        (["x", "--to", "perfetto", "-o", "y", "--what", "events"], "--what"),
        (["x", "--to", "csv", "-o", "y", "--what", "kernels"], "invalid choice: 'kernels'"),
        (["x", "--to", "csv", "-o", "y", "--until", "3"], "is not a time with its unit"),
        (["absent.json", "--to", "csv", "-o", "y"], "absent.json"),
    ],
    ids=lambda value: None if isinstance(value, str) else " ".join(value)[:50],
)
def test_wrong_usage_is_one_line_and_exit_2(capsys, tmp_path, monkeypatch, argv, words):
    monkeypatch.chdir(tmp_path)
    assert words in complaint(capsys, *argv)
    assert list(tmp_path.iterdir()) == []


def test_each_table_that_is_offered_is_a_table_of_its_own():
    analysis = deepprof.analyze(job())
    offered = [tabular.table_of(analysis, name) for name in export.TABLES]
    assert len({tuple(table.columns) for table in offered}) == len(offered)


@pytest.mark.parametrize("target", export.TARGETS)
def test_a_full_disk_is_a_line(analysed, capsys, target):
    assert "No space left on device" in complaint(capsys, "x", "--to", target, "-o", "/dev/full")


def test_a_file_that_fails_half_way_leaves_the_old_one(analysed, capsys, tmp_path, monkeypatch):
    (tmp_path / "t.json").write_text("old")

    def fill(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("deepprof.render.perfetto.document.PerfettoDocument.close", fill)
    assert "No space left" in complaint(capsys, "x", "--to", "perfetto", "-o", f"{tmp_path}/t.json")
    assert [path.name for path in tmp_path.iterdir()] == ["t.json"]
    assert (tmp_path / "t.json").read_text() == "old"


@pytest.mark.parametrize("target", slow_unless(lambda target: target == "perfetto", export.TARGETS))
def test_a_closed_pipe_is_quiet(capture, target):
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "deepprof", "export", capture, "--to", target, "-o", "/dev/stdout"]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, timeout=PATIENCE_S, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


def test_a_trace_without_anything(analysed, capsys, tmp_path):
    analysed(deepprof.analyze(make_trace()))
    assert ": 0 slices on 0 tracks (0 dropped)" in exported(capsys, "perfetto", tmp_path / "t.json")
    assert "no iteration found" in complaint(capsys, "x", "--to", "csv", "-o", f"{tmp_path}/t.csv")


def test_the_state_graph_is_what_the_name_of_the_file_says(analysed, capsys, tmp_path):
    assert exported(capsys, "state-graph", tmp_path / "g.svg").endswith("g.svg: 5 states, 7 transitions\n")
    assert (tmp_path / "g.svg").read_text().startswith("<svg ")
    for name in ("g.dot", "g.gv"):
        exported(capsys, "state-graph", tmp_path / name)
        assert (tmp_path / name).read_text().startswith("digraph states {")
    exported(capsys, "state-graph", tmp_path / "g.dot.gz")
    assert gzip.decompress((tmp_path / "g.dot.gz").read_bytes()) == (tmp_path / "g.dot").read_bytes()
    analysed(deepprof.analyze(make_trace()))
    assert "no iteration found" in complaint(capsys, "x", "--to", "state-graph", "-o", f"{tmp_path}/t.svg")


def test_csv_is_plain_text_with_names_as_data(monkeypatch):
    monkeypatch.setattr(tabular, "PIECE", 7)
    trace = replace(job(), names=pl.Series(['a,"b"\n', *job().names[1:]]))
    file = io.BytesIO()
    tabular.write_table(tabular.table_of(deepprof.analyze(trace), "events"), file, "csv")
    back = pl.read_csv(io.BytesIO(file.getvalue()))
    assert back["name"].to_list() == [trace.names[i] for i in trace.device_events["name_id"]]


@pytest.fixture
def demo(tmp_path, monkeypatch):
    """A directory with a job like that of `make demo`, only shorter."""
    write(simulate("graph-growth", iterations=16), tmp_path / "demo.json.gz")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def without_numbers(text):
    """The page shows what one version of the simulation gives; what it states must hold for all."""
    return re.sub(r"\d[\d,]*", "N", text)


def test_the_examples_of_the_page_hold(demo, capsys):
    shown = re.findall(r"^\$ deepprof (export .*)\n(.*)$", PAGE.read_text(), re.MULTILINE)
    assert len(shown) == 5
    for command, expected in shown:
        assert main(shlex.split(command)) == 0
        out, err = capsys.readouterr()
        assert (out, without_numbers(err)) == ("", without_numbers(expected + "\n"))


def test_the_python_of_the_page_runs(demo, capsys):
    (code,) = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    exec(compile(code, str(PAGE), "exec"), {})  # noqa: S102 - our own document
    assert (demo / "demo.trace.json").stat().st_size > 1_000_000
    assert "slices" in capsys.readouterr().out
