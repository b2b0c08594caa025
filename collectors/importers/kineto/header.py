"""The header of a Kineto document: the clock, the devices, the rank."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import msgspec
import numpy as np
import polars as pl
from msgspec import Struct

from deepprof.collectors.importers.kineto.kineto_schema import NULL, KinetoDocument, decode_loosely
from deepprof.collectors.importers.value_columns import integers, parse_integer, unsigned
from deepprof.collectors.times import EARLIEST_UNIX_NS, TIME_LIMIT_NS
from deepprof.collectors.trace import DEVICES, LAYERS, empty_table

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import numpy.typing as npt

RANK_LIMIT = 2**31
VERSIONS = ("cuda_runtime_version", "cuda_driver_version", "hip_runtime_version", "hip_driver_version")
VERSION_LENGTH = 80  # characters; every device's record gets a copy


class KinetoClock(Struct, frozen=True):
    """A clock: `base_ns` must be added to every time; `kind` names the origin of the sums."""

    base_ns: int
    kind: Literal["unix", "session"]


class KinetoHeader(Struct, frozen=True, eq=False):
    """The header fields, each None or empty if the document has none or an invalid one.

    `layers` has the schema `LAYERS`; it is None if it is invalid.
    """

    base_ns: int | None
    devices: pl.DataFrame
    rank: int | None
    world_size: int | None
    version: Any
    layers: pl.DataFrame | None


def _read_layers(document: KinetoDocument, path: Path) -> pl.DataFrame | None:
    if document.layers == NULL:
        return empty_table(LAYERS)
    from deepprof.collectors.layers.layers_file import decode_embedded

    return decode_embedded(document.layers, path)


def read_header(document: KinetoDocument, path: Path) -> KinetoHeader:
    """Return the header of `document`, which is in `path`; an invalid field never makes the trace fail."""
    distributed = decode_loosely(document.distributed)
    distributed = distributed if isinstance(distributed, dict) else {}
    base = parse_integer(decode_loosely(document.base))
    return KinetoHeader(
        base_ns=base if base is not None and 0 < base < TIME_LIMIT_NS else None,
        devices=_read_devices(decode_loosely(document.devices), _read_versions(document, distributed)),
        rank=_parse_rank(distributed.get("rank")),
        world_size=_parse_rank(distributed.get("world_size")),
        version=decode_loosely(document.version),
        layers=_read_layers(document, path),
    )


def _parse_rank(value: Any) -> int | None:
    """Return `value` if it can be a rank or a number of ranks, else None."""
    rank = parse_integer(value)
    return rank if rank is not None and 0 <= rank < RANK_LIMIT else None


def read_clock(times_us: npt.NDArray[np.float64], base_ns: int | None) -> KinetoClock:
    """Return the clock of events that start at `times_us` microseconds, absolute or relative to `base_ns`.

    The base is not added to times that already count from the epoch.
    """
    base = base_ns or 0
    finite = times_us[np.isfinite(times_us)]
    median = float(np.median(finite)) if len(finite) else 0.0
    middle_ns = median * 1000
    if middle_ns > base / 2:
        base = 0
    return KinetoClock(base, "unix" if base + middle_ns > EARLIEST_UNIX_NS else "session")


def _read_versions(document: KinetoDocument, distributed: Mapping[str, Any]) -> dict[str, Any]:
    """Return the versions of CUDA, HIP and NCCL, by the keys of the file; values too long for one are left out."""
    told = {key: decode_loosely(getattr(document, key)) for key in VERSIONS}
    told["nccl_version"] = distributed.get("nccl_version")
    return {
        key: value
        for key, value in told.items()
        if isinstance(value, int) or (isinstance(value, str) and len(value) <= VERSION_LENGTH)
    }


def _read_devices(properties: Any, versions: Mapping[str, Any]) -> pl.DataFrame:
    """Return the DEVICES table of the `deviceProperties` list; entries without a usable id are left out.

    The `properties` of every contain the `versions` too.
    """
    listed = [entry for entry in properties if isinstance(entry, dict)] if isinstance(properties, list) else []
    entries = [{**versions, **entry} for entry in listed]
    multiprocessors = integers([entry.get("numSms") for entry in entries])
    table = pl.DataFrame(
        {
            "device": integers([entry.get("id") for entry in entries]),
            "name": pl.Series([str(entry.get("name", "")) for entry in entries], dtype=pl.String),
            "memory_nbytes": unsigned([entry.get("totalGlobalMem") for entry in entries]),
            "multiprocessors": multiprocessors.set(~multiprocessors.is_between(0, 2**32 - 1), None),
            "properties": pl.Series([msgspec.json.encode(entry).decode() for entry in entries], dtype=pl.String),
        }
    )
    known = table.filter(pl.col("device").is_between(0, 2**16 - 1)).unique("device", keep="first")
    return known.cast(DEVICES).sort("device")
