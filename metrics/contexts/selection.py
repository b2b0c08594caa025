"""Contexts by the path to them: `step > ** > aten::conv2d`."""

from __future__ import annotations

import re
from fnmatch import translate

import numpy as np
import numpy.typing as npt
import polars as pl

from deepprof.metrics.contexts.paths import read_places, spread

Bools = npt.NDArray[np.bool_]

SEPARATOR = " > "
ANY = "**"


def select_contexts(contexts: pl.DataFrame, pattern: str) -> pl.DataFrame:
    """Return the contexts of one rank that a pattern leads to, from a table with the columns of `CONTEXTS`.

    Steps of the pattern, separated by " > ", are names with the wildcards of file names (`Linear_*`), one within the
    other; `**` represents any number of contexts. It may begin anywhere: `aten::conv2d` selects all convolutions,
    `Linear_0 > **` a module with all within it.
    """
    parent, depth = read_places(contexts)
    reached, above = np.ones(len(parent), np.bool_), np.ones(len(parent), np.bool_)
    for step in pattern.split(SEPARATOR):
        reached = spread(reached, parent, depth) if step == ANY else above & _match(contexts["name"], step)
        above = reached[parent] & (np.arange(len(parent)) > 0)  # whether the context around each was reached
    return contexts.filter(pl.Series(reached, dtype=pl.Boolean))


def _match(names: pl.Series, step: str) -> Bools:
    """Return which names a step matches; each is matched once."""
    matches = re.compile(translate(step)).match
    known = names.unique()
    wanted = pl.Series([matches(name) is not None for name in known], dtype=pl.Boolean)
    return names.is_in(known.filter(wanted).implode()).to_numpy()
