"""Small kernels of one function that come equally often: one kernel could do their work (DeepContext, analysis 2)."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from deepprof.collectors.names.short import shorten
from deepprof.diagnosis.context_claims import ContextClaim
from deepprof.diagnosis.finding import Finding
from deepprof.diagnosis.frameworks import advise
from deepprof.diagnosis.judgement import FindingTexts, format_ms, format_percent
from deepprof.diagnosis.rule import rule
from deepprof.diagnosis.work_evidence import is_at_work
from deepprof.metrics.contexts.paths import find_nearest, read_places
from deepprof.metrics.contexts.per_loop import LoopContexts
from deepprof.metrics.kernels.kinds import Category
from deepprof.metrics.kernels.loop_work import LoopWork
from deepprof.metrics.operators import is_stand_in
from deepprof.plurals import counted

SMALL_NS = 10_000  # on average: a few times what it needs to begin a kernel
FEWEST = 3  # kernels that are launched together
REMARK = 0.05  # of the device's time in an iteration
WHOLE = 0.5  # of it: what has more is no function whose kernels belong together
SHOWN = 3
# What compilers fuse; products, convolutions, attention, sorts and collectives stay their own kernels.
FUSED: tuple[Category, ...] = (
    "elementwise",
    "cast",
    "reduction",
    "normalization",
    "softmax",
    "loss",
    "layout",
    "random",
)
LIBRARIES = ("cuBLAS", "cuDNN", "MIOpen")  # the kernels in their calls are no operators that a compiler fuses
FUSE = "Write them as one operator that the framework fuses, or as a kernel of your own."
FUSE_IN = {
    "pytorch": "torch.compile of this function does it.",
    "jax": "Put them into one jit, so that XLA sees them together.",
    "tensorflow": "tf.function(jit_compile=True) does it.",
}


@rule("fusion-candidates", subject="work")
def fusion_candidates(work: LoopWork) -> Iterator[Finding]:
    """Yield `fusion-candidates` for the function whose small kernels of equal number use most time."""
    seen = work.contexts
    whole = 0.0 if seen is None else float(seen.table["device_ns"][0])
    if seen is None or is_stand_in(seen.trace) or whole <= 0 or not is_at_work(work):
        return
    fused = work.kinds.table.filter(
        pl.col("category").is_in(FUSED) & ~pl.col("library").fill_null("").is_in(LIBRARIES)
    )["name"]
    groups = _group(seen, WHOLE * whole, fused).filter(
        (pl.col("different") >= FEWEST) & (pl.col("taken_ns") >= REMARK * whole)
    )
    if groups.is_empty():
        return
    best = groups.sort("taken_ns", "around", descending=[True, False]).row(0, named=True)
    name = seen.table["name"][best["around"]]
    names = list(dict.fromkeys(map(shorten, best["names"])))
    named = ", ".join(names[:SHOWN]) + (", …" if len(names) > SHOWN else "")
    texts = FindingTexts(
        title=f"Small kernels of {name} could be fused into one",
        summary=(
            f"{best['different']} different kernels that run {counted(best['times'], 'time')} {seen.loop.per_unit} and "
            f"take less than {SMALL_NS / 1e3:.0f} µs per call take {format_ms(best['taken_ns'])} "
            f"({format_percent(best['taken_ns'] / whole)} of the device's work): {named}."
        ),
        advice=advise(seen.trace, FUSE, **FUSE_IN),
    )
    evidence = {
        "kernels": best["different"],
        "times_per_iteration": round(best["times"], 2),
        "device_ns_per_iteration": round(best["taken_ns"]),
        "share_ratio": round(best["taken_ns"] / whole, 4),
    }
    yield ContextClaim(rule="fusion-candidates", seen=seen, context=int(best["around"])).conclude(texts, evidence)


def _group(seen: LoopContexts, most_ns: float, fused: pl.Series) -> pl.DataFrame:
    """Return the small kernels of these names that come equally often of every function, module, range and operator.

    A row has how many different ones there are, and their time. What has more than `most_ns` in all is no such place.
    """
    parent, depth = read_places(seen.table)
    kind = pl.col("kind")
    outer, operator = seen.table.select(outer=kind.is_in(["module", "range"]), operator=kind == "operator")
    functions, operators = seen.functions | outer.to_numpy(), operator.to_numpy()
    places = (find_nearest(named, parent, depth) for named in (functions, operators & ~operators[parent]))
    own = pl.col("name").is_in(fused.implode())
    small = (
        (kind == "kernel") & own & (pl.col("kernels") > 0) & (pl.col("own_device_ns") < SMALL_NS * pl.col("kernels"))
    )
    kernels = pl.concat([seen.table.with_columns(around=pl.Series(each)).filter(small) for each in places])
    known = kernels.filter(pl.col("around") > 0)
    narrow = known.filter(seen.table["device_ns"].gather(known["around"]) <= most_ns)
    return narrow.group_by("around", "backward", times=pl.col("kernels").round(2)).agg(
        different=pl.len(),
        taken_ns=pl.col("own_device_ns").sum(),
        names=pl.col("name").sort_by("own_device_ns", descending=True),
    )
