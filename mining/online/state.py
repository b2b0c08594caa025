"""Convert the state of the online miner to fields that can be saved, and back; every field is checked."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, TypeAlias, TypeVar, get_args

import numpy as np
import numpy.typing as npt

from deepprof.mining.evidence import Family, Trust
from deepprof.mining.iterations import Iterations
from deepprof.mining.matcher_state import MatcherSnapshot
from deepprof.mining.matching import Matcher
from deepprof.mining.online.drift import DriftWatch, EditedIteration
from deepprof.mining.online.joining import JoinedVariants
from deepprof.mining.online.loop_tracker import MAX_EVENTS, MAX_KNOWN, MAX_WINDOW, MIN_WINDOW, LoopTracker
from deepprof.mining.online.match_watch import MOST_PATIENT, MatchWatch
from deepprof.mining.online.packing import CheckedFields, damaged
from deepprof.mining.online.progress import Kind, LockedLoop, MinerCounts, MinerEvent, State
from deepprof.mining.online.recent import FARTHEST, MAX_FAMILIES, SIGNALS, RecentEvidence
from deepprof.mining.online.ring import Ring
from deepprof.mining.online.schedule import NEVER, DecisionSchedule
from deepprof.mining.online.template_tracker import NO_ITERATIONS, IterationSegmenter, TemplateTracker
from deepprof.mining.phase import Source
from deepprof.mining.symbols import MAX_SYMBOL, SymbolArray, as_symbols

__all__ = ["from_fields", "to_fields"]

Saved: TypeAlias = dict[str, object]
Choice = TypeVar("Choice", bound=str)

MAX_COUNT = 2**31  # largest count, except for positions


def to_fields(loop_tracker: LoopTracker) -> Saved:
    """Return everything that the loop tracker needs to continue."""
    ring, tracker = loop_tracker.ring, loop_tracker.tracker
    return {
        "window": loop_tracker.window,
        "ended": loop_tracker.ended,
        "position": ring.end,
        "symbols": as_symbols(ring.read(ring.begin, ring.end)),
        "evidence": _evidence_fields(loop_tracker.evidence),
        "schedule": asdict(loop_tracker.schedule),
        "state": loop_tracker.state,
        "lock": None if loop_tracker.lock is None else _lock_fields(loop_tracker.lock),
        "tracker": None if tracker is None else _tracker_fields(tracker),
        "watch": asdict(loop_tracker.watch),
        "drift": {**asdict(loop_tracker.drift), "recent": np.array(loop_tracker.drift.recent, np.int64).ravel()},
        "known": [_lock_fields(lock) for lock in loop_tracker.known],
        "loops": loop_tracker.loops,
        "last_gap": loop_tracker.last_gap,
        "counts": asdict(loop_tracker.counts),
        "events": [asdict(event) for event in loop_tracker.events],
    }


def _evidence_fields(evidence: RecentEvidence) -> Saved:
    families = [asdict(family) for family in evidence.families.values()]
    signals = {
        name: {"start": ring.start, "values": ring.read(ring.begin, ring.end)}
        for name, ring in evidence.signals.items()
    }
    return {"start": evidence.start, "optimizer": evidence.optimizer, "families": families, "signals": signals}


def _lock_fields(lock: LockedLoop) -> Saved:
    return {
        "number": lock.number,
        "template": as_symbols(lock.template),
        "mined": as_symbols(lock.mined) if lock.has_drifted else None,
        "confidence": lock.confidence,
        "evidence": lock.evidence,
        "source": lock.source,
        "variants": lock.joined.variants,
        "joined": lock.joined.symbols,
        "reviewed": lock.reviewed,
    }


def _tracker_fields(tracker: TemplateTracker) -> Saved:
    segmenter = tracker.segmenter
    held = segmenter.held
    return {
        "matcher": tracker.matcher.save(),
        "good_end": tracker.good_end,
        "matched": tracker.matched,
        "opens": segmenter.opens,
        "cut": segmenter.cut,
        "passes": segmenter.passes.ravel(),
        "known": segmenter.known,
        "held": np.stack([held.first, held.end, held.matched, held.edits, held.complete.astype(np.int64)]).T.ravel(),
    }


def from_fields(fields: CheckedFields) -> LoopTracker:
    """Return the loop tracker that `to_fields` was given.

    Raises:
        ValueError: for fields that no loop tracker has.
    """
    window = fields.integer("window", MIN_WINDOW, MAX_WINDOW)
    if window & (window - 1):
        raise damaged("window cannot be")
    loop_tracker = LoopTracker(window)
    loop_tracker.ended = fields.flag("ended")
    at = fields.integer("position", 0, FARTHEST)
    _fill_ring(loop_tracker, _symbols(fields, "symbols"), at)
    loop_tracker.evidence = _read_evidence(fields.inner("evidence"), 2 * window, at)
    loop_tracker.schedule = _read_schedule(fields.inner("schedule"), window, at)
    loop_tracker.state = _choice(fields, "state", get_args(State))
    loop_tracker.loops = fields.integer("loops", 0, MAX_COUNT)
    loop_tracker.last_gap = fields.integer("last_gap", -1, at)
    loop_tracker.counts = _read_counts(fields.inner("counts"), at)
    loop_tracker.known = [_read_lock(one, loop_tracker) for one in fields.listed("known", MAX_KNOWN)]
    loop_tracker.watch = _read_watch(fields.inner("watch"), at)
    loop_tracker.drift = _read_drift(fields.inner("drift"), at)
    loop_tracker.events.extend(_read_event(one) for one in fields.listed("events", MAX_EVENTS))
    _read_followed(fields, loop_tracker)
    return loop_tracker


def _fill_ring(loop_tracker: LoopTracker, symbols: SymbolArray, at: int) -> None:
    if len(symbols) != min(at, loop_tracker.ring.size):
        raise damaged("symbols are not as many as are kept")
    if symbols.dtype != loop_tracker.ring.dtype:
        loop_tracker.ring.widen(symbols.dtype)
    loop_tracker.ring.restore(symbols, at)


def _read_followed(fields: CheckedFields, loop_tracker: LoopTracker) -> None:
    """Restore the loop that is followed; there is none in the state `learning`, and only there."""
    planned = min(loop_tracker.schedule.review, loop_tracker.schedule.watch) < NEVER
    if len({fields.has("lock"), fields.has("tracker"), planned, loop_tracker.state != "learning"}) > 1:
        raise damaged("state does not fit the loop")
    if fields.has("lock"):
        loop_tracker.lock = _read_lock(fields.inner("lock"), loop_tracker)
        loop_tracker.tracker = _read_tracker(fields.inner("tracker"), loop_tracker.lock, loop_tracker)


def _read_lock(fields: CheckedFields, loop_tracker: LoopTracker) -> LockedLoop:
    template = _template(fields, "template", loop_tracker)
    return LockedLoop(
        number=fields.integer("number", 0, loop_tracker.loops - 1),
        template=template,
        mined=_template(fields, "mined", loop_tracker) if fields.has("mined") else template,
        confidence=fields.number("confidence"),
        evidence=fields.text("evidence"),
        source=_choice(fields, "source", get_args(Source)),
        joined=_read_joining(fields),
        reviewed=fields.flag("reviewed"),
    )


def _read_joining(fields: CheckedFields) -> JoinedVariants:
    variants, symbols = fields.array("variants", np.uint32), fields.array("joined", np.uint32)
    rising = len(variants) == len(symbols) and bool((variants[1:] > variants[:-1]).all())
    if not rising or (symbols >= variants).any() or (len(variants) and variants[-1] > MAX_SYMBOL):
        raise damaged("variants cannot be")
    return JoinedVariants.make(variants, symbols)


def _read_tracker(fields: CheckedFields, lock: LockedLoop, loop_tracker: LoopTracker) -> TemplateTracker:
    at, saved = loop_tracker.position, fields.array("matcher", np.uint8).tobytes()
    seen = MatcherSnapshot.from_bytes(saved)
    stands = (seen.place.stop, bool(seen.place.finished)) == (at, loop_tracker.ended)
    if not stands or not np.array_equal(seen.template, lock.template):
        raise damaged("the matcher follows another loop")
    tracker = TemplateTracker(lock.template, lock.joined, at, loop_tracker.ring)
    tracker.matcher = Matcher.restore(saved)
    tracker.good_end = fields.integer("good_end", 0, at)
    tracker.matched = fields.integer("matched", 0, FARTHEST)
    tracker.segmenter = _read_segmenter(fields, lock.period, at)
    return tracker


def _read_segmenter(fields: CheckedFields, period: int, at: int) -> IterationSegmenter:
    passes, held = _rows(fields, "passes", 4, 3, at), _rows(fields, "held", 5, 1, at)
    return IterationSegmenter(
        period=period,
        opens=fields.flag("opens"),
        cut=fields.flag("cut"),
        passes=passes,
        known=fields.integer("known", 0, len(passes)),
        held=_iterations(held) if len(held) else NO_ITERATIONS,
    )


def _iterations(rows: npt.NDArray[np.int64]) -> Iterations:
    first, end, matched, edits, complete = rows.T.copy()
    return Iterations(first, end, matched, edits, complete != 0)


def _read_schedule(fields: CheckedFields, window: int, at: int) -> DecisionSchedule:
    later = {name: fields.integer(name, at + 1, NEVER) for name in ("attempt", "review", "watch")}
    start = fields.integer("start", 0, at)
    return DecisionSchedule(window=window, start=start, size=fields.integer("size", 1, 4 * NEVER), **later)


def _read_counts(fields: CheckedFields, at: int) -> MinerCounts:
    given = fields.integer("given", 0, at)
    names = ("iterations", "foreign", "gaps", "lost_records")
    return MinerCounts(given=given, **{name: fields.integer(name, 0, FARTHEST) for name in names})


def _read_watch(fields: CheckedFields, at: int) -> MatchWatch:
    last = fields.integer("at", 0, at)
    since, matched = fields.integer("since", 0, last), fields.integer("matched", 0, FARTHEST)
    return MatchWatch(last, matched, since, fields.integer("patience", 1, MOST_PATIENT))


def _read_drift(fields: CheckedFields, at: int) -> DriftWatch:
    recent = [EditedIteration(*row) for row in _rows(fields, "recent", 3, 2, at).tolist()]
    return DriftWatch(recent, fields.integer("run", 0, FARTHEST), fields.integer("due", 0, FARTHEST))


def _read_event(fields: CheckedFields) -> MinerEvent:
    return MinerEvent(
        position=fields.integer("position", 0, FARTHEST),
        kind=_choice(fields, "kind", get_args(Kind)),
        loop=fields.integer("loop", -1, MAX_COUNT),
        period=fields.integer("period", 0, MAX_COUNT),
        confidence=fields.number("confidence"),
        why=fields.text("why"),
    )


def _read_evidence(fields: CheckedFields, size: int, at: int) -> RecentEvidence:
    signals = fields.inner("signals")
    rings = {name: _read_signal(signals.inner(name), name, size, at) for name in SIGNALS if signals.has(name)}
    families = [_read_family(one, size) for one in fields.listed("families", MAX_FAMILIES)]
    optimizer = fields.array("optimizer", np.bool_) if fields.has("optimizer") else None
    by_name = {family.name: family for family in families}
    return RecentEvidence(size, rings, by_name, optimizer, fields.integer("start", 0, FARTHEST))


def _read_signal(fields: CheckedFields, name: str, size: int, at: int) -> Ring[Any]:
    ring: Ring[Any] = Ring(size, SIGNALS[name], fields.integer("start", 0, at))
    values = fields.array("values", SIGNALS[name])
    if len(values) != min(size, at - ring.start) or not (values >= 0).all() or np.isinf(values).any():
        raise damaged(f"{name} cannot be")
    ring.restore(values, at)
    return ring


def _read_family(fields: CheckedFields, size: int) -> Family:
    positions = fields.array("positions", np.int64)
    ends = fields.array("ends", np.int64) if fields.has("ends") else None
    arrays = [positions] if ends is None else [positions, ends]
    if any(len(one) != len(positions) or (np.abs(one) > 2 * FARTHEST - 1).any() for one in arrays):
        raise damaged("the ranges cannot be")
    trust = _choice(fields, "trust", get_args(Trust))
    coverage, telling = fields.number("coverage"), fields.number("telling")
    return Family(
        fields.text("name"), trust, positions[-size:], coverage, None if ends is None else ends[-size:], telling
    )


def _symbols(fields: CheckedFields, name: str) -> SymbolArray:
    return as_symbols(fields.array(name, np.uint16, np.uint32))


def _template(fields: CheckedFields, name: str, loop_tracker: LoopTracker) -> SymbolArray:
    template = _symbols(fields, name)
    if not 0 < len(template) <= loop_tracker.ring.size:
        raise damaged(f"a {name} of {len(template)} symbols cannot be")
    return template


def _rows(fields: CheckedFields, name: str, width: int, most: int, at: int) -> npt.NDArray[np.int64]:
    """Return the field's rows of `width` columns, the first two of which are positions already read."""
    values = fields.array(name, np.int64)
    if (
        len(values) % width
        or len(values) > most * width
        or (len(values) and not 0 <= values.min() <= values.max() <= at)
    ):
        raise damaged(f"{name} cannot be")
    return values.reshape(-1, width)


def _choice(fields: CheckedFields, name: str, choices: tuple[Any, ...]) -> Any:
    value = fields.text(name)
    if value not in choices:
        raise damaged(f"{name} is {value!r}")
    return value
