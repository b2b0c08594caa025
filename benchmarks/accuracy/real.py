"""Real traces, scored against the annotations that were hidden from the miner.

Three ways to examine every trace: with the framework's own ranges and the launches (the user's annotations hidden),
with launches only (all ranges hidden), and with nothing but the order of the kernels.
"""

from __future__ import annotations

import csv
import os
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import deepprof
from benchmarks.accuracy.workers import each
from deepprof.collectors.trace import Trace
from deepprof.metrics.evidence import gather_evidence
from deepprof.metrics.mined import agreement_with, mine
from deepprof.metrics.sequence import Sequence, main_sequence
from deepprof.metrics.streams import classify_streams
from deepprof.mining import Evidence

TRACES = Path(os.environ.get("DEEPPROF_TRACES", Path(__file__).resolve().parents[2] / "../shared/traces"))
FORMATS = ("kineto-json", "nsys-sqlite")
HIDDEN = {"framework ranges": ("step", "range"), "launches": ("step", "range", "framework", "loop")}
LOOKS = (*HIDDEN, "kernels")
MIN_MARKERS = 3  # markers, for a trace to count in the summary


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


def files(traces: Path = TRACES) -> list[str]:
    """Return the traces that can be read, relative to their directory."""
    with (traces / "manifest.csv").open(newline="") as lines:
        return [row["file"] for row in csv.DictReader(lines) if row["format"] in FORMATS]


def rows(traces: Path = TRACES, workers: int = 0) -> list[Row]:
    """Return three rows per readable trace with kernels."""
    found = each(partial(look_at, traces), files(traces), workers)
    return [row for some in found for row in some]


def look_at(traces: Path, file: str) -> list[Row]:
    """Return the rows of one trace."""
    trace = deepprof.read(traces / file)
    name = Path(file).parent.name
    return [
        look(name, trace, sequence, how, evidence)
        for sequence in main_sequences(trace)
        for how, evidence in looks(gather_evidence(trace, sequence)).items()
    ]


def main_sequences(trace: Trace) -> list[Sequence]:
    """Return the main stream of every device."""
    main = classify_streams(trace).filter(role="main").select("device", "stream").rows()
    return [main_sequence(trace, device, stream) for device, stream in main]


def looks(known: Evidence) -> dict[str, Evidence]:
    """Return the evidence of every look."""
    return {look: hide(known, trusts) for look, trusts in HIDDEN.items()} | {"kernels": Evidence()}


def look(name: str, trace: Trace, sequence: Sequence, how: str, evidence: Evidence) -> Row:
    """Return what one look at one stream found."""
    steps = [f for f in gather_evidence(trace, sequence).families if f.trust == "step"][:1]
    loop = mine(trace, sequence, evidence).loop
    markers = len(steps[0].positions) if steps else 0
    return Row(
        trace=name,
        kernels=len(sequence.symbols),
        markers=markers,
        look=how,
        period=loop.period if loop else None,
        iterations=int(loop.iterations.complete.sum()) if loop else 0,
        f1=agreement_with(steps[0], loop.iterations, loop.period).ratio if loop and markers > 1 else None,
        confidence=loop.confidence if loop else 0.0,
    )


def hide(evidence: Evidence, trusts: tuple[str, ...]) -> Evidence:
    """Return the evidence without the host ranges of the given trusts."""
    return replace(evidence, families=tuple(f for f in evidence.families if f.trust not in trusts))
