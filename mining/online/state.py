"""The state of the online miner as bytes: fields as JSON, their arrays behind it; all of it is checked before use.

Layout, after the head of `SavedFormat`: the length of a JSON text, an uint64; the text; then the arrays one after the
other. The text has `{"array": [type, length]}` in the place of each. The classes here are the text's fields.
"""

from __future__ import annotations

import json
from dataclasses import astuple, dataclass
from typing import Annotated, Any, TypeAlias, get_args

import msgspec
import numpy as np
import numpy.typing as npt

from deepprof.mining.evidence import Family
from deepprof.mining.iterations import Iterations
from deepprof.mining.matcher_state import FARTHEST, MatcherSnapshot
from deepprof.mining.matching import Matcher
from deepprof.mining.online.drift import DriftWatch, EditedIteration
from deepprof.mining.online.joining import JoinedVariants
from deepprof.mining.online.loop_tracker import (
    MAX_EVENTS,
    MAX_KNOWN,
    MAX_WINDOW,
    MIN_WINDOW,
    MOST_PATIENT,
    LoopTracker,
    MatchWatch,
)
from deepprof.mining.online.progress import LockedLoop, MinerCounts, MinerEvent, State
from deepprof.mining.online.recent import MAX_FAMILIES, SIGNALS, RecentEvidence
from deepprof.mining.online.ring import Ring
from deepprof.mining.online.schedule import NEVER, DecisionSchedule
from deepprof.mining.online.template_tracker import IterationSegmenter, TemplateTracker
from deepprof.mining.phase import Source
from deepprof.mining.saved_bytes import SavedFormat, read_array
from deepprof.mining.symbols import MAX_SYMBOL, as_symbols

Array: TypeAlias = npt.NDArray[Any]
Int64s: TypeAlias = npt.NDArray[np.int64]
UInt32s: TypeAlias = npt.NDArray[np.uint32]
Position: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=FARTHEST)]

FORMAT = SavedFormat(b"DPONLINE", "an", "online miner", least_nbytes=8)
TYPES = {name: np.dtype(name) for name in ("u1", "u2", "u4", "i8", "f8", "b1")}
MAX_COUNT = 2**31  # largest count, except for positions
UNCHANGED = ("window", "ended", "schedule", "state", "watch", "loops", "last_gap", "counts")  # saved as they are


@dataclass(frozen=True, slots=True, eq=False)
class _SavedLoop:
    """A `LockedLoop`; `mined` is None while the template is the mined one."""

    number: int
    template: Array
    mined: Array | None
    confidence: float
    evidence: str
    source: Source
    variants: UInt32s
    joined: UInt32s
    reviewed: bool

    @classmethod
    def of(cls, loop: LockedLoop) -> _SavedLoop:
        """Return the loop's fields."""
        mined = as_symbols(loop.mined) if loop.has_drifted else None
        why, joined = (loop.confidence, loop.evidence, loop.source), loop.joined
        return cls(loop.number, as_symbols(loop.template), mined, *why, joined.variants, joined.symbols, loop.reviewed)

    def restored(self) -> LockedLoop:
        """Return the loop."""
        template = as_symbols(self.template)
        mined = template if self.mined is None else as_symbols(self.mined)
        joined, why = JoinedVariants.make(self.variants, self.joined), (self.confidence, self.evidence, self.source)
        return LockedLoop(self.number, template, mined, *why, joined, self.reviewed)

    def is_possible(self, loops: int, size: int) -> bool:
        """Return whether it can be one of this many loops, in a stream of which `size` symbols are kept."""
        templates = [template for template in (self.template, self.mined) if template is not None]
        return (
            0 <= self.number < loops
            and all(template.dtype.kind == "u" and 0 < len(template) <= size for template in templates)
            and len(self.variants) == len(self.joined)
            and bool((self.variants[1:] > self.variants[:-1]).all() and (self.joined < self.variants).all())
            and _is_within(self.variants, 0, MAX_SYMBOL)
        )


@dataclass(frozen=True, slots=True, eq=False)
class _SavedTracker:
    """A `TemplateTracker` and its segmenter."""

    matcher: npt.NDArray[np.uint8]
    good_end: Position
    matched: Position
    opens: bool
    cut: bool
    passes: Int64s
    known: int
    held: Int64s

    @classmethod
    def of(cls, tracker: TemplateTracker) -> _SavedTracker:
        """Return the tracker's fields."""
        segmenter, held = tracker.segmenter, tracker.segmenter.held
        rows = np.stack([held.first, held.end, held.matched, held.edits, held.complete], axis=1).ravel()
        matcher, stream = np.frombuffer(tracker.matcher.save(), np.uint8), (segmenter.opens, segmenter.cut)
        return cls(matcher, tracker.good_end, tracker.matched, *stream, segmenter.passes.ravel(), segmenter.known, rows)

    def restored(self, loop: LockedLoop, ring: Ring[Any]) -> TemplateTracker:
        """Return the tracker of this loop."""
        tracker = TemplateTracker(loop.template, loop.joined, ring.end, ring)
        tracker.matcher = Matcher.restore(self.matcher.tobytes())
        tracker.good_end, tracker.matched = self.good_end, self.matched
        first, end, matched, edits, complete = self.held.reshape(-1, 5).T.copy()
        held, passes = Iterations(first, end, matched, edits, complete != 0), self.passes.reshape(-1, 4)
        tracker.segmenter = IterationSegmenter(loop.period, self.opens, self.cut, passes, self.known, held)
        return tracker

    def is_possible(self, template: Array, at: int, ended: bool) -> bool:
        """Return whether it can follow a template at this position of the stream."""
        seen = MatcherSnapshot.from_bytes(self.matcher.tobytes())
        return (
            (seen.place.stop, bool(seen.place.finished)) == (at, ended)
            and np.array_equal(seen.template, template)
            and self.good_end <= at
            and _are_rows(self.passes, 4, 3, at)
            and _are_rows(self.held, 5, 1, at)
            and 0 <= self.known <= len(self.passes) // 4
        )


@dataclass(frozen=True, slots=True, eq=False)
class _SavedDrift:
    """A `DriftWatch`: three numbers for every recent iteration."""

    recent: Int64s
    run: Position
    due: Position

    def restored(self) -> DriftWatch:
        """Return the watch."""
        return DriftWatch([EditedIteration(*row) for row in self.recent.reshape(-1, 3).tolist()], self.run, self.due)


@dataclass(frozen=True, slots=True, eq=False)
class _SavedSignal:
    """A ring of the evidence."""

    start: int
    values: Array

    def is_possible(self, name: str, size: int, at: int) -> bool:
        """Return whether it can be the signal of this name in a stream of `at` symbols, of which `size` are kept."""
        return (
            name in SIGNALS
            and self.values.dtype == SIGNALS[name]
            and 0 <= self.start <= at
            and len(self.values) == min(size, at - self.start)
            and bool((self.values >= 0).all() and np.isfinite(self.values).all())
        )


@dataclass(frozen=True, slots=True, eq=False)
class _SavedEvidence:
    """A `RecentEvidence`, whose size is that of the miner's ring."""

    start: Position
    optimizer: npt.NDArray[np.bool_] | None
    families: Annotated[list[Family], msgspec.Meta(max_length=MAX_FAMILIES)]
    signals: dict[str, _SavedSignal]

    @classmethod
    def of(cls, evidence: RecentEvidence) -> _SavedEvidence:
        """Return the evidence's fields."""
        rings = evidence.signals.items()
        signals = {name: _SavedSignal(ring.start, ring.read(ring.begin, ring.end)) for name, ring in rings}
        return cls(evidence.start, evidence.optimizer, list(evidence.families.values()), signals)

    def restored(self, size: int, at: int) -> RecentEvidence:
        """Return the evidence on the last `size` of `at` symbols."""
        rings = {name: Ring.restored(signal.values, size, signal.start, at) for name, signal in self.signals.items()}
        families = {family.name: family for family in self.families}
        return RecentEvidence(size, rings, families, self.optimizer, self.start)


@dataclass(frozen=True, slots=True, eq=False)
class _SavedMiner:
    """A `LoopTracker` with everything that it needs to continue."""

    window: int
    ended: bool
    position: Position
    symbols: Array
    evidence: _SavedEvidence
    schedule: DecisionSchedule
    state: State
    lock: _SavedLoop | None
    tracker: _SavedTracker | None
    watch: MatchWatch
    drift: _SavedDrift
    known: Annotated[list[_SavedLoop], msgspec.Meta(max_length=MAX_KNOWN)]
    loops: Annotated[int, msgspec.Meta(ge=0, le=MAX_COUNT)]
    last_gap: int
    counts: MinerCounts
    events: Annotated[list[MinerEvent], msgspec.Meta(max_length=MAX_EVENTS)]

    @classmethod
    def of(cls, miner: LoopTracker) -> _SavedMiner:
        """Return the miner's fields."""
        ring, drift = miner.ring, miner.drift
        return cls(
            **{name: getattr(miner, name) for name in UNCHANGED},
            position=ring.end,
            symbols=as_symbols(ring.read(ring.begin, ring.end)),
            evidence=_SavedEvidence.of(miner.evidence),
            lock=None if miner.lock is None else _SavedLoop.of(miner.lock),
            tracker=None if miner.tracker is None else _SavedTracker.of(miner.tracker),
            drift=_SavedDrift(np.array(drift.recent, np.int64).ravel(), drift.run, drift.due),
            known=[_SavedLoop.of(loop) for loop in miner.known],
            events=list(miner.events),
        )

    def restored(self) -> LoopTracker:
        """Return the miner."""
        miner, size = LoopTracker(self.window), 2 * self.window
        for name in UNCHANGED:
            setattr(miner, name, getattr(self, name))
        miner.ring = Ring.restored(as_symbols(self.symbols), size, 0, self.position)
        miner.evidence = self.evidence.restored(size, self.position)
        miner.drift = self.drift.restored()
        miner.known = [loop.restored() for loop in self.known]
        miner.events.extend(self.events)
        if self.lock and self.tracker:
            miner.lock = self.lock.restored()
            miner.tracker = self.tracker.restored(miner.lock, miner.ring)
        return miner

    def check(self) -> None:
        """Raise an error for fields that no miner has; otherwise every number is safe."""
        window = self.window
        FORMAT.check({"window": MIN_WINDOW <= window <= MAX_WINDOW and not window & (window - 1)})
        FORMAT.check(self._kept_claims(self.position, 2 * window) | self._plan_claims(self.position))
        if self.lock and self.tracker:
            followed = self.tracker.is_possible(self.lock.template, self.position, self.ended)
            FORMAT.check({"its tracker": followed})

    def _kept_claims(self, at: int, size: int) -> dict[str, bool]:
        evidence, events = self.evidence, self.events
        return {
            "symbols": self.symbols.dtype.kind == "u" and len(self.symbols) == min(at, size),
            "signals": all(signal.is_possible(name, size, at) for name, signal in evidence.signals.items()),
            "ranges": all(_are_ranges(family, size) for family in evidence.families),
            "drift": _are_rows(self.drift.recent, 3, 2, at),
            "events": all(0 <= event.position <= FARTHEST and -1 <= event.loop <= MAX_COUNT for event in events),
            "periods": all(0 <= event.period <= MAX_COUNT for event in events),
            "loops": all(loop.is_possible(self.loops, size) for loop in (self.lock, *self.known) if loop),
        }

    def _plan_claims(self, at: int) -> dict[str, bool]:
        plan, watch, counts = self.schedule, self.watch, self.counts
        has_loop = {self.lock is not None, self.tracker is not None, self.state != "learning"}
        return {
            "last_gap": -1 <= self.last_gap <= at,
            "counts": min(astuple(counts)) >= 0 and max(astuple(counts)) <= FARTHEST and counts.given <= at,
            "watch": 0 <= watch.since <= watch.at <= at and 0 <= watch.matched <= FARTHEST,
            "patience": 1 <= watch.patience <= MOST_PATIENT,
            "schedule": plan.window == self.window and 0 <= plan.start <= at and 1 <= plan.size <= 4 * NEVER,
            "decisions": at < plan.due and max(plan.attempt, plan.review, plan.watch) <= NEVER,
            "state": has_loop == {min(plan.review, plan.watch) < NEVER},
        }


def to_bytes(miner: LoopTracker) -> bytes:
    """Return the state of the miner in the layout of this module."""
    arrays: list[Array] = []

    def write(value: Any) -> object:
        if isinstance(value, np.ndarray):
            arrays.append(value)
            return {"array": [value.dtype.str[1:], value.size]}
        if isinstance(value, np.generic):
            return value.item()
        return {name: getattr(value, name) for name in value.__slots__}

    text = json.dumps(_SavedMiner.of(miner), default=write, separators=(",", ":")).encode()
    return FORMAT.seal(np.array([len(text)]), np.frombuffer(text, np.uint8), *arrays)


def from_bytes(data: bytes) -> LoopTracker:
    """Return the miner whose state `to_bytes` has written.

    Raises:
        ValueError: for any other bytes, stating what is wrong with them.
    """
    body = FORMAT.open(data)
    at = end = FORMAT.least_nbytes + int(read_array(body, np.uint64, 1, 0)[0])
    if end > len(body):
        raise FORMAT.damaged("it is too short")

    def read(kind: object, value: object) -> Array:
        nonlocal at
        array = _read_described(body, value, at)
        at += array.nbytes
        return _of_kind(array, kind)

    try:
        saved = msgspec.json.decode(body[FORMAT.least_nbytes : end], type=_SavedMiner, dec_hook=read)
    except (ValueError, RecursionError) as error:
        raise FORMAT.damaged(f"its fields cannot be read: {error}") from None
    if at != len(body):
        raise FORMAT.damaged("its fields and its arrays do not belong together")
    saved.check()
    return saved.restored()


def _read_described(body: bytes, value: object, at: int) -> Array:
    """Return the array at byte `at` that a field describes."""
    match value:
        case {"array": [str(name), int(count)]} if name in TYPES and 0 <= count <= len(body):
            array = read_array(body, "u1" if name == "b1" else TYPES[name], count, at)
            return array.astype(TYPES[name], copy=False)
    raise ValueError("no array")


def _of_kind(array: Array, kind: object) -> Array:
    """Return the array; raise an error where the field's annotation is of another type."""
    (wanted,) = get_args(get_args(kind)[1])
    if wanted is not Any and array.dtype != wanted:
        raise ValueError(f"an array of {array.dtype}")
    return array


def _is_within(values: Array, least: int, most: int) -> bool:
    """Return whether all values are from `least` to `most`."""
    return not len(values) or bool(least <= values.min() and values.max() <= most)


def _are_rows(values: Int64s, width: int, most: int, at: int) -> bool:
    """Return whether the values are at most this many rows, and none is beyond `at`, the symbols read."""
    return not len(values) % width and len(values) <= most * width and _is_within(values, 0, at)


def _are_ranges(family: Family, size: int) -> bool:
    """Return whether the ranges can be those of the last `size` symbols."""
    arrays = [family.positions] if family.ends is None else [family.positions, family.ends]
    farthest = 2 * FARTHEST - 1
    return all(len(one) == len(family.positions) <= size and _is_within(one, -farthest, farthest) for one in arrays)
