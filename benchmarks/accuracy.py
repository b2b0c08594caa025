"""`make accuracy`: iterations found on real traces, scored against the annotations that were hidden from the miner.

Three ways to look at each trace: with the framework's own ranges and the launches (the user's annotations hidden),
with launches only (all ranges hidden), and with nothing but the order of the kernels. `F1` compares the first kernels
of the iterations with those launched after each of the user's step markers, within 1 % of the period.
The table is committed as `docs/accuracy.md`; a test fails when a row gets worse.
"""

from __future__ import annotations

import csv
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import deepprof
from deepprof.metrics.evidence import gather_evidence
from deepprof.metrics.mined import agreement_with, mine
from deepprof.metrics.sequence import main_sequence
from deepprof.metrics.streams import classify_streams
from deepprof.mining import Evidence

TRACES = Path(os.environ.get("DEEPPROF_TRACES", Path(__file__).resolve().parents[1] / "../shared/traces"))
FORMATS = ("kineto-json", "nsys-sqlite")
HIDDEN = {"framework ranges": ("step", "range"), "launches": ("step", "range", "framework", "loop")}
EXPLAINED = """\
# Iterations found on real traces, without the user's annotations

Written by `make accuracy`. Each trace is looked at three times: with the framework's own ranges and the launches, with
launches only, and with nothing but the order of the kernels. `markers` are the user's step markers, hidden from the
miner; `F1` compares the iterations' first kernels with them, within 1 % of the period. A period of `-` means that no
loop was found.
"""
HEADER = ["trace", "kernels", "markers", "look", "period", "iterations", "F1", "confidence"]


@dataclass(frozen=True)
class Row:
    """What one look at one trace found; `f1` is None without markers to compare with."""

    trace: str
    kernels: int
    markers: int
    look: str
    period: int | None
    iterations: int
    f1: float | None
    confidence: float

    def cells(self) -> list[str]:
        f1 = "-" if self.f1 is None else f"{self.f1:.2f}"
        period = str(self.period) if self.period else "-"
        found = [period, str(self.iterations), f1, f"{self.confidence:.2f}"]
        return [self.trace, str(self.kernels), str(self.markers), self.look, *found]


def rows(traces: Path = TRACES) -> Iterator[Row]:
    """Yield three rows per readable trace with kernels."""
    with (traces / "manifest.csv").open(newline="") as lines:
        files = [row["file"] for row in csv.DictReader(lines) if row["format"] in FORMATS]
    for file in files:
        yield from look_at(traces / file)


def look_at(path: Path) -> Iterator[Row]:
    """Yield the rows of one trace."""
    trace = deepprof.read(path)
    main = classify_streams(trace).filter(role="main").select("device", "stream").rows()
    for device, stream in main:
        sequence = main_sequence(trace, device, stream)
        known = gather_evidence(trace, sequence)
        steps = [f for f in known.families if f.trust == "step"][:1]
        looks = {look: hide(known, trusts) for look, trusts in HIDDEN.items()} | {"kernels": Evidence()}
        for look, evidence in looks.items():
            loop = mine(trace, sequence, evidence).loop
            yield Row(
                trace=path.parent.name,
                kernels=len(sequence.symbols),
                markers=len(steps[0].positions) if steps else 0,
                look=look,
                period=loop.period if loop else None,
                iterations=int(loop.iterations.complete.sum()) if loop else 0,
                f1=agreement_with(steps[0], loop.iterations, loop.period).ratio
                if steps and loop and len(steps[0].positions) > 1
                else None,
                confidence=loop.confidence if loop else 0.0,
            )


def hide(evidence: Evidence, trusts: tuple[str, ...]) -> Evidence:
    """Return the evidence without the host ranges of the given trusts."""
    return replace(evidence, families=tuple(f for f in evidence.families if f.trust not in trusts))


def markdown(found: list[Row]) -> str:
    """Return the rows as a table, with the summary line that a reader looks for first."""
    lines = [EXPLAINED]
    lines += ["| " + " | ".join(HEADER) + " |", "|" + " --- |" * len(HEADER)]
    lines += ["| " + " | ".join(row.cells()) + " |" for row in found]
    for look in (*HIDDEN, "kernels"):
        scored = [row.f1 for row in found if row.look == look and row.f1 is not None and row.markers >= 3]
        right = sum(f1 >= 0.9 for f1 in scored)
        lines.append(f"\nBoundaries right (F1 ≥ 0.9) with {look} alone: {right} of {len(scored)} traces with markers.")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(markdown(list(rows())))
