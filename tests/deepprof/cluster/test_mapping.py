"""A job examined by workers states what it states when this process examines it, byte for byte; errors, too."""

from __future__ import annotations

import io
import os
import pickle
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from dask.sizeof import sizeof
from distributed import Client
from msgspec.structs import replace
from rich.console import Console

import deepprof
from benchmarks.cases.contexts import write as write_case
from benchmarks.cases.peaks import PEAK_CASES
from deepprof.analysis import Analysis, analyze
from deepprof.analysis.part import without_timelines
from deepprof.analysis.pipeline import examine
from deepprof.cluster import analyze_on
from deepprof.cluster.tasks import OpenedTraces
from deepprof.collectors.errors import DeepProfError, TraceError, UsageError
from deepprof.job import read_job
from deepprof.job.conversion import convert
from deepprof.metrics.options import AnalysisOptions
from deepprof.render.text import print_report
from deepprof.simulation import simulate, write
from deepprof.simulation.sharing import simulate_shared
from tests.deepprof.commands.test_columns import FLAG
from tests.deepprof.commands.test_columns import write as write_table
from tests.deepprof.commands.test_roofline_trace import write_store
from tests.deepprof.render.test_shared_report import write_capture
from tests.widening import slow_unless


def tell(analysis: Analysis) -> tuple[str, str]:
    """The whole report, as JSON and as text."""
    console = Console(file=io.StringIO(), width=100)
    print_report(analysis, console, limit=None)
    assert isinstance(console.file, io.StringIO)
    return analysis.to_json(), console.file.getvalue()


def here(paths: Any, *, between: Any = None, columns: Any = None, shapes: bool = True, **asked: Any) -> Analysis:
    job = read_job(paths, jobs=1, between=between, columns=columns, details=None, shapes=shapes)
    return analyze(job, **asked)


def outcome(run: Callable[[], Analysis]) -> tuple[type, str]:
    with pytest.raises((DeepProfError, OSError)) as caught:
        run()
    return caught.type, str(caught.value)


def assert_same(client: Client, paths: Any, **asked: Any) -> Analysis:
    wanted = here(paths, **asked)
    found = analyze_on(client, paths, **asked)
    assert tell(found) == tell(wanted)
    assert (found.traces, found.timelines) == ((), {})
    return found


def two_of(job: Path) -> list[Path]:
    """Return as many ranks of a job as there are workers, where more would show no more."""
    return sorted(job.iterdir())[:2]


def test_ranks_on_clocks_that_differ_and_one_that_is_late(client: Client, straggling: Path) -> None:
    found = assert_same(client, straggling)
    assert found.headline is not None
    assert found.headline.rule == "straggler"
    assert any("taken off" in note for note in found.recordings[0].notes)


def test_the_order_of_the_paths_is_not_that_of_the_ranks(client: Client, straggling: Path) -> None:
    found = assert_same(client, [straggling / f"rank{rank}.json.gz" for rank in (2, 0, 3, 1)])
    assert [recording.rank for recording in found.recordings] == [0, 1, 2, 3]


@pytest.mark.parametrize("asked", [{"counts": (12,)}, {"stream": (0, 7)}, {"between": (60_000_000, None)}])
def test_what_is_asked_for_is_done_by_the_workers(client: Client, straggling: Path, asked: dict[str, Any]) -> None:
    assert_same(client, two_of(straggling), **asked)


def test_jobs_on_one_device(client: Client, tmp_path: Path) -> None:
    """On the user's word, or because one recording of both reports it."""
    for run, name in zip(simulate_shared(["compute", "io"], memory_share=0.25, iterations=5), "ab", strict=True):
        write(run.simulation, tmp_path / f"{name}.json")
    found = assert_same(client, tmp_path, same_device=True)
    assert {finding.rule for finding in found.findings} >= {"shared-device"}
    assert_same(client, tmp_path)
    assert outcome(lambda: analyze_on(client, tmp_path / "a.json", same_device=True)) == outcome(
        lambda: here(tmp_path / "a.json", same_device=True)
    )


def test_processes_of_one_capture(client: Client, tmp_path: Path) -> None:
    path = write_capture(tmp_path / "two.sqlite")
    found = assert_same(client, path)
    assert [device.identity for device in found.sharing] == ["be64e405"]
    assert_same(client, path, between=(None, 15_000_000))
    convert(path, tmp_path / "job.deepprof")
    assert_same(client, tmp_path / "job.deepprof", between=(None, 15_000_000))


@pytest.mark.parametrize("between", [None, (0, 10_000_000)])
def test_shapes_are_read_by_the_workers_unless_left_out(client: Client, tmp_path: Path, between: Any) -> None:
    trace = write_case(PEAK_CASES["a product far from its roof"][0], iterations=6)[0]
    store = write_store(trace, tmp_path / "store")
    for shapes in (True, False):
        found = assert_same(client, store, between=between, shapes=shapes)
        assert [loop.roofline is not None for loop in found.loops] == [shapes]


def test_one_rank_is_a_job(client: Client, straggling: Path) -> None:
    assert assert_same(client, straggling / "rank1.json.gz").ranks is None


def test_files_that_say_nothing_of_their_rank(client: Client, tmp_path: Path) -> None:
    for seed, name in enumerate(("b", "a")):
        write(simulate("healthy", iterations=6, seed=seed), tmp_path / f"{name}.json.gz")
    assert_same(client, tmp_path)


def test_an_archive_is_the_ranks_in_it(client: Client, straggling: Path, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "job.tar", "w") as archive:
        for path in sorted(straggling.iterdir())[1:]:
            archive.add(path, path.name)
    assert_same(client, [tmp_path / "job.tar", straggling / "rank0.json.gz"])


@pytest.mark.parametrize("between", [None, (60_000_000, 240_000_000)])
def test_a_store_is_read_as_it_is_here(client: Client, straggling: Path, tmp_path: Path, between: Any) -> None:
    convert(two_of(straggling), tmp_path / "job.deepprof")
    assert_same(client, tmp_path / "job.deepprof", between=between)


def test_columns_of_a_table(client: Client, tmp_path: Path) -> None:
    for rank in (3, 1):
        write_table(tmp_path / f"rank-{rank}.csv")
    assert_same(client, str(tmp_path / "*.csv"), columns=FLAG)


def test_a_relative_path_is_shown_as_it_was_written(
    client: Client, straggling: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(straggling.parent)
    found = assert_same(client, "job")
    assert found.recordings[0].path == f"job{os.sep}rank0.json.gz"


@pytest.mark.traces
@pytest.mark.parametrize(
    "names",
    slow_unless(
        lambda names: names.split()[0] not in {"tb-resnet50-nw0", "hta-nccl-parser"},
        [
            "hta-timeline hta-filter-r1",
            "tb-resnet50-nw0 hta-amd-mi250-minitoy",
            "hta-cpu-only",
            "jaxtb-maxtext-fsdp4",
            "tl-sglang-prefilldecode",
            "hta-mtia-infer",
            "hta-nccl-parser hta-gpu-annot",
        ],
    ),
)
def test_real_traces(client: Client, traces: Path, names: str) -> None:
    assert_same(client, [traces / name for name in names.split()])


def test_the_first_file_that_cannot_be_read_is_named(client: Client, straggling: Path, tmp_path: Path) -> None:
    for name in ("rank0", "rank1", "rank2"):
        (tmp_path / f"{name}.json.gz").write_bytes((straggling / f"{name}.json.gz").read_bytes())
    for name in ("rank1", "rank2"):
        os.truncate(tmp_path / f"{name}.json.gz", 999)
    kind, text = outcome(lambda: analyze_on(client, sorted(tmp_path.iterdir())))
    assert kind is TraceError
    assert "rank1.json.gz: " in text
    assert (kind, text) == outcome(lambda: here(sorted(tmp_path.iterdir())))


@pytest.mark.parametrize("name", ["nothing.json", "two\nlines"])
def test_a_file_that_is_not_there(client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    assert outcome(lambda: analyze_on(client, name)) == outcome(lambda: here(name))


@pytest.mark.parametrize("asked", [{"counts": (1,)}, {"stream": (5, 5)}, {"between": (10**15, None)}])
def test_what_cannot_be_meant_is_refused_in_the_same_words(
    client: Client, straggling: Path, asked: dict[str, Any]
) -> None:
    kind, text = outcome(lambda: analyze_on(client, two_of(straggling), **asked))
    assert kind is UsageError
    assert (kind, text) == outcome(lambda: here(two_of(straggling), **asked))


def test_progress_counts_the_traces(client: Client, straggling: Path) -> None:
    told: list[tuple[int, int]] = []
    analyze_on(client, straggling, watch=lambda done, total: told.append((done, total)))
    assert told == [(k, 4) for k in (1, 2, 3, 4)]


def test_what_comes_back_does_not_grow_with_the_events_of_a_trace(tmp_path: Path) -> None:
    write(simulate("healthy", iterations=40), tmp_path / "a.json.gz")
    trace = replace(deepprof.read(tmp_path / "a.json.gz"), rank=0)
    _, part = examine(trace, AnalysisOptions(alone=False))
    held = sum(getattr(trace, table).estimated_size() for table in ("device_events", "host_events"))
    assert part.timelines
    assert len(pickle.dumps(without_timelines(part))) < held / 50


def test_dask_is_told_how_large_traces_are(tmp_path: Path) -> None:
    write(simulate("healthy", iterations=5), tmp_path / "a.json.gz")
    trace = deepprof.read(tmp_path / "a.json.gz")
    assert sizeof(OpenedTraces((trace, trace))) > 2 * trace.device_events.estimated_size()
    assert sizeof(OpenedTraces(())) < 200
