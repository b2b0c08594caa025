"""`deepprof fsck`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deepprof.commands.streams import require_stdout
from deepprof.plurals import counted

if TYPE_CHECKING:
    import argparse


class Fsck:
    """Check the store of a daemon, and repair it.

    DIR is what `deepprof serve` was given as its store; the daemon must not be running on it. Every problem is one
    line: where, what, and what is lost by it. With --repair torn ends are cut off, damaged parts go to DIR/lost+found,
    and everything that is whole stays; then a second run finds nothing.

    Exit 0 = sound, 1 = problems were found (with --repair: and mended), 2 = no store, or one in use.
    """

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's arguments."""
        parser.add_argument("store", metavar="DIR", help="the daemon's store")
        parser.add_argument("--repair", action="store_true", help="mend what can be mended")

    def run(self, args: argparse.Namespace) -> int:
        """Print the problems, and a line that sums them up."""
        from pathlib import Path

        from deepprof.live.service.fsck import check_store

        problems = check_store(Path(args.store), repair=args.repair)
        stdout = require_stdout()
        for problem in problems:
            stdout.write(f"{problem}\n")
        stdout.write(f"{_sum_up(len(problems), repaired=args.repair)}\n")
        return 1 if problems else 0


def _sum_up(problems: int, *, repaired: bool) -> str:
    """Return the last line of the output."""
    if not problems:
        return "sound"
    found = counted(problems, "problem")
    return f"{found}, repaired" if repaired else f"{found}; --repair mends what can be mended"
