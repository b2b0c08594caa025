"""A daemon that examines its jobs all the time, its agent, and what it has found in all records that have come."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.deepprof.live.agent.agents import running_agent
from tests.deepprof.live.agent.replaying import Node
from tests.deepprof.live.service.daemons import running, wait_for
from tests.deepprof.live.service.sending import open_client

__all__ = ["accepted_changes", "examine", "running_examiner"]


@contextmanager
def running_examiner() -> Iterator[Node]:
    """Give a daemon that examines jobs each second, and its agent."""
    with (
        running(settings=["captures.count=0", "examine.every=1s"]) as daemon,
        running_agent(daemon.folder, daemon.address) as agent,
        open_client(daemon) as client,
    ):
        yield Node(daemon, agent, client)


def accepted_changes(node: Node, job: str) -> int:
    """Return how many changes of memory the daemon has of a job."""
    if job not in {each.job for each in node.client.jobs()}:
        return 0
    kinds = [kind for rank in node.client.ranks(job) for kind in rank.account.kinds]
    return sum(kind.accepted for kind in kinds if kind.kind == "memory_events")


def examine(node: Node, job: str) -> dict[str, Any]:
    """Return the findings of an examination of all records of a job that have come, by rule."""

    def find() -> dict[str, Any]:
        report: dict[str, Any] = json.loads(node.client.findings(job).report or "{}")
        kept = report.get("trace", {}).get("accounting", {}).get("kept", 0)
        return report if kept and kept == sum(rank.account.accepted for rank in node.client.ranks(job)) else {}

    report = wait_for(find, "the rules have looked at all records")
    return {each["rule"]: each for each in report["findings"]}
