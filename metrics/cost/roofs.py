"""The peaks of a device, and how far what ran on it is from them: the roofline.

Peaks of devices are files in `peaks/`, each figure with the vendor's document that states it; none counts structured
sparsity.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files
from typing import Annotated, Literal, get_args

import msgspec
import polars as pl

MEMORY = "memory"  # the level of the device's own memory, or of a host's
SHORTEST_KERNEL_NS = 2_000  # what a kernel that does nothing takes on the device, about
MEMORY_TOLERANCE_RATIO = 0.01  # recorders subtract what a driver keeps
VENDORS = frozenset({"nvidia", "tesla", "geforce", "amd", "ati", "instinct", "radeon", "graphics"})
RateType = Literal["float64", "float32", "tf32", "float16", "bfloat16", "float8", "float4", "int8"]
RATE_TYPES: tuple[RateType, ...] = get_args(RateType)
# Types of factors in which models are trained without scaling tensors one by one; of equal rates the first counts.
TRAINING_TYPES: tuple[RateType, ...] = ("bfloat16", "float16", "tf32")
Rate = Annotated[float, msgspec.Meta(gt=0, lt=1e21)]
Text = Annotated[str, msgspec.Meta(min_length=1, max_length=300)]
Count = Annotated[int, msgspec.Meta(gt=0, lt=2**53)]


class DevicePeaks(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a device can do at most.

    `source` is the document that states the figures, or how they were measured. `vector_flops_per_s` are the rates of
    its ordinary units by element type, `matrix_flops_per_s` those of its matrix units (tensor cores) for products with
    such operands, dense. `memory_nbytes_per_s` has the rate of every level of memory, `MEMORY` and where the vendor
    states them caches, `cache_nbytes` is the size of the last
    cache before the memory. `names` are what recorders write for it.
    """

    name: Text
    source: Text
    vector_flops_per_s: dict[RateType, Rate] = {}
    matrix_flops_per_s: dict[RateType, Rate] = {}
    memory_nbytes_per_s: dict[Text, Rate] = {}
    names: tuple[Text, ...] = ()
    memory_nbytes: Count | None = None
    multiprocessors: Count | None = None
    cache_nbytes: Count | None = None
    boost_clock_hz: Rate | None = None
    threads: Count | None = None
    is_measured: bool = False
    shortest_kernel_ns: Annotated[int, msgspec.Meta(ge=0, lt=2**53)] = SHORTEST_KERNEL_NS

    def find_product_rate(self, dtype: str | None) -> float | None:
        """Return the FLOP/s of products of `dtype`: of the matrix units if they take it, else of the vector units."""
        rate_type = find_rate_type(dtype)
        if rate_type is None:
            return None
        return self.matrix_flops_per_s.get(rate_type) or self.vector_flops_per_s.get(rate_type)

    def find_fastest_type(self) -> RateType | None:
        """Return the type of `TRAINING_TYPES` in which the matrix units are fastest; None where they use none."""
        known = [name for name in TRAINING_TYPES if name in self.matrix_flops_per_s]
        return max(known, key=self.matrix_flops_per_s.__getitem__, default=None)


class PeaksFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file of peaks, TOML of a vendor's devices or JSON of a measured one."""

    schema: Literal["deepprof.peaks/1"]
    devices: Annotated[tuple[DevicePeaks, ...], msgspec.Meta(min_length=1, max_length=1000)]


def find_rate_type(dtype: str | None) -> RateType | None:
    """Return which rate counts for elements of `dtype`: `float8` for `float8_e4m3fn`; None where none does."""
    for found in RATE_TYPES:
        if dtype == found or (dtype or "").startswith(f"{found}_"):
            return found
    return "int8" if dtype == "uint8" else None


@lru_cache(maxsize=1)
def list_devices() -> tuple[DevicePeaks, ...]:
    """Return every device whose vendor's figures are known here, sorted by name."""
    found: list[DevicePeaks] = []
    for path in files(__package__).joinpath("peaks").iterdir():
        if path.name.endswith(".toml"):
            found += msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), PeaksFile).devices
    return tuple(sorted(found, key=lambda peaks: peaks.name))


def find_peaks(
    device_name: str, *, multiprocessors: int | None = None, memory_nbytes: int | None = None
) -> DevicePeaks | None:
    """Return the vendor's figures of the device that a recorder calls `device_name`, None for one that is unknown.

    Only a name that is in the files counts, whatever its case, punctuation and vendor: products of one family
    differ (an H100 is an SXM, a PCIe or an NVL). Some AMD drivers give a device no name of its own; such a one is
    recognised by its compute units and its memory if exactly one known device has as many.
    """
    key = normalise_name(device_name)
    if key:
        return _by_name().get(key)
    if multiprocessors is None or memory_nbytes is None:
        return None
    alike = [peaks for peaks in list_devices() if _is_alike(peaks, multiprocessors, memory_nbytes)]
    return alike[0] if len(alike) == 1 else None


def normalise_name(name: str) -> str:
    """Return the words of a device's name in lower case, without its vendor's."""
    return " ".join(word for word in re.findall(r"[a-z0-9]+", name.lower()) if word not in VENDORS)


@lru_cache(maxsize=1)
def _by_name() -> Mapping[str, DevicePeaks]:
    return {normalise_name(name): peaks for peaks in list_devices() for name in (peaks.name, *peaks.names)}


def _is_alike(peaks: DevicePeaks, multiprocessors: int, memory_nbytes: int) -> bool:
    """Return whether `peaks` are of an AMD device with as many compute units and as much memory."""
    if not peaks.name.startswith("AMD") or peaks.memory_nbytes is None:
        return False
    difference = abs(peaks.memory_nbytes - memory_nbytes)
    return peaks.multiprocessors == multiprocessors and difference <= MEMORY_TOLERANCE_RATIO * peaks.memory_nbytes


def add_roofs(table: pl.DataFrame, peaks: DevicePeaks | None) -> pl.DataFrame:
    """Return the rows of `table` with what `peaks` allow them.

    `table` has `flops`, `nbytes`, `product_flops`, `product_dtype` and `device_ns`, null where unknown, and may have
    `kernels`, how many kernels ran for a row. Added are `intensity` (FLOP per byte), `attainable_flops_per_s`,
    `achieved_flops_per_s`, `achieved_nbytes_per_s`, `ideal_ns`, `bound` and `roof_ratio`, each null where it cannot be
    known, also where the device's peaks have no rate for the type; without `peaks`, None, all that depends on them.

    `ideal_ns` is the greater of `compute_ns` and `memory_ns`, which are added too: the least time of the arithmetic
    (products at the rate of their type, the rest on the vector units next to them) and of the device's memory. `bound`
    is `compute` or `memory` by which is greater. It is `launch` where that time is less than one kernel needs that does
    nothing, or the row's own no more than its kernels need that do nothing. `roof_ratio` = `ideal_ns` / `device_ns`
    above 1 means that the operands came from a cache, that the peak is wrong or that less was done than the shapes
    state."""
    flops, nbytes, device_ns = (pl.col(name).cast(pl.Float64) for name in ("flops", "nbytes", "device_ns"))
    times = table.with_columns(
        compute_ns=_compute_ns(table, peaks) if peaks else pl.lit(None, dtype=pl.Float64),
        memory_ns=_memory_ns(peaks) if peaks else pl.lit(None, dtype=pl.Float64),
    ).with_columns(ideal_ns=_greater(pl.col("compute_ns"), pl.col("memory_ns")))
    return times.with_columns(
        intensity=_divide(flops, nbytes),
        attainable_flops_per_s=_divide(flops * 1e9, pl.col("ideal_ns")),
        achieved_flops_per_s=_divide(flops * 1e9, device_ns),
        achieved_nbytes_per_s=_divide(nbytes * 1e9, device_ns),
        bound=_bound(peaks.shortest_kernel_ns if peaks else 0, "kernels" in table.columns),
        roof_ratio=_divide(pl.col("ideal_ns"), device_ns),
    )


def _compute_ns(table: pl.DataFrame, peaks: DevicePeaks) -> pl.Expr:
    """Return the time that the arithmetic takes at least.

    The matrix units work next to the vector units: the greater time counts; the sum, where both parts are the latter's.
    """
    product_ns = _over(pl.col("product_flops").cast(pl.Float64), _product_rates(table, peaks))
    rest = pl.col("flops").cast(pl.Float64) - pl.col("product_flops").cast(pl.Float64)
    rest_ns = _over(rest.clip(0), _other_rates(peaks))
    on_matrix_units = [name for name in _types_of(table) if find_rate_type(name) in peaks.matrix_flops_per_s]
    is_beside = pl.col("product_dtype").cast(pl.String).is_in(on_matrix_units)
    return pl.when(is_beside).then(_greater(product_ns, rest_ns)).otherwise(product_ns + rest_ns)


def _memory_ns(peaks: DevicePeaks) -> pl.Expr:
    """Return the time that the device's memory takes at least."""
    return _over(pl.col("nbytes").cast(pl.Float64), pl.lit(peaks.memory_nbytes_per_s.get(MEMORY), dtype=pl.Float64))


def _types_of(table: pl.DataFrame) -> list[str]:
    return table["product_dtype"].cast(pl.String).drop_nulls().unique().sort().to_list()


def _product_rates(table: pl.DataFrame, peaks: DevicePeaks) -> pl.Expr:
    """Return the rate of every row's products, null for a type without one."""
    rates = [(name, peaks.find_product_rate(name)) for name in _types_of(table)]
    known = {name: rate for name, rate in rates if rate is not None}
    if not known:
        return pl.lit(None, dtype=pl.Float64)
    return pl.col("product_dtype").cast(pl.String).replace_strict(known, default=None, return_dtype=pl.Float64)


def _other_rates(peaks: DevicePeaks) -> pl.Expr:
    """Return the rate of every row's other arithmetic: that of float32, next to float64 products of float64."""
    double, single = (pl.lit(peaks.vector_flops_per_s.get(name), dtype=pl.Float64) for name in ("float64", "float32"))
    return pl.when(pl.col("product_dtype").cast(pl.String) == "float64").then(double).otherwise(single)


def _bound(kernel_ns: int, has_kernels: bool) -> pl.Expr:
    """Return what limits each row, from the times in `compute_ns` and `memory_ns`.

    `kernel_ns` is what a kernel needs that does nothing.
    """
    kernels = pl.col("kernels").fill_null(1) if has_kernels else pl.lit(1)
    is_short = (pl.col("ideal_ns") < kernel_ns) | (pl.col("device_ns") <= kernels * kernel_ns).fill_null(False)
    larger = pl.when(pl.col("compute_ns") >= pl.col("memory_ns")).then(pl.lit("compute")).otherwise(pl.lit("memory"))
    return pl.when(pl.col("ideal_ns").is_null()).then(None).when(is_short).then(pl.lit("launch")).otherwise(larger)


def _over(amount: pl.Expr, rate: pl.Expr) -> pl.Expr:
    """Return the nanoseconds of `amount` at `rate` a second: 0 of nothing even where the rate is unknown."""
    return pl.when(amount == 0).then(0.0).otherwise(amount / rate * 1e9)


def _greater(one: pl.Expr, other: pl.Expr) -> pl.Expr:
    """Return the greater of two times, null where one of them is."""
    return pl.when(one.is_not_null() & other.is_not_null()).then(pl.max_horizontal(one, other))


def _divide(dividend: pl.Expr, divisor: pl.Expr) -> pl.Expr:
    """Return a quotient, null where the divisor is 0."""
    return pl.when(divisor != 0).then(dividend / divisor)
