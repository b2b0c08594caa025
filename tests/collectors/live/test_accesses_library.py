"""The library that counts accesses, with a made-up Compute Sanitizer: what is counted, what is not, and what fails."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pytest

import deepprof
from deepprof.collectors.trace import Trace
from tests.patience import PATIENCE_S

from .building import HERE, compiler, run

ACCESSES = HERE.parents[2] / "collectors" / "live" / "accesses"
MOCK = HERE / "sanitizer_mock"
WARNINGS = ["-std=c11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread", f"-I{MOCK}", f"-I{ACCESSES}"]
BLOCK_NBYTES, FIRST = 1 << 21, 16
OTHERS = {"MOCK_FAIL", "RANK"}


@dataclass(frozen=True, slots=True)
class AccessesJob:
    """The job and the library, with one of gcc's sanitizers or none."""

    job: Path
    library: Path


@pytest.fixture(scope="module", params=["plain", "address", "thread"])
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AccessesJob:
    folder = tmp_path_factory.mktemp("accesses")
    found = {"address": ["-fsanitize=address,undefined"], "thread": ["-fsanitize=thread"]}.get(request.param, [])
    flags, job, library = [compiler(), *WARNINGS, *found], folder / "job", folder / "libaccesses.so"
    run([*flags, "-rdynamic", str(MOCK / "job.c"), "-o", str(job), "-ldl"])
    sources = map(str, sorted(ACCESSES.glob("*.c")))
    run([*flags, "-DDEEPPROF_TENSOR_COPIES", "-fPIC", "-shared", "-fvisibility=hidden", *sources, "-o", str(library)])
    return AccessesJob(job, library)


@pytest.fixture(scope="module")
def record(built: AccessesJob, tmp_path_factory: pytest.TempPathFactory) -> object:
    def do(words: str, *, status: int = 0, **variables: str) -> Trace:
        path = tmp_path_factory.mktemp("recorded") / "job.accesses"
        told = {name if name in OTHERS else f"DEEPPROF_ACCESSES_{name}": text for name, text in variables.items()}
        told |= {"DEEPPROF_ACCESSES_OUTPUT": str(path), "DEEPPROF_ACCESSES_PATCHES": __file__}
        environ = {"PATH": os.environ["PATH"], "ASAN_OPTIONS": "detect_leaks=0", **told}  # tables go with the context
        command = [str(built.job), str(built.library), *words.split()]
        done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
        assert (done.returncode, done.stderr) == (status, "")
        assert [each.name for each in path.parent.iterdir()] == [path.name]
        return deepprof.read(path, details=True)

    return do


def names(trace: Trace) -> list[str]:
    return trace.names.gather(trace.device_events["name_id"]).to_list()


def test_what_a_kernel_touches_is_recorded(record) -> None:
    trace = record("module alloc 0x2000000 4096 launch first 2 launch second 0 free 0x2000000 4096", RANK="7")
    assert (names(trace), trace.rank) == (["first", "second"], 7)
    assert trace.accesses.rows() == [(0, (FIRST + at) * BLOCK_NBYTES, BLOCK_NBYTES, 1, 4, 1, 8) for at in range(2)]
    assert trace.memory_events.select("address", "nbytes", "allocated_nbytes").rows() == [
        (0x2000000, 4096, 4096),
        (0x2000000, -4096, 0),
    ]
    assert trace.launch_shapes.select("grid", "block").rows() == [(6, 32), (6, 32)]
    assert trace.device_events["stream"].to_list() == [0, 0]
    assert trace.accounting.dropped == {}
    assert len(trace.notes) == 1


def test_what_has_no_room_is_counted_together(record) -> None:
    trace = record("module launch first 5 launch second 1", SLOTS="2", BLOCK="4096")
    assert trace.accesses.filter(event=0).rows() == [
        (0, FIRST * 4096, 4096, 1, 4, 1, 8),
        (0, (FIRST + 1) * 4096, 4096, 1, 4, 1, 8),
        (0, None, 4096, 3, 12, 3, 24),
    ]
    assert trace.accesses.filter(event=1)["address"].to_list() == [FIRST * 4096]  # the table was cleared


def test_launches_are_chosen_by_number_and_name(record) -> None:
    words = "module launch mine_1 1 launch other 1 launch mine_2 1 launch mine_3 1 launch mine_4 1"
    trace = record(words, KERNELS="mine", SKIP="1", LAUNCHES="2")
    assert names(trace) == ["mine_2", "mine_3"]
    assert trace.accounting.dropped == {"skipped": 1, "launch-limit": 1, "other-name": 1}


def test_what_is_no_launch_is_counted(record) -> None:
    assert record("module launch first 1 graph copy copy memset").accounting.dropped == {
        "graph-kernel": 1,
        "copy": 2,
        "memset": 1,
    }


def test_a_module_that_cannot_be_patched(record) -> None:
    """Its launches count as lost until it is unloaded: its number may come again."""
    trace = record("module launch first 1 bad-module launch second 1 unload launch third 1")
    assert names(trace) == ["first", "third"]
    assert trace.accounting.dropped == {"unpatched": 1}
    assert trace.notes[1] == 'sanitizerPatchModule failed: as "asked"'


def test_threads_have_tables_of_their_own(record) -> None:
    trace = record("module threads 8 50")
    assert trace.device_events.height == 400
    assert trace.accesses.group_by("event").len()["len"].unique().to_list() == [3]
    assert trace.accesses.select(pl.exclude("event", "address", "nbytes").unique()).rows() == [(1, 4, 1, 8)]


def test_more_launches_at_once_than_tables(record) -> None:
    trace = record("module threads 40 20")
    assert trace.device_events.height + trace.accounting.dropped.get("no-table", 0) == 800


def test_a_context_that_comes_again_is_patched_again(record) -> None:
    trace = record("module launch first 1 destroy module launch second 1")
    assert names(trace) == ["first", "second"]
    assert trace.device_events["context"].to_list() == [1, 2]
    assert len(trace.notes) == 1


def test_a_forked_child_leaves_the_recording_alone(record) -> None:
    assert names(record("module launch first 1 fork launch second 1")) == ["first", "second"]


def test_a_job_that_is_killed_loses_its_losses_alone(record) -> None:
    trace = record("module launch first 1 copy kill", status=-9)
    assert names(trace) == ["first"]
    assert "the end of the recording is missing: how many launches were not counted is not known" in trace.notes


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        ("sanitizerAddPatchesFromFile", "unpatched"),
        ("sanitizerPatchInstructions", "unpatched"),
        ("sanitizerPatchModule", "unpatched"),
        ("sanitizerAlloc", "no-table"),
        ("sanitizerMemset", "unread"),
        ("sanitizerMemcpyHostToDeviceAsync", "unread"),
        ("sanitizerSetLaunchCallbackData", "unread"),
        ("sanitizerStreamSynchronize", "unread"),
        ("sanitizerMemcpyDeviceToHost", "unread"),
    ],
)
def test_a_call_that_fails_is_named(record, function: str, reason: str) -> None:
    trace = record("module launch first 1", MOCK_FAIL=function)
    assert trace.accounting.dropped == {reason: 1}
    assert trace.device_events.is_empty()
    assert trace.notes[1] == f'{function} failed: as "asked"'


def test_a_sanitizer_that_refuses_lets_the_job_run(record) -> None:
    trace = record("module launch first 1", MOCK_FAIL="sanitizerSubscribe")
    assert trace.accounting.read == 0
    assert trace.notes[1] == 'sanitizerSubscribe failed: as "asked"'
