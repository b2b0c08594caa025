"""What real devices say and few traces hold, replayed: every record arrives as it was, under its own name and place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import polars as pl
import pytest
from msgspec import structs

from deepprof.collectors.trace import DEVICE_EVENTS, Accounting, Trace
from tests.collectors.live.building import build
from tests.collectors.live.recordings import record
from tests.deepprof.live.agent.replaying import Job, Node, as_collected, forget, normal, playing

LONG = "_Z" + "N7cutlass" * 3000  # 27,000 characters; names of more than 10,000 are in real traces
KERNEL = {"device": 0, "context": 1, "stream": 7, "activity": "kernel", "name": "k", "correlation": None}


def trace_of(rows: Sequence[dict[str, Any]], **more: Any) -> Trace:
    """Return a trace of device events, kernels unless they say otherwise, each of 5 ns, 10 ns after the one before."""
    full = [{"start_ns": 10 * at, "end_ns": 10 * at + 5, **KERNEL, **row} for at, row in enumerate(rows)]
    names = list(dict.fromkeys(row["name"] for row in full))
    columns = {name: [row.get(name) for row in full] for name in DEVICE_EVENTS}
    columns["name_id"] = [names.index(row["name"]) for row in full]
    events = pl.DataFrame(columns, schema=DEVICE_EVENTS).sort("start_ns", maintain_order=True)
    return Trace(
        path="made-up",
        format="cupti",
        names=pl.Series(names, dtype=pl.String),
        accounting=Accounting(events.height, events.height),
        device_events=events,
        **more,
    )


def check_arrives(node: Node, job: Job, *, recorded_speed: bool = False) -> None:
    """Assert that the daemon has the records of a job as they were."""
    with playing(build("plain"), node.agent, [job], recorded_speed=recorded_speed):
        pass
    window = node.client.window(job.name)
    forget(node, job)
    for live, made in zip(window, as_collected(job, window), strict=True):
        assert normal(live).to_dicts() == normal(made).to_dicts()


def job_of(name: str, *traces: Trace) -> Job:
    return Job(name, traces, [record(trace) for trace in traces])


ODDITIES: dict[str, list[dict[str, Any]]] = {
    "places": [
        {"device": device, "context": context, "stream": stream}
        for device in (3, 0, 1)
        for context in (5, 70, None)
        for stream in (0, 2**32 - 2, -7, 2**40, 14)
    ],
    "launches": [{"correlation": correlation} for correlation in (1, 2**32 - 1, 0, 2**40, None, 1, 5)],
    "graphs": [{"correlation": 9, "graph_node": 2**33 + at} for at in range(20)],
    "times": [
        {"start_ns": start, "end_ns": end, "stream": stream}
        for start, end, stream in [
            (0, 0, 7),
            (0, 50, 9),
            (0, 20, 7),
            (20, 20, 7),
            (20, 20, 9),
            (20, 21, 7),
            (21, 900, 9),
        ]
    ],
    "copies": [
        {"activity": "memcpy", "name": name, "copy_kind": kind, "nbytes": nbytes}
        for name, kind, nbytes in [
            ("Memcpy HtoD (Pageable -> Device)", "HtoD", 2**40),
            ("Memcpy HtoD (Pinned -> Array)", "HtoD", 0),
            ("Memcpy DtoH (Device -> Pinned)", "DtoH", 1),
            ("Memcpy DtoD (Managed -> Device Static)", "DtoD", 1),
            ("Memcpy PtoP (Device -> Device)", "PtoP", 7),
            ("[CUDA memcpy HtoH]", "HtoH", None),
            ("MemcpyOther", None, 3),
        ]
    ]
    + [{"activity": "memset", "name": "Memset (Device)", "nbytes": 2**33}],
    "waits": [{}]
    + [
        {"activity": "sync", "name": name, "stream": stream}
        for name in ("Stream Wait Event", "Event Sync", "Context Sync", "Stream Sync", "Sync")
        for stream in (-1, 2**32 - 1, 0, 7)
    ],
    "names": [{"name": name} for name in ("", "ядро", LONG, LONG + "A", LONG[:-1], "a" * 16384, "a" * 16385, "\x01\t")],
    "one": [{}],
}


@pytest.mark.parametrize("oddity", ODDITIES)
def test_every_record_arrives_as_it_was(oddity: str, node: Node) -> None:
    check_arrives(node, job_of(f"odd-{oddity}", trace_of(ODDITIES[oddity])))


def test_names_that_are_no_text_stay_apart(node: Node) -> None:
    job = job_of("odd-bytes", trace_of([{"name": name} for name in ("one", "two", "one")]))
    [recording] = job.recordings
    texts = pl.Series(["k\\xff", "k\\xfe"], dtype=pl.String)
    told = replace(recording, names=(b"k\xff", b"k\xfe"), trace=structs.replace(recording.trace, names=texts))
    check_arrives(node, replace(job, recordings=[told]))


def test_a_wait_before_the_first_kernel_of_its_context_is_of_that_device(node: Node) -> None:
    wait = {"activity": "sync", "name": "Stream Sync", "stream": 7}
    check_arrives(node, job_of("odd-wait", trace_of([wait | {"device": 1}, {"device": 1}, wait | {"device": 1}])))


def test_a_long_kernel_beside_many_short_ones_makes_none_late(node: Node) -> None:
    """CUPTI keeps the buffer in which the long one was launched, and gives those that were filled after it."""
    second = 1_000_000_000
    short = [{"start_ns": at, "end_ns": at + 100_000} for at in range(1000, 4 * second, second // 2000)]
    long = {"start_ns": 0, "end_ns": 4 * second, "stream": 20, "name": "long"}
    check_arrives(node, job_of("odd-long", trace_of([long, *short])), recorded_speed=True)
