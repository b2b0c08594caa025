"""`make bench`: every table once, in one run, so that its ratios compare."""

from __future__ import annotations

import argparse

from rich.console import Console

from benchmarks import (
    annotating,
    cluster,
    collecting,
    command,
    context_overhead,
    context_trees,
    diagnosing,
    importing,
    mining,
    model_mapping,
    online,
    page,
    reporting,
    scraping,
    serving,
    shapes,
    snapshots,
    tools,
    wire,
)

TABLES = (
    mining,
    online,
    importing,
    context_trees,
    annotating,
    page,
    reporting,
    diagnosing,
    shapes,
    tools,
    snapshots,
    command,
    wire,
    serving,
    collecting,
    context_overhead,
    scraping,
    cluster,
    model_mapping,
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small inputs: does it run?")
    quick = parser.parse_args().quick
    console = Console(width=110)
    for table in TABLES:
        table.run(console, quick)


if __name__ == "__main__":
    main()
