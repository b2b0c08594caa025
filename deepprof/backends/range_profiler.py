"""Counts over one range of the work on an NVIDIA GPU, in one pass and without replay, through CUPTI's range profiler.

Replay would need the state of the runs to be saved and brought back; the counter of the memory fits into one pass.
The order of calls is that of CUPTI's documentation; on an H200 copies move twice their size.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from math import isfinite
from typing import Any

from deepprof.backends.cuda_context import CudaContext, UncountedError
from deepprof.backends.cupti_calls import (
    DISABLED,
    LIMITS,
    RANGE_PROFILER,
    UNSUPPORTED,
    USER_RANGE,
    USER_REPLAY,
    CuptiLibrary,
)

NAME = b"deepprof"  # of the range
CANNOT = (UNSUPPORTED, DISABLED)
SEVERAL_PASSES = "the counter of the memory needs more than one pass on this GPU, and runs are not repeated for it"
NO_SUPPORT = "CUPTI says that this GPU cannot be profiled"
LOST = "CUPTI has lost the counted range"
NO_NUMBERS = "CUPTI gives no numbers for the counted range"


class RangeProfiler:
    """Counts `metrics` over one range of a context that is current; what it contains is released by `held`.

    Each method raises `UncountedError` where CUPTI refuses.
    """

    def __init__(self, held: ExitStack, cupti: CuptiLibrary, context: CudaContext, metrics: Sequence[str]) -> None:
        self._held, self._cupti, self._context, self._running = held, cupti, context, ExitStack()
        self._names = (ctypes.c_char_p * len(metrics))(*(each.encode() for each in metrics))
        cupti.call("ProfilerInitialize")
        held.callback(cupti.release, "ProfilerDeInitialize")
        self._check_device()
        self._kept: list[Any] = []  # what CUPTI's host object has the addresses of, as long as it lives
        self._host = {"pHostObject": self._open_host()}
        held.callback(cupti.release, "ProfilerHostDeinitialize", **self._host)
        self._config = self._schedule()
        enabled = cupti.call("RangeProfilerEnable", ctx=context.handle)
        self._profiler = {"pRangeProfilerObject": enabled.pRangeProfilerObject}
        held.callback(cupti.release, "RangeProfilerDisable", **self._profiler)
        self._counters = self._make_counters()
        self._configure()

    def start(self) -> None:
        """Begin the range: what was launched before is not in it."""
        self._held.callback(self._abandon)
        self._cupti.call("RangeProfilerStart", **self._profiler)
        self._running.callback(self._stop)
        self._context.synchronize()
        self._cupti.call("RangeProfilerPushRange", pRangeName=NAME, **self._profiler)
        self._running.callback(self._cupti.call, "RangeProfilerPopRange", **self._profiler)
        self._running.callback(self._context.synchronize)

    def read(self) -> list[float]:
        """End the range and return the value of every metric over all of it."""
        self._running.close()
        decoded = self._cupti.call("RangeProfilerDecodeData", **self._profiler)
        image = {"pCounterDataImage": self._counters, "counterDataImageSize": len(self._counters)}
        ranges = self._cupti.call("RangeProfilerGetCounterDataInfo", **image).numTotalRanges
        if decoded.numOfRangeDropped or ranges != 1:
            raise UncountedError(LOST)
        values = (ctypes.c_double * len(self._names))()
        asked = {"ppMetricNames": self._names, "numMetrics": len(self._names), "pMetricValues": values}
        self._cupti.call("ProfilerHostEvaluateToGpuValues", **self._host, **image, rangeIndex=0, **asked)
        if not all(isfinite(value) and value >= 0 for value in values):
            raise UncountedError(NO_NUMBERS)
        return list(values)

    def _check_device(self) -> None:
        """Raise `UncountedError` with the reason where CUPTI states that a device cannot be profiled."""
        support = self._cupti.call("ProfilerDeviceSupported", cuDevice=self._context.device, api=RANGE_PROFILER)
        reasons = [reason for member, reason in LIMITS.items() if getattr(support, member) in CANNOT]
        if support.isSupported in CANNOT:
            raise UncountedError(reasons[0] if reasons else NO_SUPPORT)

    def _open_host(self) -> Any:
        """Return CUPTI's object that has the metrics of the chip, of those counters that may be read now."""
        chip = self._cupti.call("DeviceGetChipName", deviceIndex=self._context.device).pChipName
        name, context = "ProfilerGetCounterAvailability", {"ctx": self._context.handle}
        size = self._cupti.call(name, **context).counterAvailabilityImageSize
        image = _make_bytes(size)
        self._cupti.call(name, **context, counterAvailabilityImageSize=size, pCounterAvailabilityImage=image)
        self._kept = [chip, image]
        asked = {"profilerType": RANGE_PROFILER, "pChipName": chip, "pCounterAvailabilityImage": image}
        return self._cupti.call("ProfilerHostInitialize", **asked).pHostObject

    def _schedule(self) -> Any:
        """Return the image that states how the metrics are counted, if that takes one pass."""
        asked = {"ppMetricNames": self._names, "numMetrics": len(self._names)}
        self._cupti.call("ProfilerHostConfigAddMetrics", **self._host, **asked)
        size = self._cupti.call("ProfilerHostGetConfigImageSize", **self._host).configImageSize
        image = _make_bytes(size)
        named = {"configImageSize": size, "pConfigImage": image}
        self._cupti.call("ProfilerHostGetConfigImage", **self._host, **named)
        if self._cupti.call("ProfilerHostGetNumOfPasses", **named).numOfPasses != 1:
            raise UncountedError(SEVERAL_PASSES)
        return image

    def _make_counters(self) -> Any:
        asked = {"pMetricNames": self._names, "numMetrics": len(self._names)}
        room = {"maxNumOfRanges": 1, "maxNumRangeTreeNodes": 1}
        name = "RangeProfilerGetCounterDataSize"
        size = self._cupti.call(name, **self._profiler, **asked, **room).counterDataSize
        image = _make_bytes(size)
        name = "RangeProfilerCounterDataImageInitialize"
        self._cupti.call(name, **self._profiler, counterDataSize=size, pCounterData=image)
        return image

    def _configure(self) -> None:
        """Ask for one range that we border, in one pass; neither it nor its nesting is replayed."""
        config = {"pConfig": self._config, "configSize": len(self._config)}
        counters = {"pCounterDataImage": self._counters, "counterDataImageSize": len(self._counters)}
        levels = {"numNestingLevels": 1, "minNestingLevel": 1, "passIndex": 0, "targetNestingLevel": 1}
        mode = {"range": USER_RANGE, "replayMode": USER_REPLAY, "maxRangesPerPass": 1}
        self._cupti.call("RangeProfilerSetConfig", **self._profiler, **config, **counters, **mode, **levels)

    def _stop(self) -> None:
        if not self._cupti.call("RangeProfilerStop", **self._profiler).isAllPassSubmitted:
            raise UncountedError(LOST)

    def _abandon(self) -> None:
        with suppress(UncountedError):
            self._running.close()


def _make_bytes(size: int) -> Any:
    return (ctypes.c_uint8 * size)()
