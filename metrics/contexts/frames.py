"""What a context is called: a Python function, a module, an operator, a range, a call, a kernel, by name and line."""

from __future__ import annotations

from pathlib import PurePosixPath

import polars as pl

from deepprof.collectors.table_schema import TableSchema
from deepprof.collectors.trace import ACTIVITIES
from deepprof.metrics.names import with_names

# From the whole recording down to what ran on the device; `unattributed` stands for what no host record launched.
KINDS = (
    *("all", "thread", "python", "module", "operator", "range", "runtime", "scope", "native"),
    *(*ACTIVITIES, "unattributed"),
)
KIND = pl.Enum(KINDS)
OF_CATEGORIES = {"op": "operator", "runtime": "runtime", "python": "python"}  # other categories are ranges

FRAMES = TableSchema.of(
    "One frame: what contexts of any depth are made of.",
    {
        "kind": (KIND, "what it is"),
        "name": (pl.String(), "its name; of a Python function the function's alone"),
        "file": (pl.String(), "the file of a Python function, as the recorder writes it; null: none, or built in"),
        "line": (pl.UInt32(), "the line on which the function begins, or, in a call stack, that it was at; null: none"),
    },
)

PYTHON = r"^(.+)\((\d+)\): (.*)$"  # PyTorch writes torch/nn/functional.py(1693): relu
MODULE = r"^nn\.Module: (.*)$"
SCOPE = r"^(.+)/$"  # as call stacks have name scopes of compiled programs
TRANSPOSED = "transpose("  # how JAX begins the name scopes of backward passes
ADDRESS = r" at 0x[0-9a-fA-F]+"  # of the object whose method it is: another one in every iteration
# Markers that count, as ProfilerStep#12 and "step 12" do: every iteration would have a context of its own.
COUNTED = r"(?i)(#|\b(?:step|iter|iteration|batch|epoch)[ _:=#-]*)\d+$"


def write_line(function: str, file: str, line: int | None) -> str:
    """Return a place in code as people read it: the function, the end of the path, the line."""
    return f"{function} {'/'.join(PurePosixPath(file).parts[-2:])}:{line}"


def read_frames(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the frame, with the schema `FRAMES`, of each row of `kind` (of `KINDS`) and `name`."""
    name, kind = pl.col("name").fill_null(""), pl.col("kind")
    python, module = kind == "python", name.str.extract(MODULE, 1)
    inner = name.str.extract(PYTHON, 3)
    plain = pl.coalesce(module, inner, name).str.replace(ADDRESS, "")
    counted = name.str.replace(COUNTED, "${1}*")
    return rows.select(
        kind=pl.when(python & module.is_not_null()).then(pl.lit("module")).otherwise(kind.cast(pl.String)).cast(KIND),
        name=pl.when(python)
        .then(plain)
        .when(kind == "range")
        .then(counted)
        .when(kind == "scope")
        .then(name.str.strip_suffix("/"))
        .otherwise(name),
        file=pl.when(python).then(name.str.extract(PYTHON, 1)),
        line=pl.when(python).then(name.str.extract(PYTHON, 2).cast(pl.UInt32, strict=False)),
    )


def number_frames(rows: pl.DataFrame, names: pl.Series) -> tuple[pl.Series, pl.DataFrame]:
    """Return the number of each row's frame, and the frames by number, with the schema `FRAMES`.

    `rows` have `kind` and `name_id`, `names` are those of the trace. Equal frames have one number, in the order in
    which they first come.
    """
    keys = ("kind", "name_id")
    distinct = rows.select(keys).unique(maintain_order=True)
    read = read_frames(with_names(distinct, names))
    frames = read.unique(maintain_order=True)
    numbered = frames.with_row_index("frame")
    numbers = read.join(numbered, on=list(FRAMES), how="left", nulls_equal=True, maintain_order="left")
    found = rows.join(distinct.with_columns(numbers["frame"]), on=keys, how="left", maintain_order="left")
    return found["frame"].cast(pl.Int64), frames
