"""Jobs of several ranks: they meet in their collectives, each on its own clock."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median

import pytest

import deepprof
from deepprof.collectors.errors import UsageError
from deepprof.commands import main
from deepprof.job import read_job
from deepprof.simulation import COMMUNICATION_STREAM, SCENARIOS, Simulation, simulate_ranks, write_ranks
from tests.captures import load, select, spans

SEVERAL = sorted(name for name, scenario in SCENARIOS.items() if scenario.ranks != "one")


def collectives(made: Simulation) -> list[tuple[int, int]]:
    """Return the collectives of one rank in true time."""
    found = spans(select(made.document, "kernel", stream=COMMUNICATION_STREAM))
    return [(start - made.clock_offset_ns, end - made.clock_offset_ns) for start, end in found]


def waiting(ranks: tuple[Simulation, ...]) -> list[int]:
    """Return the time that each rank spends in collectives."""
    return [sum(end - start for start, end in collectives(made)) for made in ranks]


@pytest.mark.parametrize("scenario", SEVERAL)
def test_ranks_meet_in_every_collective(scenario: str) -> None:
    ranks = simulate_ranks(scenario, ranks=3, iterations=4, seed=2)
    met = list(zip(*map(collectives, ranks), strict=True))
    assert len(met) >= 4 * 2
    for spans_of_one in met:
        ends = [end for _, end in spans_of_one]
        assert max(ends) - min(ends) <= 3_000
        assert max(start for start, _ in spans_of_one) < min(ends)


@pytest.mark.parametrize("scenario", SEVERAL)
def test_ranks_run_one_program_on_their_own_clocks(scenario: str) -> None:
    ranks = simulate_ranks(scenario, ranks=3, iterations=4, seed=2)
    assert [made.rank for made in ranks] == [0, 1, 2]
    assert len({made.kernels for made in ranks}) == 1
    names = [[e["name"] for _, e in select(made.document, "kernel", stream=7)] for made in ranks]
    assert names[0] == names[1] == names[2]
    assert len({made.clock_offset_ns for made in ranks}) == 3
    assert all(abs(made.clock_offset_ns) <= 5_000_000 for made in ranks)
    assert ranks[0].clock_offset_ns == 0


@pytest.mark.widens(5)
@pytest.mark.parametrize("strength", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("seed", range(4))
def test_the_straggler_waits_least(seed: int, strength: float) -> None:
    ranks = simulate_ranks("straggler", iterations=6, seed=seed, strength=strength)
    spent = waiting(ranks)
    slow = ranks[0].slow_rank
    assert {made.slow_rank for made in ranks} == {slow}
    assert slow == spent.index(min(spent))
    assert spent[slow] < 0.85 * median(spent)


@pytest.mark.parametrize("seed", range(4))
def test_healthy_ranks_wait_alike(seed: int) -> None:
    ranks = simulate_ranks("ranks-healthy", iterations=6, seed=seed)
    assert ranks[0].slow_rank is None
    spent = waiting(ranks)
    assert min(spent) > 0.85 * median(spent)


def test_stragglers_are_slow_on_the_gpu_or_late_on_the_host() -> None:
    kinds = set()
    for seed in range(12):
        made = simulate_ranks("straggler", ranks=2, iterations=2, seed=seed)
        compute = [sum(b - a for a, b in spans(select(each.document, "kernel", stream=7))) for each in made]
        assert made[0].slow_rank is not None
        slow, other = compute[made[0].slow_rank], compute[1 - made[0].slow_rank]
        kinds.add(slow > 1.15 * other)
    assert kinds == {True, False}


@pytest.mark.widens(3)
@pytest.mark.parametrize("scenario", SEVERAL)
def test_the_loop_is_found_on_every_rank(tmp_path: Path, scenario: str) -> None:
    ranks = simulate_ranks(scenario, ranks=2, iterations=12, seed=1)
    write_ranks(ranks, tmp_path / "job")
    analysis = deepprof.analyze([deepprof.read(tmp_path / "job" / f"rank{rank}.json.gz") for rank in range(2)])
    assert [loop.rank for loop in analysis.loops] == [0, 1]
    for loop, made in zip(analysis.loops, ranks, strict=True):
        assert loop.iterations.filter("complete")["start_ns"].to_list() == list(made.starts_ns)
        assert loop.confidence >= 0.8


def test_the_same_seed_makes_the_same_job() -> None:
    first, second, other = (simulate_ranks("straggler", ranks=2, iterations=1, seed=seed) for seed in (1, 1, 2))
    assert [a.document for a in first] == [b.document for b in second] != [c.document for c in other]


@pytest.mark.parametrize(
    ("scenario", "ranks", "words"),
    [
        ("healthy", 2, "one rank"),
        ("straggler", 1, "1 ranks"),
        ("straggler", 65, "65 ranks"),
        ("sick", 2, "no scenario"),
    ],
)
def test_what_several_ranks_cannot_run_is_refused(scenario: str, ranks: int, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        simulate_ranks(scenario, ranks=ranks)


def test_the_command_writes_a_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = [
        "simulate",
        "straggler",
        "--ranks",
        "3",
        "--iterations",
        "2",
        "--strength",
        "2",
        "-o",
        str(tmp_path / "job"),
    ]
    assert main(argv) == 0
    assert "straggler, 2 iterations" in capsys.readouterr().err
    assert main(argv) == 0  # over its own files
    made = simulate_ranks("straggler", ranks=3, iterations=2, strength=2)
    files = sorted((tmp_path / "job").iterdir())
    assert [json.dumps(load(path)) for path in files] == [json.dumps(each.document) for each in made]
    assert [trace.rank for trace in read_job([str(tmp_path / "job")])] == [0, 1, 2]


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["straggler", "-o", "x.json"], "--ranks"),
        (["healthy", "--ranks", "2", "-o", "job"], "one rank"),
        (["straggler", "--ranks", "1", "-o", "job"], "1 ranks"),
        (["straggler", "--ranks", "100000000", "-o", "job"], "100000000 ranks"),
        (["straggler", "--ranks", "64", "--iterations", "100", "-o", "job"], "at most 78"),
        (["straggler", "--ranks", "2", "-o", "file"], "is a file"),
        (["straggler", "--ranks", "2", "-o", "full"], "rank7.json.gz"),
        (["straggler", "--ranks", "2", "-o", "no/job"], "no directory"),
        (["straggler", "--ranks", "2", "-o", "-"], "no directory"),
        (["straggler", "--ranks", "2", "-o", "link"], "link"),
        (["logging", "--strength", "nan", "-o", "x.json"], "strength nan"),
        (["logging", "--strength", "much", "-o", "x.json"], "'much' is not a number"),
        (["small-kernels", "--iterations", "1001", "-o", "x.json"], "at most 1000"),
    ],
)
def test_nonsense_is_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    argv: list[str],
    words: str,
) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "rank7.json.gz").write_text("")
    (tmp_path / "link").symlink_to("nowhere")
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    assert run(["simulate", *argv]) == 2
    said = capsys.readouterr().err
    assert words in said
    assert "Traceback" not in said
    assert sorted(tmp_path.rglob("*")) == before


def run(argv: list[str]) -> int:
    """Return the command's exit status, whether argparse or the command refuses."""
    try:
        return main(argv)
    except SystemExit as stop:
        return int(stop.code or 0)
