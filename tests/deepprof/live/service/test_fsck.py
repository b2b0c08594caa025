"""`fsck`: it finds what is wrong, states what is lost, and leaves a store that opens with all that was whole."""

from __future__ import annotations

import errno
import os
import random
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from deepprof.collectors.errors import UsageError
from deepprof.live.service.folder import StoreError, lock_store
from deepprof.live.service.fsck import check_store
from deepprof.live.service.history import Checkpoint, History
from deepprof.live.service.journal import Journal, JournalFrame, JournalPlace
from tests.chance import examples
from tests.deepprof.live.service.history.building import iterations, read_all
from tests.deepprof.live.service.journal.building import contents, flip, frame, segments

RANKS, ROWS = 3, 60


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with seven segments, two sealed files and hot rows of three ranks."""
    store = tmp_path_factory.mktemp("fsck") / "store"
    history = History.open(store)
    journal = Journal.open(store / "journal", segment_nbytes=512)
    sessions = [history.begin("job", rank, "c", b"hello", 1) for rank in range(RANKS)]
    for part in range(3):
        for session in sessions:
            journal.append([frame(session, part * 20 + at, bytes([session]) * 100) for at in range(2)])
        journal.sync()
        numbers = range(part * ROWS // 3, (part + 1) * ROWS // 3)
        saved = [Checkpoint(session, journal.end, b"state" * 300, iterations(*numbers)) for session in sessions]
        history.checkpoint(saved)
        if part < 2:
            history.seal(2**62, window_ns=0)
    history.save_text("report", "fine", job="job")
    shutil.copytree(store, store.with_name("killed"))  # as a process leaves it that has not closed anything
    history.close()
    journal.close()
    return store


@pytest.fixture
def store(sound: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sound, tmp_path / "store"))


def damage_list(store: Path) -> list[str]:
    return [str(problem) for problem in check_store(store)]


def mended(store: Path) -> list[str]:
    """Return what the repair states, after checking that it states what the check states, and that it helps."""
    before = {path: path.read_bytes() for path in store.rglob("*") if path.is_file() and is_content(path)}
    found = damage_list(store)
    assert before == {path: path.read_bytes() for path in before}  # a check changes nothing
    assert [str(problem) for problem in check_store(store, repair=True)][: len(found)] == found or len(found) == 0
    assert damage_list(store) == []
    return found


def is_content(path: Path) -> bool:
    return path.suffix not in {".db-shm", ".db-wal"} and path.name != "lock"


def opened_frames(store: Path) -> list[JournalFrame]:
    history = History.open(store)
    journal = Journal.open(store / "journal", beyond=history.farthest)
    found = contents(journal)
    history.close()
    journal.close()
    return found


def opened_rows(store: Path) -> set[tuple[int, int]]:
    history = History.open(store)
    found = read_all(history, limit=1000)
    assert len(set(found)) == len(found)
    history.close()
    return set(found)


def test_a_disk_that_fails_is_told_with_its_file(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "pread", refuse)
    with pytest.raises(OSError, match="Input/output") as told:
        check_store(store)
    assert told.value.filename == str(segments(store / "journal")[0])


ALL_ROWS = {(rank, number) for rank in range(RANKS) for number in range(ROWS)}


def test_sound_store_is_sound(store: Path) -> None:
    assert check_store(store) == []
    assert check_store(store, repair=True) == []
    assert not (store / "lost+found").exists()
    assert (opened_rows(store), len(opened_frames(store))) == (ALL_ROWS, 18)


def test_new_store_is_sound(tmp_path: Path) -> None:
    History.open(tmp_path).close()
    assert check_store(tmp_path) == []
    Journal.open(tmp_path / "journal").close()
    assert check_store(tmp_path) == []


def test_folders_that_are_no_store(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(UsageError, match="deepprof serve"):
            check_store(path)
    assert list(tmp_path.iterdir()) == []


def test_store_in_use_is_refused(store: Path) -> None:
    with lock_store(store), pytest.raises(StoreError, match="is in use by a running daemon; stop it"):
        check_store(store)
    check_store(store)


def test_torn_end(store: Path) -> None:
    frames = opened_frames(store)
    last = segments(store / "journal")[-1]
    with last.open("ab") as file:
        file.write(b"DPjf half a frame")
    name = last.name
    size = last.stat().st_size - 17
    assert mended(store) == [
        f"journal/{name}: 17 bytes from {size} on are torn, as a crash leaves them;"
        " lost: nothing that was acknowledged, after a crash"
    ]
    assert opened_frames(store) == frames


def test_damaged_frame_is_named_and_the_others_stay(store: Path) -> None:
    frames = opened_frames(store)
    flip(segments(store / "journal")[1], 40 + 40 + 3)
    (problem,) = mended(store)
    lost = frames[2]
    assert problem.endswith(f"lost: a batch of session {lost.session}, {lost.count} records from {lost.first} on")
    assert opened_frames(store) == [one for number, one in enumerate(frames) if number != 2]
    assert len(list((store / "lost+found").iterdir())) == 1


def test_damaged_head_costs_its_segment(store: Path) -> None:
    frames = opened_frames(store)
    path = segments(store / "journal")[2]
    flip(path, 5)
    (problem,) = mended(store)
    assert f"lost: all of its {(store / 'lost+found' / path.name).stat().st_size} bytes" in problem
    assert opened_frames(store) == frames[:4] + frames[6:]


def test_lost_journal_resets_positions(store: Path) -> None:
    shutil.rmtree(store / "journal")
    found = mended(store)
    assert len([line for line in found if "stands for more than the journal has" in line]) == RANKS
    history = History.open(store)
    journal = Journal.open(store / "journal", beyond=history.farthest)
    journal.append([frame(1)])
    assert all(contents(journal, stored.position) == [frame(1)] for stored in history.restore())


def test_lost_database_leaves_sealed_files_aside_and_numbers_unused(store: Path) -> None:
    for path in store.glob("history.db*"):
        path.unlink()
    found = mended(store)
    assert "history.db: is missing" in found[0]
    assert opened_rows(store) == set()
    history = History.open(store)
    assert history.begin("job", 0, "c", b"", 1) == RANKS + 1  # the journal still has frames of 1 to 3
    assert len(list((store / "lost+found").glob("*.parquet"))) == 2


@pytest.mark.parametrize("how", ["missing", "flipped", "cut", "link"])
def test_damaged_sealed_file_costs_its_rows(store: Path, how: str) -> None:
    path = min((store / "sealed").iterdir())
    if how == "flipped":
        flip(path, 300)
    elif how == "cut":
        path.write_bytes(path.read_bytes()[:-1])
    else:
        path.unlink()
    if how == "link":
        path.symlink_to(store / "lock")
    (problem,) = mended(store)
    assert problem.endswith("lost: 60 iterations")
    assert opened_rows(store) == {(rank, number) for rank, number in ALL_ROWS if number >= 20}


def test_leftovers_go_aside(store: Path) -> None:
    (store / "sealed" / f"{3:012d}.parquet.tmp").write_bytes(b"half")
    (store / "sealed" / f"{3:012d}.parquet").write_bytes(b"whole")
    (store / "sealed" / "folder").mkdir()
    (store / "journal" / "notes").write_text("mine")
    (store / "captures").mkdir()
    (store / "captures" / "empty").mkdir()
    (store / "captures" / "link").symlink_to(store)
    assert len(mended(store)) == 6
    assert opened_rows(store) == ALL_ROWS


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("DELETE FROM sessions WHERE session = 2", "has 20 iterations of no session; lost: 20 iterations"),
        ("DELETE FROM counters", "has 3 counters that are missing"),
        ("UPDATE counters SET value = 1 WHERE name = 'next_row'", "has 1 row numbers that would be given again"),
        ("UPDATE counters SET value = 1000000 WHERE name = 'sealed'", "rows said to be sealed that are not"),
        ("UPDATE sessions SET at_segment = 99", "session 1 stands for more than the journal has"),
        ("DELETE FROM sealed", "is not in the ledger"),
        ("DELETE FROM sealed_sessions WHERE session = 1", "has other sessions than the ledger"),
        ("UPDATE sealed SET rows = 1", "ledger says 1 rows"),
        ("UPDATE sqlite_sequence SET seq = 2 WHERE name = 'sessions'", "knows no session above 2"),
        ("DROP TABLE texts", "has other tables"),
        ("PRAGMA application_id = 3", "no history of DeepProf"),
    ],
)
def test_ledger_that_contradicts_itself(store: Path, statement: str, problem: str) -> None:
    db = sqlite3.connect(store / "history.db", isolation_level=None)
    db.execute(statement)
    db.close()
    assert any(problem in line for line in mended(store)), damage_list(store)
    opened_rows(store)
    opened_frames(store)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE sessions SET hello = zeroblob(2000000) WHERE session = 2",
        "UPDATE states SET state = zeroblob(2000000)",
        "INSERT INTO texts VALUES ('key', NULL, CAST(zeroblob(2000000) AS TEXT))",
    ],
)
def test_values_that_no_history_has_are_not_read(store: Path, statement: str, monkeypatch: pytest.MonkeyPatch) -> None:
    db = sqlite3.connect(store / "history.db", isolation_level=None)
    db.execute(statement)
    db.close()
    for module in ("schema", "history_checks"):
        monkeypatch.setattr(f"deepprof.live.service.history.{module}.VALUE_NBYTES", 1 << 20)
    assert any("holds a value of more than 1 MiB" in line for line in mended(store))
    opened_rows(store)
    opened_frames(store)


def test_newer_versions_are_not_touched(store: Path) -> None:
    db = sqlite3.connect(store / "history.db", isolation_level=None)
    db.execute("PRAGMA user_version = 3")
    db.close()
    content = (store / "history.db").read_bytes()
    with pytest.raises(StoreError, match="update DeepProf"):
        check_store(store, repair=True)
    assert (store / "history.db").read_bytes() == content


def test_damaged_pages_cost_their_rows_alone(store: Path) -> None:
    """A page of zeros in the middle of the iterations: rows before and behind it are saved."""
    db = sqlite3.connect(store / "history.db", isolation_level=None)
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    size = db.execute("PRAGMA page_size").fetchone()[0]
    db.close()
    pages = (store / "history.db").stat().st_size // size
    losses = []
    for page in range(1, pages):
        copy = store.parent / f"copy{page}"
        shutil.copytree(store, copy)
        content = bytearray((copy / "history.db").read_bytes())
        content[page * size : (page + 1) * size] = bytes(size)
        (copy / "history.db").write_bytes(content)
        mended(copy)
        left = opened_rows(copy)
        assert left <= ALL_ROWS
        losses.append(len(ALL_ROWS - left))
    assert losses.count(0) > len(losses) // 2
    assert any(0 < loss < 60 for loss in losses)


def some_damage(store: Path, chance: random.Random) -> None:
    """Do one bad thing to a file of the store."""
    paths = sorted(path for path in store.rglob("*") if path.is_file() and path.name != "lock")
    path = chance.choice(paths)
    content = bytearray(path.read_bytes())
    at = chance.randrange(len(content) + 1)

    def flip_bit() -> None:
        if at < len(content):
            content[at] ^= 1 << chance.randrange(8)
        path.write_bytes(content)

    def duplicate() -> None:
        end = min(len(content), at + chance.randrange(1, 400))
        path.write_bytes(content[:end] + content[at:end] + content[end:])

    def copy() -> None:
        numbers = [number for number in range(1, 99) if f"{number:012d}" != path.stem]
        shutil.copy(path, path.with_name(f"{chance.choice(numbers):012d}{path.suffix}"))

    deeds: list[Callable[[], object]] = [
        flip_bit,
        flip_bit,
        lambda: path.write_bytes(content[:at]),
        lambda: path.write_bytes(content[:at] + content[at + chance.randrange(1, 400) :]),
        lambda: path.write_bytes(content[:at] + bytes(min(300, len(content) - at)) + content[at + 300 :]),
        duplicate,
        lambda: path.write_bytes(b""),
        path.unlink,
        copy,
        lambda: path.write_bytes(chance.randbytes(len(content))),
    ]
    chance.choice(deeds)()


def test_store_of_a_killed_daemon_is_sound(sound: Path, tmp_path: Path) -> None:
    store = Path(shutil.copytree(sound.with_name("killed"), tmp_path / "store"))
    assert (store / "history.db-wal").stat().st_size > 0
    assert check_store(store) == []
    assert (opened_rows(store), len(opened_frames(store))) == (ALL_ROWS, 18)


@pytest.mark.parametrize("side", ["-wal", "-shm"])
def test_damaged_log_beside_the_database(sound: Path, tmp_path: Path, side: str) -> None:
    store = Path(shutil.copytree(sound.with_name("killed"), tmp_path / "store"))
    path = store / f"history.db{side}"
    for at in (3, 6, 27, 4000):
        flip(path, at)
        check_store(store)
    check_store(store, repair=True)
    assert damage_list(store) == []
    opened_rows(store)


@settings(max_examples=examples(40), deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32), deeds=st.integers(1, 3), killed=st.booleans())
@example(seed=40, deeds=1, killed=True)  # once a file was to be copied onto itself
def test_any_damage_can_be_mended(
    sound: Path, seed: int, deeds: int, killed: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    sound = sound.with_name("killed") if killed else sound
    store = Path(shutil.copytree(sound, tmp_path_factory.mktemp("damage") / "store"))
    try:
        whole = [(one.session, one.first, one.payload) for one in opened_frames(sound_copy(sound, store))]
        chance = random.Random(seed)
        for _ in range(deeds):
            some_damage(store, chance)
        check_store(store)
        check_store(store, repair=True)
        assert damage_list(store) == []
        frames = [(one.session, one.first, one.payload) for one in opened_frames(store)]
        assert set(frames) <= set(whole)
        assert len(whole) - len(frames) <= 6 * deeds  # two segments at most are touched by one deed
        assert sorted(frames, key=whole.index) == frames
        opened_rows(store)
    finally:
        shutil.rmtree(store.parent)


def sound_copy(sound: Path, store: Path) -> Path:
    """Return a copy that may be opened without changing the original."""
    return Path(shutil.copytree(sound, store.with_name("sound")))


def test_hostile_view_is_not_read(store: Path) -> None:
    db = sqlite3.connect(store / "history.db", isolation_level=None)
    db.execute("DROP TABLE texts")
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i, i, i FROM n"
    db.execute(f"CREATE VIEW texts AS {endless}")
    db.close()
    assert any("has other tables" in line for line in mended(store))
    assert opened_rows(store) == ALL_ROWS


def test_position_past_a_cut_end_is_reset(store: Path) -> None:
    last = segments(store / "journal")[-1]
    last.write_bytes(last.read_bytes()[:-1])
    found = mended(store)
    assert len(found) == 1 + RANKS
    history = History.open(store)
    positions = {stored.position for stored in history.restore()}
    assert positions == {JournalPlace(int(last.stem), last.stat().st_size, 0)}
    history.close()
