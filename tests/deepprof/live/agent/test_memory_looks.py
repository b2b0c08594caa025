"""Looks at a GPU's memory as the hook takes them, through agent and daemon: what the rules find while the job runs."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
import pytest

from deepprof.collectors.live.packets import MEMORY_CHANGE, NO_TOTAL
from tests.deepprof.live.agent.agents import Job, iterations
from tests.deepprof.live.agent.examining import accepted_changes, examine, running_examiner
from tests.deepprof.live.agent.replaying import Node
from tests.deepprof.live.service.daemons import wait_for

ITERATIONS, ITERATION_NS, SECOND, GIB = 40, 600_000, 10**9, 1 << 30
SIZE, LITTLE = 80 * GIB, 4 << 20


@pytest.fixture(scope="module")
def examining() -> Iterator[Node]:
    with running_examiner() as node:
        yield node


def looks(begin_ns: int, first: int, step: int, peak: int, scatter: int = 0) -> np.ndarray:
    """Two looks in every iteration at what grows by `step`, each iteration's `peak` told with the second.

    What is in use varies next to that by `scatter`, as where batches differ.
    """
    rows = np.zeros(3 * ITERATIONS, MEMORY_CHANGE)
    starts = begin_ns + np.arange(ITERATIONS) * ITERATION_NS
    rows["time_ns"] = (starts[:, None] + [350_000, 399_000, 399_500]).ravel()
    in_use = first + np.arange(ITERATIONS) * step
    in_use += np.random.default_rng(5).normal(0, scatter, ITERATIONS).astype(np.int64)
    rows["allocated_nbytes"] = np.stack([in_use + GIB, in_use + peak, in_use], axis=1).ravel()
    rows["reserved_nbytes"] = rows["allocated_nbytes"] + GIB
    rows["reserved_nbytes"][1::3] = NO_TOTAL
    rows["device_nbytes"], rows["thread"] = SIZE, 9
    return rows


@pytest.mark.widens(2)
@pytest.mark.parametrize(
    ("name", "sizes", "expected"),
    [
        ("leaking", (20 * GIB, GIB, 2 * GIB), {"memory-growth"}),
        ("leaking-little", (20 * GIB, LITTLE, 2 * GIB), {"memory-growth"}),
        ("leaking-less-than-varies", (20 * GIB, LITTLE, 2 * GIB, LITTLE // 2), {"memory-growth"}),
        ("only-varying", (20 * GIB, 0, 2 * GIB, LITTLE), set()),
        ("full", (60 * GIB, 0, 18 * GIB), {"near-limit"}),
        ("healthy", (60 * GIB, 0, 2 * GIB), set()),
    ],
)
def test_rules_find_it_in_totals_alone(examining: Node, name: str, sizes: tuple[int, ...], expected: set[str]) -> None:
    job = Job(examining.agent, session=f"{len(name):032x}", env__DEEPPROF_JOB=name)
    now = time.monotonic_ns()
    job.tick(now)
    job.name(*(f"kernel_{number}" for number in range(13)))
    begin_ns = now - 2 * SECOND
    job.records(iterations(ITERATIONS, begin_ns))
    job.records(looks(begin_ns, *sizes))
    job.tick(now + SECOND)
    job.tick(now + 3 * SECOND)
    wait_for(lambda: accepted_changes(examining, name) == 3 * ITERATIONS, "the looks have come")
    found = examine(examining, name)
    assert found.keys() & {"memory-growth", "near-limit"} == expected
    [trace] = examining.client.window(name)
    assert trace.devices["memory_nbytes"].to_list() == [SIZE]
    assert trace.memory_events["reserved_nbytes"].null_count() == ITERATIONS
    if expected:
        assert found[expected.pop()]["evidence"]["device_nbytes"] == SIZE
    if "memory-growth" in found:
        assert found["memory-growth"]["evidence"]["nbytes_per_iteration"] == pytest.approx(sizes[1], rel=0.1)
    job.end()
