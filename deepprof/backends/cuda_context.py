"""The CUDA driver through ctypes: the context that the CUDA runtime uses on a device."""

from __future__ import annotations

import ctypes
from contextlib import ExitStack, suppress
from typing import Any

DRIVER = "libcuda.so.1"


class UncountedError(Exception):
    """The counters of a device cannot be read; the message is the reason, without a full stop."""


class CudaContext:
    """The primary context of a device, current on this thread; what it contains is released by `held`.

    `handle` is its address. Raises `UncountedError` without a driver or a device.
    """

    def __init__(self, held: ExitStack, device: int = 0) -> None:
        self.device = device
        self._driver = _load_driver()
        self._check_device()
        context = ctypes.c_void_p()
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        held.callback(self._release, "cuDevicePrimaryCtxRelease_v2", device)
        self._call("cuCtxPushCurrent_v2", context)
        held.callback(self._release, "cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))
        self.handle = context.value

    def synchronize(self) -> None:
        """Wait until all work of the context has ended."""
        self._call("cuCtxSynchronize")

    def _check_device(self) -> None:
        """Start the driver: CUPTI may be called only then, and one of its versions crashes without a device."""
        count = ctypes.c_int(0)
        self._call("cuInit", 0)
        self._call("cuDeviceGetCount", ctypes.byref(count))
        if count.value <= self.device:
            raise UncountedError("the NVIDIA driver shows no device")

    def _call(self, name: str, *arguments: Any) -> None:
        function = getattr(self._driver, name, None)
        result = function(*arguments) if function is not None else "no such function"
        if result:
            raise UncountedError(f"the NVIDIA driver refuses: {name} gives {result}")

    def _release(self, name: str, *arguments: Any) -> None:
        """Call a function that gives something back: if it fails there is nothing to do."""
        with suppress(UncountedError):
            self._call(name, *arguments)


def _load_driver() -> ctypes.CDLL:
    try:
        return ctypes.CDLL(DRIVER)
    except OSError as error:
        raise UncountedError(f"there is no NVIDIA driver ({DRIVER})") from error
