"""Find the iterations of a running stream: mine its recent past, then follow the loop, in memory that does not grow."""

from __future__ import annotations

import operator
from dataclasses import replace

from deepprof.mining.evidence import Evidence
from deepprof.mining.online.loop_tracker import MAX_WINDOW, MIN_WINDOW, PIECE, LoopTracker
from deepprof.mining.online.progress import IterationBatch, LockedLoop, MinerCounts, MinerEvent, State
from deepprof.mining.online.recent import check_evidence
from deepprof.mining.symbols import Symbols, as_symbols
from deepprof.plurals import counted, verb

WINDOW = 1 << 16  # the first window that offline mining searches


class OnlineMiner:
    """Finds the loop of a stream that arrives in chunks, and returns its iterations as they are completed.

    It mines the symbols so far at fixed positions (1/64, 1/32, 1/16, 1/8 of the window, then a quarter more each) until
    it finds a loop. It follows that loop, and reviews it: it mines growing windows, up to twice the window, to see
    whether a larger level is the iteration. Where one loop has run from the start, is clear in the window, and has an
    iteration without edits there, its template and its iterations from the last review on are those that `find_loop`
    finds in the whole stream. The template follows iterations that change; when none was seen for four periods, the
    recent past is mined again. Returned iterations are never withdrawn.

    Every decision is made at a fixed position from the symbols before it: any chunking gives the same iterations.
    Memory is bounded by the window: 8 bytes (16 with symbols above 65,535) for each of its symbols, four times what the
    evidence on them takes, and what mining needs while it runs.

    Args:
        window: symbols of the window in which a loop should be clear, as in `find_loop`; a power of two from 2^10 to
            2^20. The largest period that can be found is two thirds of it.

    Raises:
        ValueError: for any other window.
    """

    def __init__(self, window: int = WINDOW) -> None:
        if not MIN_WINDOW <= window <= MAX_WINDOW or window & (window - 1):
            raise ValueError(f"the window must be a power of two from {MIN_WINDOW} to {MAX_WINDOW}, not {window}")
        self._loop_tracker = LoopTracker(window)

    @property
    def position(self) -> int:
        """Symbols fed so far."""
        return self._loop_tracker.position

    @property
    def due(self) -> int:
        """The next position at which something is decided, apart from changes of the iteration itself."""
        return self._loop_tracker.schedule.due

    @property
    def state(self) -> State:
        """`learning` before the first loop, `locked` while one is followed, `lost` when it is no longer there."""
        return self._loop_tracker.state

    @property
    def loop(self) -> LockedLoop | None:
        """The loop that is followed, or was followed last."""
        return self._loop_tracker.lock

    @property
    def counts(self) -> MinerCounts:
        """Sums over the whole stream so far."""
        return replace(self._loop_tracker.counts)

    @property
    def events(self) -> tuple[MinerEvent, ...]:
        """The last 256 events, oldest first."""
        return tuple(self._loop_tracker.events)

    def feed(self, symbols: Symbols, evidence: Evidence | None = None) -> IterationBatch:
        """Read the next symbols; return the iterations that became certain: each does when the next one has ended.

        `evidence` belongs to these symbols: arrays of their length, ranges with positions counted from the first of
        them (negative for one that began earlier and is known only now).

        Raises:
            ValueError: for symbols that `as_symbols` refuses, evidence that does not fit them, and after `finish`. The
                miner is then unchanged.
        """
        self._refuse_when_finished()
        chunk = as_symbols(symbols)
        known = check_evidence(evidence, len(chunk))
        loop_tracker, begin, first = self._loop_tracker, self.position, 0
        loop_tracker.evidence.append(known, 0, 0, begin)
        while first < len(chunk):
            end = min(len(chunk), first + loop_tracker.window // PIECE, loop_tracker.schedule.due - begin)
            loop_tracker.evidence.append(known, first, end, begin)
            loop_tracker.read(chunk[first:end])
            first = end
        return self._take_given()

    def gap(self, lost: int | None = None) -> IterationBatch:
        """Note that records are missing here, `lost` of them if that is known; return iterations as `feed` does.

        The current iteration is returned as incomplete; so is what follows, until an iteration's first symbol is seen.
        Positions continue to count the symbols fed.

        Raises:
            ValueError: for a negative number, and after `finish`.
        """
        self._refuse_when_finished()
        count = None if lost is None else operator.index(lost)
        if count is not None and count < 0:
            raise ValueError(f"the number of lost records must not be negative, it is {count}")
        self._loop_tracker.counts.gaps += 1
        self._loop_tracker.counts.lost_records += count or 0
        self._loop_tracker.interrupt(
            "records were lost" if count is None else f"{counted(count, 'record')} {verb(count, 'was', 'were')} lost"
        )
        return self._take_given()

    def finish(self) -> IterationBatch:
        """Return the remaining iterations: the stream ends here. Without a loop so far, it is mined a last time.

        Raises:
            ValueError: when the stream has ended before.
        """
        self._refuse_when_finished()
        self._loop_tracker.close()
        return self._take_given()

    def save(self) -> bytes:
        """Return the whole state; the miner that `restore` makes of it continues as this one would.

        The size is some 4 bytes for each of the 2^17 symbols kept, plus the size of the evidence on them. The bytes
        depend on what was fed, not on the chunks.
        """
        from deepprof.mining.online.state import to_bytes  # needs msgspec, which mining alone does without

        return to_bytes(self._loop_tracker)

    @classmethod
    def restore(cls, data: bytes) -> OnlineMiner:
        """Return the miner whose state `save` has written.

        Raises:
            ValueError: for any other bytes, stating what is wrong with them.
        """
        from deepprof.mining.online.state import from_bytes

        miner = cls.__new__(cls)
        miner._loop_tracker = from_bytes(data)
        return miner

    def _refuse_when_finished(self) -> None:
        if self._loop_tracker.ended:
            raise ValueError("the stream has ended: a new one needs a new OnlineMiner")

    def _take_given(self) -> IterationBatch:
        given, self._loop_tracker.given = self._loop_tracker.given, []
        return IterationBatch.join(given)
