"""What a context is called: a Python function, a module, an operator, a range, a call, a kernel, by name and line."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath

import polars as pl

from deepprof.collectors.table_schema import TableSchema
from deepprof.collectors.trace import ACTIVITIES
from deepprof.metrics.names import with_names

# From the whole recording down to what ran on the device; `unattributed` represents what no host record launched.
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
TRACED = r"^\$(.+\.py):(\d+) (.*)$"  # JAX's profiler writes $train.py:12 step, without the folder
# Its own files, by which its functions are told from the user's; another file of one of these names has no line.
OF_JAX = (
    r"^(?:abstract_arrays|ad|ad_checkpoint|api|api_util|array\w*|batching|callback|compil\w+|core|custom_\w+|deprecations|"
    r"dispatch|dlpack|dtypes|einsum|functions|indexing|lax|lax_numpy|linear_util|loops|mesh|mlir|monitoring|"
    r"multihost_utils|named_sharding|partial_eval|pjit|prng|profiler|pxla|reductions|shard_map|sharding_impls|slicing|"
    r"source_info_util|stages|traceback_util|tree_util|ufunc_api|ufuncs|util|xla_bridge)\.py$"
)
MODULE = r"^nn\.Module: (.*)$"
SCOPE = r"^(.+)/$"  # as call stacks have name scopes of compiled programs
TRANSPOSED = "transpose("  # how JAX begins the name scopes of backward passes
ADDRESS = r" at 0x[0-9a-fA-F]+"  # of the object whose method it is: another one in every iteration
# Markers that count, as ProfilerStep#12 and "step 12" do: every iteration would have its own context.
COUNTED = r"(?i)(#|\b(?:step|iter|iteration|batch|epoch)[ _:=#-]*)\d+$"


def write_line(function: str, file: str, line: int | None) -> str:
    """Return a place in code as people read it: the function, the end of the path, the line."""
    return f"{function} {'/'.join(PurePosixPath(file).parts[-2:])}:{line}"


def write_place(place: Mapping[str, int | str]) -> str:
    """Return the `function`, `file` and `line` of a place as sentences have them; a definition is called so."""
    path = "/".join(PurePosixPath(str(place["file"])).parts[-2:])
    defined = "defined at " if place.get("line_is") == "definition" else ""
    return f"{place['function']} ({defined}{path}:{place['line']})"


def read_frames(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the frame, with the schema `FRAMES`, of every row of `kind` (of `KINDS`) and `name`."""
    name, kind = pl.col("name").fill_null(""), pl.col("kind")
    python, module = kind == "python", name.str.extract(MODULE, 1)
    traced = name.str.extract(TRACED, 1)
    file = pl.coalesce(name.str.extract(PYTHON, 1), pl.when(~traced.str.contains(OF_JAX)).then(traced))
    inner = pl.coalesce(name.str.extract(PYTHON, 3), name.str.extract(TRACED, 3))
    line = pl.when(file.is_not_null()).then(pl.coalesce(name.str.extract(PYTHON, 2), name.str.extract(TRACED, 2)))
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
        file=pl.when(python).then(file),
        line=pl.when(python).then(line.cast(pl.UInt32, strict=False)),
    )


def number_distinct(rows: pl.DataFrame) -> tuple[pl.Series, pl.DataFrame]:
    """Return the number of every row among the distinct ones, and these, in the order in which they first come."""
    distinct, columns = rows.unique(maintain_order=True), rows.columns
    numbered = distinct.with_row_index("number")
    numbers = rows.join(numbered, on=columns, how="left", nulls_equal=True, maintain_order="left")["number"]
    return numbers.cast(pl.Int64), distinct


def number_frames(rows: pl.DataFrame, names: pl.Series) -> tuple[pl.Series, pl.DataFrame]:
    """Return the number of every row's frame, and the frames by number, with the schema `FRAMES`.

    `rows` have `kind` and `name_id`, `names` are those of the trace. Equal frames have one number, in the order in
    which they first come.
    """
    keys = ("kind", "name_id")
    distinct = rows.select(keys).unique(maintain_order=True)
    numbers, frames = number_distinct(read_frames(with_names(distinct, names)))
    placed = distinct.with_columns(frame=numbers)
    return rows.join(placed, on=keys, how="left", maintain_order="left")["frame"], frames
