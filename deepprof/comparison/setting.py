"""What two runs ran on, where it differs: hardware, world size, framework and software.

Only what both runs state is compared: a trace that names no device does not differ from one that does. All of it is
text from the files, cut to a length that fits a line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import polars as pl

from deepprof.collectors.trace import Trace
from deepprof.diagnosis.frameworks import named_framework
from deepprof.results.analysis_result import AnalysisResult
from deepprof.results.comparison_result import Difference

MAX_SETTINGS_NAMED = 4  # models, sizes or versions named
MAX_SETTING_CHARS = 80  # characters of what a run states
KEPT_RATIO = 0.05  # of a device's memory: drivers reserve some, in different amounts
MODEL = re.compile(r"(?!Agent \d+$).*\d", re.DOTALL)  # a maker's name or a number in a list is no model
DIGIT = re.compile(r"\d")
FRAMEWORKS: Mapping[str, str] = MappingProxyType({"pytorch": "PyTorch", "jax": "JAX", "tensorflow": "TensorFlow"})
# Keys under which recorders write versions into the record of a device.
VERSIONS: Mapping[str, str] = MappingProxyType(
    {
        "cuda_runtime_version": "CUDA runtime",
        "cuda_driver_version": "CUDA driver",
        "hip_runtime_version": "HIP runtime",
        "hip_driver_version": "HIP driver",
        "nccl_version": "NCCL",
    }
)


def compare_settings(a: AnalysisResult, b: AnalysisResult) -> tuple[Difference, ...]:
    """Return the settings that both runs state and that differ; none where a run's traces are on other machines."""
    if not (a.traces and b.traces):
        return ()
    before, after = _describe_setting(a.traces), _describe_setting(b.traces)
    differing = [key for key, value in before.items() if value and after.get(key) and after[key] != value]
    if "hardware" in differing:  # another model has another memory
        differing = [key for key in differing if not key.endswith("of a device")]
    elif _same_memory(a.traces, b.traces):
        differing = [key for key in differing if key != "memory of a device"]
    return tuple(Difference(key, before[key][:MAX_SETTING_CHARS], after[key][:MAX_SETTING_CHARS]) for key in differing)


def _describe_setting(traces: Sequence[Trace]) -> dict[str, str]:
    """Return the settings that the traces of a run state, by kind; "" where they state nothing."""
    devices = pl.concat(map(_used_devices, traces))
    models = {
        name[:MAX_SETTING_CHARS].removeprefix("NVIDIA ")
        for name in devices["name"].drop_nulls()
        if MODEL.match(name[:MAX_SETTING_CHARS])
    }
    worlds = {trace.world_size for trace in traces if trace.world_size}
    counted = (
        {"world size": join(map(str, sorted(worlds)))} if worlds else {"number of recorded ranks": str(len(traces))}
    )
    return {
        "hardware": join(sorted(models)),
        "memory of a device": join(f"{nbytes / 2**30:.1f} GiB" for nbytes in _values_of(devices, "memory_nbytes")),
        "multiprocessors of a device": join(map(str, _values_of(devices, "multiprocessors"))),
        **counted,
        "framework": join(sorted({FRAMEWORKS.get(named_framework(trace), "") for trace in traces} - {""})),
        **_describe_versions(traces),
    }


def _used_devices(trace: Trace) -> pl.DataFrame:
    """Return the devices that a trace has work on: recorders list all devices of a machine."""
    return trace.devices.join(trace.device_events.select("device").unique(), on="device", how="semi")


def _values_of(devices: pl.DataFrame, column: str) -> list[int]:
    """Return the values of a column, each once, in order."""
    return devices[column].drop_nulls().unique().sort().to_list()


def _same_memory(a: Sequence[Trace], b: Sequence[Trace]) -> bool:
    """Return whether two runs' smallest and largest devices have the same memory, but for what drivers reserve."""
    before, after = (_values_of(pl.concat(map(_used_devices, traces)), "memory_nbytes") for traces in (a, b))
    ends = ((before[0], after[0]), (before[-1], after[-1])) if before and after else ()
    return all(abs(x - y) <= KEPT_RATIO * max(x, y) for x, y in ends)


def _describe_versions(traces: Sequence[Trace]) -> dict[str, str]:
    """Return the versions of runtimes, drivers and libraries, by name."""
    records = [record for trace in traces for record in _read_properties(trace)]
    found = {word: {_spell(key, record.get(key)) for record in records} for key, word in VERSIONS.items()}
    return {word: join(sorted(versions - {""})) for word, versions in found.items()}


def _read_properties(trace: Trace) -> Iterable[dict[str, Any]]:
    """Yield the recorder's own record of every device."""
    for text in trace.devices["properties"].drop_nulls():
        try:
            record = json.loads(text)
        except (ValueError, RecursionError):
            continue
        if isinstance(record, dict):
            yield record


def _spell(key: str, version: Any) -> str:
    """Return a version as people write it, "" where it is none.

    CUDA counts 1000 · major + 10 · minor, HIP 10⁷ · major + 10⁵ · minor + patch.
    """
    if isinstance(version, str):
        return version[:MAX_SETTING_CHARS] if DIGIT.search(version) else ""
    if isinstance(version, bool) or not isinstance(version, int) or not 0 < version < 2**31:
        return ""
    if key.startswith("cuda"):
        return f"{version // 1000}.{version % 1000 // 10}"
    if key.startswith("hip"):
        return f"{version // 10**7}.{version // 10**5 % 100}.{version % 10**5}"
    return str(version)


def join(words: Iterable[str]) -> str:
    """Return the first few words with commas."""
    return ", ".join(word[:MAX_SETTING_CHARS] for word in list(words)[:MAX_SETTINGS_NAMED])
