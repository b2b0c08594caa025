"""`python -m benchmarks.kernel_names`: how well kernels are classified, against labels; exits 1 below the floors."""

from __future__ import annotations

import os
import re
import sys

from benchmarks.kernel_names.answers import Answer, ask_names, ask_traces
from benchmarks.kernel_names.labels import LABELS, Label, read_labels
from benchmarks.kernel_names.leaving_out import leave_out
from benchmarks.kernel_names.scoring import Row, compare_files, group_files, rate, rate_literally, rate_sure
from deepprof.metrics.kernels.pattern_tables import list_tables

CATEGORY, TYPED, LEFT_OUT = (0.97, 0.99), (0.98, 0.98), (0.93, 0.96)
MISJOINED = ("param-linear", "param-resnet")  # where a wrong join gave the neighbouring operator


def main() -> None:
    """Print the shares, and fail where one is below its floor."""
    labels = read_labels()
    if not labels:
        print(f"No labels in {LABELS} (set DEEPPROF_TRACES): not scored.")
        sys.exit("DEEPPROF_NO_SKIPS is set" if "DEEPPROF_NO_SKIPS" in os.environ else 0)
    pairs = list(ask_traces(labels))
    hidden, shown = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    sure, wrong = rate_sure(ask_names(labels))
    rows = [
        *rate("names alone", ask_names(labels), CATEGORY, TYPED),
        compare_files("names alone: category, median over files", hidden, CATEGORY),
        *rate("with operators", shown, CATEGORY, TYPED),
        rate_literally(shown),
        compare_files("with operators: category, median over files", shown, CATEGORY),
        *rate("without what only one file supports", leave_out(labels), LEFT_OUT, (0.0, 0.0)),
        sure,
    ]
    print(f"{len(labels)} names of {len(group_files(hidden))} files\n\n| | by names | by time |\n|---|---:|---:|")
    print(*(row.write() for row in rows), sep="\n")
    faults = list_faults(rows, wrong, hidden, shown, labels)
    if faults:
        sys.exit("\n".join(["", *faults]))


def list_faults(
    rows: list[Row], wrong: list[str], hidden: list[Answer], shown: list[Answer], labels: list[Label]
) -> list[str]:
    """Return a line for every thing that must not be."""
    faults = [f"below the floor: {row.what}" for row in rows if row.fails]
    faults += [f"sure and wrong: {name[:160]}" for name in wrong]
    names = {label.name for label in labels}
    patterns = [pattern.match for table in list_tables() for pattern in table.patterns]
    faults += [f"a pattern has a whole name: {each}" for each in patterns if re.sub(r"[\\^$]", "", each) in names]
    alone, operators = group_files(hidden), group_files(shown)
    for file in MISJOINED:
        right = [sum(each.time_ns for each in answers.get(file, ()) if each.category) for answers in (alone, operators)]
        if right[1] < right[0]:
            faults.append(f"worse with operators than without: {file}")
    return faults


if __name__ == "__main__":
    main()
