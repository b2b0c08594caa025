"""Sides of matrix products miss the multiples that tensor cores and tiles of kernels have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from deepprof.diagnosis.context_claims import ContextClaim
from deepprof.diagnosis.finding import Finding
from deepprof.diagnosis.judgement import FindingTexts, SeverityLimits, format_ms, format_percent
from deepprof.diagnosis.products import LoopProducts, find_kernel, find_products
from deepprof.diagnosis.rule import rule
from deepprof.metrics.contexts.per_loop import LoopContexts
from deepprof.metrics.cost.loop_products import (
    ProductSides,
    find_tile,
    read_sides,
    waste_of_tiles,
    write_shapes,
)

# Elements of 16 bytes: rows of other lengths are read element by element.
MULTIPLES: Mapping[str, int] = MappingProxyType({"float16": 8, "bfloat16": 8, "tf32": 4})
FEW_CHANNELS = 4  # of an image: nobody can choose them
MUCH_WASTE = 0.2  # of the tiles of a product
USUAL_RATIO = 0.6  # of the roof that aligned products reach, where the loop has none
LIMITS = SeverityLimits(warning=0.1, critical=0.3)
REMARK = 0.02  # of an iteration
CERTAINTY = 0.8


PAD = (
    "Pad it to {padded:,}: the size of a vocabulary, of a hidden layer, of heads, or the number of channels; sequences "
    "can be padded or packed to such a length."
)
IN_TILES = "Choose a multiple of {multiple}, or fill it up: {padded:,} would hardly take longer."


@rule("padding-waste", subject="contexts")
def padding_waste(seen: LoopContexts) -> Iterator[Finding]:
    """Yield `padding-waste` where products with odd sides take longer than padded ones would."""
    known = find_products(seen)
    if known is None:
        return
    rows = [{**row, **_judge(row)} for row in known.table.iter_rows(named=True)]
    odd = [row for row in rows if row["side"] is not None]
    usual = _rate_aligned([row for row in rows if row["side"] is None])
    lost = [row | {"lost_ns": _estimate_lost(row, usual)} for row in odd]
    found = [row for row in lost if row["lost_ns"] > 0]
    lost_ns = sum(row["lost_ns"] for row in found)
    if found and known.share(lost_ns) >= REMARK:
        yield _conclude(seen, known, max(found, key=lambda row: row["lost_ns"]), len(found), lost_ns)


def _judge(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return which `side` of a product is odd, the `multiple` that it misses, and the `waste` of its tiles."""
    sides = read_sides(row["operator"], row["dims"])
    nothing = {"side": None, "multiple": 1, "waste": 0.0}
    if sides is None or row["bound"] == "launch":
        return nothing
    multiple = MULTIPLES.get(row["product_dtype"] or "", 1)
    odd = _find_odd(sides, multiple)
    if odd is not None:
        return {"side": odd, "multiple": multiple, "waste": 0.0}
    tile = find_tile(row["kernel"])
    waste = 0.0 if tile is None or not sides.rows or row["bound"] != "compute" else waste_of_tiles(sides, tile)
    if tile is None or waste < MUCH_WASTE:
        return nothing
    off = sides.columns if sides.columns % max(tile) else sides.rows
    return {"side": off, "multiple": max(tile), "waste": waste}


def _find_odd(sides: ProductSides, multiple: int) -> int | None:
    """Return the side along which memory is read that misses a multiple: the inner one, or else the columns."""
    small = sides.rows == 0 and sides.inner <= FEW_CHANNELS
    return next((side for side in (sides.inner, sides.columns) if side % multiple and not small), None)


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


def _explain(worst: Mapping[str, Any], lost: str, share: str) -> str:
    """Return what is lost and why."""
    if worst["waste"]:
        return (
            f"its kernel computes whole tiles of {worst['multiple']}, {format_percent(worst['waste'])} of them for "
            f"nothing: {lost} of an iteration ({share})."
        )
    return (
        f"{worst['side']:,} misses the multiple of {worst['multiple']} that tensor cores need for "
        f"{worst['product_dtype']}. Padded, an iteration would take about {lost} less ({share}), if it came as near "
        "to its roof as the others."
    )


def _conclude(seen: LoopContexts, known: LoopProducts, worst: Mapping[str, Any], many: int, lost_ns: float) -> Finding:
    """Return the finding on the worst of so many products."""
    side, multiple, shapes = worst["side"], worst["multiple"], write_shapes(worst["dims"])
    padded = -(-side // multiple) * multiple
    others = f" and {many - 1} more" if many > 1 else ""
    share = format_percent(known.share(lost_ns))
    texts = FindingTexts(
        title=f"A side of {side:,} is no multiple of {multiple}",
        summary=f"{worst['operator']} ({shapes}){others}: " + _explain(worst, format_ms(lost_ns), share),
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
        "share_ratio": round(known.share(lost_ns), 4),
    }
    return ContextClaim(
        rule="padding-waste",
        seen=seen,
        context=find_kernel(seen, worst["kernel"]),
        severity=LIMITS.rate(known.share(lost_ns)),
        saved_ns=lost_ns,
        certainty=CERTAINTY,
    ).conclude(texts, evidence)
