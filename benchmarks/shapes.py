"""What shapes cost: reading and diagnosing a generated Kineto file with the shapes of operators and without.

All runs are in one process, taken in turn, and each figure is the median of their CPU times, so that another job on the
machine changes all of them alike. `python -m benchmarks.shapes FILE …` measures other files the same way.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.table import Table

import deepprof
from benchmarks.importing import verdict
from deepprof.render.json import encode

if TYPE_CHECKING:
    from rich.console import Console

LAYERS, ITERATIONS = 24, 200
QUICK_ITERATIONS = 10
RUNS = 9
MOST = 1.15  # times the same without shapes
OPERATORS = ("aten::mm", "aten::addmm", "aten::gelu", "aten::add")  # of a layer
ROWS, COLUMNS, WIDTH, WIDER = 4096, 1024, 1024, 8  # of products; each operator's inner side is longer than the last
MARK_US, LAUNCH_US, GAP_US = 4_000, 6, 20
DEVICE = {"id": 0, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 85_000_000_000, "numSms": 132}


def run(console: Console, quick: bool = False) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "shapes.json"
        write_trace(path, QUICK_ITERATIONS if quick else ITERATIONS)
        compare(console, path, 1 if quick else RUNS, judged=not quick)


def write_trace(path: Path, iterations: int) -> None:
    """Write a Kineto file of a training loop, in which each operator has shapes, types, values and strides."""
    events = [event for number in range(iterations) for event in _list_iteration(number)]
    document = {"schemaVersion": 1, "deviceProperties": [DEVICE], "traceEvents": events}
    path.write_text(json.dumps(document))


def _list_iteration(number: int) -> Iterator[dict[str, Any]]:
    """Yield the events of one iteration: a marker, then operators with a launch and a kernel each."""
    begin = number * MARK_US
    for at in range(LAYERS * len(OPERATORS)):
        correlation = number * LAYERS * len(OPERATORS) + at + 1
        name, start = OPERATORS[at % len(OPERATORS)], begin + at * GAP_US
        operator = _write(name, "cpu_op", start, GAP_US - 2, {"External id": correlation, **_list_operands(at)})
        launch = _write("cudaLaunchKernel", "cuda_runtime", start + 1, LAUNCH_US, {"correlation": correlation})
        shape = {"grid": [32 + at, 1, 1], "block": [256, 1, 1], "registers per thread": 64, "shared memory": 4096}
        placed = {"device": 0, "context": 1, "stream": 7, "correlation": correlation, "External id": correlation}
        kernel = _write(f"{name[6:]}_kernel<{at}>", "kernel", start + 9, GAP_US - 5, {**placed, **shape})
        yield from (operator, launch, kernel | {"pid": 0, "tid": 7})


def _write(name: str, category: str, start_us: int, length_us: int, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return an event of the host's thread."""
    place = {"pid": 100, "tid": 100, "ts": start_us, "dur": length_us}
    return {"ph": "X", "cat": category, "name": name, **place, "args": {**arguments}}


def _list_operands(at: int) -> dict[str, Any]:
    """Return the operands of an operator, which differ from layer to layer."""
    inner = WIDTH + WIDER * at
    left, right = [ROWS, inner], [inner, COLUMNS]
    kinds = ([left, right], [[COLUMNS], left, right, [], []], [left, []], [left, left, []])
    sides = kinds[at % len(OPERATORS)]
    return {
        "Input Dims": sides,
        "Input type": ["float" if side else "Scalar" for side in sides],
        "Concrete Inputs": ["" if side else "1" for side in sides],
        "Input Strides": [[*side[1:], 1] if side else [] for side in sides],
    }


def measure(path: Path, runs: int) -> dict[tuple[str, bool], float]:
    """Return the median CPU seconds of reading and of a whole diagnosis, with shapes (True) and without."""
    times: dict[tuple[str, bool], list[float]] = {}
    for turn in range(runs + 1):  # the first one warms up
        for shapes in (True, False):
            for what, work in (("reading", _read), ("a whole diagnosis", _diagnose)):
                taken = _time(lambda work=work, shapes=shapes: work(path, shapes))  # type: ignore[misc]
                times.setdefault((what, shapes), []).extend([taken] if turn else [])
    return {key: median(taken) for key, taken in times.items()}


def _time(work: Callable[[], object]) -> float:
    """Return the CPU seconds that this process spends on it."""
    begin = time.process_time()
    work()
    return time.process_time() - begin


def _read(path: Path, shapes: bool) -> object:
    """Read the file."""
    return deepprof.read(path, shapes=shapes)


def _diagnose(path: Path, shapes: bool) -> object:
    """Read the file, analyse it and write the report."""
    return encode(deepprof.analyze(deepprof.read_job(path, shapes=shapes)))


def compare(console: Console, path: Path, runs: int, *, judged: bool) -> None:
    """Print one file's table; `judged` adds whether the goal is met."""
    found = measure(path, runs)
    operators = deepprof.read(path).operands.height
    table = Table(
        "what", "without, CPU s", "with shapes", "ratio", title=f"{escape(path.name)}: {operators:,} operators"
    )
    ratios = {}
    for what in dict.fromkeys(what for what, _ in found):
        with_them, without = found[what, True], found[what, False]
        ratios[what] = with_them / without
        table.add_row(what, f"{without:.3f}", f"{with_them:.3f}", f"{ratios[what]:.2f}")
    console.print(table)
    for what, ratio in ratios.items() if judged else ():
        goal = f"at most {MOST} times the same without shapes"
        console.print(verdict(f"{what} with shapes", ratio, goal, ratio <= MOST))


if __name__ == "__main__":
    from rich.console import Console

    for name in sys.argv[1:]:
        compare(Console(width=110), Path(name), RUNS, judged=True)
    if not sys.argv[1:]:
        run(Console(width=110))
