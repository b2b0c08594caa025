"""A JAX program on the CPU: the time of its compiled operations is under the lines that they were made for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pytest

from deepprof.collectors.importers import read
from deepprof.collectors.importers.directories import list_traces
from deepprof.metrics.contexts.measures import measure_contexts
from deepprof.metrics.contexts.paths import spread
from deepprof.metrics.contexts.tree import ContextTree, build_tree
from tests.collectors import jax_programs
from tests.deepprof.analysis.test_real_contexts import check_sums

PROGRAM = """
import sys
import jax
import jax.numpy as jnp

def layer(x, weight, bias):
    with jax.named_scope("Dense"):
        y = x @ weight + bias  # dense
    return jnp.tanh(y)  # activation

def forward(params, x):
    for weight, bias in params:
        x = layer(x, weight, bias)
    return x

def loss(params, x, y):
    return jnp.mean((forward(params, x) - y) ** 2)

def update(param, grad):
    return param - 0.1 * grad  # update

@jax.jit
def train_step(params, x, y):
    value, grads = jax.value_and_grad(loss)(params, x, y)
    return jax.tree.map(update, params, grads), value

sizes = (96, 128, 128, 32)
params = [(jnp.ones((a, b)) / a, jnp.zeros(b)) for a, b in zip(sizes, sizes[1:])]
x, y = jnp.ones((64, 96)), jnp.ones((64, 32))
jax.block_until_ready(train_step(params, x, y))
with jax.profiler.trace(sys.argv[1]):
    for _ in range(4):
        params, value = train_step(params, x, y)
        jax.block_until_ready(value)
"""
LINES = {line.split("# ")[1]: number for number, line in enumerate(PROGRAM.splitlines(), start=1) if "# " in line}


@dataclass(frozen=True)
class _JaxRun:
    """The profile of the program, its contexts, and the time of its operations as JAX's own reader sees them."""

    program: Path
    tree: ContextTree
    contexts: pl.DataFrame
    operations_ns: float

    def under(self, *frame: pl.Expr) -> pl.Series:
        """Return which contexts meet all conditions, or are within one that does."""
        found = self.contexts.select(pl.all_horizontal(*frame).fill_null(value=False)).to_series().to_numpy()
        return pl.Series(spread(found, self.tree.parent, self.tree.depth), dtype=pl.Boolean)

    def under_line(self, line: str) -> pl.Series:
        """Return which contexts are a function at the line with that comment, or are within one."""
        return self.under(pl.col("file") == str(self.program), pl.col("line") == LINES[line])


@pytest.fixture(scope="module")
def jax_run(tmp_path_factory: pytest.TempPathFactory) -> _JaxRun:
    folder = tmp_path_factory.mktemp("jax")
    program = folder / "train.py"
    program.write_text(PROGRAM)
    jax_programs.run(f"import runpy; runpy.run_path({str(program)!r}, run_name='__main__')", folder / "profile")
    (path,) = list_traces(folder / "profile").traces
    trace = read(path, details=True)
    tree = build_tree(trace)
    taken = measure_contexts(trace, tree)
    check_sums(tree, taken)
    operations = sum(float(str(one[4])) for one in jax_programs.list_events(path) if "hlo_op" in dict(one[5]))  # type: ignore[call-overload]
    return _JaxRun(program, tree, tree.contexts.hstack(taken), operations)


def test_nearly_all_time_of_operations_stands_under_a_line_of_the_program(jax_run: _JaxRun) -> None:
    lines = jax_run.under(pl.col("file") == str(jax_run.program), pl.col("line") > 0)
    slices = jax_run.tree.slices
    operations = slices.rows["stack_id"].is_not_null().to_numpy()
    placed = operations & lines.to_numpy()[jax_run.tree.of_slices]
    assert jax_run.operations_ns > 0
    assert (slices.end - slices.start)[placed].sum() >= 0.95 * jax_run.operations_ns


@pytest.mark.parametrize("line", LINES)
def test_what_was_made_for_a_line_stands_under_it(jax_run: _JaxRun, line: str) -> None:
    placed = jax_run.contexts.filter(jax_run.under_line(line))
    assert placed.filter(kind="operator")["own_host_ns"].sum() > 0


def test_transposed_operations_are_backward_and_others_are_not(jax_run: _JaxRun) -> None:
    transposed = jax_run.under(pl.col("kind") == "scope", pl.col("name").str.starts_with("transpose("))
    contexts = jax_run.contexts
    assert contexts.filter(transposed, kind="operator")["own_host_ns"].sum() > 0
    assert contexts["backward"].to_list() == transposed.to_list()
    dense = contexts.filter(jax_run.under_line("dense"), kind="operator")
    assert set(dense["backward"]) == {True, False}  # its gradient is of the same line
    update = contexts.filter(jax_run.under_line("update"))
    assert not update["backward"].any()
