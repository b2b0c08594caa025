"""Costs of the operators of real programs against PyTorch's own counts (`torch.utils.flop_counter`), on the CPU.

Where both have a rule the numbers are equal, operator by operator, but for three exceptions, which are PyTorch's:
it counts causal attention whole, has no rule for attention and recurrent layers as they run on a CPU, and counts the
gradient of a grouped convolution's weight as if there were no groups.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from deepprof.collectors.importers.kineto import Kineto
from deepprof.collectors.trace import Trace
from deepprof.metrics.contexts.slices import read_slices
from deepprof.metrics.cost.call_links import read_operands
from deepprof.metrics.cost.signatures import evaluate, number_signatures
from deepprof.metrics.cost.trace_costs import find_costs
from deepprof.metrics.cpu_fallback import stand_in

ROOT = Path(__file__).resolve().parents[3]
pytestmark = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")

SAME = ("resnet", "mlp", "transformer", "causal", "plain attention", "convolutions", "line", "volume", "gru")
FLASH = "aten::_scaled_dot_product_flash_attention_for_cpu"


@pytest.fixture(scope="session")
def counted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory with the traces and `counts.json` of all programs."""
    folder = tmp_path_factory.mktemp("counted")
    subprocess.run([sys.executable, "-m", "tests.metrics.cost.counted_programs", folder], check=True, cwd=ROOT)
    return folder


def read(counted: Path, name: str) -> Trace:
    return Kineto().read(counted / f"{name}.json", details=True)


def theirs(counted: Path, name: str) -> dict[str, int]:
    """Return PyTorch's count by operator."""
    found: dict[str, int] = json.loads((counted / "counts.json").read_text())[name]
    return found


def ours(trace: Trace) -> dict[str, int]:
    """Return the operations of products by operator, of all that the trace names."""
    numbers, distinct = number_signatures(read_operands(trace, read_slices(trace)))
    rows = distinct.hstack(evaluate(distinct))[numbers].drop_nulls("product_flops")
    return dict(rows.group_by("operator").agg(pl.col("product_flops").sum()).iter_rows())


def total(trace: Trace) -> int:
    """Return the operations of products of the trace's kernels, which are its outermost operators."""
    kernels = stand_in(trace)
    assert kernels is not None
    costs = find_costs(kernels, trace)
    assert not costs.calls["flops"].null_count()
    return int(costs.calls["product_flops"].sum())


@pytest.mark.parametrize("name", SAME)
def test_operators_cost_what_pytorch_counts(counted: Path, name: str) -> None:
    expected, found = theirs(counted, name), ours(read(counted, name))
    assert {operator: found.get(operator) for operator in expected} == expected
    assert sum(expected.values())


@pytest.mark.parametrize("name", ["resnet", "mlp", "plain attention", "convolutions", "line", "gru"])
def test_a_program_costs_what_its_operators_do(counted: Path, name: str) -> None:
    assert total(read(counted, name)) == sum(theirs(counted, name).values())


def test_attention_on_a_cpu_that_pytorch_does_not_count(counted: Path) -> None:
    whole, half = (ours(read(counted, name)) for name in ("transformer", "causal"))
    forward = 2 * 2 * 4 * 9 * 9 * (8 + 8)  # two sequences of 9, four heads of 8
    assert [whole[FLASH], whole[f"{FLASH}_backward"]] == [forward, forward * 5 // 2]
    assert [half[FLASH], half[f"{FLASH}_backward"]] == [forward // 2, forward * 5 // 4]
    counts = theirs(counted, "plain attention"), theirs(counted, "transformer")
    assert counts[0]["aten::bmm"] == 3 * forward  # PyTorch's own count of the same attention, without a second forward
    assert counts[0]["aten::mm"] == counts[1]["aten::mm"]
    assert total(read(counted, "transformer")) == sum(counts[1].values()) + forward * 7 // 2


def test_the_weights_of_grouped_convolutions_that_pytorch_counts_without_groups(counted: Path) -> None:
    counts, found = theirs(counted, "grouped"), ours(read(counted, "grouped"))
    forward, backward = "aten::convolution", "aten::convolution_backward"
    assert found[forward] == counts[forward]
    assert found[backward] == 2 * found[forward]
    assert counts[backward] == (1 + 2) * found[forward]  # two groups


def test_recurrent_layers_that_pytorch_does_not_count(counted: Path) -> None:
    assert theirs(counted, "lstm") == {}
    forward = 2 * 15 * 32 * (6 + 8) + 2 * 15 * 32 * (8 + 8)  # five steps of three sequences, 4 · 8 gates, two layers
    found = ours(read(counted, "lstm"))
    assert [found["aten::mkldnn_rnn_layer"], found["aten::mkldnn_rnn_layer_backward"]] == [forward, 2 * forward]
    assert total(read(counted, "lstm")) == 3 * forward
