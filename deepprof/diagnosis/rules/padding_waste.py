"""Sides of matrix products miss the multiples that tensor cores and tiles of kernels have.

Recorded shapes show the sides. Without them the names of CUTLASS's kernels do: `align1` reads elements of 16 bits one
by one, `align2` in pairs, where rows do not begin at multiples of 16 bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import polars as pl

from deepprof.diagnosis.finding import Finding
from deepprof.diagnosis.judgement import FindingTexts, SeverityLimits, format_ms, format_percent
from deepprof.diagnosis.products import find_products, keep_kernels
from deepprof.diagnosis.rule import rule
from deepprof.diagnosis.work_claims import WorkClaim
from deepprof.diagnosis.work_evidence import describe_kernels, is_enough, name_whole, share_of_kernels, weigh_names
from deepprof.metrics.cost.loop_products import (
    ProductSides,
    find_tile,
    read_sides,
    waste_of_tiles,
    write_shapes,
)
from deepprof.metrics.kernels.kinds import PRODUCTS
from deepprof.metrics.kernels.loop_work import LoopWork

# Elements of 16 bytes: rows of other lengths are read element by element.
MULTIPLES: Mapping[str, int] = MappingProxyType({"float16": 8, "bfloat16": 8, "tf32": 4})
FEW_CHANNELS = 4  # of an image: no one can choose them
MUCH_WASTE = 0.2  # of the tiles of a product
USUAL_RATIO = 0.6  # of the roof that aligned products reach, where the loop has none
LIMITS = SeverityLimits(warning=0.1, critical=0.3)
REMARK = 0.02  # of an iteration
CERTAINTY = 0.8
# Asynchronous copies use 4 bytes at least, so that elements of 16 bits that are read singly need other instructions.
UNALIGNED = r"_align[12](?:\D|$)"
HALVES = ("fp16", "bf16")
LEAST_NAMED = 0.08  # of the kernels' time
TIMES_AS_FAST = 3.0  # that aligned kernels are at most: an assumption, not measured
NAMED_CERTAINTY = 0.7  # which side is odd is unknown


PAD = (
    "Pad it to {padded:,}: the size of a vocabulary, of a hidden layer, of heads, or the number of channels; sequences "
    "can be padded or packed to such a length."
)
IN_TILES = "Choose a multiple of {multiple}, or fill it up: {padded:,} would hardly take longer."
PAD_BY_NAME = (
    "Pad the sides of these products to multiples of 8: the size of a vocabulary, of a hidden layer or of heads, and "
    "the number of tokens. Recorded shapes (record_shapes=True of PyTorch's profiler) show which side it is."
)


@rule("padding-waste", subject="work")
def padding_waste(seen: LoopWork) -> Iterator[Finding]:
    """Yield `padding-waste` where products with odd sides last longer than padded ones would."""
    if is_enough(seen):
        found = next(_find_by_shapes(seen), None) or next(_find_by_names(seen), None)
        yield from [] if found is None else [found]


def _find_by_shapes(seen: LoopWork) -> Iterator[Finding]:
    known = find_products(seen)
    if known is None:
        return
    rows = [{**row, **_judge(row)} for row in known.table.iter_rows(named=True)]
    odd = [row for row in rows if row["side"] is not None]
    usual = _rate_aligned([row for row in rows if row["side"] is None])
    lost = [row | {"lost_ns": _estimate_lost(row, usual)} for row in odd]
    found = sorted((row for row in lost if row["lost_ns"] > 0), key=lambda row: -row["lost_ns"])
    if found and seen.share(sum(row["lost_ns"] for row in found)) >= REMARK:
        columns = ("kernel", "kernels", "device_ns")
        yield _conclude(seen, keep_kernels(seen, pl.DataFrame(found).select(columns)), found)


def _find_by_names(seen: LoopWork) -> Iterator[Finding]:
    """Yield the finding on kernels that read elements singly, by their names."""
    half = pl.col("category").is_in(PRODUCTS) & pl.col("precision").is_in(HALVES) & (pl.col("unit") == "tensor_core")
    kernels = seen.work.kernels.filter(half & pl.col("name").str.contains(UNALIGNED))
    taken_ns = float(kernels["time_ns"].sum())
    if share_of_kernels(seen, taken_ns) < LEAST_NAMED:
        return
    saved_ns = taken_ns * (1 - 1 / TIMES_AS_FAST)
    claim = WorkClaim(
        same_launches=True,
        rule="padding-waste",
        seen=seen,
        kernels=kernels,
        saved_ns=saved_ns,
        limits=LIMITS,
        certainty=weigh_names(kernels, NAMED_CERTAINTY),
    )
    texts = FindingTexts(
        title=(
            f"{format_percent(claim.work_share)} of the computing time is products with odd sides: their kernels read "
            "elements of 16 bits singly or in pairs"
        ),
        summary=(
            f"{describe_kernels(seen, kernels)}. At most {format_ms(saved_ns)} of {name_whole(seen)} "
            f"({format_percent(seen.share(saved_ns))}) could be saved, if kernels that read 16 bytes at once are "
            f"{TIMES_AS_FAST:.0f} times as fast. Results stay the same; compare the time of these kernels afterwards."
        ),
        advice=PAD_BY_NAME,
    )
    yield claim.conclude(texts, {"multiple": 8})


def _judge(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return which `side` of a product is odd, the `multiple` that it misses, and the `waste` of its tiles."""
    sides = read_sides(row["operator"], row["dims"])
    nothing = {"side": None, "multiple": 1, "waste": 0.0}
    if sides is None or row["bound"] == "launch":
        return nothing
    multiple = MULTIPLES.get(row["product_dtype"] or "", 1)
    odd = _find_odd(sides, multiple, singly=re.search(UNALIGNED, row["kernel"]) is not None)
    if odd is not None:
        return {"side": odd, "multiple": multiple, "waste": 0.0}
    tile = find_tile(row["kernel"])
    waste = 0.0 if tile is None or not sides.rows or row["bound"] != "compute" else waste_of_tiles(sides, tile)
    if tile is None or waste < MUCH_WASTE:
        return nothing
    off = sides.columns if sides.columns % max(tile) else sides.rows
    return {"side": off, "multiple": max(tile), "waste": waste}


def _find_odd(sides: ProductSides, multiple: int, *, singly: bool) -> int | None:
    """Return the side along which memory is read that misses a multiple: the inner one, or else the columns.

    Of transposed operands memory is read along the rows: a kernel that reads elements `singly` shows it.
    """
    small = sides.rows == 0 and sides.inner <= FEW_CHANNELS
    read = (sides.inner, sides.columns, *([sides.rows] if singly else []))
    return next((side for side in read if side % multiple and not small), None)


def _rate_aligned(rows: list[dict[str, Any]]) -> float:
    """Return how near to the roof products without odd sides come, all together."""
    rated = [row for row in rows if row["bound"] == "compute"]
    ideal, taken = (sum(row[name] for row in rated) for name in ("ideal_ns", "device_ns"))
    return min(1.0, ideal / taken) if taken > 0 else USUAL_RATIO


def _estimate_lost(row: Mapping[str, Any], usual: float) -> float:
    """Return what a product would save per iteration, padded: its tiles' waste, or what aligned ones would not take."""
    if row["waste"]:
        return float(row["waste"] * row["device_ns"])
    side, multiple = row["side"], row["multiple"]
    grown = (-(-side // multiple) * multiple) / side
    return max(0.0, float(row["device_ns"] - grown * row["ideal_ns"] / usual))


def _explain(worst: Mapping[str, Any], lost: str) -> str:
    if worst["waste"]:
        return (
            f"its kernel computes whole tiles of {worst['multiple']}, {format_percent(worst['waste'])} of them for "
            f"nothing: {lost}."
        )
    return (
        f"{worst['side']:,} misses the multiple of {worst['multiple']} that tensor cores need for "
        f"{worst['product_dtype']}. Padding saves at most {lost}, if it comes as near to its roof as the others then."
    )


def _conclude(seen: LoopWork, kernels: pl.DataFrame, found: list[dict[str, Any]]) -> Finding:
    """Return the finding on some products, the worst first."""
    worst, many, lost_ns = found[0], len(found), sum(row["lost_ns"] for row in found)
    side, multiple, shapes = worst["side"], worst["multiple"], write_shapes(worst["dims"])
    padded = -(-side // multiple) * multiple
    others = f" and {many - 1} more" if many > 1 else ""
    share = format_percent(seen.work_share(sum(row["device_ns"] for row in found)))
    lost = f"{format_ms(lost_ns)} of {name_whole(seen)} ({format_percent(seen.share(lost_ns))})"
    texts = FindingTexts(
        title=f"{share} of the computing time is products with odd sides: {side:,} is no multiple of {multiple}",
        summary=f"{worst['operator']} ({shapes}){others}: " + _explain(worst, lost),
        advice=IN_TILES.format(multiple=multiple, padded=padded) if worst["waste"] else PAD.format(padded=padded),
    )
    evidence = {
        "products": many,
        "operator": worst["operator"],
        "shapes": shapes,
        "side": side,
        "multiple": multiple,
        "padded_side": padded,
        "roof_ratio": round(worst["roof_ratio"], 4),
        "waste_ratio": round(worst["waste"], 4) if worst["waste"] else None,
    }
    return WorkClaim(
        same_launches=True,
        rule="padding-waste",
        seen=seen,
        kernels=kernels,
        saved_ns=lost_ns,
        limits=LIMITS,
        certainty=CERTAINTY,
    ).conclude(texts, evidence)
