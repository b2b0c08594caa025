"""Every record that the device makes arrives once, as it was made."""

from pathlib import Path

import numpy as np
import pytest

from deepprof.collectors.live.packets import NO_COPY, NO_TIME, Kind, Reason
from deepprof.collectors.trace import ACTIVITIES, COPY_KINDS

from .building import build
from .reader import TRUTH, Agent, Connection, finish_job, start_job

MEMORY = ["", "Pageable", "Pinned", "Device", "Array", "Managed", "Device Static", "Managed Static"]
COPIES = ["", "HtoD", "DtoH", "HtoD", "DtoH", "DtoD", "DtoD", "DtoD", "DtoD", "HtoH", "PtoP"]
SYNCS = ["Sync", "Event Sync", "Stream Wait Event", "Stream Sync", "Context Sync"]
ACTIVITY = {10: "kernel", 1: "memcpy", 22: "memcpy", 2: "memset", 38: "sync", 51: "graph"}
SHARED = ["start", "end", "nbytes", "graph_node", "correlation", "device", "context", "stream", "graph"]


def collect(tmp_path: Path, arguments: list[object], **settings: object) -> tuple[Connection, np.ndarray, int]:
    """Run the job; return what was stated, what was launched, and how many records the device dropped."""
    truth = tmp_path / "truth"
    with Agent(tmp_path / "socket") as agent:
        own = {"DEEPPROF_SOCKET": agent.path, "JOB_TRUTH": truth, "MOCK_PATIENT": 1}
        job = start_job(build("plain"), arguments, {**own, **settings})
        kept, dropped, _ = finish_job(job)
        said = agent.only()
    rows = np.fromfile(truth, TRUTH)
    assert said.ended
    assert len(rows) == kept
    return said, rows, dropped


def name_of(row: np.void) -> str:
    kind, detail, correlation = int(row["kind"]), int(row["type"]), int(row["correlation"]) - 1
    if kind == 10:
        return f"_Z6kernel{row['name']}PfS_"
    if kind in (1, 22):
        source, target = MEMORY[correlation % 8], MEMORY[correlation % 5]
        words = ["Memcpy", COPIES[detail], f"({source} -> {target})" if source and target else ""]
        return " ".join(word for word in words if word)
    return {2: "Memset", 38: SYNCS[detail % 5], 51: f"CUDA graph {row['graph']}"}[kind]


def expected(rows: np.ndarray) -> list[tuple[object, ...]]:
    made = []
    for row in rows:
        values = {name: int(row[name]) for name in SHARED}
        kind = int(row["kind"])
        if kind == 38:
            values |= {"nbytes": 0, "graph": 0}
        if kind == 51:
            values |= {"nbytes": 0}
        is_copy = kind in (1, 22) and COPIES[row["type"]]
        copy = COPY_KINDS.index(COPIES[row["type"]]) if is_copy else NO_COPY
        made.append((*values.values(), ACTIVITIES.index(ACTIVITY[kind]), copy, name_of(row)))
    return sorted(made, key=repr)


def heard(said: Connection) -> list[tuple[object, ...]]:
    rows = []
    for row in said.events:
        assert row["flags"] == 1
        assert row["zero"] == 0
        shared = [int(row[{"start": "start_ns", "end": "end_ns"}.get(name, name)]) for name in SHARED]
        rows.append((*shared, int(row["activity"]), int(row["copy_kind"]), said.names[int(row["name"])]))
    return sorted(rows, key=repr)


@pytest.mark.parametrize("cuda", [12, 13])
@pytest.mark.parametrize("graphs", ["nodes", "launches"])
def test_every_kind_of_record_arrives_as_it_was_made(tmp_path: Path, cuda: int, graphs: str) -> None:
    said, rows, _ = collect(tmp_path, ["mixed", 3000], MOCK_CUDA=cuda, DEEPPROF_GRAPHS=graphs)
    assert (51 in rows["kind"]) == (graphs == "launches")
    assert heard(said) == expected(rows)
    assert (said.lost, said.notices) == (0, [])


def test_a_buffer_that_cannot_be_read_to_its_end_is_a_gap(tmp_path: Path) -> None:
    """How much was in the rest no one can state; that something was, must be."""
    said, rows, _ = collect(tmp_path, ["broken", 300])
    assert len(rows) == 300
    assert said.count == 100
    assert said.frames[-1] == (Kind.END, 101, 0, Reason.DRIVER_DROPPED)
    assert [code for code, _ in said.notices] == [8]


@pytest.mark.parametrize("count", [0, 1])
def test_none_and_one(tmp_path: Path, count: int) -> None:
    said, rows, _ = collect(tmp_path, ["backward", count])
    assert heard(said) == expected(rows)
    assert len(rows) == count
    assert said.frames[-1][:3] == (Kind.END, count, 0)


@pytest.mark.parametrize(
    ("scenario", "count", "threads"), [("threads", 4000, 8), ("late", 45_000, 1), ("backward", 4000, 1)]
)
def test_order_and_threads_do_not_matter(tmp_path: Path, scenario: str, count: int, threads: int) -> None:
    said, rows, _ = collect(tmp_path, [scenario, count, threads])
    columns = ["start", "end", "stream", "correlation"]
    ours = [said.events[{"start": "start_ns", "end": "end_ns"}.get(name, name)].astype("i8") for name in columns]
    theirs = [rows[name].astype("i8") for name in columns]
    assert len(rows) == count * threads
    assert np.array_equal(np.sort(np.stack(ours), axis=1), np.sort(np.stack(theirs), axis=1))
    assert np.array_equal(np.unique(np.stack(ours), axis=1), np.unique(np.stack(theirs), axis=1))
    assert said.lost == 0


def test_records_without_a_possible_time_are_counted_and_told(tmp_path: Path) -> None:
    said, rows, _ = collect(tmp_path, ["garbage", 5000])
    base = np.int64(500_000_000_000_000_000)
    good = rows[(rows["start"] > base) & (rows["end"] >= rows["start"])]
    assert heard(said) == expected(good)
    assert said.lost == len(rows) - len(good) == 500
    assert [code for code, _ in said.notices] == [6]
    assert {reason for *_, reason in said.frames} <= {Reason.NONE, Reason.DRIVER_DROPPED}


def test_what_the_driver_drops_is_a_gap(tmp_path: Path) -> None:
    said, rows, dropped = collect(tmp_path, ["dropped", 60_000])
    assert dropped > 0
    assert (said.lost, said.count) == (dropped, len(rows))
    assert int(said.ticks[-1]["driver_dropped"]) == dropped
    assert Reason.DRIVER_DROPPED in {reason for *_, reason in said.frames}
    assert heard(said) == expected(rows)


def test_a_name_is_told_before_its_first_record_and_once(tmp_path: Path) -> None:
    said, rows, _ = collect(tmp_path, ["threads", 100, 4])  # the reader checks the order
    assert sorted(said.names.values()).count("_Z6kernel0PfS_") == 1
    assert {said.names[name] for name in said.events["name"].tolist()} == {name_of(row) for row in rows}


def test_kernels_that_have_not_ended_are_lost_after_all_others(tmp_path: Path) -> None:
    said, rows, _ = collect(tmp_path, ["unfinished", 600])
    assert said.lost == 300
    assert heard(said) == expected(rows[:300])
    assert {first + count for kind, first, count, _ in said.frames if kind is Kind.EVENTS} == {300}
    assert said.notices == []


@pytest.mark.parametrize("count", [20, 9000])  # all of them in the cache by address; and a table that grows
def test_many_names_and_others_at_the_same_addresses(tmp_path: Path, count: int) -> None:
    with Agent(tmp_path / "socket") as agent:
        settings = {"DEEPPROF_SOCKET": agent.path, "MOCK_PATIENT": 1}
        assert finish_job(start_job(build("plain"), ["names", count], settings))[0] == 2 * count
        said = agent.only()
    texts = [said.names[name] for name in said.events["name"].tolist()]
    numbers = (said.events["correlation"] - 1).tolist()
    rounds = (said.events["stream"] - 7).tolist()
    assert texts == [f"{'ab'[r]}{n}" for r, n in zip(rounds, numbers, strict=True)]
    assert len(set(texts)) == 2 * count
    assert len(set(said.names.values())) == len(said.names)


def test_ticks_tie_the_clocks(tmp_path: Path) -> None:
    said, rows, _ = collect(tmp_path, ["backward", 100])
    told = [tick for tick in said.ticks if tick["device_ns"] != NO_TIME]  # the clock is measured first
    for tick in told:
        ahead = int(tick["device_ns"]) - int(tick["mono_ns"])
        assert abs(ahead - int(told[0]["device_ns"]) + int(told[0]["mono_ns"])) < 50_000_000
    assert int(said.ticks[-1]["events_until_ns"]) > int(rows["end"].max())
    assert int(said.ticks[-1]["next"]) == len(rows)
    assert 0 < int(said.ticks[-1]["collector_cpu_ns"]) < int(said.ticks[-1]["process_cpu_ns"])
