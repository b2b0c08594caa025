"""The benchmark of collecting: it finds the highest rate without a loss, and losses are rows; nothing grows."""

from __future__ import annotations

import subprocess
from functools import partial
from io import StringIO

import pytest
from rich.console import Console
from rich.table import Table

from benchmarks import collecting
from benchmarks.collecting import Load, Passage, find_best, follow, search
from tests.collectors.live.building import build
from tests.patience import UNHURRIED

FITS = 500_000  # records that are less than the queue in the job contains: none is lost, however slow the machine is
SLOWLY = 200_000  # a second


def passage(pace: int, lost: int = 0, records: int = 10**6) -> Passage:
    gaps = {"buffer-full": lost} if lost else {}
    return Passage(Load(records, pace), 0.5, records, records / (pace or 4e6), numbered=records, gaps=gaps)


def loses_above(border: int, pace: int) -> Passage:
    return passage(pace, lost=100 if pace > border else 0)


@pytest.mark.parametrize("border", [300_000, 1_000_000, 2_900_000, 3_500_000])
def test_the_search_ends_close_below_the_border_of_losses(border: int) -> None:
    tried = search(partial(loses_above, border), passage(0, lost=7), 8)
    best = max(each.load.pace for each in tried if not each.lost)
    assert border / 1.1 <= best <= border
    assert len(tried) <= 8


def test_the_search_is_bounded_where_every_pace_loses() -> None:
    tried = search(partial(loses_above, 0), passage(0, lost=7), 5)
    assert len(tried) == 5
    assert find_best(tried) is None


def test_nothing_is_searched_where_nothing_is_lost_unthrottled() -> None:
    assert search(partial(loses_above, 0), passage(0), 5) == []


def test_a_record_is_kept_or_lost_for_one_reason() -> None:
    found = Passage(Load(1000), 1.0, made=700, driver_dropped=50, numbered=720, gaps={"buffer-full": 20, "busy": 5})
    assert found.losses == {
        "made while collecting was off": 250,
        "buffer-full": 20,
        "busy": 5,
        "not heard before the job's end": 30,
    }
    assert found.kept + found.lost == 1000
    assert found.describe_losses().startswith(
        "25.0% made while collecting was off, 2.0% buffer-full, 0.5% busy, 3.0% not"
    )


def test_a_loss_is_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collecting, "measure_bare_socket", lambda _: (100.0, 0.01))
    table = Table("what", "figure", "goal")
    sizes = collecting.Sizes(runs=2)
    best = collecting.add_path(table, "here", lambda load: passage(load.pace, lost=200_000), sizes, "≥ 3 M")
    assert best.lost == 200_000
    assert "none: something was lost at every pace tried" in table.columns[1].cells
    assert "20.0% buffer-full" in table.columns[1].cells


@pytest.mark.slow  # `test_true_numbers` has a burst in a queue that is as small
def test_every_record_of_a_burst_is_accounted_for_where_the_queue_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEEPPROF_QUEUE_NBYTES", "131072")
    with collecting.collecting(collecting.NOWHERE) as agent:
        found = follow(build("plain"), agent, Load(FITS), durable=False)
    assert found.arrived
    assert found.kept + found.lost == FITS
    assert set(found.losses) <= {"made while collecting was off", "buffer-full", "not heard before the job's end"}


def test_a_job_that_fails_is_no_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    fails = subprocess.Popen(["false"], stdout=subprocess.PIPE, text=True)
    monkeypatch.setattr(collecting, "start_job", lambda *_: fails)
    with collecting.collecting(collecting.NOWHERE) as agent, pytest.raises(RuntimeError, match="the job ended with 1"):
        follow(build("plain"), agent, Load(1), durable=False)


@pytest.mark.parametrize("records", [FITS, pytest.param(4 * FITS, marks=pytest.mark.slow)])
def test_what_fits_the_queue_arrives_at_the_daemon_and_nothing_grows(
    records: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in UNHURRIED.items():  # a job waits a second at its end, which a busy machine may need and more
        monkeypatch.setenv(name, value)
    found, counts = collecting.measure_soak(build("plain"), Load(records, SLOWLY))
    assert found.lost == 0
    assert counts == {"accepted": records}
    assert max(found.job_mib) < 200  # 64 MiB of buffers, as much of a queue, if the machine is busy
    later = found.agent_mib[len(found.agent_mib) // 4 :]
    assert max(later) < 400
    assert sum(later[-20:]) / 20 < sum(later[:20]) / 20 + 100


def test_the_quick_table_comes_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collecting, "QUICK", collecting.Sizes(200_000, 0.2, 1, 200_000, 200_000))
    console = Console(width=200, file=StringIO())
    collecting.run(console, quick=True)
    said = console.file.getvalue()
    assert said.count("highest rate without a loss") == 2
    assert said.count("a bare socket, packets of 192 KiB") == 2
    assert "accepted" in said
