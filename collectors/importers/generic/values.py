"""Values of a user's table as columns of a `Trace`: times in any unit, numbers inside texts, words for activities."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from deepprof.collectors.importers.frames import plain_texts, whole_numbers
from deepprof.collectors.importers.value_columns import GROUPED
from deepprof.collectors.times import TIME_LIMIT_NS

UNITS_NS: Mapping[str, int] = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}
LAST_INTEGER = r"(-?\d{1,18})\D{0,3}$"  # "7", "stream 7", "NVIDIA H100 (0)"
RANGES = "annotation"
# What words mean; the first pattern that matches counts: "gpu_memcpy kernel" is a copy and no kernel.
WORDS = {
    r"annotation|nvtx|range|marker": RANGES,
    r"dataloader": "dataloader",
    r"python": "python",
    r"overhead": "overhead",
    r"runtime|driver|\bapi\b|_api": "runtime",
    r"^(?:cpu_?)?op$|operator": "op",
    r"^(?:other|cpu|host)$": "other",
    r"memcpy|copy|\b[hd]to[hd]\b": "memcpy",
    r"memset|fill": "memset",
    r"graph": "graph",
    r"sync": "sync",
}
NAMED_COPY, NAMED_MEMSET = r"(?i)^\W*(?:cuda |hip )?(?:memcpy|copy(?:host|device))", r"(?i)^\W*(?:cuda |hip )?memset"
SIDES = {"HtoD": ("h|host", "d|device"), "DtoH": ("d|device", "h|host"), "DtoD": ("d|device", "d|device")}
SIDES |= {"PtoP": ("p|peer", "p|peer"), "HtoH": ("h|host", "h|host")}


def durations(values: pl.Series, unit: str, *, decimal_comma: bool = False) -> pl.Series:
    """Return times or durations in `unit` as Int64 nanoseconds, exact for texts; null for other values.

    `decimal_comma` reads "1,5" as one and a half. Dates and durations that have their own unit are read in that.
    """
    kind = values.dtype
    if isinstance(kind, pl.Datetime | pl.Duration):
        return whole_numbers(values)
    if kind == pl.String:
        return _texts_to_ns(values, unit, decimal_comma=decimal_comma)
    limit = TIME_LIMIT_NS // UNITS_NS[unit]
    if kind.is_float() or kind.is_decimal():
        values = values.cast(pl.Float64)
        sound = values.is_between(-limit, limit)
        return (values.set(~sound.fill_null(value=False), None) * UNITS_NS[unit]).round().cast(pl.Int64)
    whole = whole_numbers(values)
    return whole.set(~whole.is_between(-limit, limit).fill_null(value=False), None) * UNITS_NS[unit]


def _texts_to_ns(values: pl.Series, unit: str, *, decimal_comma: bool) -> pl.Series:
    """Return numbers written as text, in `unit`, as Int64 nanoseconds."""
    text = values.str.strip_chars().rename("text")
    if decimal_comma:
        text = text.str.replace(",", ".", literal=True)
    elif text.str.contains(",", literal=True).any():
        plain = pl.when(pl.col("text").str.contains(GROUPED)).then(pl.col("text").str.replace_all(",", ""))
        text = pl.DataFrame({"text": text}).select(plain.otherwise("text").alias("text"))["text"]
    exact = pl.DataFrame({"text": text}).select(_exact_ns(pl.col("text"), UNITS_NS[unit]).alias("ns"))["ns"]
    if exact.null_count() == text.null_count():
        return exact
    return exact.zip_with(exact.is_not_null(), durations(text.cast(pl.Float64, strict=False), unit))  # 1.5e9


def _exact_ns(text: pl.Expr, factor: int) -> pl.Expr:
    """Return digits with or without a point, times `factor`, as Int64; null for any other text."""
    parts = text.str.splitn(".", 2)
    digits = len(str(factor)) - 1
    fraction = parts.struct.field("field_1").fill_null("")
    small = (pl.lit("0") + fraction.str.slice(0, digits).str.pad_end(digits, "0")).cast(pl.Int64, strict=False)
    whole = parts.struct.field("field_0").cast(pl.Int64, strict=False)
    sound = whole.is_between(-(TIME_LIMIT_NS // factor), TIME_LIMIT_NS // factor)
    sign = pl.when(text.str.starts_with("-")).then(-1).otherwise(1)
    return pl.when(sound).then(whole * factor + sign * small)


def numbers(values: pl.Series) -> pl.Series:
    """Return whole numbers as Int64; null for other values. Texts may group digits and add a fraction of zeros."""
    if values.dtype != pl.String:
        return whole_numbers(values)
    plain = values.str.strip_chars().str.replace_all(",", "", literal=True).str.replace(r"\.0*$", "")
    return plain.cast(pl.Int64, strict=False)


def places(values: pl.Series) -> tuple[pl.Series, list[str]]:
    """Return the numbers of devices, streams or threads, and the texts that had to be numbered, if any.

    A text ends in its number ("stream 7"). If any text does not, or two texts end in the same number, each text is
    numbered in sorted order instead. Absent values are null.
    """
    if values.dtype not in {pl.String, pl.Categorical, pl.Enum}:
        return whole_numbers(values), []
    found = values.cast(pl.String)
    distinct = pl.DataFrame({"text": found.drop_nulls().unique().sort()})
    whole = pl.col("text").str.replace(r"^(-?\d+)\.0*$", "${1}")  # "7.0": how pandas writes 7 where a row has none
    distinct = distinct.with_columns(number=whole.str.extract(LAST_INTEGER).cast(pl.Int64, strict=False))
    if distinct["number"].null_count() or distinct["number"].n_unique() < distinct.height:
        distinct = distinct.with_columns(number=pl.int_range(pl.len(), dtype=pl.Int64))
        named = distinct["text"].to_list()
    else:
        named = []
    rows = pl.DataFrame({"text": found}).join(distinct, on="text", how="left", maintain_order="left")
    return rows["number"], named


def texts(values: pl.Series) -> pl.Series:
    """Return `values` as String; null for values that are empty or no text."""
    found = plain_texts(values)
    return found.set(found == "", None)


def activities(words: pl.Series | None, names: pl.Series) -> pl.Series:
    """Return the activity, host category or "annotation" of every row from its word, or else from its name."""
    name = pl.col("name")
    by_name = (
        pl.when(name.str.contains(NAMED_COPY))
        .then(pl.lit("memcpy"))
        .when(name.str.contains(NAMED_MEMSET))
        .then(pl.lit("memset"))
        .otherwise(pl.lit("kernel"))
    )
    frame = pl.DataFrame({"name": names, "word": pl.Series([None] * len(names), dtype=pl.String)})
    if words is not None:
        frame = frame.with_columns(word=texts(words).str.to_lowercase().str.strip_chars())
    known = pl.coalesce(pl.when(pl.col("word").str.contains(key)).then(pl.lit(kind)) for key, kind in WORDS.items())
    word = pl.when(pl.col("word").is_not_null()).then(pl.coalesce(known, pl.lit("kernel")))
    return frame.select(kind=pl.coalesce(word, by_name))["kind"]


def copy_kinds(words: pl.Series) -> pl.Series:
    """Return the direction of copies from words such as "HtoD", "H2D", "Host-to-Device" or a name that contains one."""
    text = pl.col("text").str.to_lowercase()
    kinds = (
        pl.when(text.str.contains(rf"(?:^|[^a-z]|copy)(?:{source})\W*(?:to|2|->)\W*(?:{target})(?:[^a-z]|$)"))
        .then(pl.lit(kind))
        .otherwise(None)
        for kind, (source, target) in SIDES.items()
    )
    rows = pl.DataFrame({"text": texts(words)})
    distinct = rows.unique().with_columns(kind=pl.coalesce(kinds))  # many rows, few names
    return rows.join(distinct, on="text", how="left", nulls_equal=True, maintain_order="left")["kind"]
