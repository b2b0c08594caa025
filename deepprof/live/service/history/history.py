"""The history: sessions with their last state, and all their iterations, hot in SQLite and then sealed as Parquet."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import polars as pl

from deepprof.live.service.context_windows import MergedWindows
from deepprof.live.service.folder import StoreError, prepare_folder
from deepprof.live.service.history.context_rows import (
    MOST_WINDOWS,
    count_windows,
    drop_windows,
    find_earliest,
    list_hours,
    merge_hour,
    put_windows,
    read_windows,
)
from deepprof.live.service.history.iteration_rows import delete_rows, insert_rows, read_rows, require_history
from deepprof.live.service.history.paging import HistoryQuery, list_sessions, read_page
from deepprof.live.service.history.retention import drop_dead_files, drop_files, drop_rows, drop_sessions
from deepprof.live.service.history.schema import DATABASE, STORED_ROWS, connect, guarding, set_up
from deepprof.live.service.history.sealed import SEALED, TMP, SealedFile, list_sealed, path_of, write_sealed
from deepprof.live.service.history.values import (
    Checkpoint,
    ContextAnswer,
    JobSummary,
    RetentionResult,
    StoredSession,
    WaitingWindow,
)
from deepprof.live.service.journal import JournalPlace

WINDOW_ROWS = 1 << 18  # of one file: 12 MB, and 100 MB of memory while it is made

WINDOW_NS = 3600 * 10**9  # rows that do not fill a file wait this much longer; else every call would make a file

HOT_ROWS = 1 << 20  # beyond this, rows are sealed whatever their age: the database stays within some 110 MB

HOT_SESSIONS = (
    "SELECT session FROM sessions WHERE EXISTS (SELECT 1 FROM iterations WHERE"
    ' iterations.session = sessions.session AND "row" BETWEEN ? AND ?) ORDER BY session'
)


ANSWER_NODES, ANSWER_SUMS = 1 << 16, 1 << 17  # of an answer on contexts
PAGE_ROWS = 8192
TRIES = 3  # to read a page whose files were removed while it was read
STORED = (
    "SELECT sessions.session, job, rank, collector, hello, begun_unix_ns, at_segment, at_offset, at_length, state,"
    " closed, settled FROM sessions LEFT JOIN states USING (session) WHERE NOT closed OR state IS NOT NULL"
    " ORDER BY sessions.session"
)
JOBS = (
    "SELECT job, count(DISTINCT rank), sum(NOT closed), min(begun_unix_ns), max(latest_unix_ns), sum(iterations)"
    " FROM sessions GROUP BY job ORDER BY min(begun_unix_ns) DESC, job"
)
ROW_NBYTES = 110  # of a row in the database, including its share of the pages' overhead
KEPT = (
    "SELECT job, rank, sum(nbytes) FROM sessions JOIN ("
    "SELECT session, count(*) * ? AS nbytes FROM iterations GROUP BY session"
    " UNION ALL SELECT session, length(state) FROM states"
    " UNION ALL SELECT session, sum(nbytes) FROM contexts GROUP BY session"
    " UNION ALL SELECT session, 1.0 * parts.rows * nbytes / max(1, sealed.rows)"
    " FROM sealed_sessions AS parts JOIN sealed USING (number)"
    ") USING (session) GROUP BY job, rank"
)
SENDER = "sender "  # begins the key, before a rank's number and its job's name, of the text that names its sender
SAVE = (
    "UPDATE sessions SET at_segment = ?, at_offset = ?, at_length = ?, iterations = iterations + ?,"
    " latest_unix_ns = max(latest_unix_ns, ?) WHERE session = ?"
)


class History:
    """The data derived from the journal. Any thread may use it: one writes at a time, and readers never wait.

    A checkpoint is one transaction that survives the end of the process. With SQLite's synchronous=NORMAL a power loss
    may undo the latest checkpoints, each as a whole: they are derived again from the journal, which was synced. Data
    that cannot be derived again (a session's number, a sealed file, a deletion) is synced at once, and `sync` syncs
    everything else before the journal removes segments.

    On disk: `retain` leaves at most its `max_nbytes`. Until its next call up to `HOT_ROWS` rows (some 110 MB), the
    sessions' states and 64 MiB of SQLite's log may be added.
    """

    def __init__(self, folder: Path, clock: Callable[[], int]) -> None:
        self.folder, self.path = folder / SEALED, folder / DATABASE
        self._clock, self._lock, self._sealing = clock, threading.RLock(), threading.Lock()
        self._db = connect(self.path, writing=True)

    @classmethod
    def open(cls, folder: Path, *, clock: Callable[[], int] = time.time_ns) -> History:
        """Open the history in the store `folder`, made where it is missing; `clock` returns Unix nanoseconds.

        Files that a crash left behind are removed. Raises `StoreError` for a database that is not a history, has a
        newer version or is damaged, and `OSError`. The caller holds the store's lock.
        """
        prepare_folder(folder)
        prepare_folder(folder / SEALED)
        history = cls(folder, clock)
        try:
            set_up(history._db, history.path, known=bool(list_sealed(history.folder)))
            history._remove_leftovers()
        except BaseException:
            history._db.close()
            raise
        return history

    def _remove_leftovers(self) -> None:
        """Remove the files that a crash left: half written, not yet listed, or no longer listed."""
        for part in self.folder.glob(f"*.parquet{TMP}"):
            part.unlink()
        with guarding(self.path):
            listed = {number for (number,) in self._db.execute("SELECT number FROM sealed")}
            last = _next_number(self._db)  # the highest number of a file that can have been written but not listed
        for number in list_sealed(self.folder):
            if number <= last and number not in listed:
                path_of(self.folder, number).unlink()

    @contextmanager
    def _writing(self, *, durably: bool = False) -> Iterator[sqlite3.Connection]:
        """Yield the database for one transaction, which with `durably` is synced to disk afterwards."""
        with self._lock, guarding(self.path):
            self._db.execute(f"PRAGMA synchronous = {'FULL' if durably else 'NORMAL'}")
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
                self._db.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):  # SQLite may already have rolled it back, such as on a full disk
                    self._db.execute("ROLLBACK")
                raise

    @contextmanager
    def _looking(self) -> Iterator[sqlite3.Connection]:
        """Yield a snapshot of the database, which later writes do not change."""
        with guarding(self.path), closing(connect(self.path, writing=False)) as db:
            db.execute("BEGIN")
            yield db

    def begin(self, job: str, rank: int, collector: str, hello: bytes, now_unix_ns: int) -> int:
        """Return the number of a new session, durably; the rank's earlier ones are closed. Numbers are used once."""
        values = job, rank, collector, hello, now_unix_ns, now_unix_ns
        with self._writing(durably=True) as db:
            db.execute("UPDATE sessions SET closed = 1 WHERE job = ? AND rank = ? AND NOT closed", (job, rank))
            new = "INSERT INTO sessions (job, rank, collector, hello, begun_unix_ns, latest_unix_ns)"
            number = db.execute(f"{new} VALUES (?, ?, ?, ?, ?, ?)", values).lastrowid
        return number or 0

    def checkpoint(self, saved: Sequence[Checkpoint]) -> None:
        """Save states, positions, new iterations and windows of contexts in one transaction: all or nothing.

        Sessions that were removed meanwhile are left out. Raises ValueError for other columns than HISTORY's.
        """
        for one in saved:
            require_history(one.iterations)
        now = self._clock()
        with self._writing() as db:
            new = list[tuple[int, pl.DataFrame]]()
            for one in saved:
                at = one.position.segment, one.position.offset, one.position.length
                if db.execute(SAVE, (*at, one.iterations.height, now, one.session)).rowcount:
                    db.execute("INSERT OR REPLACE INTO states VALUES (?, ?)", (one.session, one.state))
                    new += [(one.session, one.iterations)] if one.iterations.height else []
                    put_windows(db, one.session, one.contexts, now)
            if new:
                _mark(db, insert_rows(db, _read_counter(db, "next_row"), new), now)

    def restore(self) -> list[StoredSession]:
        """Return the sessions that are open, or closed with their state still kept, in the order of their numbers."""
        with self._looking() as db:
            return [_to_stored(values) for values in db.execute(STORED)]

    def close_session(self, session: int) -> None:
        """Close a session for good: it gets no more records, and its state is deleted."""
        with self._writing() as db:
            db.execute("UPDATE sessions SET closed = 1 WHERE session = ?", (session,))
            db.execute("DELETE FROM states WHERE session = ?", (session,))

    def forget_session(self, session: int) -> None:
        """Remove a session that has no data to keep, and the sender of its rank if the rank has no other session."""
        with self._writing() as db:
            found = db.execute("SELECT job, rank FROM sessions WHERE session = ?", (session,)).fetchall()
            db.execute("DELETE FROM sessions WHERE session = ?", (session,))
            db.execute("DELETE FROM states WHERE session = ?", (session,))
            db.execute("DELETE FROM contexts WHERE session = ?", (session,))
            for job, rank in found:
                if not db.execute("SELECT 1 FROM sessions WHERE job = ? AND rank = ?", (job, rank)).fetchone():
                    db.execute("DELETE FROM texts WHERE key = ?", (f"{SENDER}{rank} {job}",))

    def settle(self, session: int, iterations: pl.DataFrame) -> None:
        """Replace all iterations of a session, sealed ones too, durably. Raises ValueError as `checkpoint` does."""
        require_history(iterations)
        with self._writing(durably=True) as db:
            first = _read_counter(db, "next_row")
            settled = "UPDATE sessions SET settled = 1, first_row = ?, iterations = ? WHERE session = ?"
            if db.execute(settled, (first, iterations.height, session)).rowcount:
                db.execute("DELETE FROM iterations WHERE session = ?", (session,))
                _mark(db, insert_rows(db, first, [(session, iterations)]), self._clock())

    def iterations(
        self, job: str, rank: int | None = None, device: int | None = None, after: str = "", limit: int = PAGE_ROWS
    ) -> tuple[pl.DataFrame, str]:
        """Return at most `limit` iterations of a job, each once, and the token of the next page ("": there is none).

        Columns: `rank` and those of HISTORY; rows are sorted by session, and in a session in the order of arrival.
        Sealing between pages changes nothing; when a session is settled between two of its pages, the next page starts
        again at its first row. A page may be shorter than `limit` and still have a next one. Raises ValueError for an
        invalid token or a limit below 1, and `StoreError` for a damaged file.
        """
        if limit < 1:
            raise ValueError(f"a page has at least one row, not {limit}")
        for _ in range(TRIES):
            with suppress(FileNotFoundError), self._looking() as db:
                return read_page(db, self.folder, HistoryQuery(job, rank, device, after, limit))
        raise StoreError(self.folder, "lacks a file that its ledger lists")

    def contexts(
        self, job: str, rank: int | None, within: tuple[int, int], waiting: Sequence[WaitingWindow] = ()
    ) -> ContextAnswer:
        """Return what calling contexts of a job did in the windows that overlap `within` (start and end in ns).

        Of each rank its latest session counts. `waiting` are windows that were not here yet; of an open one nothing is
        here, or it arrived here meanwhile and does not count again.
        Raises `ValueError` for more windows than one answer spans, and `StoreError` for damaged ones.
        """
        merged = MergedWindows(ANSWER_NODES, ANSWER_SUMS)
        timely = [one for one in waiting if one.window.overlaps(*within)]
        came = {(one.session, one.window.start_ns, one.window.length_ns) for one in timely if one.is_open}
        with self._looking() as db:
            sessions = list_sessions(db, job, rank)
            count = sum(count_windows(db, session, *within) for session in sessions)
            if count > MOST_WINDOWS:
                raise ValueError(f"{count} windows, at most {MOST_WINDOWS}: ask for one rank, or a shorter time")
            for session in sessions:
                for window in read_windows(db, session, *within):
                    if (session, window.start_ns, window.length_ns) not in came:
                        merged.add(window)
            begun = [begin for session in sessions if (begin := find_earliest(db, session)) is not None]
        for one in timely:
            merged.add(one.window)
        earliest = min([*begun, *(one.window.start_ns for one in waiting)], default=None)
        nodes, sums = merged.finish()
        return ContextAnswer(nodes, sums, merged.windows, merged.folded, merged.step_ns, earliest)

    def merge_contexts(self, older_than_ns: int) -> int:
        """Merge windows of minutes into hours that were over at a time, on the clock of their rank.

        Nothing but the time of what is in them is lost. Returns how many hours were merged, a part of them where there
        are many. Raises `StoreError` for damaged windows, which stay as they are; the others are merged.
        """
        with self._looking() as db:
            hours = list_hours(db, older_than_ns)
        problem: StoreError | None = None
        for session, hour in hours:
            try:
                with self._writing() as db:
                    merge_hour(db, session, hour)
            except StoreError as error:
                problem = error
        if problem is not None:
            raise problem
        return len(hours)

    def jobs(self) -> list[JobSummary]:
        """Return all jobs that have a session, the newest first."""
        with self._looking() as db:
            return [JobSummary(*values) for values in db.execute(JOBS)]

    def save_text(self, key: str, value: str, job: str | None = None) -> None:
        """Save a small text under `key`, replacing any other; it is deleted together with `job`."""
        with self._writing() as db:
            db.execute("INSERT OR REPLACE INTO texts VALUES (?, ?, ?)", (key, job, value))

    def load_text(self, key: str) -> str | None:
        """Return the text saved under `key`, or None."""
        with self._looking() as db:
            found = db.execute("SELECT value FROM texts WHERE key = ?", (key,)).fetchone()
        return None if found is None else str(found[0])

    def list_texts(self, prefix: str) -> dict[str, str]:
        """Return the texts whose key begins with `prefix`, by key, in the order of keys."""
        query = "SELECT key, value FROM texts WHERE substr(key, 1, ?) = ? ORDER BY key"
        with self._looking() as db:
            return dict(db.execute(query, (len(prefix), prefix)))

    def delete_text(self, key: str) -> None:
        """Delete the text saved under `key`, if there is one."""
        with self._writing() as db:
            db.execute("DELETE FROM texts WHERE key = ?", (key,))

    def save_sender(self, job: str, rank: int, sender: str) -> None:
        """Save the name of a rank's sender."""
        self.save_text(f"{SENDER}{rank} {job}", sender, job)

    def senders(self) -> dict[tuple[str, int], str]:
        """Return the last sender of every rank, by job and number; ranks without a recognized sender are left out."""
        found = {}
        for key, sender in self.list_texts(SENDER).items():
            number, _, job = key.removeprefix(SENDER).partition(" ")
            if number.isascii() and number.isdecimal():  # else DeepProf did not write it
                found[job, int(number)] = sender
        return found

    def kept_nbytes(self) -> dict[tuple[str, int], int]:
        """Return approximately how many bytes each rank needs: rows, its share of the sealed files, and states."""
        with self._looking() as db:
            return {(job, rank): int(nbytes) for job, rank, nbytes in db.execute(KEPT, (ROW_NBYTES,))}

    def forget(self, job: str) -> int:
        """Delete all data of a job, durably; returns how many sessions it had."""
        with self._writing(durably=True) as db:
            found = [session for (session,) in db.execute("SELECT session FROM sessions WHERE job = ?", (job,))]
            for session in found:
                for table in ("iterations", "states", "contexts", "sessions"):
                    db.execute(f"DELETE FROM {table} WHERE session = ?", (session,))  # noqa: S608
            db.execute("DELETE FROM texts WHERE job = ?", (job,))
            dead = drop_dead_files(db)
        self._unlink(dead)
        return len(found)

    def seal(self, older_than_unix_ns: int, *, window_ns: int = WINDOW_NS, hot_rows: int = HOT_ROWS) -> int:
        """Move rows added before `older_than_unix_ns` to sealed files, and return how many files were made.

        Rows that do not fill a file wait until the oldest is `window_ns` older than that, so this may be called often.
        Beyond `hot_rows` the oldest rows are sealed whatever their age. Raises `OSError`, changing nothing.
        """
        files = 0
        with self._sealing:
            while True:
                with self._looking() as db:
                    window = _next_window(db, older_than_unix_ns, window_ns, hot_rows)
                    if window is None:
                        return files
                    written = _write_window(db, self.folder, *window)
                with self._writing(durably=True) as db:
                    _enter(db, written, *window)
                files += written is not None

    def retain(self, max_age_ns: int, max_nbytes: int, now_unix_ns: int) -> RetentionResult:
        """Remove rows added more than `max_age_ns` ago, then the oldest while there are more than `max_nbytes` bytes.

        Bytes are those of sealed files and of the database's pages in use; windows of contexts need at most a quarter.
        The ledger is synced before a file is removed. Closed sessions without rows are removed after the same time.
        """
        before = now_unix_ns - max_age_ns
        with self._sealing, self._writing(durably=True) as db:
            windows = drop_windows(db, before, max_nbytes)
            files = drop_dead_files(db)
            dead = len(files)
            files += drop_files(db, before, max_nbytes)
            rows = drop_rows(db, before, max_nbytes)
            sessions = drop_sessions(db, before)
        self._unlink(files)
        if files or rows or sessions or windows:
            self._shrink()
        return RetentionResult(len(files) - dead, rows, sessions, windows)

    def _unlink(self, numbers: Sequence[int]) -> None:
        """Remove files that the ledger no longer lists; files that cannot be removed go at the next start."""
        for number in numbers:
            with suppress(OSError):
                path_of(self.folder, number).unlink()

    def _shrink(self) -> None:
        """Return empty pages to the file system, and cut SQLite's log, unless a reader prevents it."""
        with self._lock, guarding(self.path):
            self._db.execute("PRAGMA incremental_vacuum").fetchall()
            self._db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()

    def sync(self) -> None:
        """Make everything that was saved so far survive a power loss. Raises `OSError`."""
        with self._writing(durably=True) as db:
            db.execute(
                "UPDATE counters SET value = value + 1 WHERE name = 'synced'"
            )  # syncs the log, with all earlier transactions

    @property
    def farthest(self) -> JournalPlace | None:
        """The farthest journal position of any session, None without any; for `Journal.open`."""
        query = "SELECT at_segment, at_offset, at_length FROM sessions WHERE at_segment IS NOT NULL"
        with self._looking() as db:
            places = [JournalPlace(*values) for values in db.execute(query)]
        return max(places, key=lambda place: place.stop, default=None)

    def close(self) -> None:
        """Close the database; its log is merged into it."""
        with self._lock, guarding(self.path):
            self._db.close()


def _read_counter(db: sqlite3.Connection, name: str) -> int:
    return int(db.execute("SELECT value FROM counters WHERE name = ?", (name,)).fetchone()[0])


def _mark(db: sqlite3.Connection, following: int, now_unix_ns: int) -> None:
    """Save that the next row is `following`, and that all rows before it were added by `now_unix_ns`."""
    db.execute("UPDATE counters SET value = ? WHERE name = 'next_row'", (following,))
    db.execute("INSERT OR REPLACE INTO marks VALUES (?, ?)", (following - 1, now_unix_ns))


def _to_stored(values: tuple[object, ...]) -> StoredSession:
    """Return a row of the query STORED as a value; raises `sqlite3.DatabaseError` for values of wrong types."""
    session, job, rank, collector, hello, begun, segment, offset, length, state, closed, settled = values
    at = (segment, offset, length)
    numbers = session, rank, begun, closed, settled, *(at if segment is not None else ())
    texts = isinstance(job, str) and isinstance(collector, str)
    if not texts or not isinstance(hello, bytes) or not all(isinstance(number, int) for number in numbers):
        raise sqlite3.DatabaseError("a session's values are of other types")
    position = None if segment is None else JournalPlace(*at)  # type: ignore[arg-type]
    kept = state if isinstance(state, bytes) else b""
    return StoredSession(session, job, rank, collector, hello, begun, position, kept, bool(closed), bool(settled))  # type: ignore[arg-type]


def _next_window(
    db: sqlite3.Connection, older_than_unix_ns: int, window_ns: int, hot_rows: int
) -> tuple[int, int] | None:
    """Return the first and last number of the rows to seal next, None where there are none."""
    (sealed,), (following,) = (
        db.execute("SELECT value FROM counters WHERE name = ?", (name,)).fetchone() for name in ("sealed", "next_row")
    )
    aged = 'SELECT coalesce(max("row"), 0) FROM marks WHERE unix_ns <= ?'
    last = max(db.execute(aged, (older_than_unix_ns,)).fetchone()[0], following - 1 - hot_rows)
    if last <= sealed:
        return None
    first_mark = 'SELECT unix_ns FROM marks WHERE "row" > ? ORDER BY "row" LIMIT 1'
    oldest = db.execute(first_mark, (sealed,)).fetchone()
    if last - sealed < WINDOW_ROWS and oldest is not None and oldest[0] > older_than_unix_ns - window_ns:
        return None
    return sealed + 1, min(last, sealed + WINDOW_ROWS)


def _next_number(db: sqlite3.Connection) -> int:
    """Return the number of the next sealed file: none is used twice."""
    found = db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'sealed'").fetchone()
    return 1 + (found[0] if found else 0)


def _write_window(
    db: sqlite3.Connection, folder: Path, first: int, last: int
) -> tuple[SealedFile, pl.DataFrame] | None:
    """Write the hot rows of this range to a file; return it, and rows and last row per session. None without rows."""
    sessions = [session for (session,) in db.execute(HOT_SESSIONS, (first, last))]
    rows = pl.concat([STORED_ROWS.to_frame(), *(read_rows(db, session, first, last) for session in sessions)])
    if rows.is_empty():
        return None
    counts = rows.group_by("session", maintain_order=True).agg(pl.len().alias("rows"), pl.col("row").max())
    return write_sealed(folder, _next_number(db), rows), counts


def _enter(db: sqlite3.Connection, written: tuple[SealedFile, pl.DataFrame] | None, first: int, last: int) -> None:
    """List the file in the ledger, and delete its rows from the database, in the caller's transaction."""
    if written is not None:
        file, counts = written
        given = 'SELECT coalesce(max(unix_ns), 0) FROM marks WHERE "row" BETWEEN ? AND ?'
        following = 'SELECT unix_ns FROM marks WHERE "row" >= ? ORDER BY "row" LIMIT 1'
        (latest,) = db.execute(given, (first, last)).fetchone()
        latest = max(latest, *(db.execute(following, (last,)).fetchone() or (0,)))
        db.execute(
            "INSERT INTO sealed VALUES (?, ?, ?, ?, ?)", (file.number, file.nbytes, file.crc32, file.rows, latest)
        )
        for session, rows, last_row in counts.iter_rows():
            db.execute("INSERT INTO sealed_sessions VALUES (?, ?, ?, ?)", (session, file.number, rows, last_row))
            delete_rows(db, session, first, last)
    db.execute("UPDATE counters SET value = ? WHERE name = 'sealed'", (last,))
    db.execute('DELETE FROM marks WHERE "row" <= ?', (last,))
