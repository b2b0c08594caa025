"""`python -m benchmarks.sealed`: how often the diagnosis is right about jobs that were drawn for this commit alone."""

from __future__ import annotations

import argparse
import sys

from benchmarks.accuracy.workers import each
from benchmarks.sealed.judging import Task, answer, look
from benchmarks.sealed.scoring import Answer, missed, passes, summary
from benchmarks.sealed.seeds import read_seed

COUNT, PASSES = 120, 201


def main() -> None:
    """Print the summary; of an open block, every job that is not right as well."""
    given = parse()
    seed = f"look {given.look}" if given.look else f"sealed {given.seed or read_seed()}"
    tasks = [(seed, number, False) for number in range(given.count)]
    tasks += [(seed, number, True) for number in range(given.passes)]
    answers = show(tasks, given.workers) if given.look else each(answer, tasks, given.workers)
    print(f"Block: {seed}\n")
    print(*(table.markdown() for table in (summary(answers), passes(answers))), sep="\n")
    if lines := missed(answers):
        sys.exit("\n".join(["Below the floor, and luck does not explain it:", *lines]))


def parse() -> argparse.Namespace:
    """Return what was requested."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sealed", description=__doc__)
    parser.add_argument("--seed", help="another block than the commit's; only its summary is printed")
    parser.add_argument("--look", metavar="SEED", help="an open block instead, whose jobs are told one by one")
    parser.add_argument("--count", type=int, default=COUNT, help="jobs (default: %(default)s)")
    parser.add_argument("--passes", type=int, default=PASSES, help="single passes (default: %(default)s)")
    parser.add_argument("--workers", type=int, default=0, help="processes; as many as there are cores by default")
    return parser.parse_args()


def show(tasks: list[Task], workers: int) -> list[Answer]:
    """Return the answers, those that are not right told on the way."""
    looked = each(look, tasks, workers)
    for made, told in looked:
        bad = made.loops > 0 if made.label is None else not (made.right or made.acceptable) or not made.counted
        if bad:
            print(told, "" if made.counted or made.label is None else "; ITERATIONS")
    return [made for made, _ in looked]


if __name__ == "__main__":
    main()
