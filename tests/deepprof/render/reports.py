"""A job for every kind of text report, from the trace up, so that what a person reads is kept as a whole.

`python -m tests.deepprof.render.reports` writes the expected texts anew; every line that changes is to be read.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType

from msgspec.structs import replace
from rich.console import Console

import deepprof
from benchmarks.cases.defects import plan_masked_copies
from benchmarks.cases.played import Job, play
from deepprof.analysis import Analysis
from deepprof.collectors.trace import Trace
from deepprof.render.text import print_report
from deepprof.simulation import simulate, simulate_ranks, write
from tests.tables import Row, copy, event, launch, make_trace, span

__all__ = ["KINDS", "WIDTHS", "draw", "read_expected"]

WIDTHS = (40, 80, 120)
EXPECTED = Path(__file__).parent / "reports"
US = 1_000
COPY = "Memcpy HtoD (Pinned -> Device)"
LAUNCH, STEP = "cudaLaunchKernel", "ProfilerStep#7"
LAYERS = (
    "ampere_sgemm_128x64_tn",
    "void at::native::vectorized_elementwise_kernel<4, Relu>(int)",
    "softmax_warp_forward",
)
PAUSE, PAUSES, SHORT = 1_500 * US, (0, 24), 12
BACKWARD = "autograd::engine::evaluate_function: "


def draw(kind: str, width: int) -> str:
    """Return the report on the job of one kind on a page of `width` columns."""
    text = io.StringIO()
    print_report(analyze_kind(kind), Console(file=text, width=width, color_system=None))
    return text.getvalue()


@cache
def analyze_kind(kind: str) -> Analysis:
    """Return the analysis of the job of one kind, which is the same on every page."""
    return deepprof.analyze(KINDS[kind]())


def read_simulated(scenario: str, **options: object) -> list[Trace]:
    """Return the trace of a simulated job as its importer reads it."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "job.json"
        write(simulate(scenario, **options), path)  # type: ignore[arg-type]
        return [replace(deepprof.read(path), path="job.json")]


def read_ranks() -> list[Trace]:
    """Return the ranks of a simulated job, of which one is late."""
    with TemporaryDirectory() as folder:
        traces = []
        for rank, simulation in enumerate(simulate_ranks("straggler", ranks=3, iterations=8)):
            write(simulation, Path(folder) / "rank.json")
            traces.append(replace(deepprof.read(Path(folder) / "rank.json"), path=f"rank{rank}.json"))
        return traces


def play_kernels(
    names: Sequence[str], order: Sequence[int], annotations: Sequence[Row] = (), calls: Sequence[Row] = ()
) -> Trace:
    """Return a copy and then kernels of 40 to 55 µs, in a longer recording with a pause before kernels 0 and 24.

    `calls` are calls of the host besides the launches.
    """
    device, host, start = [copy(0, 30 * US, 1 << 16, correlation=0)], list(calls), 40 * US
    for at, kernel in enumerate(order):
        start += 60 * US + (PAUSE if kernel in PAUSES and len(order) > SHORT else 0)
        device.append(event(2 + kernel, start, start + (40 + kernel % 6 * 3) * US, correlation=at + 1))
        host.append(launch(at + 1, start - 20 * US, start - 15 * US, name=1))
    trace = make_trace(device, host, annotations, names=(COPY, LAUNCH, *names, STEP))
    return replace(trace, path="job.json", format="kineto")


def play_once() -> list[Trace]:
    """Return a recording in which nothing comes back."""
    return [play_kernels(LAYERS, (0, 1, 0, 2, 2, 1, 0, 0, 1, 2, 0, 2))]


def play_step() -> list[Trace]:
    """Return the same with a marker around most of it."""
    step = span(2 + len(LAYERS), 150 * US, 700 * US)
    return [play_kernels(LAYERS, (0, 1, 0, 2, 2, 1, 0, 0, 1, 2, 0, 2), [step])]


def play_inference() -> list[Trace]:
    """Return passes of a model, 24 kernels each."""
    return [play_kernels([f"layer_{number}" for number in range(24)], [*range(24)] * 10)]


def play_start() -> list[Trace]:
    """Return a recording in which nothing comes back, and whose first launch loads code for 5 ms."""
    loading = launch(0, -5_000 * US, -20 * US, name=1)
    return [play_kernels(LAYERS, (0, 1, 0, 2, 2, 1, 0, 0, 1, 2, 0, 2), calls=[loading])]


def play_benchmark() -> list[Trace]:
    """Return two kernels in the order of the Thue-Morse sequence, in which nothing comes three times in a row."""
    return [play_kernels(LAYERS[:2], [number.bit_count() % 2 for number in range(12)])]


def record_nothing() -> list[Trace]:
    """Return a recording without work of a device."""
    notes = ("holds no kernel: the host launched nothing; record with ProfilerActivity.CUDA",)
    return [replace(make_trace(), path="job.json", format="kineto", notes=notes)]


def play_two() -> list[Trace]:
    """Return a program that trains for a while and then evaluates, each with layers."""
    names = [f"train_{number}" for number in range(24)] + [f"evaluate_{number}" for number in range(12)]
    training = [0, *[1, 2, 3, 4, 5] * 12, *[6, 7, 8, 9, 10, 11] * 12, *range(12, 24)]
    evaluation = [24, *[25, 26, 27, 28, 29, 30] * 18, *range(31, 36)]
    return [play_kernels(names, training * 9 + evaluation * 12)]


def play_cpu() -> list[Trace]:
    """Return a program on the CPU that writes logs for 2 ms after each of its iterations."""
    names = ("aten::linear", "aten::relu", "aten::cross_entropy", f"{BACKWARD}AddmmBackward0", "aten::add_", "SGD.step")
    order = (0, 1, 0, 1, 0, 2, 3, 3, 3, 4, 4, 4, 4)
    rows: list[Row] = []
    for iteration in range(12):
        for at, name in enumerate(order):
            start = (iteration * 4_000 + at * 150) * US
            row = launch(0, start, start + (60 + 15 * name) * US, name) | {"correlation": None, "category": "op"}
            rows.append(row | {"thread": 30_796})
    notes = ("holds no kernel: recorded on the CPU only",)
    return [replace(make_trace(host=rows, names=names), path="job.json", format="kineto", notes=notes)]


def play_masked() -> list[Trace]:
    """Return a job whose copies hide that the host launches late, so that neither alone costs anything."""
    return [replace(play(Job(plan_masked_copies, 12, 501)), path="job.json")]


KINDS: Mapping[str, Callable[[], list[Trace]]] = MappingProxyType(
    {
        "training-loop": lambda: read_simulated("copy-bound", iterations=12),
        "loop": play_inference,
        "marked-step": play_step,
        "start-up": play_start,
        "benchmark": play_benchmark,
        "recording": play_once,
        "cpu-only": play_cpu,
        "several-ranks": read_ranks,
        "no-work": record_nothing,
        "two-loops": play_two,
        "masked-copies": play_masked,
    }
)


def read_expected(kind: str, width: int) -> str:
    """Return the text that `draw` is expected to return."""
    return find_expected(kind, width).read_text()


def find_expected(kind: str, width: int) -> Path:
    """Return the file that contains it."""
    return EXPECTED / f"{kind}-{width}.txt"


if __name__ == "__main__":
    EXPECTED.mkdir(exist_ok=True)
    for each in KINDS:
        for columns in WIDTHS:
            find_expected(each, columns).write_text(draw(each, columns))
