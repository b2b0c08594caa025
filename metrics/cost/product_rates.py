"""How much faster a device multiplies in other types than float32 on ordinary units: what rules on precision compare.

The rates come from the device's own peaks, else from its family (`families.toml`), which its name or its compute
capability states. Where neither is recorded, the names of kernels state the least that the device can be: a kernel that
is named after a generation does not run on an older one.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files
from typing import Annotated, Literal

import msgspec
from msgspec import Struct

from deepprof.metrics.cost.roofs import DevicePeaks, RateType, Text, normalise_name

Times = Annotated[float, msgspec.Meta(gt=0, lt=1e4)]
CAPABILITIES = (  # under which recorders write the two parts of a compute capability
    ("computeMajor", "computeMinor"),
    ("computeCapabilityMajor", "computeCapabilityMinor"),
    ("compute_cap_major", "compute_cap_minor"),
)
OF_AMD = re.compile(r'(?i)"hip_|"AMD"|"warpSize": ?64')
GENERATIONS = {"maxwell": 50, "pascal": 60, "volta": 70, "turing": 75, "ampere": 80, "hopper": 90, "blackwell": 100}
NAMED = re.compile(rf"(?:^|_|\W)(?:({'|'.join(GENERATIONS)})_|(?:sm|cutlass_)(\d{{2,3}})a?_)")
ISA = re.compile(r"_ISA([0-9a-f]{3})_|\bgfx([0-9a-f]{3,4})\b")
TENSOR_CORES = 70  # the first compute capability with matrix units
MAX_PROPERTIES_CHARS, MAX_NAME_CHARS = 100_000, 4096


class _DeviceFamily(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Devices with the same rates relative to float32 on ordinary units; see `families.toml` for the fields."""

    name: Text
    match: Text
    source: Text
    times: dict[RateType, Times]
    double_times: Times
    capability: int | None = None
    isa: str | None = None


class _FamiliesFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The file of families."""

    schema: Literal["deepprof.families/1"]
    families: Annotated[tuple[_DeviceFamily, ...], msgspec.Meta(min_length=1, max_length=1000)]


class ProductRates(Struct, frozen=True):
    """How fast matrix units multiply, by type of the factors, and ordinary units in float64, over float32 on ordinary.

    `device` is its name for sentences. `is_recorded`: the recording names the device or its compute capability, or
    kernels are built for it alone; else `device` is the least generation that kernels' names state, and the rates are
    those of its fastest device.
    """

    device: str
    times: Mapping[RateType, float]
    double_times: float | None
    is_recorded: bool
    is_amd: bool = False


def find_product_rates(
    name: str | None, peaks: DevicePeaks | None, properties: str | None = None, kernels: Iterable[str] = ()
) -> ProductRates | None:
    """Return the rates of a device, None where nothing recorded states them.

    `name` and `properties` (JSON) are the recorder's, `kernels` are names of kernels that ran.
    """
    family = _find_family(name or "") or _find_by_capability(properties)
    if peaks is not None:
        return _rate_peaks(name or peaks.name, peaks, family)
    if family is not None:
        return _rate_family(family, name or f"a device like {family.name}", is_recorded=True)
    return _find_by_kernels(kernels)


def _rate_peaks(name: str, peaks: DevicePeaks, family: _DeviceFamily | None) -> ProductRates | None:
    """Return the rates that a device's peaks state; what they leave out is the family's."""
    single = peaks.vector_flops_per_s.get("float32")
    if single is None:
        return None if family is None else _rate_family(family, name, is_recorded=True)
    times: dict[RateType, float] = {of: rate / single for of, rate in peaks.matrix_flops_per_s.items()}
    double = peaks.vector_flops_per_s.get("float64")
    by_family = None if family is None else family.double_times
    return ProductRates(name, times, double / single if double else by_family, True, peaks.name.startswith("AMD"))


def _rate_family(family: _DeviceFamily, device: str, *, is_recorded: bool) -> ProductRates:
    return ProductRates(device, family.times, family.double_times, is_recorded, family.name.startswith("AMD"))


@cache
def list_families() -> tuple[_DeviceFamily, ...]:
    """Return all families, in the order in which they are tried."""
    text = files(__package__).joinpath("families.toml").read_text(encoding="utf-8")
    return msgspec.convert(tomllib.loads(text), _FamiliesFile).families


def _find_family(name: str) -> _DeviceFamily | None:
    words = normalise_name(name)
    return next((each for each in list_families() if words and re.search(each.match, words)), None)


def _find_by_capability(properties: str | None) -> _DeviceFamily | None:
    """Return the family that a recorded compute capability states; on AMD only where it states exactly one."""
    known = _read_capability(properties)
    if known is None:
        return None
    major, minor = known
    if OF_AMD.search(properties or ""):
        alike = [each for each in list_families() if (each.isa or "").startswith(f"{major}{minor}")]
        return alike[0] if len(alike) == 1 else None
    return next((each for each in list_families() if each.capability == 10 * major + minor), None)


def _read_capability(properties: str | None) -> tuple[int, int] | None:
    """Return the two parts of the compute capability in a recorder's properties."""
    if not properties or len(properties) > MAX_PROPERTIES_CHARS:
        return None
    try:
        found = json.loads(properties)
    except (ValueError, RecursionError):
        return None
    pairs = ((found.get(one), found.get(other)) for one, other in CAPABILITIES) if isinstance(found, dict) else ()
    return next(((a, b) for a, b in pairs if isinstance(a, int) and isinstance(b, int)), None)


def _find_by_kernels(kernels: Iterable[str]) -> ProductRates | None:
    """Return the rates of the fastest device of the least generation that kernels' names state."""
    names = list(kernels)
    least = max((_read_generation(each) for each in names), default=0)
    if least >= TENSOR_CORES:
        able = [each for each in list_families() if each.capability and each.capability <= least]
        family = max(able, key=lambda each: each.capability or 0)
        generation = next(name for name, first in reversed(GENERATIONS.items()) if first <= least)
        return _rate_family(family, generation.title(), is_recorded=False)
    found = (ISA.search(each[:MAX_NAME_CHARS]) for each in names)
    isas = {each[1] or each[2] for each in found if each}
    family_of_isa = next((each for each in list_families() if each.isa in isas), None)
    return None if family_of_isa is None else _rate_family(family_of_isa, family_of_isa.name, is_recorded=True)


def _read_generation(kernel: str) -> int:
    """Return the compute capability that a kernel's name states, 0 for none."""
    found = NAMED.search(kernel[:MAX_NAME_CHARS])
    if not found:
        return 0
    return GENERATIONS[found[1]] if found[1] else int(found[2])
