"""What kernels compute, by their names alone."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from deepprof.metrics.kernels.kinds import KERNEL_KINDS, PRECISIONS, PRODUCTS, UNITS
from deepprof.metrics.kernels.name_matching import find_first, search_each
from deepprof.metrics.kernels.pattern_tables import PatternTable, TypePattern, list_tables

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

LONGEST_NAME = 2000  # characters of a name that are searched
MOST_NAMES = 20_000  # that are searched
MOST_TEXT = 8 * 1024**2  # characters of all names that are searched
MOST_KEPT = 2 * MOST_NAMES  # names of which a process keeps what was found
NOTHING = dict.fromkeys(KERNEL_KINDS) | {"category": "unknown", "sure": False, "typed": False}
WORDS = "unknown"  # the library of the table of words that any name may have

_FOUND: dict[str, tuple[object, ...]] = {}


class FoundPatterns(Struct, frozen=True, eq=False):
    """For each name the number of its table and that of the pattern in the table, -1 for none."""

    tables: tuple[PatternTable, ...]
    table: Int64s
    pattern: Int64s


def classify_names(names: pl.Series, tables: Iterable[PatternTable] | None = None) -> pl.DataFrame:
    """Return what kernels of these names compute, a row each with the schema `KERNEL_KINDS`.

    The first names count most: beyond `MOST_NAMES` of them, or `MOST_TEXT` characters, all are unknown. What was found
    with all tables is kept, so that names are searched once in a process.
    """
    text = cut_names(names)
    kinds = _classify_again(text) if tables is None else _classify(text, tuple(tables))
    missing = len(names) - kinds.height
    if missing:
        unknown = _classify(pl.Series([""], dtype=pl.String), ())
        kinds = pl.concat([kinds, unknown[np.zeros(missing, np.int64)]])
    return kinds


def _classify_again(text: pl.Series) -> pl.DataFrame:
    """Return what all tables state of names, from what was found before where that is known."""
    distinct = text.unique(maintain_order=True).to_list()
    rows = {name: row for name in distinct if (row := _FOUND.get(name)) is not None}
    new = [name for name in distinct if name not in rows]
    if new:
        found = dict(zip(new, _classify(pl.Series(new, dtype=pl.String), list_tables()).rows(), strict=True))
        rows |= found
        if len(_FOUND) + len(new) > MOST_KEPT:
            _FOUND.clear()
        _FOUND.update(found)
    return pl.DataFrame([rows[name] for name in text], schema=dict(KERNEL_KINDS), orient="row")


def _classify(text: pl.Series, tables: tuple[PatternTable, ...]) -> pl.DataFrame:
    return _describe(text, find_patterns(text, tables))


def cut_names(names: pl.Series) -> pl.Series:
    """Return the parts of names that are searched, of the first names only if there are too many."""
    text = names.head(MOST_NAMES).cast(pl.String).fill_null("").str.slice(0, LONGEST_NAME)
    size = text.str.len_chars().cum_sum()
    return text.head(int((size <= MOST_TEXT).sum()))


def find_patterns(text: pl.Series, tables: tuple[PatternTable, ...]) -> FoundPatterns:
    """Return which pattern of which table is found first in every name."""
    found = FoundPatterns(tables, np.full(len(text), -1, np.int64), np.full(len(text), -1, np.int64))
    searched = search_each(text, [("" if table.names is None else table.names) for table in tables])
    for number, table in enumerate(tables):
        rows = np.flatnonzero(searched[number] & (found.table < 0))
        if not len(rows):
            continue
        chosen = find_first(text.gather(rows), [pattern.match for pattern in table.patterns])
        hit = chosen >= 0
        found.table[rows[hit]], found.pattern[rows[hit]] = number, chosen[hit]
    return found


def _describe(text: pl.Series, found: FoundPatterns) -> pl.DataFrame:
    pairs = list(zip(found.table.tolist(), found.pattern.tolist(), strict=True))
    places = {pair: place for place, pair in enumerate(dict.fromkeys(pairs))}
    kinds = [_describe_pattern(found.tables[table], pattern) if table >= 0 else NOTHING for table, pattern in places]
    rows = pl.DataFrame(kinds, schema=dict(KERNEL_KINDS) | {"typed": pl.Boolean()})
    return _fill_types(text, found, rows[[places[pair] for pair in pairs]])


def _describe_pattern(table: PatternTable, number: int) -> dict[str, object]:
    """Return what a pattern shows, and whether the table's types add to it."""
    pattern = table.patterns[number]
    own = {name: getattr(pattern, name) for name in (*KERNEL_KINDS, "typed") if name != "library"}
    return own | {"library": table.library}


def _fill_types(text: pl.Series, found: FoundPatterns, rows: pl.DataFrame) -> pl.DataFrame:
    """Return the kinds with what the tables' `types` show of products whose precision or unit a pattern leaves open."""
    is_product = rows["category"].is_in(PRODUCTS).to_numpy()
    open_ = is_product & rows["typed"].to_numpy()
    columns = {
        name: rows[name].to_physical().cast(pl.Int64).fill_null(-1).to_numpy().copy() for name in ("precision", "unit")
    }
    sure = rows["sure"].to_numpy().copy()
    for number, table in enumerate(found.tables):
        chosen = np.flatnonzero(open_ & (found.table == number))
        if len(chosen) and table.types:
            _fill_from(table.types, text, chosen, columns, sure)
    for column in columns.values():
        column[~is_product] = -1
    sure &= ~is_product | ((columns["precision"] >= 0) & (columns["unit"] >= 0))
    words = {"precision": PRECISIONS, "unit": UNITS}
    filled = [
        pl.Series(name, [*words[name], None], dtype=KERNEL_KINDS[name])[column] for name, column in columns.items()
    ]
    library = pl.col("library").replace(WORDS, None)
    return rows.with_columns(*filled, library, pl.Series("sure", sure)).select(list(KERNEL_KINDS))


def _fill_from(
    types: tuple[TypePattern, ...], text: pl.Series, chosen: Int64s, columns: dict[str, Int64s], sure: Bools
) -> None:
    """Set precision and unit of the chosen names where they are open; what is not sure makes the whole so."""
    for name, words in (("precision", PRECISIONS), ("unit", UNITS)):
        given = [each for each in types if getattr(each, name) is not None]
        rows = chosen[columns[name][chosen] < 0]
        if not given or not len(rows):
            continue
        found = find_first(text.gather(rows), [each.match for each in given])
        rows, found = rows[found >= 0], found[found >= 0]
        codes = np.array([words.index(getattr(each, name)) for each in given])
        columns[name][rows] = codes[found]
        sure[rows] &= np.array([each.sure for each in given])[found]
