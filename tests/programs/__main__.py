"""Run one program: `python -m tests.programs NAME -o trace.json`; the true begins go to standard output as JSON."""

from __future__ import annotations

import argparse
import json
import random
import sys
from pathlib import Path

import torch

from tests.programs import mistakes
from tests.programs.recorder import Recorder, recording
from tests.programs.table import ITERATIONS, PROGRAMS


def main() -> None:
    arguments = parse()
    random.seed(0)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    idle = Recorder(device=torch.device(arguments.device), iterations=ITERATIONS)
    loop = getattr(mistakes, PROGRAMS[arguments.name].function)(idle)
    with recording(
        arguments.device, arguments.output, iterations=ITERATIONS, annotated=arguments.annotated
    ) as recorder:
        loop(recorder)
    json.dump({"begins_ns": recorder.begins_ns}, sys.stdout)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.programs", description=__doc__)
    parser.add_argument("name", choices=PROGRAMS)
    parser.add_argument("-o", "--output", type=Path, required=True, help="where the trace goes")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--annotated", action="store_true", help="tell the profiler of each iteration")
    return parser.parse_args()


if __name__ == "__main__":
    main()
