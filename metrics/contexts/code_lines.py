"""Which line of whose code a context belongs to, and where most of something is."""

from __future__ import annotations

import sys

import numpy as np
import numpy.typing as npt
import polars as pl

from deepprof.metrics.contexts.paths import add_up, find_nearest, read_places

Int64s = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Place = dict[str, int | str]

MOST = 0.5  # of an amount is in the context that is named
# Whose lines no one means when asking for a line of a model: the framework's own, and Python's.
FRAMEWORKS = r"(?:^|/)(?:torch|torch_xla|jax|jaxlib|tensorflow|keras)/"
STANDARD_LIBRARY = r"(?:^|/)lib/python3[^/]*/"
INSTALLED = r"/(?:site|dist)-packages/"
NO_FILE = r"^<"  # <string>, <frozen importlib._bootstrap>
OUTER_KINDS = ("range", "module", "operator")  # in a place: the innermost of each


def find_lines(contexts: pl.DataFrame) -> Int64s:
    """Return for every context of a rank the Python function of user or library code that it is or is in.

    Where there is none, a function of the framework; -1 where no Python function with a file is around it. `contexts`
    has the columns of `CONTEXTS`, and all rows of a tree.
    """
    parent, depth = read_places(contexts)
    python = (pl.col("kind") == "python") & pl.col("file").is_not_null() & pl.col("line").is_not_null()
    flags = contexts.select(python=python, code=python & ~is_internal()).fill_null(value=False)
    code, framework = (find_nearest(flags[name].to_numpy(), parent, depth) for name in ("code", "python"))
    return np.where(code >= 0, code, framework)


def is_internal() -> pl.Expr:
    """Return whether a `file` is of the framework or of Python's own library, whose modules may have no folder."""
    file = pl.col("file").str.replace_all("\\", "/", literal=True)
    top = file.str.extract(r"^([^/.]+)")
    standard = file.str.contains(STANDARD_LIBRARY) & ~file.str.contains(INSTALLED)
    known = top.is_in(list(sys.stdlib_module_names)).fill_null(value=False)
    return standard | known | file.str.contains(FRAMEWORKS) | file.str.contains(NO_FILE)


def find_most(contexts: pl.DataFrame, own: Floats) -> int | None:
    """Return the innermost context with at least `MOST` of an amount, of which `own` is what each has itself.

    None where that is only a thread, or where it is unknown.
    """
    parent, depth = read_places(contexts)
    whole = add_up(own, parent, depth)
    if not whole[0] > 0:
        return None
    holding = np.flatnonzero(whole >= MOST * whole[0])
    found = int(holding[np.argmax(depth[holding])])
    return None if contexts["kind"][found] in {"all", "thread", "unattributed"} else found


def describe_place(contexts: pl.DataFrame, lines: Int64s, context: int, definitions: Bools | None = None) -> Place:
    """Return where a context is: `function`, `file` and `line` of the code, and the range, module and operator.

    Of contexts that are `definitions`, `line_is` states that `line` is where the function begins.
    """
    place: Place = {}
    if (line := int(lines[context])) >= 0:
        frame = contexts.row(line, named=True)
        place = {"function": frame["name"], "file": frame["file"], "line": frame["line"]}
        if definitions is not None and definitions[line]:
            place["line_is"] = "definition"
    at: int | None = context
    while at is not None:
        kind, name, at = contexts.select("kind", "name", "parent").row(at)
        if kind in OUTER_KINDS:
            place.setdefault(kind, name)
    return place
