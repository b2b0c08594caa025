"""The tables: what the outcomes add up to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from benchmarks.accuracy import (
    calibration,
    cycles,
    draws,
    negatives,
    plain,
    programs,
    real,
    scenarios,
    semireal,
    stages,
)
from benchmarks.accuracy.looks import LOOKS, Case, Outcome
from benchmarks.accuracy.scoring import RIGHT, mean
from benchmarks.accuracy.tables import Better, Table

SECTIONS = (
    "scenarios",
    "random",
    "unseen",
    "fit",
    "look",
    "sealed",
    "semireal",
    "real",
    "negatives",
    "plain",
    "stages",
)
SCORED: dict[str, Better] = {"period": "more", "count": "more", "F1": "more", "phase": "more", "confidence": "any"}


def cases(section: str, traces: Path = real.TRACES) -> list[Case]:
    """Return the cases of a section; real traces and stages are no cases."""
    made: dict[str, Callable[[], Iterable[Case]]] = {
        "scenarios": scenarios.cases,
        "random": lambda: draws.cases("random"),
        "unseen": lambda: draws.cases("unseen"),
        **{block: partial(programs.cases, block) for block in programs.BLOCKS},
        "semireal": lambda: semireal.cases(traces),
        "negatives": negatives.cases,
        "plain": plain.cases,
        "real": tuple,
        "stages": tuple,
    }
    return list(made[section]())


def tables(section: str, outcomes: Sequence[Outcome], traces: Path = real.TRACES, workers: int = 0) -> list[Table]:
    """Return the tables of a section."""
    if section == "real":
        return real_tables(real.rows(traces, workers))
    if section == "stages":
        return stages.stage_tables(traces, workers)
    if section in draws.BLOCKS:
        jobs = JOBS[section]
        kinds = scored_table(f"Kinds of jobs, {jobs}", "The same jobs by kind.", outcomes)
        return [
            block_table(section, outcomes),
            kinds,
            cycles_table(jobs, outcomes),
            *calibration.tables(jobs, outcomes),
        ]
    if section in programs.BLOCKS:
        return programs_tables(section, outcomes)
    if section in ("negatives", "plain"):
        return [negatives_table(outcomes)] if section == "negatives" else plain_tables(outcomes)
    scored = scored_table(*NOTES[section], outcomes)
    return [scored, cycles_table("scenarios", outcomes)] if section == "scenarios" else [scored]


def cycles_table(jobs: str, outcomes: Sequence[Outcome]) -> Table:
    """Return what came back every this many iterations, by kernels alone."""
    looks = [o for o in outcomes if o.look == LOOKS[0]]
    return cycles.table(jobs, [c for o in looks for c in o.cycles], sum(o.strays for o in looks))


def programs_tables(block: str, outcomes: Sequence[Outcome]) -> list[Table]:
    """Return a block of training programs by kind, and what confidence is worth on it; of the sealed one no kinds."""
    jobs = PROGRAMS[block]
    columns: dict[str, Better] = {"look": "key", "kind": "key", "jobs": "same", "F1": "more", f"F1 ≥ {RIGHT}": "more"}
    columns |= {"phase": "more", "right": "more"}
    kinds = {kind: [kind] for kind in dict.fromkeys(o.row for o in outcomes)}
    every = {"all": list(kinds)}
    shown = {"evaluation": [k for k in kinds if k.startswith("evaluation")]} if block == "sealed" else kinds
    rows = [
        [look, name, *program_figures([o for o in outcomes if o.look == look and o.row in some])]
        for look in programs.LOOKS
        for name, some in (shown | every).items()
    ]
    note = "Means of jobs by kind, those without a loop found as 0; `names` knows which kernels are an optimizer's."
    return [Table(jobs.capitalize(), note, columns, rows), sure_table(jobs, outcomes)]


def program_figures(outcomes: Sequence[Outcome]) -> list[str]:
    """Return the cells of some programs."""
    total = mean([o.score for o in outcomes])
    near = sum(o.score.rotated >= RIGHT for o in outcomes) / max(1, len(outcomes))
    return [str(len(outcomes)), *(f"{x:.3f}" for x in (total.rotated, near, total.phase, total.right))]


def sure_table(jobs: str, outcomes: Sequence[Outcome]) -> Table:
    """Return what a confidence is worth, by bins, and from `programs.SURE` on."""
    columns: dict[str, Better] = {"look": "key", "confidence": "key", "loops": "any", "mean": "any"}
    columns |= {"right": "any", "fully right": "any"}
    rows = []
    for look in programs.LOOKS:
        given = [v for o in outcomes if o.look == look for v in o.loops]
        sure = calibration.figures([v for v in given if v[0] >= programs.SURE])
        rows += [[look, *cells] for cells in [*calibration.diagram(given), [f"≥ {programs.SURE}", *sure]]]
    note = "Of the loops found with so much confidence: how many, and the shares that are right, and in phase as well."
    return Table(f"Confidence, {jobs}", note, columns, rows)


PROGRAMS = {
    "fit": "training programs",
    "look": "training programs looked at rarely",
    "sealed": "training programs under seal",
}
JOBS = {"random": "random jobs", "unseen": "random jobs that nothing was tuned with"}
NOTES = {
    "scenarios": (
        "Scenarios",
        "Each row is the mean of three captures. `period` and `count` are shares of captures in which they are within\n"
        "tolerance; the first five columns are with the kernels' order alone, the last five with the idle gaps too.",
    ),
    "semireal": (
        "Real iterations repeated with noise",
        "One iteration of a real trace, repeated 3 to 40 times in each setting; columns as above.",
    ),
}


def scored_table(title: str, note: str, outcomes: Sequence[Outcome]) -> Table:
    """Return one row per scenario, both looks side by side."""
    columns: dict[str, Better] = {"case": "key", **SCORED, **{f"{name}, gaps": b for name, b in SCORED.items()}}
    rows = []
    for name in dict.fromkeys(o.row for o in outcomes):
        halves = [figures([o for o in outcomes if (o.row, o.look) == (name, look)]) for look in LOOKS]
        rows.append([name, *halves[0], *halves[1]])
    return Table(title, note, columns, rows)


def figures(outcomes: Sequence[Outcome]) -> list[str]:
    """Return the cells of some outcomes' mean."""
    total = mean([o.score for o in outcomes])
    sure = sum(o.confidence for o in outcomes) / max(1, len(outcomes))
    return [f"{x:.2f}" for x in (total.period, total.count, total.rotated, total.phase, sure)]


def block_table(block: str, outcomes: Sequence[Outcome]) -> Table:
    """Return one row per examine a block of random jobs."""
    columns: dict[str, Better] = {"look": "key", "jobs": "same", "loops": "any", "period": "more", "count": "more"}
    columns |= {"F1": "more", f"F1 ≥ {RIGHT}": "more", "phase": "more", "right": "more", "fully right": "more"}
    note = (
        f"{len(draws.BLOCKS[block])} jobs of all kinds, seeds {draws.BLOCKS[block][0]} to {draws.BLOCKS[block][-1]}: "
        "means and shares of all jobs, those without a loop found as 0."
    )
    rows = [[look, *block_figures([o for o in outcomes if o.look == look])] for look in LOOKS]
    return Table(JOBS[block].capitalize(), note, columns, rows)


def block_figures(outcomes: Sequence[Outcome]) -> list[str]:
    """Return the cells of one look at a block."""
    total = mean([o.score for o in outcomes])
    near = sum(o.score.rotated >= RIGHT for o in outcomes) / max(1, len(outcomes))
    shares = [total.period, total.count, total.rotated, near, total.phase, total.right, total.fully]
    return [str(len(outcomes)), str(sum(bool(o.periods) for o in outcomes)), *(f"{x:.3f}" for x in shares)]


def negatives_table(outcomes: Sequence[Outcome]) -> Table:
    """Return one row per kind of sequence that has no loop."""
    columns: dict[str, Better] = {"kind": "key", "sequences": "same", "loops found": "fewer"}
    kinds = {name: [o for o in outcomes if o.row == name] for name in dict.fromkeys(o.row for o in outcomes)} | {
        "all": list(outcomes)
    }
    rows = [[name, str(len(some)), str(sum(bool(o.periods) for o in some))] for name, some in kinds.items()]
    return Table("Sequences without a loop", "Every loop found here is a mistake.", columns, rows)


def plain_tables(outcomes: Sequence[Outcome]) -> list[Table]:
    """Return how many of the true loops are refused, by kind, and how many loops are found in single passes."""
    columns: dict[str, Better] = {"kind": "key", "jobs": "same", "refused": "fewer", "period": "more"}
    kinds = {name: [o for o in outcomes if o.row == name] for name in dict.fromkeys(o.row for o in outcomes)}
    loops = {name: some for name, some in kinds.items() if some[0].wanted}
    passes = {name: some for name, some in kinds.items() if name not in loops}
    loops["all"] = [o for some in loops.values() for o in some]
    rows = [
        [name, str(len(some)), str(sum(not o.periods for o in some)), f"{mean([o.score for o in some]).period:.3f}"]
        for name, some in loops.items()
    ]
    false = negatives_table([o for some in passes.values() for o in some])
    return [Table(*REFUSED, columns, rows), replace(false, title="Single passes with times", note=SINGLE)]


REFUSED = (
    "True loops refused",
    "Loops without inner loops, and training jobs of all kinds, with the times of their kernels and, where they have\n"
    "some, copies from the host and waits in each iteration. `period` is the share with a right one.",
)
SINGLE = (
    "Forward passes and training steps with the same evidence. Every loop found here is a mistake.\n"
    "None has a layer that the host waits for: this alone, without a range, would be a loop."
)


def real_tables(rows: Sequence[real.Row]) -> list[Table]:
    """Return the table of real traces, and the summary that a reader searches for first."""
    columns: dict[str, Better] = {"trace": "key", "kernels": "same", "markers": "same", "look": "key"}
    columns |= {"period": "same", "iterations": "about", "F1": "more", "confidence": "any"}
    note = (
        "Each trace is looked at three times: with the framework's own ranges and the launches, with launches only,\n"
        "and with nothing but the order of the kernels. `markers` are the user's step markers, hidden from the miner;\n"
        "`F1` compares the iterations' first kernels with them, within 1 % of the period. `-`: no loop, or no markers."
    )
    summary: dict[str, Better] = {"look": "key", "traces": "same", "right": "more"}
    return [
        Table("Real traces", note, columns, [real_cells(row) for row in rows]),
        Table(
            "Real traces with three markers or more",
            f"`right` are those with F1 ≥ {RIGHT}.",
            summary,
            [real_summary(look, rows) for look in real.LOOKS],
        ),
    ]


def real_cells(row: real.Row) -> list[str]:
    """Return a row's cells."""
    f1 = "-" if row.f1 is None else f"{row.f1:.2f}"
    found = [str(row.period) if row.period else "-", str(row.iterations), f1, f"{row.confidence:.2f}"]
    return [row.trace, str(row.kernels), str(row.markers), row.look, *found]


def real_summary(look: str, rows: Sequence[real.Row]) -> list[str]:
    """Return how many traces a look gets right."""
    scored = [r.f1 for r in rows if r.look == look and r.f1 is not None and r.markers >= real.MIN_MARKERS]
    return [look, str(len(scored)), str(sum(f1 >= RIGHT for f1 in scored))]
