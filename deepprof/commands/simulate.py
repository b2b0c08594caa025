"""`deepprof simulate`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deepprof.commands.arguments import parse_count, parse_seed
from deepprof.commands.streams import say

if TYPE_CHECKING:
    import argparse

__all__ = ["Simulate"]

SCENARIOS = ("healthy", "graph-growth", "copy-bound")  # here too, so that --help does not load the simulation
LONGEST = 5_000  # iterations; beyond it the file no longer fits a machine's memory


class Simulate:
    """Write the trace of a training job that never ran.

    The file is what PyTorch's profiler would write, the same bytes for the same seed; its name decides about
    compression (.json is not compressed). Scenarios:
      healthy       the GPU is busy throughout
      graph-growth  every iteration adds operations to the graph, and the host needs longer before the next one
      copy-bound    an oversized copy to the GPU fills the time between two iterations
    """

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's arguments."""
        parser.add_argument("scenario", metavar="SCENARIO", choices=SCENARIOS, help=", ".join(SCENARIOS))
        parser.add_argument("-o", "--output", metavar="FILE", required=True, help="file to write")
        help_text = "complete iterations (default 40)"
        parser.add_argument("--iterations", metavar="N", type=parse_count, default=40, help=help_text)
        help_text = "seed of the jitter (default 0)"
        parser.add_argument("--seed", metavar="N", type=parse_seed, default=0, help=help_text)
        parser.add_argument("--annotate", action="store_true", help="write ProfilerStep ranges as well")

    def run(self, args: argparse.Namespace) -> int:
        """Write the file and say on stderr what is in it."""
        from deepprof.collectors.errors import UsageError
        from deepprof.files import check_target
        from deepprof.simulation import simulate, write

        if args.iterations > LONGEST:
            raise UsageError(f"--iterations {args.iterations}: at most {LONGEST} can be simulated; ask for fewer")
        check_target(args.output)
        made = simulate(args.scenario, iterations=args.iterations, seed=args.seed, annotate=args.annotate)
        write(made, args.output)
        what = f"{made.iterations} iterations of {made.kernels[-1]} kernels on stream {made.stream}"
        say(f"{args.output}: {made.scenario}, {what}, seed {made.seed}")
        return 0
