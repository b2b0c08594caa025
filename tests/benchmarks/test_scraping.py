"""The scraping table: it comes out, and what it measures is a whole scrape."""

from __future__ import annotations

import pytest
from rich.console import Console

from benchmarks import scraping


def test_a_scrape_has_every_rank_and_new_numbers() -> None:
    taken, body = scraping.measure(3, 2)
    assert len(taken) == 2
    assert body.count(b"deepprof_iterations_total{") == 3
    assert b'deepprof_iterations_total{job_id="training/large-model",rank="2",device="0"} 1002\n' in body


def test_the_quick_table_comes_out(capsys: pytest.CaptureFixture[str]) -> None:
    scraping.run(Console(width=110), quick=True)
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("│")]
    assert [row.split("│")[1].strip() for row in rows] == ["1", "100"]
