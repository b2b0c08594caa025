"""The importing tables: what long traces are made of, what a reader's row states, and that the quick ones come out."""

from __future__ import annotations

import gzip
import io
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from rich.console import Console

import deepprof
from benchmarks import importing
from benchmarks.long_trace import repeat_database, repeat_document
from benchmarks.nsys_capture import write_capture
from benchmarks.readers import Reader, Reading, measure
from deepprof.simulation import simulate, write


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("short") / "short.json.gz"
    write(simulate("healthy", iterations=4), path)
    return path


def test_a_repeated_document_has_every_event_again_and_every_id_once(short: Path, tmp_path: Path) -> None:
    before = json.loads(gzip.decompress(short.read_bytes()))
    metadata = sum(event["ph"] == "M" for event in before["traceEvents"])
    moving = len(before["traceEvents"]) - metadata
    assert repeat_document(short, tmp_path / "long.json.gz", 3 * moving) == 3
    after = json.loads(gzip.decompress((tmp_path / "long.json.gz").read_bytes()))
    assert len(after.pop("traceEvents")) == metadata + 3 * moving
    assert after == {key: value for key, value in before.items() if key != "traceEvents"}
    first, long = deepprof.read(short), deepprof.read(tmp_path / "long.json.gz")
    for table in ("device_events", "host_events", "annotations"):
        assert getattr(long, table).height == 3 * getattr(first, table).height
    assert long.device_events["start_ns"].is_sorted()
    assert long.device_events["correlation"].n_unique() == 3 * first.device_events["correlation"].n_unique()
    assert dict(long.accounting.flagged) == {key: 3 * value for key, value in first.accounting.flagged.items()}


def test_a_document_of_few_events_goes_in_once(short: Path, tmp_path: Path) -> None:
    assert repeat_document(short, tmp_path / "same.json.gz", 1) == 1
    before, after = (
        json.loads(gzip.decompress(path.read_bytes()))["traceEvents"] for path in (short, tmp_path / "same.json.gz")
    )
    order = sorted(before, key=lambda event: event["ph"] != "M")
    assert after == order


def test_a_repeated_database_has_every_row_again_and_every_correlation_once(tmp_path: Path) -> None:
    write_capture(tmp_path / "short.sqlite", 300)
    rows = 300 + 306 + 3 + 3 + 3
    assert repeat_database(tmp_path / "short.sqlite", tmp_path / "long.sqlite", 4 * rows) == 4
    first, long = deepprof.read(tmp_path / "short.sqlite"), deepprof.read(tmp_path / "long.sqlite")
    assert first.accounting.read == first.accounting.kept == rows
    assert long.accounting.read == long.accounting.kept == 4 * rows
    assert not first.accounting.flagged
    assert not long.accounting.flagged
    assert long.device_events["correlation"].n_unique() == 4 * first.device_events["correlation"].n_unique()
    with closing(sqlite3.connect(tmp_path / "long.sqlite")) as connection:
        assert connection.execute("SELECT count(*) FROM StringIds").fetchone() == (7,)


def test_a_reader_is_measured_or_says_why_not(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("12")
    good = measure(Reader("good", "def read(path): return int(open(path).read())\n"), path)
    assert isinstance(good, Reading)
    assert good.events == 12
    assert 1 < good.peak_mb < 100
    assert measure(Reader("bad", "def read(path): raise ValueError('odd')\n"), path) == "failed: ValueError: odd"
    assert measure(Reader("absent", "", package="no_such_package"), path) == "not installed"


def printed(reading: Reading | str) -> str:
    console = Console(file=io.StringIO(), width=110)
    console.print(importing.tabulate({"deepprof.read": Reading(1000, 0.5, 100), "other": reading}, "title"))
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_rows_hold_speeds_and_ratios_or_the_reason() -> None:
    assert "│ other         │      200 │  5.00 │      10.00 │     250 │       2.50 │" in printed(Reading(7, 5, 250))
    assert "not installed" in printed("not installed")
    assert "[odd]" in printed("failed: [odd]")


def test_goals_are_judged_with_what_was_measured() -> None:
    mine, hta, typed = Reading(1000, 1, 300), Reading(900, 12, 1100), Reading(1000, 0.5, 900)
    readings = {"deepprof.read": mine, "HolisticTraceAnalysis": hta, "msgspec typed decode": typed}
    said = importing.compare_with_goals(readings)
    assert [line.endswith("not met.") for line in said] == [False, True, True, False]
    assert len(importing.compare_with_goals(readings | {"HolisticTraceAnalysis": "not installed"})) == 2


def test_the_quick_tables_come_out(capsys: pytest.CaptureFixture[str]) -> None:
    importing.run(Console(width=110), quick=True)
    shown = capsys.readouterr().out
    for name in ("deepprof.read", "msgspec typed decode", "json.load", "its columns alone", "sqlite3 fetchall"):
        assert any(name in line and "failed" not in line for line in shown.splitlines()), shown
