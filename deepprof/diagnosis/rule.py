"""What a rule is: a function that returns findings, and what the rest of the diagnosis must know of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Generic, Literal, ParamSpec

from msgspec import Struct

from deepprof.diagnosis.finding import Finding
from deepprof.diagnosis.judgement import CostClaim, SeverityLimits
from deepprof.metrics.breakdown.costs import cost_of
from deepprof.metrics.loop import Loop

P = ParamSpec("P")
Examine = Callable[..., Iterable[Finding]]
Subject = Literal["loop", "contexts", "work", "memory", "shares", "ranks", "history"]


class Rule(Struct, Generic[P], frozen=True, kw_only=True):
    """A rule, called as the function that it was made of.

    `subject` states what it examines: one loop of one trace, the calling contexts of a loop, what a loop's device
    computes, the memory of a device, a rank's shares of devices, the ranks of a job, or what a rank that runs has sent
    of its contexts (`diagnosis.engine` calls each kind). It is about the `parts` of an
    iteration, of which a share from `limits.warning` on must be in a finding or have a reason why not. `explains` names
    the rules of its symptoms. With `delays_rank` it is a reason why a rank is late, where only that rank has it.
    """

    name: str
    examine: Callable[P, Iterable[Finding]]
    subject: Subject
    parts: tuple[str, ...]
    limits: SeverityLimits | None
    explains: frozenset[str]
    delays_rank: bool

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Iterable[Finding]:
        """Return the findings, usually none or one; none where the evidence is thin."""
        return self.examine(*args, **kwargs)

    def claim(self, loop: Loop, parts: Sequence[str] | None = None) -> CostClaim | None:
        """Return the claim that the time of `parts` (by default the rule's) is lost, None where it does not hold."""
        lost = self.parts if parts is None else parts
        cost = cost_of(loop, lost)
        if cost is None or self.limits is None:
            return None
        claim = CostClaim(rule=self.name, loop=loop, cost=cost, parts=lost, limits=self.limits)
        return claim if claim.holds else None


def rule(  # noqa: PLR0913  options by name
    name: str,
    *,
    subject: Subject = "loop",
    parts: tuple[str, ...] = (),
    limits: SeverityLimits | None = None,
    explains: Iterable[str] = (),
    delays_rank: bool = False,
) -> Callable[[Callable[P, Iterable[Finding]]], Rule[P]]:
    """Make a rule of a function; see `Rule`."""

    def declare(examine: Callable[P, Iterable[Finding]]) -> Rule[P]:
        return Rule(
            name=name,
            examine=examine,
            subject=subject,
            parts=parts,
            limits=limits,
            explains=frozenset(explains),
            delays_rank=delays_rank,
        )

    return declare
