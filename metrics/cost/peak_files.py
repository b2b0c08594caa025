"""Files of peaks: those that `deepprof peak` stored for this machine, and those that a user gives by hand."""

from __future__ import annotations

import difflib
import os
import platform
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path

import msgspec

from deepprof.collectors.errors import UsageError
from deepprof.metrics.cost.roofs import DevicePeaks, PeaksFile, find_peaks, list_devices

LARGEST_NBYTES = 1 << 20
STORED = ("cpu", "cuda")  # names of what `deepprof peak` measured on this machine
SUFFIXES = (".json", ".toml")


def load_peaks(text: str, variables: Mapping[str, str] = os.environ) -> DevicePeaks:
    """Return the peaks that `text` names: a known device, `cpu` or `cuda` as measured here, or a file of one device.

    Raises `UsageError` where there are none, with names that are alike.
    """
    if text in STORED:
        return _read_stored(text, variables)
    if text.lower().endswith(SUFFIXES) or os.sep in text:
        return read_peaks(Path(text))
    found = find_peaks(text)
    if found is None:
        raise UsageError(f"{text!r}: no peaks of such a device are known; {_advise_on_devices(text)}")
    return found


def _advise_on_devices(name: str) -> str:
    """Return which known devices have names like `name`, and what else a user can give."""
    names = [name for peaks in list_devices() for name in (*peaks.names, peaks.name)]
    by_lower = {name.lower(): name for name in names}
    near = difflib.get_close_matches(name.lower(), by_lower, 4, 0.5)
    like = [by_lower[each] for each in near] or sorted(names)[:4]
    many = len(list_devices())
    return f"name one ({', '.join(like)}, …; {many} are known), a file, or cpu or cuda after `deepprof peak`"


def read_peaks(path: Path) -> DevicePeaks:
    """Return the one device of a file in JSON or TOML (schema `deepprof.peaks/1`); raises `UsageError`."""
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_NBYTES + 1)
        if len(content) > LARGEST_NBYTES:
            raise UsageError(f"{path}: more than {LARGEST_NBYTES:,} bytes; a file of peaks has a device or a few")
        return _one_of(_decode(content), path)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}; give a file of peaks or the name of a device") from error
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        said = str(error) or type(error).__name__
        raise UsageError(f"{path}: no file of peaks ({said}); `deepprof peak -o FILE` writes one") from error


def _decode(content: bytes) -> PeaksFile:
    """Return a file's devices; raises `MsgspecError` or `ValueError`."""
    if content.lstrip()[:1] == b"{":
        return msgspec.json.decode(content, type=PeaksFile)
    return msgspec.convert(tomllib.loads(content.decode()), PeaksFile)


def _one_of(file: PeaksFile, path: Path) -> DevicePeaks:
    if len(file.devices) > 1:
        raise UsageError(f"{path}: holds the peaks of {len(file.devices)} devices; leave one in it")
    return file.devices[0]


def encode_peaks(peaks: DevicePeaks) -> bytes:
    """Return a device's peaks as the content of a file, which `read_peaks` reads."""
    return msgspec.json.format(msgspec.json.encode(PeaksFile("deepprof.peaks/1", (peaks,)))) + b"\n"


def find_store(device: str, variables: Mapping[str, str] = os.environ) -> Path:
    """Return where this machine's measured peaks of `cpu` or `cuda` are, whether or not they were measured.

    It is in the user's data directory, which machines may share: each has its own files.
    """
    data = variables.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")
    machine = re.sub(r"[^\w.-]", "_", platform.node(), flags=re.ASCII)[:100] or "machine"
    return Path(data, "deepprof", "peaks", f"{machine}-{device}.json")


def _read_stored(device: str, variables: Mapping[str, str]) -> DevicePeaks:
    """Return what was measured on this machine; raises `UsageError` where nothing was."""
    path = find_store(device, variables)
    if not path.is_file():
        raise UsageError(f"no peaks of this machine's {device} are stored; run `deepprof peak --device {device}` first")
    return read_peaks(path)
