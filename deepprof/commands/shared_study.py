"""`deepprof simulate shared`: the paper's study of two jobs on one device (Gu et al., section V-A, Figs 7 and 8).

One program computes and one copies, each alone with a growing share of the device's memory, and both together. The
study prints what DeepProf finds in their traces next to the simulation's true values.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from deepprof.analysis import Analysis
    from deepprof.render.page import TextPage
    from deepprof.simulation.sharing import SharedRun

ITERATIONS, MIN_STUDY_ITERATIONS, MAX_STUDY_ITERATIONS = 12, 5, 200
ALONE, TOGETHER = (0.1, 0.25, 0.5, 0.75, 1.0), (0.25, 0.5)  # of the memory, as in Figs 7 and 8
PROGRAMS = ("compute", "io")
LOSSES = {"turns": ("turns_ns",), "slower": ("slowed_ns",), "copies": ("copies_ns", "copies_slowed_ns")}
TRUE = {"turns": "turns", "slower": "slowed", "copies": "copies"}


class _StudyTrial(Struct, frozen=True):
    """Programs that run at once, each with a share of the device's memory; `fits`: whether that is enough for each."""

    programs: tuple[str, ...]
    memory_share: float
    fits: bool

    @property
    def name(self) -> str:
        """The name of the trial's file or directory."""
        words = self.programs[0] if len(self.programs) == 1 else "together"
        return f"{words}-{round(100 * self.memory_share)}"


class _StudyOutcome(Struct, frozen=True):
    """The outcome of one program in a trial: figures by name, as DeepProf finds them and as they are. Times in ns."""

    trial: _StudyTrial
    program: str
    found: Mapping[str, float]
    true: Mapping[str, float]


def list_trials() -> list[_StudyTrial]:
    """Return the trials of the study."""
    from deepprof.simulation.sharing import needs

    groups: list[tuple[tuple[str, ...], float]] = [((program,), share) for program in PROGRAMS for share in ALONE]
    groups += [(PROGRAMS, share) for share in TOGETHER]
    return [_StudyTrial(programs, share, all(needs(each) <= share for each in programs)) for programs, share in groups]


def study(iterations: int, seed: int) -> list[_StudyOutcome]:
    """Simulate every trial that fits, and return what DeepProf finds in its traces next to the true values."""
    return [each for trial in list_trials() if trial.fits for each in _attempt(trial, iterations, seed)]


def _attempt(trial: _StudyTrial, iterations: int, seed: int) -> list[_StudyOutcome]:
    from deepprof.analysis import analyze
    from deepprof.job import read_job
    from deepprof.simulation.sharing import simulate_shared

    runs = simulate_shared(trial.programs, memory_share=trial.memory_share, iterations=iterations, seed=seed)
    with tempfile.TemporaryDirectory(prefix="deepprof-shared-") as scratch:
        traces = read_job(_write_runs(trial, runs, Path(scratch), ".json"))
    analysis = analyze(traces, same_device=len(runs) > 1)
    return [
        _StudyOutcome(trial, program, _measure(analysis, rank), _tell(runs, rank))
        for rank, program in enumerate(trial.programs)
    ]


def _write_runs(trial: _StudyTrial, runs: Sequence[SharedRun], folder: Path, suffix: str) -> list[Path]:
    """Write the traces of a trial to `folder`, in the order of its programs, and return their paths."""
    from deepprof.simulation import write

    paths = [folder / f"{program}{suffix}" for program in trial.programs]
    for run, path in zip(runs, paths, strict=True):
        write(run.simulation, path)
    return paths


def write_traces(folder: Path, iterations: int, seed: int) -> int:
    """Write the traces of all trials that fit to `folder`, each trial into a directory, and return how many."""
    from deepprof.simulation.sharing import simulate_shared

    trials = [trial for trial in list_trials() if trial.fits]
    folder.mkdir(exist_ok=True)
    for trial in trials:
        runs = simulate_shared(trial.programs, memory_share=trial.memory_share, iterations=iterations, seed=seed)
        (folder / trial.name).mkdir(exist_ok=True)
        _write_runs(trial, runs, folder / trial.name, ".json.gz")
    return sum(len(trial.programs) for trial in trials)


def _measure(analysis: Analysis, rank: int) -> dict[str, float]:
    """Return the figures of one program as DeepProf finds them."""
    loop = next(loop for loop in analysis.loops if loop.rank == rank)
    whole, usual = loop.iterations.filter("complete"), loop.usual["iteration_ns"]
    execution = float((whole["busy_ns"] + whole["idle_ns"]).sum())
    figures = {"execution": execution, "iteration": float(usual.sum()) / max(1, len(usual))}
    if not analysis.sharing:
        return figures | {"busy": analysis.summary.busy_ns / analysis.summary.span_ns}
    share = next(share for share in analysis.sharing[0].processes if share.rank == rank)
    lost = {name: float(sum(share.mean_ns(column) or 0 for column in columns)) for name, columns in LOSSES.items()}
    return figures | {"busy": analysis.sharing[0].together.ratio or 0.0} | lost


def _tell(runs: Sequence[SharedRun], rank: int) -> dict[str, float]:
    """Return the true values of the same figures from the simulation, without the first iteration, which is warm-up."""
    from deepprof.simulation.sharing import measure_busy

    run = runs[rank]
    span, busy = measure_busy(runs)
    usual, losses = run.iterations_ns[1:], run.losses[1:]
    lost = {name: sum(each[kind] for each in losses) / len(losses) for name, kind in TRUE.items()}
    figures = {"execution": float(run.execution_ns), "iteration": sum(usual) / len(usual), "busy": busy / span}
    return figures | (lost if len(runs) > 1 else {})


def print_study(outcomes: Sequence[_StudyOutcome], page: TextPage) -> None:
    """Print the study as the paper's two figures, and the time that each program loses to the other."""
    page.line("Two jobs on one device, simulated: what DeepProf finds, and what is true", "bold")
    page.line(" · ".join(_describe_programs()), "dim")
    for title, together in (("Alone, by the share of the device's memory (Fig 7)", False), ("Together (Fig 8)", True)):
        rows = [each for each in outcomes if (len(each.trial.programs) > 1) is together]
        page.skip()
        page.line(title, "bold")
        page.table([_list_cells(each, ("execution", "iteration", "busy")) for each in rows], indent=2)
    page.skip()
    page.line("Lost to the other program per mean iteration", "bold")
    page.table([_list_cells(each, tuple(LOSSES)) for each in outcomes if len(each.trial.programs) > 1], indent=2)


def _describe_programs() -> Iterator[str]:
    """Yield the memory that each program needs, and the trials that do not fit."""
    from deepprof.render.units import format_ratio
    from deepprof.simulation.sharing import needs

    yield from (f"{program} takes {format_ratio(needs(program))} of the memory" for program in PROGRAMS)
    missing = [trial for trial in list_trials() if not trial.fits]
    yield from (f"{' and '.join(each.programs)} does not fit in {each.memory_share:.0%}" for each in missing)


def _list_cells(outcome: _StudyOutcome, figures: Iterable[str]) -> dict[str, str]:
    from deepprof.render.units import format_duration, format_ratio

    cells = {"program": outcome.program, "memory": f"{outcome.trial.memory_share:.0%}"}
    for name in figures:
        show = format_ratio if name == "busy" else format_duration
        cells[f"{name} (true)"] = f"{show(outcome.found[name])} ({show(outcome.true[name])})"
    return cells
