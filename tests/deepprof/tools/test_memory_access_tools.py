"""Tools for what programs need of memory and move: reports of small jobs whose figures are known."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

import deepprof
from deepprof.collectors.trace import Trace
from deepprof.commands import main
from deepprof.metrics.memory.address_bands import BAND_NBYTES
from deepprof.simulation import simulate, write
from deepprof.tools import Report, find_tool, run
from deepprof.tools.options import make_tool
from tests.collectors.access_files import END, START, encode, launch, memory
from tests.metrics.memory.test_floors import with_memory
from tests.metrics.memory.test_operand_footprints import IN_PLACE, MATRICES, NO_TYPE, record
from tests.tables import Row, event, make_trace, span

NAMES = ("working-set", "hotness", "transfers", "parallelism", "prefetch")
MS = 1_000_000


def measure(name: str, traces: object, *words: str) -> Report:
    return run(make_tool(find_tool(name), words), traces)  # type: ignore[arg-type]


def test_the_working_set_of_a_device() -> None:
    found = measure("working-set", record(MATRICES, IN_PLACE, NO_TYPE), "--rows", "1")
    assert found["summary"] == "working set by operand footprint: 896 B (aten::mm); of 1 kernel it is not known"
    assert found["working_sets"]["working_set_nbytes"].to_list() == [896]  # type: ignore[index, union-attr]
    assert found["operand_footprints"].height == 1  # type: ignore[union-attr]


def test_the_working_set_on_a_cpu_counts_operators_that_became_kernels() -> None:
    """Operators that represent kernels have no operands any more; those that were read have."""
    trace = record(*[MATRICES, IN_PLACE] * 10, on_device=False)
    assert deepprof.analyze(trace).traces[0].operands.is_empty()
    assert deepprof.analyze(trace).recorded[0] is trace
    found = measure("working-set", trace)["operand_footprints"]
    assert found.select("operator", "kernels", "footprint_nbytes").rows() == [  # type: ignore[union-attr]
        ("aten::mm", 10, 896),
        ("aten::add_", 10, 800),
    ]


def allocate(time: int, address: int, nbytes: int) -> Row:
    return {"time_ns": time, "process": 1, "device": 0, "address": address, "nbytes": nbytes}


@pytest.mark.parametrize(("name", "said"), [("hotness", "no memory events"), ("prefetch", "no managed memory")])
def test_a_job_with_iterations_and_no_memory_events(tmp_path: Path, name: str, said: str) -> None:
    path = tmp_path / "job.json"
    write(simulate("healthy", iterations=8, seed=0), path)
    trace = deepprof.read(path)
    assert trace.memory_events.is_empty()
    assert deepprof.analyze(trace).loops
    assert str(measure(name, trace)["summary"]).startswith(said)


def test_long_lived_memory_and_bursts() -> None:
    """One section is kept for all of 1,000 ns, another one twice for 100 ns."""
    rows = [allocate(0, 0, 100), allocate(1000, 0, -100)]
    for begin in (200, 600):
        rows += [allocate(begin, BAND_NBYTES, 50), allocate(begin + 100, BAND_NBYTES, -50)]
    trace = with_memory(make_trace([event(0, 0, 10)]), rows)
    found = measure("hotness", trace, "--windows", "2", "--rows", "1")
    assert found["summary"] == (
        "by lifetime of allocations, not by access: 2 stretches of 2 MiB: 2.00 MiB long-lived, 2.00 MiB burst"
    )
    assert found["classes"].select("lifetime", "stretches", "held_nbytes", "advice").rows() == [  # type: ignore[union-attr]
        ("burst", 1, 10, "may be evicted in between"),
        ("long-lived", 1, 100, "prefetch once and pin"),
    ]
    assert found["over_time"].drop("rank", "device").rows() == [(0, 100, 50, 0), (500, 100, 50, 0)]  # type: ignore[union-attr]
    assert found["stretches"]["address"].to_list() == ["0x0"]  # type: ignore[index, union-attr]


def write_accesses(path: Path) -> Trace:
    """Return a recording of five kernels: all read one section, one of them another, and some bytes had no room."""
    kernels = [launch(at, 100 * at, [(BAND_NBYTES, 4, 16, 0, 0)]) for at in range(5)]
    kernels[2] = launch(2, 200, [(BAND_NBYTES, 4, 16, 0, 0), (8 * BAND_NBYTES, 0, 0, 5, 20)], full=[1, 4, 0, 0])
    path.write_bytes(encode([START, memory(0, BAND_NBYTES, 64 << 20), *kernels, END]))
    return deepprof.read(path)


def test_hotness_by_counted_accesses(tmp_path: Path) -> None:
    found = measure("hotness", write_accesses(tmp_path / "x.accesses"), "--windows", "5", "--rows", "1")
    assert found["summary"] == (
        "by counted accesses of 5 kernels: 2 stretches of 2 MiB: 2.00 MiB steady, 2.00 MiB burst; "
        "of 4 B it is not known where"
    )
    assert found["classes"].drop("rank", "device").rows() == [  # type: ignore[union-attr]
        ("burst", 1, 2 << 20, 20, "may be evicted in between"),
        ("steady", 1, 2 << 20, 80, "prefetch once and pin"),
    ]
    assert found["stretches"]["address"].to_list() == [hex(BAND_NBYTES)]  # type: ignore[index, union-attr]
    assert found["over_time"].filter(window=2).drop("rank", "device").rows() == [(2, 16, 20, 0)]  # type: ignore[union-attr]


def test_the_working_set_by_counted_accesses(tmp_path: Path) -> None:
    found = measure("working-set", write_accesses(tmp_path / "x.accesses"))
    assert found["summary"] == (
        "working set by counted accesses, in blocks of 2.00 MiB: 4.00 MiB (kernel), of 64.0 MiB taken from the driver "
        "at most; of 4 B it is not known where"
    )
    assert found["working_sets"]["working_set_nbytes"].to_list() == [4 << 20]  # type: ignore[index, union-attr]
    assert found["access_footprints"]["kernels"].to_list() == [5]  # type: ignore[index, union-attr]


@pytest.mark.parametrize("name", ["hotness", "working-set"])
def test_a_report_of_counted_accesses_is_text_and_json(tmp_path: Path, name: str) -> None:
    path = tmp_path / "x.accesses"
    write_accesses(path)
    for form in ("text", "json"):
        output = tmp_path / form
        assert main(["tool", name, str(path), "--format", form, "-o", str(output)]) == 0
        assert "counted accesses" in output.read_text()


def make_job(iterations: int = 12) -> Trace:
    """Return a marked job that copies 8 MiB and 1 MiB from the host in every iteration."""
    device: list[Row] = []
    for i in range(iterations):
        begin = 10 * MS * i
        kernels = [event(1 + k, begin + (1 + k) * MS, begin + (2 + k) * MS - 1000) for k in range(6)]
        copies = [
            event(0, begin + at, begin + at + 1000, activity="memcpy", copy_kind="HtoD", nbytes=nbytes, stream=9)
            for at, nbytes in ((2 * MS, 8 << 20), (4 * MS, 1 << 20))
        ]
        device += [*kernels, *copies]
    steps = [span(7 + i, 10 * MS * i, 10 * MS * (i + 1) - 10) for i in range(iterations)]
    names = ["copy", *(f"gemm{k}" for k in range(6)), *(f"ProfilerStep#{i}" for i in range(iterations))]
    return make_trace(device, annotations=steps, names=names)


def test_transfers_that_come_again() -> None:
    found = measure("transfers", make_job())
    assert found["repeated"].select("nbytes", "candidate").rows() == [(8 << 20, False), (1 << 20, False)]  # type: ignore[union-attr]
    assert found["summary"] == (
        "2 copies of at least 64.0 KiB in nearly every iteration, 0 candidates to keep on the device (0 B); "
        "what they carry is not recorded"
    )
    assert found["directions"]["copies"].to_list() == [2.0]  # type: ignore[index, union-attr]


def test_parallelism_is_not_told_of_one_rank_or_without_exchanges() -> None:
    assert measure("parallelism", make_job())["summary"] == "not told: one rank: at least two are compared"
    both = measure("parallelism", [replace(make_job(), rank=rank) for rank in range(2)])
    assert both["kind"] is None
    assert both["summary"] == "not told: no exchange is recorded; memory is not recorded on all ranks"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("trace", [make_trace(), make_trace([event(0, 0, 1)])], ids=["empty", "one event"])
def test_nothing_to_measure(name: str, trace: Trace) -> None:
    found = measure(name, trace)
    assert str(found["summary"]).startswith(
        (
            "no operand footprint is known",
            "no memory events",
            "no iteration was found",
            "not told: one rank",
            "no managed memory",
            "no work of a device",
        )
    )


@pytest.mark.parametrize("name", NAMES)
def test_a_report_is_text_and_json(name: str) -> None:
    """What a tool reports contains only what JSON can, and is drawn."""
    from rich.console import Console

    from deepprof.render.page import TextPage
    from deepprof.render.tool_report import ToolRecords, ToolReport, draw_tool_report, encode_tool_report

    rows = [allocate(0, 0, 100), allocate(1000, 0, -100)]
    report = ToolReport(
        tool=name,
        options={},
        records=ToolRecords(ranks=[0], read=0, kept=0, dropped={}),
        report=measure(name, with_memory(make_job(), rows)),
    )
    assert f'"tool": "{name}"' in encode_tool_report(report)
    console = Console(width=80, record=True)
    draw_tool_report(TextPage(console), report)
    assert console.export_text().startswith(name)
