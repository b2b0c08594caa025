"""Short names for kernels that distinguish what computes different things.

A title is the usual short name, the function that a general kernel applies (`vectorized_elementwise_kernel (add)`),
and, where kernels of that name still compute different things, what these are: `gemm (float32)`, `gemm (bfloat16)`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import polars as pl

from deepprof.collectors.names.functors import shorten_with_function
from deepprof.collectors.trace import Trace
from deepprof.metrics.kernels.classify import KernelKinds
from deepprof.metrics.kernels.kind_words import CATEGORY_WORDS, NO_TYPE, PRECISION_WORDS, UNIT_WORDS
from deepprof.metrics.operators import is_stand_in

MOST_NAMES = 1_000  # names that are shortened one by one; only artificial traces have more
OTHERS = "(others)"
BACKWARD_STEP = "autograd::engine::evaluate_function: "
KEYS = ("name_id", "kind")
WORDS: tuple[Mapping[Any, str], ...] = (CATEGORY_WORDS, PRECISION_WORDS, UNIT_WORDS)
UNKNOWN = ("", NO_TYPE, "units not known")


def title_kernels(kernels: pl.DataFrame, trace: Trace, kinds: KernelKinds) -> tuple[pl.Series, pl.Series]:
    """Return the number of the title of each of `kernels` (`name_id`, `kind`, `ns`), and the titles by number."""
    sums = kernels.group_by(KEYS).agg(pl.col("ns").sum()).sort("ns", *KEYS, descending=[True, False, False])
    shown = sums.head(MOST_NAMES)
    call_it = _name_operator if is_stand_in(trace) else shorten_with_function
    names = list(map(call_it, trace.names.gather(shown["name_id"]).fill_null("").to_list()))
    titles = _tell_apart(names, _list_kinds(shown["kind"], kinds)) + [OTHERS] * (sums.height - shown.height)
    numbers = {title: number for number, title in enumerate(dict.fromkeys(titles))}
    labels = pl.Series([numbers[title] for title in titles], dtype=pl.UInt32)
    labelled = kernels.select(KEYS).join(sums.with_columns(label=labels), on=KEYS, how="left", maintain_order="left")
    return labelled["label"], pl.Series(list(numbers), dtype=pl.String)


def _name_operator(name: str) -> str:
    """Return an operator's name without the prefix of every backward step; other namespaces show the owner."""
    return name.removeprefix(BACKWARD_STEP)


def _list_kinds(rows: pl.Series, kinds: KernelKinds) -> list[tuple[Any, ...]]:
    """Return category, precision and unit of rows of the table of kinds; nothing is known of row -1."""
    known = kinds.table.select(pl.col("category", "precision", "unit").cast(pl.String)).rows()
    return [known[row] if row >= 0 else ("unknown", None, None) for row in rows.to_list()]


def _tell_apart(names: list[str], kinds: list[tuple[Any, ...]]) -> list[str]:
    """Return the names, those of several kinds with what differs: the category, else precision and unit."""
    of_names: dict[str, set[tuple[Any, ...]]] = defaultdict(set)
    for name, kind in zip(names, kinds, strict=True):
        of_names[name].add(kind)
    return [
        name if len(of_names[name]) == 1 else f"{name} ({_describe_difference(kind, of_names[name])})"
        for name, kind in zip(names, kinds, strict=True)
    ]


def _describe_difference(kind: tuple[Any, ...], others: set[tuple[Any, ...]]) -> str:
    """Return the words for what shows a kind from all others: the category, and where that does not, more of it."""
    apart = [at for at in range(len(kind)) if len({other[at] for other in others}) > 1]
    enough = next(
        n for n in range(1, len(apart) + 1) if len({_pick(other, apart[:n]) for other in others}) == len(others)
    )
    return ", ".join(WORDS[at].get(kind[at], UNKNOWN[at]) for at in apart[:enough])


def _pick(kind: tuple[Any, ...], columns: list[int]) -> tuple[Any, ...]:
    return tuple(kind[at] for at in columns)
