"""Run programs: `python -m tests.programs NAME… -o {}.json`, a trace for every name.

The true begins go to standard output, a line of JSON for each. Several programs are their own processes, which share
the import of torch: that lasts longer than what most of them do.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import sys
from pathlib import Path

import torch

from tests.programs import mistakes
from tests.programs.recorder import Recorder, recording
from tests.programs.table import ITERATIONS, PROGRAMS


def main() -> None:
    arguments = parse()
    if len(arguments.names) == 1:
        run(arguments.names[0], arguments)
        return
    for name in arguments.names:
        process = multiprocessing.get_context("fork").Process(target=run, args=(name, arguments))
        process.start()
        process.join()
        if process.exitcode:
            sys.exit(f"{name} ended with {process.exitcode}")


def run(name: str, arguments: argparse.Namespace) -> None:
    """Run one program in this process."""
    random.seed(0)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    idle = Recorder(device=torch.device(arguments.device), iterations=ITERATIONS)
    loop = getattr(mistakes, PROGRAMS[name].function)(idle)
    output = Path(str(arguments.output).replace("{}", name))
    with recording(arguments.device, output, iterations=ITERATIONS, annotated=arguments.annotated) as recorder:
        loop(recorder)
    print(json.dumps({"name": name, "begins_ns": recorder.begins_ns}))  # noqa: T201


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.programs", description=__doc__)
    parser.add_argument("names", nargs="+", choices=PROGRAMS, metavar="NAME")
    parser.add_argument("-o", "--output", type=Path, required=True, help="where traces go; {} is the program's name")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--annotated", action="store_true", help="tell the profiler of each iteration")
    return parser.parse_args()


if __name__ == "__main__":
    main()
