"""`python -m benchmarks.unseen`: how right the first sentence is on recordings of all kinds that were drawn anew."""

from __future__ import annotations

import argparse
import sys

from benchmarks.accuracy.workers import each
from benchmarks.sealed.seeds import read_seed
from benchmarks.unseen.answering import Task, answer, tell_truth
from benchmarks.unseen.drawing import FAMILIES, family_of
from benchmarks.unseen.scoring import missed, tables

COUNT = 240


def main() -> None:
    """Print the tables; of an open block, every recording that is not plainly right as well."""
    given = parse()
    seed = f"look {given.look}" if given.look else f"unseen {given.seed or read_seed()}"
    wanted = given.family or FAMILIES
    tasks: list[Task] = [(seed, number) for number in range(given.count) if family_of(number) in wanted]
    if given.truths:
        print(*each(tell_truth, tasks, given.workers), sep="\n")
        return
    try:
        answers = each(answer, tasks, given.workers)
    except NotImplementedError as error:
        sys.exit(str(error))
    if given.look:
        print(*(one.told for one in answers if one.told), sep="\n")
    print(f"Block: {seed}\n", *(table.markdown() for table in tables(answers)), sep="\n")
    if lines := missed(answers):
        sys.exit("\n".join(["Below the floor, and luck does not explain it:", *lines]))


def parse() -> argparse.Namespace:
    """Return what was requested; the truth of single recordings is shown of open blocks only."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.unseen", description=__doc__)
    parser.add_argument("--seed", help="another block than the commit's; only its tables are printed")
    parser.add_argument("--look", metavar="SEED", help="an open block instead, whose recordings are told one by one")
    parser.add_argument("--truths", action="store_true", help="of an open block, the truths alone, without an analysis")
    parser.add_argument(
        "--family", action="append", choices=FAMILIES, help="of the block's recordings; may be repeated"
    )
    parser.add_argument("--count", type=int, default=COUNT, help="recordings (default: %(default)s)")
    parser.add_argument("--workers", type=int, default=0, help="processes; as many as there are cores by default")
    given = parser.parse_args()
    if given.truths and not given.look:
        parser.error("--truths needs --look: other blocks stay sealed")
    return given


if __name__ == "__main__":
    main()
