"""Run the rules, built-in ones and those of plug-ins."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, cast

from deepprof.collectors.plugins import load
from deepprof.collectors.trace import Trace
from deepprof.diagnosis import rules
from deepprof.diagnosis.fence import fence_rule
from deepprof.diagnosis.finding import Finding
from deepprof.diagnosis.rule import Examine, Rule, Subject
from deepprof.metrics.contexts.history import ContextsOfRank
from deepprof.metrics.contexts.per_loop import LoopContexts
from deepprof.metrics.kernels.loop_work import LoopWork
from deepprof.metrics.loop import Loop
from deepprof.metrics.memory.device_memory import DeviceMemory
from deepprof.metrics.ranks.comparison import RankComparison
from deepprof.metrics.ranks.facts import RankFacts
from deepprof.metrics.sharing.shares import ShareOfDevice

GROUP = "deepprof.rules"
# Each module of the package has one rule, of the module's name.
BUILTIN_RULES = tuple(f"{rules.__name__}.{each.name}:{each.name}" for each in pkgutil.iter_modules(rules.__path__))


def diagnose_loop(loop: Loop, trace: Trace, chosen: Sequence[Examine] | None = None) -> list[Finding]:
    """Return what all rules on loops (built-in and plugged in), or the chosen ones, find in one loop of a trace."""
    return run(_rules_on("loop") if chosen is None else chosen, loop, trace)


def diagnose_contexts(seen: LoopContexts) -> list[Finding]:
    """Return what all rules on calling contexts find in those of one loop."""
    return run(_rules_on("contexts"), seen)


def diagnose_work(seen: LoopWork) -> list[Finding]:
    """Return what all rules on computing find in the work of one loop."""
    return run(_rules_on("work"), seen)


def diagnose_memory(memory: DeviceMemory) -> list[Finding]:
    """Return what all rules on memory find in that of one device."""
    return run(_rules_on("memory"), memory)


def diagnose_shares(shares: Iterable[ShareOfDevice], loops: Sequence[Loop], found: Sequence[Finding]) -> list[Finding]:
    """Return what all rules find in a rank's shares of devices; `found` are the findings on its loops."""
    return run(_rules_on("shares"), shares, loops, found)


def diagnose_ranks(comparison: RankComparison, loops: Sequence[Loop], facts: Sequence[RankFacts]) -> list[Finding]:
    """Return what all rules find in the ranks of a job, side by side."""
    return run(_rules_on("ranks"), comparison, loops, facts)


def diagnose_history(history: ContextsOfRank) -> list[Finding]:
    """Return what all rules on contexts of running jobs find in those of one rank."""
    return run(_rules_on("history"), history)


def run(chosen: Iterable[Examine], *examined: Any) -> list[Finding]:
    """Return the findings of rules, in their order."""
    return [finding for examine in chosen for finding in examine(*examined)]


@cache
def _rules_on(subject: Subject) -> tuple[Examine, ...]:
    """Return the rules with this subject; a plug-in's plain function is a rule on loops."""
    return tuple(each for each in installed_rules() if getattr(each, "subject", "loop") == subject)


@cache
def declared_rules() -> tuple[Rule[...], ...]:
    """Return the rules that state more of themselves than their findings: the built-in ones, and plug-ins' alike."""
    return tuple(each for each in installed_rules() if isinstance(each, Rule))


@cache
def rules_on_work() -> frozenset[str]:
    """Return the names of the rules on what devices compute."""
    return frozenset(each.name for each in declared_rules() if each.subject == "work")


@cache
def installed_rules() -> tuple[Examine, ...]:
    """Return the built-in rules and those of installed packages, loaded once."""
    return tuple(cast("list[Examine]", load(GROUP, BUILTIN_RULES, fence_rule)))
