"""NVIDIA's range profiler (CUPTI, from CUDA 12.6 update 2 on) through ctypes: its functions, and what they need.

Every function takes one structure, whose first member states how large it is: later versions append members, and treat
those as unset that a caller does not know. `LAYOUTS` has the members of CUDA 12.9; tests compare them with NVIDIA's
headers from 12.9 to 13.5.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from ctypes import POINTER, c_char_p, c_int, c_size_t, c_uint8, c_uint16, c_uint32, c_void_p
from pathlib import Path
from typing import Any

from deepprof.backends.cuda_context import UncountedError
from deepprof.collectors.live.inject import find_library

MemberTypes = Sequence[tuple[str, Any]]
RANGE_PROFILER = 0  # CUPTI_PROFILER_TYPE_RANGE_PROFILER, and CUPTI_PROFILER_RANGE_PROFILING
USER_RANGE, USER_REPLAY = 2, 3  # CUPTI_UserRange, CUPTI_UserReplay
UNSUPPORTED, DISABLED = 1, 2  # CUPTI_PROFILER_CONFIGURATION_…
LIMITS = {  # members of DeviceSupported: why a device cannot be profiled
    "architecture": "CUPTI's range profiler does not know this GPU; it needs compute capability 7.5 or later",
    "sli": "GPUs that are joined by SLI cannot be profiled",
    "vGpu": "this virtual GPU (vGPU) may not be profiled; its host can allow that",
    "confidentialCompute": "a GPU in confidential computing mode cannot be profiled",
    "cmp": "mining processors (CMP) cannot be profiled",
    "wsl": "the GPU cannot be profiled under this version of WSL",
}
MISFIT = (
    "libcupti does not fit the NVIDIA driver; update the driver, or name a libcupti of its version in DEEPPROF_CUPTI"
)
FORBIDDEN = (
    "this user may not read the GPU's counters; run it as root, or let all users with the option "
    "NVreg_RestrictProfilingToAdminUsers=0 of NVIDIA's kernel module"
)
NO_COUNTER = "this GPU has no counter of its memory's bytes, as a part of one (MIG) or one that uses the host's memory"
NEW_CHIP = "libcupti does not know this GPU; name a newer one in DEEPPROF_CUPTI"
REASONS = {  # by CUptiResult
    14: MISFIT,  # CUPTI_ERROR_NOT_COMPATIBLE
    15: "CUPTI does not find libnvperf_host.so, which lies beside libcupti",  # CUPTI_ERROR_NOT_INITIALIZED
    17: NO_COUNTER,  # CUPTI_ERROR_INVALID_METRIC_NAME
    26: "another profiler reads the GPU's counters",  # CUPTI_ERROR_HARDWARE_BUSY
    33: LIMITS["vGpu"],  # CUPTI_ERROR_VIRTUALIZED_DEVICE_NOT_SUPPORTED
    35: FORBIDDEN,  # CUPTI_ERROR_INSUFFICIENT_PRIVILEGES
    39: "another profiler uses CUPTI in this process",  # CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED
    40: LIMITS["vGpu"],  # CUPTI_ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES
    41: LIMITS["confidentialCompute"],  # CUPTI_ERROR_CONFIDENTIAL_COMPUTING_NOT_SUPPORTED
    42: LIMITS["cmp"],  # CUPTI_ERROR_CMP_DEVICE_NOT_SUPPORTED
    43: "a part of a GPU (MIG) has no counters of its memory",  # CUPTI_ERROR_MIG_DEVICE_NOT_SUPPORTED
    44: LIMITS["sli"],  # CUPTI_ERROR_SLI_DEVICE_NOT_SUPPORTED
    45: LIMITS["wsl"],  # CUPTI_ERROR_WSL_DEVICE_NOT_SUPPORTED
}
MEANINGS = {  # of results that state more where they come from; so 12.9
    ("ProfilerHostInitialize", 1): NEW_CHIP,  # CUPTI_ERROR_INVALID_PARAMETER
    ("ProfilerHostInitialize", 27): NEW_CHIP,  # CUPTI_ERROR_NOT_SUPPORTED
    ("ProfilerHostConfigAddMetrics", 1): NO_COUNTER,  # CUPTI_ERROR_INVALID_PARAMETER
}
NO_SEARCH = "the compiled part that finds libcupti was not built; it needs Linux and a C compiler"
NO_LIBRARY = "no libcupti is found beside the CUDA runtime or in the system; name its file in DEEPPROF_CUPTI"
OLD_LIBRARY = "libcupti is older than CUDA 12.6 update 2 and has no range profiler"
NVPERF = ("libnvperf_host.so", "libnvperf_target.so")  # what libcupti loads by these names

BYTES, NAMES = POINTER(c_uint8), POINTER(c_char_p)
HOST, PROFILER = ("pHostObject", c_void_p), ("pRangeProfilerObject", c_void_p)
CONFIG = [("configImageSize", c_size_t), ("pConfigImage", BYTES)]
COUNTERS = [("pCounterDataImage", BYTES), ("counterDataImageSize", c_size_t)]
METRICS = ("numMetrics", c_size_t)
LAYOUTS: Mapping[str, MemberTypes] = {  # of functions cupti…; behind structSize and pPriv, which all have
    "ProfilerInitialize": [],
    "ProfilerDeInitialize": [],
    "ProfilerDeviceSupported": [("cuDevice", c_int), *((each, c_int) for each in ("isSupported", *LIMITS, "api"))],
    "DeviceGetChipName": [("deviceIndex", c_size_t), ("pChipName", c_char_p)],
    "ProfilerGetCounterAvailability": [
        *(("ctx", c_void_p), ("counterAvailabilityImageSize", c_size_t), ("pCounterAvailabilityImage", BYTES))
    ],
    "ProfilerHostInitialize": [
        *(("profilerType", c_int), ("pChipName", c_char_p), ("pCounterAvailabilityImage", BYTES), HOST)
    ],
    "ProfilerHostDeinitialize": [HOST],
    "ProfilerHostConfigAddMetrics": [HOST, ("ppMetricNames", NAMES), METRICS],
    "ProfilerHostGetConfigImageSize": [HOST, CONFIG[0]],
    "ProfilerHostGetConfigImage": [HOST, *CONFIG],
    "ProfilerHostGetNumOfPasses": [*CONFIG, ("numOfPasses", c_size_t)],
    "ProfilerHostEvaluateToGpuValues": [
        *(HOST, *COUNTERS, ("rangeIndex", c_size_t), ("ppMetricNames", NAMES), METRICS),
        ("pMetricValues", POINTER(ctypes.c_double)),
    ],
    "RangeProfilerEnable": [("ctx", c_void_p), PROFILER],
    "RangeProfilerDisable": [PROFILER],
    "RangeProfilerGetCounterDataSize": [
        *(PROFILER, ("pMetricNames", NAMES), METRICS, ("maxNumOfRanges", c_size_t)),
        *(("maxNumRangeTreeNodes", c_uint32), ("counterDataSize", c_size_t)),
    ],
    "RangeProfilerCounterDataImageInitialize": [PROFILER, ("counterDataSize", c_size_t), ("pCounterData", BYTES)],
    "RangeProfilerSetConfig": [
        *(PROFILER, ("configSize", c_size_t), ("pConfig", BYTES)),
        *(("counterDataImageSize", c_size_t), ("pCounterDataImage", BYTES), ("range", c_int), ("replayMode", c_int)),
        *(("maxRangesPerPass", c_size_t), ("numNestingLevels", c_uint16), ("minNestingLevel", c_uint16)),
        *(("passIndex", c_size_t), ("targetNestingLevel", c_uint16)),
    ],
    "RangeProfilerStart": [PROFILER],
    "RangeProfilerStop": [
        *(PROFILER, ("passIndex", c_size_t), ("targetNestingLevel", c_size_t), ("isAllPassSubmitted", c_uint8))
    ],
    "RangeProfilerPushRange": [PROFILER, ("pRangeName", c_char_p)],
    "RangeProfilerPopRange": [PROFILER],
    "RangeProfilerDecodeData": [PROFILER, ("numOfRangeDropped", c_size_t)],
    "RangeProfilerGetCounterDataInfo": [*COUNTERS, ("numTotalRanges", c_size_t)],
}


def _make_structure(function: str, members: MemberTypes) -> type[ctypes.Structure]:
    head = [("structSize", c_size_t), ("pPriv", c_void_p)]
    return type(f"{function}Params", (ctypes.Structure,), {"_fields_": [*head, *members]})


STRUCTURES = {function: _make_structure(function, members) for function, members in LAYOUTS.items()}


def measure_members(function: str) -> int:
    """Return the bytes up to the end of the last member, which is what `structSize` states, not the structure's own."""
    structure = STRUCTURES[function]
    last = getattr(structure, structure._fields_[-1][0])
    return int(last.offset + last.size)


class CuptiLibrary:
    """The functions of a libcupti. Raises `UncountedError` where they are not all there."""

    def __init__(self, path: Path) -> None:
        try:
            self._beside = [ctypes.CDLL(str(each)) for each in _list_nvperf(path)]
            self._library = ctypes.CDLL(str(path))
        except OSError as error:
            raise UncountedError(f"libcupti cannot be loaded: {' '.join(str(error).split())}") from error
        if not all(hasattr(self._library, f"cupti{function}") for function in LAYOUTS):
            raise UncountedError(OLD_LIBRARY)

    def call(self, function: str, **members: Any) -> Any:
        """Call a function of `LAYOUTS` and return the structure that it filled. Raises `UncountedError` if it fails."""
        params = STRUCTURES[function](structSize=measure_members(function), **members)
        result = getattr(self._library, f"cupti{function}")(ctypes.byref(params))
        if result:
            known = MEANINGS.get((function, result)) or REASONS.get(result)
            raise UncountedError(known or f"cupti{function} fails: {self._describe(result)}")
        return params

    def release(self, function: str, **members: Any) -> None:
        """Call a function that gives something back: if it fails there is nothing to do."""
        with suppress(UncountedError):
            self.call(function, **members)

    def _describe(self, result: int) -> str:
        text, describe = c_char_p(), getattr(self._library, "cuptiGetResultString", None)
        if describe is not None and not describe(result, ctypes.byref(text)) and text.value:
            return text.value.decode(errors="replace")
        return f"error {result}"


def _list_nvperf(path: Path) -> Iterator[Path]:
    """Yield what libcupti loads by name: loaded before from next to it, it is found wherever that is."""
    yield from (beside for name in NVPERF if (beside := path.with_name(name)).is_file())


def find_cupti() -> Path:
    """Return the libcupti that the live collector would take in this process.

    Raises `UncountedError` where there is none, or the collector was not built.
    """
    library = find_library()
    search = None if library is None else getattr(ctypes.CDLL(str(library)), "deepprof_find_cupti", None)
    if search is None:
        raise UncountedError(NO_SEARCH)
    search.restype = c_char_p
    found = search()
    if found is None:
        raise UncountedError(NO_LIBRARY)
    return Path(os.fsdecode(found))
