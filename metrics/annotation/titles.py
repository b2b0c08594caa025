"""Titles: names as a person recognises them, instead of paths, addresses and namespaces (Hotline, Fig. 14)."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import polars as pl

from deepprof.collectors.names.short import shorten
from deepprof.metrics.contexts.frames import PYTHON

LONGEST = 120  # characters of a title: two lines of a narrow page

Rules = Iterable[tuple[str, str]]  # patterns, and what takes the place of all that matches

_NOTHING = ("type", "module", "builtins", "<unknown>")  # owners that state nothing about what they own
_TRACED = r"^\$(?:(.+\.py|<[^<>]*>):\d+|(\S+)) (.+)$"  # JAX writes $train.py:12 step and $builtins isinstance
_BUILT_IN = r"^<built-in (?:method|function) (.*?)(?: of (\S+) object(?: at 0x[0-9a-fA-F]+)?)?>$"
_DESCRIPTOR = r"^<(?:method|slot wrapper) '([^']*)' of '([^']*)' objects>$"
_NAMELESS = r"\(anonymous namespace\)|<unnamed>|\{anonymous\}|_GLOBAL__N_\w*"

# A character is requested after what goes, so that a name that is nothing else stays.
_OPERATORS: Rules = (
    (r"^nn\.Module: (.)", "${1}"),
    (r"^autograd::engine::evaluate_function: (.)", "${1}"),
    (r"^Optimizer\.\w+#(.)", "${1}"),
    (r"^enumerate\(DataLoader\)(?:#.*)?$", "DataLoader next"),
    (r"^enumerate\(DataPipe\)#(.+)$", "${1} next"),
    (rf"^(?:aten|prims?|at|c10|torch(?:\.\w+)*)::(?:(?:\w+|{_NAMELESS})::)*([^:])", "${1}"),
)
_PATHS: Rules = ((r"^<frozen (.+)>$", "${1}"), (r"<([^<>]*)>", "${1}"))
_FUNCTIONS: Rules = ((r"<locals>\.", ""), (r"<([^<>]*)>", "${1}"))


def _nest(depth: int) -> str:
    """Return the pattern of a pair of parentheses with up to `depth` levels of others in it."""
    found = r"\([^()]*\)"
    for _ in range(depth):
        found = rf"\((?:[^()]|{found})*\)"
    return found


# In another order more is left: parameters end the name, and `void` is told by what follows it.
_KERNELS: Rules = (
    (r"(?:\s*\[clone [^\]]*\]|\.kd)+$", ""),
    (rf"([^\s(,]){_nest(8)}(?: const)?$", "${1}"),
    (r"^(?:typename )?(?:std::)?enable_if<.*?>::type (\S)", "${1}"),
    (rf"\b(?:at|c10|torch|std)::(?:(?:[a-z_]\w*|{_NAMELESS})::)*", ""),
    (rf"(?:{_NAMELESS})::", ""),
    (  # of libraries the first name stays: it distinguishes cuDNN's kernels from PyTorch's
        r"::(?:(?:detail|internal|impl|kernels?|device|ops|cnn|engines_precompiled|tensor_operation|cuda_cub|__\d+"
        r"|(?:CUB|THRUST)_\w+)::)+",
        "::",
    ),
    (r"^void (\S)", "${1}"),
    (r"([<,] ?)void (\w+[<(:])", "${1}${2}"),  # but not the one of `void const*`
    (r"\((?:unsigned |signed )?(?:int|long|long long|short|char|bool)\)(-?\d)", "${1}"),  # as Nsight has numbers
    (r"\s+>", ">"),
    (r"^cutlass\w*::Kernel2?<(\w+)>$", "${1}"),
)


def shorten_host(names: pl.Series) -> pl.Series:
    """Return titles of what ran on the host, null where a name is, never empty where none is.

    Of a Python function its own name and its file stay, of a method of C its name and its class, of an operator the
    name without namespaces. Titles have at most `LONGEST` characters, without the middle of a longer one.
    """
    return _map_distinct(names, _title_host)


def shorten_kernels(names: pl.Series) -> pl.Series:
    """Return titles of what ran on a device, null where a name is, never empty where none is.

    Kernels keep their template arguments, but neither return type and parameters nor namespaces that all kernels of
    PyTorch have. Titles have at most `LONGEST` characters, without the middle of a longer one.
    """
    return _map_distinct(names, _title_kernels)


def _map_distinct(names: pl.Series, make: Callable[[pl.Series], pl.Series]) -> pl.Series:
    """Return what `make` returns for every name; every distinct one is given to it once."""
    distinct = names.unique().drop_nulls().cast(pl.String)
    short = pl.DataFrame({"name": distinct, "short": make(distinct)})
    fitted = short.select("name", title=_fit(pl.when(pl.col("short") == "").then("name").otherwise("short")))
    rows = names.cast(pl.String).to_frame("name")
    return rows.join(fitted, on="name", how="left", maintain_order="left")["title"].rename(names.name)


def _fit(title: pl.Expr) -> pl.Expr:
    """Return a title of at most `LONGEST` characters: beginnings tell kernels apart, ends their data types."""
    tail = LONGEST // 2
    cut = pl.concat_str(title.str.head(LONGEST - tail - 1), pl.lit("…"), title.str.tail(tail))
    return pl.when(title.str.len_chars() > LONGEST).then(cut).otherwise(title)


def _apply(rules: Rules, text: pl.Expr) -> pl.Expr:
    for pattern, replacement in rules:
        text = text.str.replace_all(pattern, replacement)
    return text


def _title_host(names: pl.Series) -> pl.Series:
    name = pl.col("name")
    method, owner = _take_apart(name, _BUILT_IN, _DESCRIPTOR)
    function = pl.coalesce(name.str.extract(PYTHON, 3), name.str.extract(_TRACED, 3))
    file = pl.coalesce(name.str.extract(PYTHON, 1), name.str.extract(_TRACED, 1), name.str.extract(_TRACED, 2))
    titles = (
        pl.when(method.is_not_null())
        .then(_join(method, owner.str.extract(r"([^.]+)$")))
        .when(function.is_not_null())
        .then(_join(_apply(_FUNCTIONS, function), _apply(_PATHS, _name_file(file))))
        .otherwise(_apply(_OPERATORS, name))
    )
    return names.to_frame("name").select(titles).to_series()


def _take_apart(name: pl.Expr, *patterns: str) -> tuple[pl.Expr, pl.Expr]:
    """Return the first and the second part of a name, by the first pattern that it has."""
    first, second = (pl.coalesce(name.str.extract(pattern, part) for pattern in patterns) for part in (1, 2))
    return first, pl.when(~second.is_in(_NOTHING)).then(second)


def _name_file(path: pl.Expr) -> pl.Expr:
    """Return the last part of a path of any system; null where it states nothing."""
    return pl.when(~path.is_in(_NOTHING)).then(path.str.extract(r"([^/\\]+)[/\\]*$"))


def _join(name: pl.Expr, place: pl.Expr) -> pl.Expr:
    """Return a name and where it is from; one alone where the other is missing."""
    return pl.concat_str(name, place, separator=" ", ignore_nulls=True).str.strip_chars(" ")


def _title_kernels(names: pl.Series) -> pl.Series:
    """Return the titles of names of kernels, of any length; those that are still mangled lose all but the function."""
    mangled = names.str.starts_with("_Z")
    function = pl.Series([shorten(name) for name in names.filter(mangled)], dtype=pl.String)
    titles = names.to_frame("name").select(_apply(_KERNELS, pl.col("name"))).to_series()
    return titles.scatter(mangled.arg_true(), function)
