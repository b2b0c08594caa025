"""Costs of models of a few operators: rows, sums, shares, and groups that are computed as one."""

from __future__ import annotations

import pytest

from deepprof.collectors.errors import UsageError
from deepprof.collectors.models.graph import ModelGraph
from deepprof.metrics.cost.fusion import GroupCosts, fuse_nodes, measure_fused
from deepprof.metrics.cost.model_costs import COSTS, SUMS, measure_model, sum_costs, total_costs
from tests.metrics.cost.onnx.graphs import graph_of, node_of


def block() -> ModelGraph:
    """Return two products with a residual connection, of 2 × 4 tensors of 32 bytes, and an unknown operator."""
    nodes = [
        node_of("MatMul", "x w", "a", "block.fc1"),  # 64 operations, reads 32 + 64
        node_of("Relu", "a", "b", "block.act"),  # 8
        node_of("MatMul", "b w", "c", "block.fc2"),
        node_of("Add", "c x", "d", "block"),  # 8
        node_of("own.Magic", "d", "e", "head"),
        node_of("Add", "e bias", "y", "head"),
    ]
    tensors = {**dict.fromkeys(("x", "a", "b", "c", "d", "e", "y"), (2, 4)), "w": (4, 4), "bias": (4,)}
    return graph_of(nodes, tensors, weights="w bias")


def test_a_row_has_what_an_operator_costs() -> None:
    costs = measure_model(block())
    assert costs.schema == COSTS
    assert costs.row(0, named=True) == {
        **{"node": "a", "kind": "MatMul", "layer": "block.fc1", "flops": 64, "product_flops": 64},
        **{"product_dtype": "float32", "read_nbytes": 96, "written_nbytes": 32, "weight_nbytes": 64},
        **{"parameters": 16, "tensor_nbytes": 128},
    }
    assert costs["parameters"].to_list() == [16, 0, 0, 0, 0, 4]  # the second product has the same weights
    assert costs.row(4) == ("e", "own.Magic", "head", None, None, None, None, None, 0, 0, 64)


def test_sums_leave_out_what_is_unknown_and_say_so() -> None:
    costs = measure_model(block())
    found = sum_costs(costs, "layer")
    assert found.schema == SUMS
    assert found.select("name", "nodes", "nodes_without_rule", "flops").rows() == [
        *(("block.fc1", 1, 0, 64), ("block.act", 1, 0, 8), ("block.fc2", 1, 0, 64), ("block", 1, 0, 8)),
        ("head", 2, 1, 8),
    ]
    assert sum_costs(costs, "kind").select("name", "nodes", "flops").rows() == [
        *(("MatMul", 2, 128), ("Relu", 1, 8), ("Add", 2, 16), ("own.Magic", 1, None)),
    ]
    assert sum_costs(costs, "operator")["nodes"].to_list() == [1] * 6


def test_totals_have_the_share_that_is_known() -> None:
    graph = block()
    totals = total_costs(graph, measure_model(graph))
    assert (totals.nodes, totals.parameters, totals.weight_nbytes) == (6, 20, 80)
    assert (totals.flops, totals.product_flops) == (152, 128)
    assert (totals.read_nbytes, totals.written_nbytes) == (96 + 32 + 96 + 64 + 48, 5 * 32)
    assert totals.node_coverage_ratio == pytest.approx(5 / 6)
    assert totals.nbytes_coverage_ratio == pytest.approx(1 - 64 / (128 + 64 + 128 + 96 + 64 + 80))
    assert totals.unknown_kinds == {"own.Magic": 1}


def test_nothing_known_is_not_nothing() -> None:
    graph = graph_of([node_of("own.Magic", "x", "y")], {"x": (2,), "y": (2,)})
    totals = total_costs(graph, measure_model(graph))
    assert (totals.flops, totals.read_nbytes, totals.node_coverage_ratio) == (None, None, 0)
    empty = graph_of([], {"x": (2,)}, outputs="x")
    assert total_costs(empty, measure_model(empty)).node_coverage_ratio is None


def test_numbers_beyond_a_table_are_refused_in_one_line() -> None:
    huge = (1 << 24, 1 << 24)
    graph = graph_of([node_of("MatMul", "x x", "y")], {"x": huge, "y": huge})
    with pytest.raises(UsageError, match="too large to count"):
        measure_model(graph)


def test_sums_beyond_a_table_are_refused_in_one_line() -> None:
    large = dict.fromkeys(("x", "a", "b", "y"), (1 << 20, 1 << 20))  # 2^61 operations each
    nodes = [node_of("MatMul", "x x", "a"), node_of("MatMul", "a x", "b"), node_of("MatMul", "b x", "y")]
    assert measure_model(graph_of(nodes[:1], large, outputs="a"))["flops"].to_list() == [1 << 61]
    with pytest.raises(UsageError, match="y: what it costs is too large to count"):
        measure_model(graph_of(nodes, large))


def test_functions_of_each_element_are_fused_into_the_product_before_them() -> None:
    graph = block()
    found = measure_fused(graph)
    assert found["nodes"].to_list() == [["a", "b"], ["c", "d"], ["e"], ["y"]]
    # The first group reads x and w and writes b; the second reads b, w and x and writes d.
    assert found.select("flops", "read_nbytes", "written_nbytes").rows() == [
        *((72, 96, 32), (72, 128, 32), (None, None, None), (8, 48, 32)),
    ]


def fused(nodes: list[object], outputs: str = "y") -> list[tuple[int, ...]]:
    shapes = dict.fromkeys(("x", "a", "b", "c", "d", "y"), (4, 4)) | {"row": (4,), "wide": (3, 4, 4)}
    return fuse_nodes(GroupCosts(graph_of(nodes, shapes, "row", outputs)))  # type: ignore[arg-type]


def test_a_result_with_two_users_is_not_fused() -> None:
    assert fused([node_of("MatMul", "x x", "a"), node_of("Sigmoid", "a", "b"), node_of("Mul", "a b", "y")]) == [
        *((0,), (1,), (2,)),
    ]
    assert fused([node_of("MatMul", "x x", "a"), node_of("Relu", "a", "y")], "a y") == [(0,), (1,)]


def test_a_sum_of_two_products_belongs_to_the_later_one() -> None:
    nodes = [node_of("MatMul", "x x", "a"), node_of("MatMul", "x x", "b"), node_of("Add", "a b", "y")]
    assert fused(nodes) == [(0,), (1, 2)]


def test_only_functions_of_each_element_are_fused() -> None:
    assert fused([node_of("MatMul", "x x", "a"), node_of("Softmax", "a", "y")]) == [(0,), (1,)]
    nodes = [node_of("MatMul", "x x", "a"), node_of("Add", "a wide", "wide2")]
    shapes = {"x": (4, 4), "a": (4, 4), "wide": (3, 4, 4), "wide2": (3, 4, 4)}
    assert fuse_nodes(GroupCosts(graph_of(nodes, shapes, "wide", "wide2"))) == [(0,), (1,)]


def test_a_tensor_keeps_its_bytes_under_another_name() -> None:
    nodes = [
        node_of("MatMul", "x x", "a"),
        node_of("Reshape", "a", "flat"),
        node_of("Relu", "flat", "b"),
        node_of("Reshape", "b", "y"),
    ]
    shapes = {"x": (4, 4), "a": (4, 4), "flat": (16,), "b": (16,), "y": (4, 4)}
    costs = GroupCosts(graph_of(nodes, shapes))
    for group, nbytes in (((0,), 128), ((0, 1), 128), ((2,), 128), ((2, 3), 128), ((0, 1, 2, 3), 128), ((1,), 0)):
        found = costs.cost_of_group(group)
        assert found is not None
        assert (group, found.nbytes) == (group, nbytes)
    assert fuse_nodes(costs) == [(0,), (1,), (2,), (3,)]  # not through another name
