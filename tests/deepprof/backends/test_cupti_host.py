"""NVIDIA's own libcupti without a device: whether chips have the counter, and whether it needs one pass."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from deepprof.backends.cupti_calls import NEW_CHIP, NO_COUNTER
from tests.collectors.live.vendor_wheels import CUPTI_HOST, cupti_library

ROOT = Path(__file__).resolve().parents[3]
CHIPS = ["TU102", "TU117", "GA100", "GA102", "GH100", "AD102", "AD107", "GB100", "GB102", "GB202", "GB206"]
ON_A_CHIP, UNKNOWN = ["GA10B", "GB10B"], "XY100"  # those that use the memory of the host
ASK = """
import ctypes, json, sys
from pathlib import Path
from deepprof.backends.cuda_context import UncountedError
from deepprof.backends.cupti_calls import RANGE_PROFILER, CuptiLibrary
from deepprof.backends.dram_counter import METRICS

def count_passes(chip):
    made = cupti.call("ProfilerHostInitialize", profilerType=RANGE_PROFILER, pChipName=chip.encode())
    host = {"pHostObject": made.pHostObject}
    names = (ctypes.c_char_p * len(METRICS))(*(each.encode() for each in METRICS))
    try:
        cupti.call("ProfilerHostConfigAddMetrics", **host, ppMetricNames=names, numMetrics=len(METRICS))
        size = cupti.call("ProfilerHostGetConfigImageSize", **host).configImageSize
        image = {"configImageSize": size, "pConfigImage": (ctypes.c_uint8 * size)()}
        cupti.call("ProfilerHostGetConfigImage", **host, **image)
        return cupti.call("ProfilerHostGetNumOfPasses", **image).numOfPasses
    finally:
        cupti.call("ProfilerHostDeinitialize", **host)

def ask(chip):
    try:
        return count_passes(chip)
    except UncountedError as error:
        return str(error)

cupti = CuptiLibrary(Path(sys.argv[1]))
print(json.dumps({chip: ask(chip) for chip in sys.argv[2:]}))
"""


@pytest.fixture(scope="module")
def answers() -> dict[str, int | str]:
    """Return of every chip the passes of the counter, or what a user is told, from its own process."""
    command = [sys.executable, "-c", ASK, str(cupti_library(CUPTI_HOST)), *CHIPS, *ON_A_CHIP, UNKNOWN]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    found: dict[str, int | str] = json.loads(done.stdout)
    return found


def test_chips_with_a_memory_of_their_own_count_its_bytes_in_one_pass(answers: dict[str, int | str]) -> None:
    assert {chip: answers[chip] for chip in CHIPS} == dict.fromkeys(CHIPS, 1)


def test_chips_without_one_have_no_counter(answers: dict[str, int | str]) -> None:
    assert {chip: answers[chip] for chip in ON_A_CHIP} == dict.fromkeys(ON_A_CHIP, NO_COUNTER)


def test_a_chip_that_the_library_does_not_know_is_told(answers: dict[str, int | str]) -> None:
    assert answers[UNKNOWN] == NEW_CHIP
