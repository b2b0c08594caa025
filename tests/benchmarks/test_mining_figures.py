"""The miner's benchmark runs, on inputs too small to state anything about speed."""

import math

import pytest

from benchmarks import mining

SMALL = mining.Sizes(300, (300,), (300, 600), 3000, (300, 600), 3000)


@pytest.fixture(scope="module")
def rows():
    return [row for part in mining.parts(SMALL, quick=True) for row in part]


def test_every_figure_is_measured(rows):
    missing = {row.what for row in rows if math.isnan(row.figure)}
    assert missing <= {"suffix array, pydivsufsort (PyPI, C)"}
    assert all(row.figure > 0 for row in rows if row.unit == "ns" and row.what not in missing)


def test_peers_stand_beside_ours_in_the_same_run(rows):
    shown = "\n".join(row.what for row in rows)
    for peer in (
        "suffix-trees (PyPI",
        "pydivsufsort (PyPI",
        "Algorithm 1 of the paper",
        "numpy fallback",
        "reading the",
    ):
        assert peer in shown


def test_a_peer_that_is_not_installed_is_said(monkeypatch):
    monkeypatch.setattr(mining, "find_spec", lambda _: None)
    row = mining.divsufsort_row(mining.stream(300), 1.0)
    assert row.cells()[2:] == ("nan ns", 'not here: pip install -e ".[bench]"')
