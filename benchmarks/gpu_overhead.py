"""What collecting costs on an NVIDIA GPU, and whether it sees everything: one call that builds, checks and measures.

    python -m benchmarks.gpu_overhead

needs a GPU, a torch with CUDA, numpy and a C compiler, nothing installed of this project. Three loops (tiny kernels,
large matrix products, a CUDA graph) run in processes of their own under nothing, under the injected library switched
off and on, and under torch.profiler, one after the other and again: a figure is the median over the rounds of the
ratio to "nothing" in the same round. The checks compare record for record with torch.profiler. Exits 0 where all
checks and goals are met, 1 where not, 2 where there is no GPU. `--mock` tries it out on a stand-in.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.gpu.reader import Reader, Session
from deepprof.collectors.live.packets import Level

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ROOT / "collectors/live/inject"
MODES = ("nothing", "off", "deepprof", "torch")
LOOPS = ("launch", "compute", "graph")
TITLES = {"launch": "launch-bound", "compute": "compute-bound", "graph": "CUDA graph"}
GOALS = {"launch": 0.03, "compute": 0.01, "graph": 0.03}  # of the time; the host has less to spare where it is late
ITERATIONS = {"launch": 300, "compute": 150, "graph": 1000}
CHECK_ITERATIONS = 50
TIMEOUT_S = 300


@dataclass(frozen=True)
class Plan:
    """How the loops are run."""

    folder: Path
    library: Path
    cupti: Path | None = None  # the stand-in's
    rounds: int = 5
    repeats: int = 7
    mock: str = ""
    graphs: str = "nodes"
    iterations: dict[str, int] = field(default_factory=lambda: dict(ITERATIONS))
    goals: dict[str, float] = field(default_factory=lambda: dict(GOALS))


@dataclass
class Outcome:
    """What came out: lines for people, and whether all of it was good."""

    lines: list[str] = field(default_factory=list)
    good: bool = True

    def add(self, ok: bool, text: str) -> None:
        self.lines.append(f"{'✓' if ok else '✗'} {text}")
        self.good &= ok


class Failed(Exception):  # noqa: N818
    """A loop did not run."""


def find_gpu() -> str | None:
    """Return why there is no GPU to measure on, or None."""
    try:
        import torch
    except ImportError:
        return "torch is not installed"
    if not torch.cuda.is_available():
        return f"torch {torch.__version__} sees no NVIDIA GPU"
    return None if torch.version.hip is None else "this torch is AMD's; the injected library is for NVIDIA"


def build(folder: Path) -> Path:
    """Compile the injected library as the package does; raises `Failed`."""
    return compile_library(sorted(SOURCES.glob("*.c")), folder / "libdeepprof_inject.so", "-fvisibility=hidden")


def compile_library(sources: list[Path], library: Path, *flags: str) -> Path:
    """Compile `sources`; raises `Failed`."""
    compiler = shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc")
    if compiler is None:
        raise Failed("no C compiler")
    command = [compiler, "-O3", "-std=c11", "-fPIC", "-shared", "-pthread", *flags, *map(str, sources)]
    command += ["-Wl,-z,nodelete", "-ldl", "-o", str(library)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failed(f"{library.name} does not compile: {done.stderr.strip().splitlines()[-1]}")
    return library


def environment(plan: Plan, mode: str, socket: Path) -> dict[str, str]:
    """Return the environment of a process that runs loops."""
    ours = ("DEEPPROF_", "CUDA_INJECTION", "NVTX_INJECTION", "INTEL_LIBITT", "KINETO_")
    variables = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    variables["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), variables.get("PYTHONPATH")]))
    if mode in ("off", "deepprof", "both"):
        variables |= {"DEEPPROF_SOCKET": str(socket), "DEEPPROF_GRAPHS": plan.graphs}
        variables |= {"CUDA_INJECTION64_PATH": str(plan.library)}
        variables |= {"DEEPPROF_CUPTI": str(plan.cupti)} if plan.cupti is not None else {}
    return variables


def run(plan: Plan, mode: str, loops: dict[str, int], repeats: int = 1, *, keep: bool = False) -> tuple[Any, Session]:
    """Run `loops` in a process under `mode`, and return what it printed and what it sent; raises `Failed`."""
    socket = plan.folder / "a.sock"
    socket.unlink(missing_ok=True)
    command = [sys.executable, "-m", "benchmarks.gpu.loops", mode, "--repeats", str(repeats)]
    command += [f"{loop}={count}" for loop, count in loops.items()]
    command += ["--mock", plan.mock] if plan.mock else []
    with ExitStack() as stack:
        level = Level.OFF if mode == "off" else Level.ON
        reader = stack.enter_context(Reader(socket, level, keep=keep)) if mode not in ("nothing", "torch") else None
        done = subprocess.run(
            command,
            env=environment(plan, mode, socket),
            cwd=plan.folder,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        raise Failed(f"{' '.join(command[2:])}: {(done.stderr.strip() or 'nothing was printed').splitlines()[-1]}")
    return json.loads(lines[-1]), reader.main if reader is not None else Session()


def check_counts(plan: Plan, outcome: Outcome) -> None:
    """Compare the records of all loops with torch.profiler's of the same loops in a process of its own."""
    loops = dict.fromkeys(LOOPS, CHECK_ITERATIONS)
    seen = run(plan, "torch", loops)[0]["loops"]
    printed, session = run(plan, "deepprof", loops, keep=True)
    for loop in LOOPS:
        expected = Counter({(activity, name): count for activity, name, count in seen[loop]["counts"]})
        found = of_interest(session.count(*printed["loops"][loop]["window_ns"]))
        ok = found == expected and bool(expected)
        outcome.add(ok, f"{TITLES[loop]}: {summarize(found)}; {difference(expected, found)}")
    outcome.add(session.lost == 0 and session.ended, f"{session.records:,} records, {session.lost:,} lost")


def summarize(counts: Counter[tuple[str, str]]) -> str:
    """Return counts by kind in words."""
    by_kind = Counter[str]()
    for (activity, _), count in counts.items():
        by_kind[activity] += count
    return ", ".join(f"{count:,} of {activity}" for activity, count in sorted(by_kind.items())) or "nothing"


def of_interest(counts: Counter[tuple[str, str]]) -> Counter[tuple[str, str]]:
    """Return the kinds that torch.profiler records too."""
    return Counter({key: count for key, count in counts.items() if key[0] in ("kernel", "memcpy", "memset")})


def difference(expected: Counter[tuple[str, str]], found: Counter[tuple[str, str]]) -> str:
    """Return in words how two counts differ."""
    if expected == found:
        return f"as torch.profiler has them, {len(found)} names" if expected else "torch.profiler has none"
    apart = sorted({*expected, *found}, key=lambda key: -abs(expected[key] - found[key]))
    return "; ".join(f"{key[1][:60]}: {found[key]:,}, torch.profiler {expected[key]:,}" for key in apart[:3])


def check_graphs(plan: Plan, outcome: Outcome) -> None:
    """Count the launches of a graph where nodes are not wanted."""
    printed, session = run(replace(plan, graphs="launches"), "deepprof", {"graph": CHECK_ITERATIONS}, keep=True)
    counts = session.count(*printed["loops"]["graph"]["window_ns"])
    found = sum(count for (activity, _), count in counts.items() if activity == "graph")
    text = f"graphs by launch: {found:,} of {CHECK_ITERATIONS:,} launches"
    outcome.add(found == CHECK_ITERATIONS, text)


def check_coexistence(plan: Plan, outcome: Outcome) -> None:
    """Run torch.profiler in a job that is collected: the job must live, and one of the two must say so."""
    printed, session = run(plan, "both", {"launch": CHECK_ITERATIONS})
    seen = sum(count for *_, count in printed["loops"]["launch"]["counts"])
    said = session.notices[-1] if session.notices else ""
    text = f"beside torch.profiler, which saw {seen:,}: {said or 'not a word'}"
    outcome.add(bool(said), text)


def measure(plan: Plan) -> tuple[dict[str, dict[str, list[float]]], dict[str, str], int]:
    """Return seconds of each loop under each mode, one median a round; the device; and records lost."""
    seconds: dict[str, dict[str, list[float]]] = {loop: {mode: [] for mode in MODES} for loop in LOOPS}
    device: dict[str, str] = {}
    lost = 0
    for turn in range(plan.rounds):
        at = turn % len(MODES)
        for mode in MODES[at:] + MODES[:at]:  # none is always the first
            printed, session = run(plan, mode, plan.iterations, plan.repeats)
            for loop in LOOPS:
                seconds[loop][mode].append(median(printed["loops"][loop]["seconds"]))
            device, lost = printed["device"], lost + session.lost
    return seconds, device, lost


def overhead(seconds: dict[str, list[float]], mode: str) -> list[float]:
    """Return what `mode` cost in each round, as a share of the time."""
    return [taken / bare - 1 for taken, bare in zip(seconds[mode], seconds["nothing"], strict=True)]


def tabulate(seconds: dict[str, dict[str, list[float]]], plan: Plan, outcome: Outcome) -> None:
    """Add the table, and hold it against the goals."""
    heads = ("nothing", "deepprof, off", "deepprof", "torch.profiler")
    outcome.lines.append(f"{'loop':<14} {'µs/iteration':>13} " + " ".join(f"{head:>22}" for head in heads[1:]))
    for loop in LOOPS:
        each_us = median(seconds[loop]["nothing"]) / plan.iterations[loop] * 1e6
        cells = [percent(overhead(seconds[loop], mode)) for mode in MODES[1:]]
        outcome.lines.append(f"{TITLES[loop]:<14} {each_us:>13,.1f} " + " ".join(f"{cell:>22}" for cell in cells))
    for loop in LOOPS:
        cost = median(overhead(seconds[loop], "deepprof"))
        outcome.add(cost <= plan.goals[loop], f"{TITLES[loop]}: {cost:+.2%}, goal {plan.goals[loop]:.0%} at most")


def percent(costs: list[float]) -> str:
    """Return a median and how far the rounds lie apart."""
    return f"{median(costs):+.2%} ({min(costs):+.1%}…{max(costs):+.1%})"


def check(plan: Plan) -> Outcome:
    """Return whether everything is seen."""
    outcome = Outcome()
    check_counts(plan, outcome)
    check_graphs(plan, outcome)
    check_coexistence(plan, outcome)
    return outcome


def compare(plan: Plan) -> Outcome:
    """Return what it costs."""
    outcome = Outcome()
    seconds, device, lost = measure(plan)
    described = ", ".join(f"{name} {value}" for name, value in device.items())
    outcome.lines.append(f"{described}; {plan.rounds} rounds of {plan.repeats} repetitions")
    tabulate(seconds, plan, outcome)
    outcome.add(lost == 0, f"{lost:,} records lost")
    return outcome


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--checks-only", action="store_true", help="measure nothing")
    parser.add_argument("--mock", nargs="?", const="plain", default="", choices=["plain", "lossy", "quiet"])
    options = parser.parse_args(arguments)
    if not options.mock and (problem := find_gpu()) is not None:
        print(f"not measured: {problem}")
        return 2
    with tempfile.TemporaryDirectory(prefix="deepprof-gpu-") as folder:
        try:
            plan = make_plan(Path(folder), options)
            parts = [check] if options.checks_only else [check, compare]
            outcomes = [show(part(plan)) for part in parts]
        except (Failed, subprocess.TimeoutExpired) as error:
            print(f"✗ {error}")
            return 1
    return 0 if all(outcome.good for outcome in outcomes) else 1


def make_plan(folder: Path, options: argparse.Namespace) -> Plan:
    """Return what to run; a stand-in's times mean nothing, so that no goal is set for them."""
    plan = Plan(folder, build(folder), None, options.rounds, options.repeats)
    if not options.mock:
        return plan
    few, any_cost = dict.fromkeys(LOOPS, 10), dict.fromkeys(LOOPS, float("inf"))
    return replace(plan, cupti=build_mock(folder), mock=options.mock, iterations=few, goals=any_cost)


def build_mock(folder: Path) -> Path:
    """Compile the tests' mock of CUPTI."""
    mock = [ROOT / "tests/collectors/live/mock_cupti.c"]
    return compile_library(mock, folder / "libcupti_mock.so", "-Wl,-soname,libcuda.so.1")  # it is the driver too


def show(outcome: Outcome) -> Outcome:
    """Print it as soon as it is known."""
    print("\n".join(outcome.lines), flush=True)
    return outcome


if __name__ == "__main__":
    sys.exit(main())
