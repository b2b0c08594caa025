"""Rings of ranges under stress: the counts add up, no promise is broken, and the sanitizers find nothing."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.collectors.live.building import FLAGS, INJECT, SANITIZERS, compiler
from tests.collectors.live.hooked import PROGRAMS
from tests.patience import PATIENCE_S

SOURCES = [INJECT / "ranges.c", INJECT / "gathering.c", INJECT / "labels.c", PROGRAMS / "ranges_stress.c"]


@pytest.fixture(scope="module", params=SANITIZERS)
def stress(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("stress") / "stress"
    flags = [*FLAGS, *SANITIZERS[request.param], f"-I{INJECT}"]
    subprocess.run([compiler(), *flags, *map(str, SOURCES), "-o", str(target)], check=True)
    return target


def run(program: Path, *words: object, **variables: str) -> list[int]:
    command = [str(program), *map(str, words)]
    done = subprocess.run(
        command, check=True, capture_output=True, text=True, env=os.environ | variables, timeout=PATIENCE_S
    )
    assert not done.stderr
    return [int(word) for word in done.stdout.split()]


def test_every_range_arrives_or_is_counted(stress: Path) -> None:
    made, got, lost, broken, notices = run(stress, 8, 5000, 4)
    assert made > 8 * 5000 * 4
    assert got + lost == made
    assert (broken, notices) == (0, 0)


def test_a_worker_that_sleeps_loses_counted_stretches(stress: Path) -> None:
    made, got, lost, broken, _ = run(stress, 2, 200_000, 1, "slow")
    assert lost > 0
    assert got + lost == made
    assert broken == 0


def test_ranges_across_a_change_of_the_level_are_left_out(stress: Path) -> None:
    made, got, lost, broken, _ = run(stress, 8, 5000, 4, "toggle")
    assert 0 < got + lost <= made
    assert broken == 0


def test_threads_beyond_the_limit_are_told_once_each_and_harm_nothing(stress: Path) -> None:
    made, got, lost, broken, _ = run(stress, 300, 50, 2)
    assert got + lost == made
    assert broken == 0


def test_a_program_without_a_key_to_spare_keeps_its_own(stress: Path) -> None:
    """The end of a thread cannot be noticed then, and its ring would never be free again."""
    made, got, lost, broken, notices = run(stress, 0, 0, 1, "keys")
    assert (made, got, lost, broken, notices) == (0, 0, 0, 0, 1)


def test_each_of_a_crowd_writes_to_its_own_ring_or_to_none(stress: Path) -> None:
    """The main thread has the first of 256. What one without a ring closes is left out, and does not stay open."""
    made, got, lost, broken, notices = run(stress, 300, 0, 1, "crowd")
    assert made == 255 * 50
    assert got + lost == made + 255
    assert (broken, notices) == (0, 45)
