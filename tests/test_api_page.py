"""The page on the Python API is what the code says: it is current, its tables are the real ones, and its joins run."""

from __future__ import annotations

import re
from typing import Any

import polars as pl
import pytest

import deepprof
from deepprof import simulation
from deepprof.collectors.table_schema import ROW, TableJoin, TableSchema
from deepprof.collectors.trace import GIVEN_TABLES, TABLES, TRACE_JOINS
from deepprof.results.analysis_tables import ANALYSIS_JOINS, ANALYSIS_TABLES, INNER_TABLES
from docs.api import METRICS_PAGE, PAGE, render, render_metrics, write_join

SCHEMAS = {f"trace.{name}": schema for name, schema in (TABLES | GIVEN_TABLES).items()} | {
    f"analysis.{name}": schema for name, schema in {**ANALYSIS_TABLES, **INNER_TABLES}.items()
}
JOINS = [("trace", join) for join in TRACE_JOINS] + [("analysis", join) for join in ANALYSIS_JOINS]
OF_OTHER_JOBS = {"analysis.ranks.groups[0].arrivals", "analysis.sharing[0].processes[0].losses"}
WITHOUT_ROWS = {  # in simulated traces
    "launch_shapes",
    "stacks",
    "event_stacks",
    "instructions",
    "event_instructions",
    "operands",
    "collectives",
    "context_shapes",
    "stalls",
    "layers",
    "accesses",
    "allocations",
    "failed_allocations",
    "segments",
    "context_sums",
    "context_nodes",
}
WITH_HOST_MEMORY = {"trace.memory_events", "trace.segments", "trace.failed_allocations"}  # device -1, so Int32
UNMATCHED = {*WITHOUT_ROWS, "host_events.parent_id", "annotations.device"}


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return what the code on the page calls `trace` and `analysis`: a job of two ranks."""
    folder = tmp_path_factory.mktemp("job")
    simulation.write_ranks(simulation.simulate_ranks("straggler", ranks=2, iterations=12), folder)
    traces = [deepprof.read(path, details=True) for path in sorted(folder.iterdir())]
    return {"trace": traces[0], "analysis": deepprof.analyze(traces)}


def test_the_page_is_current() -> None:
    assert render() == PAGE.read_text(encoding="utf-8"), "write it anew: make api"
    assert render_metrics() == METRICS_PAGE.read_text(encoding="utf-8"), "write it anew: make api"


def test_every_public_name_is_on_it() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for name in deepprof.HOMES:
        assert f"### `{name}`\n" in page or f"`deepprof.{name}`" in page


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_column_has_a_meaning(name: str) -> None:
    schema = SCHEMAS[name]
    assert schema.row.endswith(".")
    assert list(schema) == list(schema.meanings)
    assert all(schema.meanings.values())


@pytest.mark.parametrize("name", sorted(SCHEMAS.keys() - OF_OTHER_JOBS))
def test_the_tables_are_as_declared(name: str, names: dict[str, Any]) -> None:
    assert eval(name, names).schema == SCHEMAS[name]  # noqa: S307 - our own text


def test_no_table_of_an_analysis_is_left_out(names: dict[str, Any]) -> None:
    analysis = names["analysis"]
    frames = {name for name in dir(analysis) if isinstance(getattr(analysis, name), pl.DataFrame)}
    assert frames == set(ANALYSIS_TABLES)


@pytest.mark.parametrize(("owner", "join"), JOINS, ids=lambda part: getattr(part, "meaning", part))
def test_every_join_runs_with_equal_types(owner: str, join: TableJoin, names: dict[str, Any]) -> None:
    code = write_join(owner, join)
    assert code in PAGE.read_text(encoding="utf-8").splitlines()
    joined = eval(code, dict(names))  # noqa: S307 - our own text
    left, right = SCHEMAS[f"{owner}.{join.left}"], SCHEMAS.get(f"{owner}.{join.right}", TableSchema())
    assert joined.height >= eval(f"{owner}.{join.left}", dict(names)).height  # noqa: S307
    for ours, theirs in join.on:
        assert left[ours] == (pl.UInt32() if theirs == ROW else right[theirs])
    theirs_only = [name for name in joined.columns if name not in left]
    matched = joined.filter(pl.any_horizontal(pl.col(theirs_only).is_not_null())).height if theirs_only else 0
    keys = {join.left, join.right, f"{join.left}.{join.on[0][0]}"}
    assert matched or keys & UNMATCHED


def test_columns_of_one_name_have_one_type() -> None:
    """What a researcher would join without having read the page."""
    shared = ("rank", "device", "stream", "loop", "index", "name_id", "process", "thread")
    for column in shared:
        schemas = [schema for name, schema in SCHEMAS.items() if name not in WITH_HOST_MEMORY and "memory" not in name]
        types = {str(schema[column]) for schema in schemas if column in schema}
        assert len(types) == 1, (column, types)


def test_the_code_on_the_page_is_all_checked() -> None:
    lines = re.findall(r"^(?:trace|analysis)\..*join\(.*$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert lines == [write_join(owner, join) for owner, join in JOINS]
