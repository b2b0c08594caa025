"""What holds while the daemon is killed, its disk fails and clients lie: a table, and exit 1 where anything was lost.

Each row is a daemon of its own with honest senders, first undisturbed, then disturbed; then all end, the store is
checked with `deepprof fsck`, the daemon is started again and asked for every record. What is done when follows from
the seed; what comes of it also from the machine. Times are told, never judged.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.chaos.scenarios import SCENARIOS
from benchmarks.chaos.table import make_table, tell_aim
from benchmarks.chaos.trial import Effort, Outcome, Scenario, attempt

SECONDS = 420.0
ABOUT = """\
Printed by `python -m benchmarks.chaos --seed {seed} --seconds {seconds:.0f}{only}` (`make chaos` takes {usual:.0f} s
of sending) in {took:.0f} s with starts and counts, on {cpus} CPU cores that others may have used too: of all
processes of the machine {loads} wanted one at the begin and the end (means of five minutes). Records carry numbers;
*lost* were acknowledged and are not in the store after `deepprof fsck` and a restart, *doubled* are there more than
once, *gone* are honest senders that gave up. Waits are from the client's `send` to the acknowledgement, of batches
sent undisturbed and disturbed in the same run; {dash} stands for fewer than a hundred, too few to tell.

Beside hostile clients the disturbed p99 is to be at most twice the quiet one; both are taken in turns of 1.5 s. In
this run {aim}.

The control's row has two processes that only burn processor time, at the low priority of the hostile ones, and do not
talk to the daemon: what a row has beyond that is the daemon's work for its clients, and the wait for a core that this
takes. Where others use the machine, the quiet waits are long as well, and ratios small: they say most where it is
idle. Processors are seconds of processor time a second. Whether the aim is met is told, not judged: exit 1 is for what
is lost, doubled, gone, or miscounted, an exit code that is not 0 after SIGTERM, and faults that no call has met."""


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0, help="of all dice (0)")
    parser.add_argument("--seconds", type=float, default=SECONDS, help=f"of sending, all rows together ({SECONDS:.0f})")
    parser.add_argument("--only", action="append", default=[], metavar="SCENARIO", help="these rows, by name or part")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the table there too, as Markdown")
    return parser.parse_args()


def choose(parts: list[str]) -> list[Scenario]:
    """Return the scenarios whose names have one of the parts, all without any."""
    return [each for each in SCENARIOS if not parts or any(part in each.name for part in parts)]


def play_all(scenarios: list[Scenario], each_s: float, seed: int) -> Iterator[Outcome]:
    """Yield the outcome of every scenario, and state meanwhile how far it is."""
    for scenario in scenarios:
        began = time.monotonic()
        outcome = attempt(scenario, Effort(each_s * scenario.weight, seed))
        took = time.monotonic() - began
        told = f"lost {outcome.count.lost}, doubled {outcome.count.doubled}, gone {outcome.gone}"
        told += "".join(f", {problem}" for problem in outcome.problems)
        print(f"{scenario.name}: {outcome.done}: {told} ({took:.0f} s)", file=sys.stderr, flush=True)
        yield outcome


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that what was started is ended
    given, began, load = read_arguments(), time.monotonic(), os.getloadavg()[1]
    scenarios = choose(given.only)
    each_s = given.seconds / max(1.0, sum(scenario.weight for scenario in scenarios))
    outcomes = list(play_all(scenarios, each_s, given.seed))
    only = "".join(f" --only '{part}'" for part in given.only)
    took, cpus = time.monotonic() - began, os.cpu_count()
    about = ABOUT.format(
        seed=given.seed,
        seconds=given.seconds,
        took=took,
        cpus=cpus,
        usual=SECONDS,
        only=only,
        dash="-",
        aim=tell_aim(outcomes),
        loads=f"{load:.0f} and {os.getloadavg()[1]:.0f}",
    )
    text = make_table(outcomes, about).markdown()
    print(text)
    if given.output:
        given.output.parent.mkdir(parents=True, exist_ok=True)
        given.output.write_text(text.replace("## ", "# ", 1))
    return int(any(each.is_bad for each in outcomes))


if __name__ == "__main__":
    sys.exit(main())
