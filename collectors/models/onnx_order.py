"""The nodes of an ONNX graph in the order of execution: each tensor is made once, before it is used."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from heapq import heapify, heappop, heappush
from pathlib import Path
from typing import Any

from deepprof.collectors.errors import TraceError

MAX_NODES = 1_000_000
AGAIN = "export the model again"
SHOWN_CHARS = 80


def sort_nodes(path: Path, nodes: Any, known: Collection[str]) -> list[Any]:
    """Return the nodes in an order in which each uses only `known` tensors and results of nodes before it.

    Nodes that are in such an order already stay where they are. Raises `TraceError` for a cycle, for a tensor that two
    nodes make and for one that none makes.
    """
    if len(nodes) > MAX_NODES:
        raise TraceError(path, f"has more than {MAX_NODES:,} nodes", "cut the model into parts")
    makers = _find_makers(path, nodes, known)
    waits = [_find_waits(path, node, makers, known) for node in nodes]
    waiting = [len(each) for each in waits]
    users: list[list[int]] = [[] for _ in nodes]
    for number, before in enumerate(waits):
        for maker in before:
            users[maker].append(number)
    ready = [number for number, count in enumerate(waiting) if not count]
    heapify(ready)
    order: list[int] = []
    while ready:
        number = heappop(ready)
        order.append(number)
        for user in users[number]:
            waiting[user] -= 1
            if not waiting[user]:
                heappush(ready, user)
    if len(order) < len(nodes):
        stuck = next(number for number, count in enumerate(waiting) if count)
        raise TraceError(path, f"is cyclic: {describe_node(nodes[stuck])} needs its own result", AGAIN)
    return [nodes[number] for number in order]


def _find_makers(path: Path, nodes: Any, known: Collection[str]) -> dict[str, int]:
    """Return the number of the node that makes each tensor."""
    makers: dict[str, int] = {}
    for number, node in enumerate(nodes):
        for name in filter(None, node.output):
            if name in makers or name in known:
                raise TraceError(path, f"makes the tensor {shorten_name(name)} twice", AGAIN)
            makers[name] = number
    return makers


def _find_waits(path: Path, node: Any, makers: dict[str, int], known: Collection[str]) -> set[int]:
    """Return the numbers of the nodes that must run before a node."""
    for name in filter(None, node.input):
        if name not in makers and name not in known:
            problem = f"{describe_node(node)} needs the tensor {shorten_name(name)}, which nothing makes"
            raise TraceError(path, problem, AGAIN)
    names = {*node.input, *find_captured(node)}
    return {makers[name] for name in names if name in makers}


def find_captured(node: Any) -> set[str]:
    """Return the names that the subgraphs of a node (If, Loop, Scan) use; some of them are their own."""
    names: set[str] = set()
    graphs = list(_list_subgraphs(node))
    while graphs:
        graph = graphs.pop()
        names |= {each.name for each in graph.output}
        for inner in graph.node:
            names |= set(inner.input)
            graphs += _list_subgraphs(inner)
    return names


def list_inner(node: Any) -> Iterator[Any]:
    """Yield the nodes of the subgraphs of a node, and of theirs."""
    graphs = list(_list_subgraphs(node))
    while graphs:
        for inner in graphs.pop().node:
            yield inner
            graphs += _list_subgraphs(inner)


def _list_subgraphs(node: Any) -> Iterator[Any]:
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def describe_node(node: Any) -> str:
    """Return a node as messages name it: its name and type."""
    return f"{shorten_name(node.name)} ({shorten_name(node.op_type)})" if node.name else shorten_name(node.op_type)


def shorten_name(name: str) -> str:
    """Return a name that fits a message; of a long one its end, which states most."""
    return name if len(name) <= SHOWN_CHARS else f"…{name[-SHOWN_CHARS:]}"
