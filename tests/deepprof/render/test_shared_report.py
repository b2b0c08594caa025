"""A capture of two processes on one device, from nsys' database to the report, on every way that leads there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from deepprof.commands import main
from deepprof.simulation import write
from deepprof.simulation.sharing import simulate_shared
from tests.collectors.nsys_database import CALL, KERNEL, build

US = 1000
PIDS = 4100, 4200
PATTERNS = (
    ("embed", "attention", "mlp", "loss", "mlp_grad", "attention_grad", "fused_adam"),
    ("conv", "relu", "fused_sgd"),
)
STRINGS = dict(enumerate(sum(PATTERNS, ()), 1)) | {20: "cudaLaunchKernel_v7000"}
TURNS = 24
GPU = {"id": 0, "name": "NVIDIA A100-SXM4-80GB", "uuid": "be64e405", "busLocation": "0000:01:00.0", "cuDevice": 0}
NAMES = [{"globalPid": pid << 24, "pid": pid, "name": name} for pid, name in zip(PIDS, ("train", "serve"), strict=True)]


def play() -> tuple[list, list]:
    """Return kernels of 100 µs and their launches: seven of the one process, three of the other, and so on.

    All are launched long before: each process waits in every iteration for the other's turn alone.
    """
    kernels, calls, at, number = [], [], 20_000, 0
    for _ in range(TURNS):
        for pid, pattern in zip(PIDS, PATTERNS, strict=True):
            for name in pattern:
                number += 1
                place = {"globalPid": pid << 24, "correlationId": number}
                name_id = next(key for key, text in STRINGS.items() if text == name)
                times = {"start": at * US, "end": (at + 99) * US}
                kernels.append({**KERNEL, **place, **times, "demangledName": name_id})
                asked = {"start": 10 * number * US, "end": (10 * number + 4) * US, "nameId": 20}
                calls.append({**CALL, **asked, "globalTid": (pid << 24) | pid, "correlationId": number})
                at += 100
    return kernels, calls


@pytest.fixture(scope="module")
def capture(tmp_path_factory) -> Path:
    return write_capture(tmp_path_factory.mktemp("capture") / "two.sqlite")


def write_capture(path: Path, *, pids: tuple[int, ...] = PIDS) -> Path:
    """Write the capture to `path`, with the processes `pids`."""
    kernels, calls = play()
    kernels = [row for row in kernels if row["globalPid"] >> 24 in pids]
    calls = [row for row in calls if row["globalTid"] >> 24 in pids]
    return build(
        path,
        strings=STRINGS,
        CUPTI_ACTIVITY_KIND_KERNEL=kernels,
        CUPTI_ACTIVITY_KIND_RUNTIME=calls,
        TARGET_INFO_GPU=[GPU],
        PROCESSES=NAMES,
        TARGET_INFO_SESSION_START_TIME=[{"utcEpochNs": 1_753_837_769_774_933_180}],
    )


def report(capsys, *argv) -> str:
    assert main(["diagnose", *map(str, argv)]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


def test_the_report_says_whose_iterations_wait_for_whom(capsys, capture):
    text = report(capsys, capture)
    shown = text[text.index("\nDevice 0") :]
    assert shown == SHOWN


SHOWN = """
Device 0 (be64e405) is shared by 2 processes
  rank      process   alone   together     lost    turns   slower   copies
     0   4100 train       -    1.00 ms   299 µs   299 µs     0 ns     0 ns
     1   4200 serve       -    1.00 ms   699 µs   699 µs     0 ns     0 ns
  busy 99.0 % of 1.00 ms with one process · busy 99.0 % of 23.0 ms with several
  · their kernels take turns (time-sliced)

Findings
1. ✖ critical shared-device: Another process on the device takes time from
     the iterations
     0.699 ms of an iteration (70 %) are lost to rank 0 on the same device (in
     23 of 23 iterations it has work there); mostly its kernels wait for the
     other's turn. Kernels of the processes run in turn.
     up to 699 µs per iteration (69.9 %) · rank 1, device 0, stream 7 ·
     iterations 0 to 22 · confidence 0.85
     → Move one of the jobs to another device, or run them one after the other
       where each needs it all the time. If both must stay: on NVIDIA devices
       MPS (nvidia-cuda-mps-control) lets kernels of both run at once where the
       device has room for both, and MIG gives each a separate slice; taking
       turns, the device does no more work than for one job.
     the same on rank 0, device 0

How the iteration was found
  from the kernels and their launches, confidence 0.99
  -v prints the evidence and all metrics; deepprof export --to perfetto draws
    every iteration

note: 2 processes used CUDA in this capture (4100, 4200); each counts its
      own streams
note: two.sqlite:4100 names no rank; it is counted as rank 0
note: two.sqlite:4200 names no rank; it is counted as rank 1
"""


def test_the_json_report_has_every_number(capsys, capture):
    document = json.loads(report(capsys, capture, "--format", "json"))
    (device,) = document["shared_devices"]
    assert (device["identity"], device["manner"]) == ("be64e405", "in turn")
    assert device["alone"] == {"span_ns": 1000 * US, "busy_ns": 990 * US}  # 700 before the first turn, 300 after
    assert device["together"]["span_ns"] == (TURNS * 1000 - 1001) * US
    train, serve = device["processes"]
    assert (train["rank"], train["pid"], train["name"], train["stream"]) == (0, PIDS[0], "train", 7)
    assert (train["turns_ns"], serve["turns_ns"]) == (299 * US, 699 * US)
    assert (train["slowed_ns"], train["copies_ns"], train["copies_slowed_ns"], train["rest_ns"]) == (0, 0, 0, None)
    assert train["neighbours"] == [{"rank": 1, "device": 0, "together_ns": 297 * US}]
    row = train["iterations"][3]
    assert (row["iteration_ns"], row["together_ns"], row["lost_ns"], row["stretch_ns"]) == (
        1000 * US,
        297 * US,
        299 * US,
        None,
    )
    assert document["loops"][0]["metrics"]["breakdown"]["idle_shared_ns"] == 299 * US
    assert document["trace"]["paths"] == [f"{capture}:{pid}" for pid in PIDS]


def test_a_part_a_store_and_a_directory_say_the_same(capsys, capture, tmp_path):
    whole = json.loads(report(capsys, capture, "--format", "json"))["shared_devices"]
    assert main(["convert", str(capture), "-o", str(tmp_path / "job.deepprof")]) == 0
    capsys.readouterr()
    assert json.loads(report(capsys, tmp_path / "job.deepprof", "--format", "json"))["shared_devices"] == whole
    part = json.loads(report(capsys, tmp_path / "job.deepprof", "--to", "15ms", "--format", "json"))
    ((first, second),) = (device["processes"] for device in part["shared_devices"])
    assert (first["turns_ns"], second["turns_ns"]) == (299 * US, 699 * US)
    assert len(first["iterations"]) < TURNS - 6


def test_two_captures_of_one_device_say_the_same(capsys, capture, tmp_path):
    """Each of one process, with the same GPU and a recorded start of its session."""
    paths = [write_capture(tmp_path / f"{pid}.sqlite", pids=(pid,)) for pid in PIDS]
    (whole,) = json.loads(report(capsys, capture, "--format", "json"))["shared_devices"]
    (found,) = json.loads(report(capsys, *paths, "--format", "json"))["shared_devices"]
    assert found == whole


def test_the_capture_can_be_exported(capsys, capture, tmp_path):
    assert main(["export", str(capture), "--to", "perfetto", "-o", str(tmp_path / "x.json")]) == 0
    assert "shared" in (tmp_path / "x.json").read_text()


@pytest.fixture(scope="module")
def jobs(tmp_path_factory) -> list[Path]:
    """Files of two jobs that ran on one device, as torch.profiler writes them: they do not report it."""
    folder = tmp_path_factory.mktemp("jobs")
    paths = [folder / f"{name}.json.gz" for name in ("one", "two")]
    for run, path in zip(simulate_shared(["compute", "io"], memory_share=0.25, iterations=6), paths, strict=True):
        write(run.simulation, path)
    return paths


def test_two_files_share_a_device_on_the_users_word(capsys, jobs):
    assert json.loads(report(capsys, *jobs, "--format", "json"))["shared_devices"] == []
    (device,) = json.loads(report(capsys, *jobs, "--same-device", "--format", "json"))["shared_devices"]
    assert [process["pid"] for process in device["processes"]] == [41_207, 41_307]
    assert all(process["turns_ns"] for process in device["processes"])


def test_a_word_that_cannot_be_is_one_line(capsys, jobs, capture):
    assert main(["diagnose", "--same-device", str(jobs[0])]) == 2
    assert "takes traces of two processes or more" in capsys.readouterr().err
    assert main(["diff", "--same-device", *map(str, jobs)]) == 2
    assert capsys.readouterr().err.count("\n") == 1
