"""Whether collecting on an NVIDIA GPU sees everything, harms no one, and what it costs: one call, one table.

    python -m benchmarks.gpu_overhead

needs a GPU, a torch with CUDA, numpy and a C compiler, nothing installed of this project. It builds the injected
library, runs programs under it as `deepprof run` would, and contains what they sent against torch.profiler and against
what the programs wrote down themselves; then it measures the overhead in what is left of `--budget` seconds. Progress
goes to stderr, the table to stdout, also where a check crashed or time ran out. Exits 0 where all checks ran and none
failed, 2 where there is no GPU, else 1. `--mock KIND` tries all of it out on a stand-in, which has one fault of a kind.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from benchmarks.gpu.coexistence import check_coexistence, check_without_hook
from benchmarks.gpu.contexts import check_contexts
from benchmarks.gpu.cost import check_cost
from benchmarks.gpu.counting import check_counts
from benchmarks.gpu.devices import find_gpu
from benchmarks.gpu.graphs import check_launches, check_replays, check_windows
from benchmarks.gpu.mock import KINDS
from benchmarks.gpu.no_device import check_no_device
from benchmarks.gpu.programs import LOOPS, OutOfTime, Plan, build, build_calls, build_mock
from benchmarks.gpu.rows import Row, Verdict, draw_table
from benchmarks.gpu.sharing import check_sharing

Check = Callable[[Plan], Iterator[Row]]
CHECKS: dict[str, Check] = {  # what measures as long as it may is the last
    "counts": check_counts,
    "launches": check_launches,
    "coexistence": check_coexistence,
    "without-hook": check_without_hook,
    "windows": check_windows,
    "no-device": check_no_device,
    "sharing": check_sharing,
    "replays": check_replays,
    "contexts": check_contexts,
    "cost": check_cost,
}
LEAST_S = 20.0  # that a check needs
BUDGET_S = 540.0
MINUTES_S = 300.0


class Stopped(BaseException):
    """A signal asks us to end."""


def run_checks(plan: Plan, names: list[str], rows: list[Row]) -> None:
    """Run checks one after the other, and add their rows as they come; one that crashes is a row, too."""
    for name in names:
        if plan.left_s < LEAST_S:
            rows.append(Row(name, f"{max(plan.left_s, 0):.0f} s of the budget were left", Verdict.NOT_RUN))
            continue
        report_progress(f"{name} …")
        try:
            for row in CHECKS[name](plan):
                rows.append(row)
                report_progress(f"  {row.verdict}: {row.check}: {row.figure}")
        except OutOfTime as error:
            rows.append(Row(name, str(error), Verdict.NOT_RUN))
        except Exception as error:  # a check that crashes must not take the others with it
            rows.append(Row(name, f"{type(error).__name__}: {error}", Verdict.FAILED, "a crash of the check itself"))
            report_progress(f"  crashed: {rows[-1].figure}")


BEGAN_S = time.monotonic()


def report_progress(text: str) -> None:
    """Say on stderr how far we are."""
    print(f"{time.monotonic() - BEGAN_S:6.1f} s  {text}", file=sys.stderr, flush=True)


def stop(*_: object) -> None:
    raise Stopped


def main(arguments: list[str] | None = None) -> int:
    options = read_options(arguments)
    until_s = time.monotonic() + options.budget
    if not options.mock and (problem := find_gpu()) is not None:
        print(f"not measured: {problem}")
        return 2
    before = signal.signal(signal.SIGTERM, stop)
    names, rows = options.only or list(CHECKS), list[Row]()
    try:
        with tempfile.TemporaryDirectory(prefix="deepprof-gpu-") as folder:
            run_checks(replace(make_plan(Path(folder), options), until_s=until_s), names, rows)
    except (Stopped, KeyboardInterrupt):
        rows.append(Row("the rest", "it was stopped", Verdict.NOT_RUN))
    except Exception as error:  # nothing can be built, or written
        rows.append(Row("all checks", f"{type(error).__name__}: {error}", Verdict.FAILED))
    finally:
        signal.signal(signal.SIGTERM, before)
    print(draw_table(rows), flush=True)
    return 1 if any(row.verdict in (Verdict.FAILED, Verdict.NOT_RUN) for row in rows) else 0


def read_options(arguments: list[str] | None) -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(CHECKS), metavar="CHECK", help=f"of {', '.join(CHECKS)}")
    parser.add_argument("--rounds", type=int, default=9, help="of the overhead, at most")
    parser.add_argument("--repeats", type=int, default=3, help="of a loop in a turn")
    parser.add_argument("--budget", type=float, metavar="S", default=BUDGET_S, help="for all of it")
    parser.add_argument("--graph-records", type=float, metavar="M", default=30.0, help="million, of graph kernels")
    parser.add_argument("--graph-seconds", type=float, metavar="S", default=110.0, help="for them, at most")
    parser.add_argument("--set", nargs="+", default=[], metavar="NAME=VALUE", help="variables of what is collected")
    parser.add_argument("--calls", type=Path, metavar="FILE", help="write down who calls CUPTI, and its answers")
    parser.add_argument("--mock", nargs="?", const="plain", default="", choices=list(KINDS), metavar="KIND")
    return parser.parse_args(arguments)


def make_plan(folder: Path, options: argparse.Namespace) -> Plan:
    """Return what to run. Raises `Failed` where the library does not compile."""
    variables = dict(pair.split("=", 1) for pair in options.set)
    if options.calls is not None:
        variables["CUPTI_CALLS"] = str(options.calls.resolve())
    plan = Plan(
        folder,
        build(folder),
        mock=options.mock,
        variables=variables,
        calls=build_calls(folder) if options.calls is not None and not options.mock else None,
        rounds=options.rounds,
        repeats=options.repeats,
        graph_records=int(options.graph_records * 1e6),
        graph_s=options.graph_seconds,
    )
    return shrink(plan, build_mock(folder)) if options.mock else plan


def shrink(plan: Plan, cupti: Path) -> Plan:
    """Return a plan for the stand-in: its times mean nothing, so that a goal is only set where they are its fault.

    Nothing is about this machine's speed, so that everything has minutes.
    """
    few, goals = dict.fromkeys(LOOPS, 10), dict.fromkeys(LOOPS, 0.5 if plan.mock == "slow" else float("inf"))
    plan = replace(plan, cupti=cupti, iterations=few, goals=goals, checks=8, rounds=min(plan.rounds, 1), repeats=2)
    plan = replace(plan, graph_records=2000, share_s=0.5, shares=(0.25, 1.0), retry_ms=50)
    return replace(plan, graph_s=MINUTES_S, hidden_s=MINUTES_S, patience_s=MINUTES_S, timeout_s=4 * MINUTES_S)


if __name__ == "__main__":
    sys.exit(main())
