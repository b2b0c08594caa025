"""`deepprof simulate`."""

from __future__ import annotations

from argparse import ArgumentTypeError
from pathlib import Path
from typing import TYPE_CHECKING

from deepprof.commands.arguments import parse_count, parse_seed
from deepprof.commands.streams import say
from deepprof.plurals import counted
from deepprof.scenarios import SCENARIOS, describe_scenarios

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from deepprof.simulation import Simulation

SHARED = "shared"  # prints the study of two programs
ITERATIONS = 40
MOST_RANKS = 64  # the simulation uses no more
SHOWN = 3  # files of another job that a message names


class Simulate:
    """Write the trace of a job that never ran.

    The file is what PyTorch's profiler would write, the same bytes for the same seed; its name decides about
    compression (.json is not compressed). Scenarios, with what is wrong in them:
      SCENARIOS
    And a study of two programs on one device, alone with a growing share of its memory and together:
      shared                  prints what is found in their traces next to the truth; with -o, writes the traces into a
                              directory, those of every run into one of their own
    """

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's arguments."""
        offered = (*SCENARIOS, SHARED)
        parser.add_argument("scenario", metavar="SCENARIO", choices=offered, help="one of those above")
        help_text = "file to write; with --ranks, directory for one file per rank; only shared goes without"
        parser.add_argument("-o", "--output", metavar="FILE", help=help_text)
        help_text = "complete iterations (default 40; shared: 12)"
        parser.add_argument("--iterations", metavar="N", type=parse_count, help=help_text)
        help_text = "seed of the jitter, of the model and of the size of the problem (default 0)"
        parser.add_argument("--seed", metavar="N", type=parse_seed, default=0, help=help_text)
        help_text = "multiplies what is wrong: 0.5 is mild, 2 is strong (default 1)"
        parser.add_argument("--strength", metavar="X", type=_parse_strength, default=1.0, help=help_text)
        parser.add_argument("--ranks", metavar="N", type=parse_count, help="ranks of a job with collectives")
        parser.add_argument("--annotate", action="store_true", help="write ProfilerStep ranges as well")

    def run(self, args: argparse.Namespace) -> int:
        """Write the file or files and print on stderr what they contain; or print the study."""
        if args.scenario == SHARED:
            return _run_study(args)
        _check_named(args.output)
        args.iterations = args.iterations or ITERATIONS
        _check_length(args.scenario, args.iterations, args.ranks or 1)
        made = _write_job(args) if args.ranks else [_write_rank(args)]
        first = made[0]
        what = f"{counted(first.iterations, 'iteration')} of {_describe_kernels(first.kernels)}"
        ranks = f", {counted(len(made), 'rank')}" if args.ranks else ""
        say(f"{args.output}: {first.scenario}, {what} on stream {first.stream}{ranks}, seed {first.seed}")
        return 0


Simulate.__doc__ = str(Simulate.__doc__).replace("SCENARIOS", "\n      ".join(describe_scenarios()))


def _describe_kernels(kernels: Sequence[int]) -> str:
    """Return how many kernels the iterations have, as a range if they differ."""
    least, most = min(kernels), max(kernels)
    return f"{least:,} to {most:,} kernels" if least < most else counted(most, "kernel")


def _check_named(output: str | None) -> None:
    """Raise `UsageError` where no file is named."""
    from deepprof.collectors.errors import UsageError

    if output is None:
        raise UsageError("no file to write; name it with -o FILE")


def _run_study(args: argparse.Namespace) -> int:
    """Print the study of two programs on one device, or write its traces."""
    from deepprof.collectors.errors import UsageError
    from deepprof.commands import shared_study
    from deepprof.commands.output import capture, deliver
    from deepprof.commands.progress import progress
    from deepprof.render.page import TextPage

    iterations = args.iterations or shared_study.ITERATIONS
    if args.ranks or args.annotate or args.strength != 1:
        raise UsageError("shared takes neither --ranks, --annotate nor --strength; leave them out")
    fewest, most = shared_study.MIN_STUDY_ITERATIONS, shared_study.MAX_STUDY_ITERATIONS
    if not fewest <= iterations <= most:
        raise UsageError(f"--iterations {iterations}: shared takes {fewest} to {most}")
    if args.output is not None:
        return _write_study(args.output, iterations, args.seed)
    with progress("simulating"):
        outcomes = shared_study.study(iterations, args.seed)
    args.format = "text"
    deliver(capture(lambda console: shared_study.print_study(outcomes, TextPage(console)), None), args)
    return 0


def _write_study(output: str, iterations: int, seed: int) -> int:
    """Write the traces of the study into the directory `output`, and print what to do with them."""
    from deepprof.commands import shared_study

    _check_directory(output, {trial.name for trial in shared_study.list_trials()})
    number = shared_study.write_traces(Path(output), iterations, seed)
    say(f"{output}: shared, {number} traces; deepprof diagnose --same-device {output}/together-25, and so on")
    return 0


def _parse_strength(text: str) -> float:
    """Return a decimal number; the simulation checks whether it is in range."""
    try:
        return float(text[:20])
    except ValueError as error:
        raise ArgumentTypeError(f"{text[:20]!r} is not a number, such as 0.5") from error


def _check_length(scenario: str, iterations: int, ranks: int) -> None:
    """Raise `UsageError` for more iterations than fit a machine's memory."""
    from deepprof.collectors.errors import UsageError

    longest = SCENARIOS[scenario].most // min(ranks, MOST_RANKS)
    if iterations > longest:
        of = f" with {ranks} ranks" if ranks > 1 else ""
        raise UsageError(f"--iterations {iterations}: at most {longest} can be simulated{of}; ask for fewer")


def _write_rank(args: argparse.Namespace) -> Simulation:
    from deepprof.files import check_target
    from deepprof.simulation import simulate, write

    check_target(args.output)
    made = simulate(
        args.scenario, iterations=args.iterations, seed=args.seed, annotate=args.annotate, strength=args.strength
    )
    write(made, args.output)
    return made


def _write_job(args: argparse.Namespace) -> Sequence[Simulation]:
    """Simulate several ranks and write a directory of files."""
    from deepprof.simulation import name_rank, simulate_ranks, write_ranks

    _check_directory(args.output, {name_rank(number) for number in range(min(args.ranks, MOST_RANKS))})
    made = simulate_ranks(
        args.scenario,
        ranks=args.ranks,
        iterations=args.iterations,
        seed=args.seed,
        annotate=args.annotate,
        strength=args.strength,
    )
    write_ranks(made, args.output)
    return made


def _check_directory(path: str, names: set[str]) -> None:
    """Raise `UsageError` unless `path` is a directory with no files but those in `names`, or can be created as one."""
    from deepprof.collectors.errors import UsageError

    folder = Path(path)
    if path in {"", "-"}:
        raise UsageError(f"{path!r}: -o names no directory; give it a name")
    if not folder.exists():
        if not folder.parent.is_dir():
            raise UsageError(f"{path}: there is no directory {folder.parent}; create it or choose another -o")
    elif not folder.is_dir():
        raise UsageError(f"{path}: is a file; with --ranks, -o names a directory")
    elif others := sorted({each.name for each in folder.iterdir()} - names):
        found = ", ".join(others[:SHOWN])
        raise UsageError(f"{path}: holds other files ({found}), which would count as ranks; choose another -o")
