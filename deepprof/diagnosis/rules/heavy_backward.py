"""The backward pass of an operator lasts far longer than its forward pass (DeepContext, analysis 3).

A matrix product does twice the work in its backward pass, and convolutions and batch norms use 2.5 times; much more is
the operator's own doing, as for an index whose gradient is added up element by element. Collectives that begin in a
backward pass are not counted, and where many kernels belong to no call their forward passes may be among them.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from deepprof.diagnosis.context_claims import ContextClaim
from deepprof.diagnosis.finding import Finding
from deepprof.diagnosis.judgement import FindingTexts, format_ms, format_percent
from deepprof.diagnosis.rule import rule
from deepprof.metrics.contexts.paths import add_up, read_places
from deepprof.metrics.contexts.per_loop import LoopContexts
from deepprof.metrics.operators import is_stand_in
from deepprof.metrics.streams import COLLECTIVE, COLLECTIVE_RANGE

Floats = npt.NDArray[np.float64]

USUAL = 2.0  # times the forward pass
MUCH = 5.0  # times the forward pass: convolutions and batch norms use 2.5 on every ResNet, a relu on a CPU up to 3.5
UNCERTAIN = 0.6  # that it matters, where no other operator with the same result is known
REMARK, WARNING = 0.05, 0.1  # of the time of all that computes in an iteration: what is beyond the usual
UNKNOWN = 0.05  # of the time of all that computes, whose calls are unknown
INSTEAD = {
    "aten::index": "index_select or embedding has the same result for whole rows, and a backward pass without sorting.",
    "aten::select": "unbind takes all parts at once; each select fills a gradient of the whole tensor.",
    "aten::slice": "split or chunk takes all parts at once; each slice fills a gradient of the whole tensor.",
}
OTHERWISE = (
    "Look for an operator with the same result and a cheaper gradient; of a function of your own, look at its backward."
)


class _Passes(Struct, frozen=True):
    """What the two passes of one operator take per iteration in all places, and the context of the largest."""

    operator: str
    forward_ns: float
    backward_ns: float
    places: int
    context: int

    @property
    def excess_ns(self) -> float:
        """What the backward pass needs beyond the usual."""
        return self.backward_ns - USUAL * self.forward_ns

    def is_over(self, times: float) -> bool:
        """Return whether the backward pass needs at least this many times the forward pass."""
        return self.backward_ns > 0 and self.backward_ns >= times * self.forward_ns

    @property
    def ratio(self) -> float | None:
        """Backward over forward; None where the forward pass runs nothing."""
        return self.backward_ns / self.forward_ns if self.forward_ns else None


@rule("heavy-backward", subject="contexts", explains={"embedding-bound"})
def heavy_backward(seen: LoopContexts) -> Iterator[Finding]:
    """Yield `heavy-backward` for the operator whose backward pass uses most beyond twice its forward pass."""
    computing = _add_up_computing(seen)
    whole, passes = float(computing[0]), _compare_passes(seen, computing)
    if computing[(seen.table["kind"] == "unattributed").to_numpy()].sum() > UNKNOWN * whole:
        return
    heavy = [each for each in passes if each.excess_ns >= REMARK * whole and each.is_over(MUCH)]
    if not heavy:
        return
    worst = max(heavy, key=lambda each: each.excess_ns)
    known = worst.operator in INSTEAD
    times = (
        "while its forward pass runs nothing" if worst.ratio is None else f"{worst.ratio:.1f} times its forward pass"
    )
    where = f" in {worst.places} places" if worst.places > 1 else ""
    texts = FindingTexts(
        title=f"The backward pass of {worst.operator} takes unusually long",
        summary=(
            f"{worst.operator}{where} takes {format_ms(worst.backward_ns)} of {seen.loop.unit} in its backward pass "
            f"({format_percent(worst.backward_ns / whole)} of the device's work), {times}."
        ),
        advice=INSTEAD.get(worst.operator, OTHERWISE),
    )
    evidence = {
        "backward_ns_per_iteration": round(worst.backward_ns),
        "forward_ns_per_iteration": round(worst.forward_ns),
        "backward_ratio": None if worst.ratio is None else round(worst.ratio, 2),
        "places": worst.places,
    }
    claim = ContextClaim(
        rule="heavy-backward",
        seen=seen,
        context=worst.context,
        severity="warning" if known and worst.excess_ns >= WARNING * whole else "info",
        certainty=1.0 if known else UNCERTAIN,
        saved_ns=worst.excess_ns,
    )
    yield claim.conclude(texts, evidence)


def _add_up_computing(seen: LoopContexts) -> Floats:
    """Return for every context the time of the kernels, collectives left out, that run for it and all within it."""
    kernels = pl.col("kind").is_in(["kernel", "graph"]) | is_stand_in(seen.trace)
    collective = pl.col("name").str.contains(COLLECTIVE) | pl.col("name").str.contains(COLLECTIVE_RANGE)
    own = seen.table.select(pl.when(kernels & ~collective).then("own_device_ns").otherwise(0.0)).to_series()
    return add_up(own.to_numpy(), *read_places(seen.table))


def _compare_passes(seen: LoopContexts, computing: Floats) -> Iterator[_Passes]:
    """Yield the passes of every outermost operator that has backward contexts in it, by its name."""
    (parent, _), kinds = read_places(seen.table), (seen.table["kind"] == "operator").to_numpy()
    backward = seen.table["backward"].to_numpy()
    outer = np.arange(len(parent))
    while (inner := np.flatnonzero(kinds[outer] & kinds[parent[outer]])).size:
        outer[inner] = parent[outer[inner]]
    begins = np.flatnonzero(backward & ~backward[parent] & kinds[parent])
    of = outer[parent[begins]]
    rows = pl.DataFrame({"of": of, "backward_ns": computing[begins]}).group_by("of").sum().sort("of")
    contexts = rows["of"].to_numpy()
    passes = rows.with_columns(
        forward_ns=pl.Series(computing[contexts]) - pl.col("backward_ns"), operator=seen.table["name"].gather(contexts)
    )
    for (name,), each in passes.group_by("operator", maintain_order=True):
        forward, slow = float(each["forward_ns"].sum()), float(each["backward_ns"].sum())
        largest = int(each["of"][int(np.argmax(each["backward_ns"].to_numpy()))])
        yield _Passes(str(name), max(0.0, forward), slow, each.height, largest)
