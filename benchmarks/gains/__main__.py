"""`python -m benchmarks.gains`: the most that findings promise, and what the advised changes gain."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import deepprof
from benchmarks.gains.pairs import PAIRS, UNMEASURED
from benchmarks.gains.processor import measure_peaks
from benchmarks.gains.table import PairResult, draw_results
from deepprof.metrics.cost.roofs import DevicePeaks

ROOT = Path(__file__).resolve().parents[2]
RECORDINGS = 5  # of every program before its change
SECONDS = 8.0  # of the processor, for timing a pair
DEADLINE_S = 1200
# Freed memory is kept, as a device's caching allocator does: else glibc returns large blocks in every iteration, and
# whoever allocates next waits for the kernel to clear pages.
ALLOCATOR = {"MALLOC_MMAP_THRESHOLD_": str(1 << 30), "MALLOC_TRIM_THRESHOLD_": str(1 << 40), "OMP_NUM_THREADS": "1"}
EXPLAINED = """\
# Bounds and gains

Written by `make gains`, in some minutes. A finding on what a device computes states what an iteration could save at
most. Here it is compared with what is saved: small PyTorch programs with a known mistake run on this machine's CPU, on
one thread, before and after the change that the finding advises, an iteration of one and an iteration of the other in
turn, by the processor's time. The program before the change is then recorded with torch.profiler and analysed with the
peaks of this processor ({peaks}).{first}

The bound is that of the rule alone: where several findings claim the same time, the report divides it among them. On a
CPU operators take the place of kernels ([diagnosis.md](../diagnosis.md)); what only a GPU shows is not measured here.
"""
FIRST = """ While they run, no other process gets
their core (`--first`): preemption lengthens some operators and not others."""


def main() -> None:
    """Measure all pairs, or those that are named, and print the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gains", description=__doc__)
    parser.add_argument("--pair", action="append", choices=PAIRS, help="this pair only; may be repeated")
    parser.add_argument("--traces", type=Path, help="keep the traces in this folder")
    parser.add_argument("--first", action="store_true", help="run the programs before all other processes, as root")
    given = parser.parse_args()
    peaks = measure_peaks()
    with tempfile.TemporaryDirectory() as scratch:
        folder = given.traces or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        results = {name: _measure(name, peaks, folder, first=given.first) for name in given.pair or PAIRS}
    sys.stdout.write(EXPLAINED.format(peaks=_describe(peaks), first=FIRST if given.first else "") + "\n")
    sys.stdout.write(draw_results(results, UNMEASURED).markdown())


def _measure(name: str, peaks: DevicePeaks, folder: Path, *, first: bool) -> PairResult:
    """Run a pair in its own process, and analyse what it recorded."""
    traces = [folder / f"{name}-{number}.json" for number in range(RECORDINGS)]
    command = [sys.executable, "-m", "benchmarks.gains.measuring", name, *map(str, traces), "--seconds", str(SECONDS)]
    command += ["--first"] * first
    ran = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **ALLOCATOR}, check=True, capture_output=True, timeout=DEADLINE_S
    )
    times = json.loads(ran.stdout.splitlines()[-1])
    bounds = [find_bound(trace, PAIRS[name].rule, peaks) for trace in traces]
    return PairResult(PAIRS[name], bounds, times["before_ns"], times["after_ns"])


def find_bound(trace: Path, rule: str, peaks: DevicePeaks) -> float | None:
    """Return what the finding of a rule claims of a mean iteration before claims are divided; None without it."""
    found = deepprof.analyze(deepprof.read(trace), peaks=peaks)
    evidence = [finding.evidence for finding in found.findings if finding.rule == rule]
    return max((float(each["share_ratio"] or 0) for each in evidence), default=None)


def _describe(peaks: DevicePeaks) -> str:
    """Return the processor's name and the rates of products that were measured."""
    rates = {**peaks.vector_flops_per_s, **peaks.matrix_flops_per_s}
    return ", ".join([peaks.name, *(f"{dtype} {rate / 1e9:.0f} GFLOP/s" for dtype, rate in rates.items())])


if __name__ == "__main__":
    main()
