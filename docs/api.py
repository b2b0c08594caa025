"""Write `docs/generated/api.md` and `docs/generated/metrics.md` from the code: `python -m docs.api`, or `make api`.

Nothing is described here: names come from `deepprof`, columns and joins from the schemas that the code itself checks,
metrics from the declarations of their figures.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl

import deepprof
from deepprof.collectors.store.table_files import NAMES
from deepprof.collectors.table_schema import ROW, TableJoin, TableSchema
from deepprof.collectors.trace import GIVEN_TABLES, TABLES, TRACE_JOINS
from deepprof.live.service.exporter.exposition import SERIES_DROPPED
from deepprof.live.service.exporter.families import (
    DAEMON,
    DEVICE,
    DEVICE_LABELS,
    JOB,
    JOB_LABELS,
    RANK,
    RANK_LABELS,
    MetricFamily,
)
from deepprof.live.wire.declarations import Labels
from deepprof.results.analysis_tables import ANALYSIS_JOINS, ANALYSIS_TABLES, INNER_TABLES
from deepprof.results.comparison_result import COMPARISON_TABLES

__all__ = ["METRICS_PAGE", "PAGE", "render", "render_metrics", "write_join"]

PAGE = Path(__file__).parent / "generated" / "api.md"
METRICS_PAGE = PAGE.with_name("metrics.md")
START = """# Python API

Written by `make api` from the docstrings and schemas of the code; a test fails when it is out of date.
[examples.md](../examples.md#from-python) shows how the parts work together, [client.md](../client.md) what
`deepprof.connect` returns, [attach.md](../attach.md) what `deepprof.attach` does,
[report.md](../report.md) and [diagnosis.md](../diagnosis.md) what the figures mean.

Tables are polars frames. The unit of a number is in its column's name: `_ns` is nanoseconds on the clock of the trace
(`clock`: since 1970, or since the recording began), `nbytes` and `_bytes` are bytes, `_ratio` is a share of 1.
"""
TRACE_TABLES = """## Tables of a trace

Attributes of a `Trace`; those of a store are read with `Store.scan`. `name_id` numbers the names of one trace, and
differs from rank to rank. Tables are sorted by their first column. Of a trace of the CPU alone, `analysis.traces` has
operators in the place of kernels.
"""
ANALYSIS = """## Tables of an analysis

Attributes of an `Analysis`. `loop` numbers `analysis.loops`; the table of one loop, `loop.table`, has the columns of
`iterations` without its place.
"""
INNER = """## Tables inside an analysis

`ranks` is there for a job of several ranks or devices, `sharing` for devices that several processes use.
"""
COMPARED = """## Tables of a comparison

Attributes of a `Comparison`: of the pair of loops that got slowest.
"""
JOINS = """## Joins

Each pair of columns has one type on both sides; a test runs them all. Rows without a partner are kept, with nulls.
"""
METRICS = """# Metrics

Written by `make api` from the declarations of the code; a test fails when it is out of date.
[prometheus.md](../prometheus.md) describes how they are scraped.
"""
SCOPES = (
    ("The daemon", (*DAEMON, SERIES_DROPPED), ()),
    ("Jobs", JOB, JOB_LABELS),
    ("Ranks", RANK, RANK_LABELS),
    ("Devices of ranks", DEVICE, DEVICE_LABELS),
)
LONG_SIGNATURE = 90  # characters
UNITS = {"_ns": "ns", "nbytes": "bytes", "_bytes": "bytes", "_ratio": "0..1", "gigabytes_per_s": "10⁹ bytes/s"}


class Written(str):
    """An annotation as it is written in the code."""

    __slots__ = ()
    __repr__ = str.__str__


def render() -> str:
    """Return the page."""
    public = [(name, getattr(deepprof, name)) for name in deepprof.HOMES]
    functions = [pair for pair in public if inspect.isfunction(pair[1])]
    classes = [pair for pair in public if inspect.isclass(pair[1])]
    assert len(functions) + len(classes) == len(public)  # noqa: S101
    parts = [START, "## Functions\n", *(describe_function(*pair) for pair in functions)]
    parts += ["## Classes\n", *(describe_class(*pair) for pair in classes)]
    parts += ["`deepprof.__version__` is the version of the package, a text.\n"]
    tables = TABLES | GIVEN_TABLES
    parts += [TRACE_TABLES, *(describe_table(f"trace.{name}", schema) for name, schema in tables.items())]
    stored = ", ".join(f"`{name}` ({dtype})" for name, dtype in NAMES.items())
    parts += [f"`trace.names` is a series of texts indexed by `name_id`; the table `names` of a store has {stored}.\n"]
    parts += [ANALYSIS, *(describe_table(f"analysis.{name}", schema) for name, schema in ANALYSIS_TABLES.items())]
    parts += [INNER, *(describe_table(f"analysis.{name}", schema) for name, schema in INNER_TABLES.items())]
    parts += [COMPARED, *(describe_table(f"comparison.{name}", schema) for name, schema in COMPARISON_TABLES.items())]
    parts += [JOINS, describe_joins("trace", TRACE_JOINS), describe_joins("analysis", ANALYSIS_JOINS)]
    return "\n".join(parts)


def render_metrics() -> str:
    """Return the page of all metrics."""
    return "\n".join([METRICS, *(describe_metrics(*scope) for scope in SCOPES)])


def describe_metrics(title: str, families: Sequence[MetricFamily[Any]], labels: Labels) -> str:
    """Return a section on metrics that share some labels."""
    lines = [f"## {title}\n", "| metric | type | labels | unit | meaning |", "| --- | --- | --- | --- | --- |"]
    for each in families:
        names = ", ".join(f"`{label}`" for label in (*labels, *each.labels)) or "–"
        lines += [f"| `{each.name}` | {each.kind} | {names} | {each.unit} | {escape(each.meaning)} |"]
    return "\n".join([*lines, ""])


def describe_function(name: str, function: Callable[..., Any]) -> str:
    """Return a section on a public function."""
    return f"### `{name}`\n\n```python\ndeepprof.{name}{spread(sign(function))}\n```\n\n{inspect.getdoc(function)}\n"


def sign(function: Callable[..., Any]) -> inspect.Signature:
    """Return the signature of a function, with annotations as they are written."""
    signature = inspect.signature(function)
    given = [each.replace(annotation=write(each.annotation)) for each in signature.parameters.values()]
    return signature.replace(parameters=given, return_annotation=write(signature.return_annotation))


def spread(signature: inspect.Signature) -> str:
    """Return a signature with a line for every parameter, or on one line if it is short."""
    if len(str(signature)) < LONG_SIGNATURE:
        return str(signature)
    given = list(signature.parameters.values())
    lines = [str(each) for each in given]
    named = next((place for place, each in enumerate(given) if each.kind is each.KEYWORD_ONLY), len(lines))
    lines[named:named] = ["*"] if named < len(lines) else []
    return "(\n" + "".join(f"    {line},\n" for line in lines) + f") -> {signature.return_annotation}"


def write(annotation: Any) -> Any:
    """Return an annotation without the quotes of a text."""
    return Written(annotation) if isinstance(annotation, str) else annotation


def describe_class(name: str, kind: type) -> str:
    """Return a section on a public class: its fields, its properties and its methods."""
    lines = [f"### `{name}`\n", f"{inspect.getdoc(kind)}\n"]
    names = getattr(kind, "__struct_fields__", None) or getattr(kind, "__dataclass_fields__", ())
    if names:
        types = {name: hint for each in reversed(kind.__mro__) for name, hint in inspect.get_annotations(each).items()}
        lines += ["| field | type |", "| --- | --- |"]
        lines += [f"| `{name}` | `{escape(str(types[name]))}` |" for name in names]
        lines += [""]
    members = list(list_members(kind))
    return "\n".join([*lines, *(f"- {line}" for line in members), *([""] if members else [])])


def list_members(kind: type) -> Iterator[str]:
    """Yield a line on every public property and method, in the order of the code."""
    ours = [each for each in reversed(kind.__mro__) if each.__module__.startswith("deepprof.")]
    for name, member in ((name, member) for each in ours for name, member in vars(each).items()):
        if name.startswith("_"):
            continue
        if isinstance(member, property | cached_property):
            getter = member.fget if isinstance(member, property) else member.func
            result = inspect.signature(getter).return_annotation  # type: ignore[arg-type]
            yield f"`{name}: {result}`: {flow(member)}"
        elif inspect.isfunction(member):
            signature = str(sign(member)).replace("(self, ", "(").replace("(self)", "()")
            yield f"`{name}{signature}`: {flow(member)}"


def flow(member: object) -> str:
    """Return a docstring as one item of a list."""
    return (inspect.getdoc(member) or "").replace("\n\n", "\n").replace("\n", "\n  ")


def describe_table(name: str, schema: TableSchema) -> str:
    """Return a section on a table."""
    rows = [
        f"| `{column}` | {name_type(dtype)} | {find_unit(column)} | {escape(schema.meanings[column])} |"
        for column, dtype in schema.items()
    ]
    head = ["| column | type | unit | meaning |", "| --- | --- | --- | --- |"]
    return "\n".join([f"### `{name}`\n", f"{schema.row}\n", *head, *rows, ""])


def name_type(dtype: pl.DataType) -> str:
    """Return the name of a data type, and the values of an enumeration."""
    return f"Enum ({', '.join(dtype.categories)})" if isinstance(dtype, pl.Enum) else str(dtype)


def find_unit(column: str) -> str:
    """Return the unit that the end of a column's name gives."""
    return next((unit for end, unit in UNITS.items() if column.endswith(end)), "")


def describe_joins(owner: str, joins: tuple[TableJoin, ...]) -> str:
    """Return the joins of the tables of a trace or of an analysis, each as a line of code."""
    lines = [line for join in joins for line in (f"# {join.left}: {join.meaning}", write_join(owner, join))]
    return "\n".join(["```python", *lines, "```", ""])


def write_join(owner: str, join: TableJoin) -> str:
    """Return a join as code; `owner` is the name of the trace or analysis in it."""
    left, right = f"{owner}.{join.left}", f"{owner}.{join.right}"
    ours, theirs = [column for column, _ in join.on], [column for _, column in join.on]
    if ROW in theirs:
        right += ".to_frame('name')" if join.right == "names" else ""
        right, theirs = f"{right}.with_row_index('{ours[0]}')", ours
    on = {"on": ours} if ours == theirs else {"left_on": ours, "right_on": theirs}
    return f"{left}.join({right}, {write_options(on)}, how='left')".replace("'", '"')


def write_options(options: Mapping[str, list[str]]) -> str:
    """Return options as code; a list of one column is the column."""
    return ", ".join(f"{key}={value if len(value) > 1 else repr(value[0])}" for key, value in options.items())


def escape(text: str) -> str:
    """Return a text for a cell of a table."""
    return text.replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
    METRICS_PAGE.write_text(render_metrics(), encoding="utf-8")
