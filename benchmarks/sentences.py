"""Which sentences an expert reads off the kernels of real files are in DeepProf's reports: `make sentences`.

`files.tsv` lists them by file, with a caveat where they are secondary. A sentence counts as stated where the report has
a finding of its kind; where the device is busy for half of the time and there is no caveat, also only among the first
lines. Where the table has nothing to state, no such finding may appear."""

from __future__ import annotations

import csv
import os
import re
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import deepprof
from deepprof.diagnosis.engine import rules_on_work
from deepprof.render.answer import describe_answer

__all__ = ["main"]

TRACES = Path(os.environ.get("DEEPPROF_TRACES", Path(__file__).resolve().parents[1] / "../shared/traces")).resolve()
TABLE = TRACES.with_name("kernels") / "files.tsv"
FOLDERS = (TRACES, TRACES.with_name("more_traces"), TRACES.parent)
LEADS, FIRST_LINES = 0.5, 3
FLOOR = 0.95
NOTHING = "nothing to say"
# The rules whose finding is the sentence; one of them is enough.
RULES = {
    "fp32-ordinary-units": ("wrong-precision",),
    "fp32-linear": ("wrong-precision",),
    "fp32-matrix": ("wrong-precision",),
    "fp64": ("double-precision",),
    "unfused-attention": ("unfused-attention",),
    "elementwise": ("elementwise-chains", "fusion-candidates"),
    "norm": ("normalization-bound",),
    "layout": ("layout-conversions",),
    "embedding": ("embedding-bound",),
    "casts": ("repeated-casts",),
    "optimizer": ("unfused-optimizer",),
    "loss": ("unfused-loss",),
    "dropout": ("unfused-dropout",),
    "reduction": ("expensive-reduction",),
    "odd-sizes": ("padding-waste",),
}


@dataclass(frozen=True, slots=True)
class SentenceVerdict:
    """What a report has of one file's sentences: kinds, those found, those among the first lines, what is too much."""

    file: str
    busy: float
    has_caveat: bool
    kinds: tuple[str, ...]
    found: frozenset[str]
    first: frozenset[str]
    extra: tuple[str, ...]
    lines: tuple[str, ...]


def main() -> int:
    """Print the table; return 1 below the floor."""
    if not TABLE.is_file():
        print(f"no table of sentences in {TABLE.parent} (set DEEPPROF_TRACES)")
        return 1 if os.environ.get("DEEPPROF_NO_SKIPS") else 0
    with TABLE.open(encoding="utf-8") as source:
        rows = [row for row in csv.DictReader(source, delimiter="\t") if int(row["kernels"] or 0)]
    chosen = [row for row in rows if all(word in row["file"] for word in sys.argv[1:])]
    with ProcessPoolExecutor() as pool:
        verdicts = list(pool.map(judge, chosen))
    for each in verdicts:
        print(describe(each))
    return summarize(verdicts)


def judge(row: dict[str, str]) -> SentenceVerdict:
    """Return the verdict on one file."""
    path = next(folder / row["file"] for folder in FOLDERS if (folder / row["file"]).exists())
    analysis = deepprof.analyze(deepprof.read_job(path, jobs=1))
    lines = list(describe_answer(analysis))
    titles = {finding.rule: finding.title for finding in reversed(analysis.findings)}
    kinds = tuple(re.findall(r"\[([\w-]+)\]", row["sentences"]))
    said = {kind: [rule for rule in RULES[kind] if rule in titles] for kind in kinds}
    head = " ".join(lines[:FIRST_LINES])
    first = {kind for kind, rules in said.items() if any(titles[rule][1:] in head for rule in rules)}
    on_work = sorted(rules_on_work() & titles.keys())
    return SentenceVerdict(
        file=row["file"],
        busy=float(row["busy_share"] or 0),
        has_caveat=bool(row["caveat"]),
        kinds=kinds,
        found=frozenset(kind for kind, rules in said.items() if rules),
        first=frozenset(first),
        extra=tuple(on_work) if row["sentences"].strip() == NOTHING else (),
        lines=tuple(lines),
    )


def describe(verdict: SentenceVerdict) -> str:
    """Return one line on a file."""
    marks = [
        f"{kind}: {'first lines' if kind in verdict.first else 'in the report' if kind in verdict.found else 'MISSING'}"
        for kind in verdict.kinds
    ]
    wrong = [f"SAID WITHOUT REASON: {', '.join(verdict.extra)}"] if verdict.extra else []
    caveat = " (secondary)" if verdict.has_caveat else ""
    return f"{verdict.file}, busy {verdict.busy:.2f}{caveat}: {'; '.join(marks + wrong) or NOTHING}"


def summarize(verdicts: list[SentenceVerdict]) -> int:
    """Print how many sentences are stated, and where; return 1 below the floor."""
    plain = [(each, kind) for each in verdicts if not each.has_caveat for kind in each.kinds]
    secondary = [(each, kind) for each in verdicts if each.has_caveat for kind in each.kinds]
    busy = [(each, kind) for each, kind in plain if each.busy >= LEADS]
    said = sum(kind in each.found for each, kind in plain)
    first = sum(kind in each.first for each, kind in busy)
    wrong = [each for each in verdicts if each.extra]
    print(f"sentences without a caveat in the report: {said} of {len(plain)}")
    print(f"of devices busy for half of the time, among the first {FIRST_LINES} lines: {first} of {len(busy)}")
    print(f"with a caveat, in the report: {sum(kind in each.found for each, kind in secondary)} of {len(secondary)}")
    print(f"files with nothing to say that have such findings: {len(wrong)}")
    return 0 if said >= FLOOR * len(plain) and first >= FLOOR * len(busy) and not wrong else 1


if __name__ == "__main__":
    sys.exit(main())
