"""`deepprof fsck`: exit codes, one line a problem."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from deepprof.commands import main
from deepprof.live.service.folder import lock_store
from deepprof.live.service.history import History
from deepprof.live.service.journal import Journal, JournalFrame


@pytest.fixture
def store(tmp_path: Path) -> Path:
    store = tmp_path / "store"
    history = History.open(store)
    session = history.begin("job", 0, "c", b"", 1)
    history.close()
    journal = Journal.open(store / "journal")
    journal.append([JournalFrame(session, "batch", 0, 5, b"five")])
    journal.sync()
    journal.close()
    return store


def test_sound_store(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fsck", str(store)]) == 0
    assert capsys.readouterr().out == "sound\n"


def test_problems_are_lines_and_a_repair_helps(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (store / "sealed" / "a\nb\x1b[2J").write_bytes(b"")
    with (store / "journal" / "000000000001.seg").open("ab") as file:
        file.write(b"torn")
    assert main(["fsck", str(store)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("journal/000000000001.seg: 4 bytes from 84 on are torn")
    assert lines[1].startswith("sealed/a\\nb\\x1b[2J: is not in the ledger")
    assert lines[2] == "2 problems; --repair mends what can be mended"
    assert main(["fsck", "--repair", str(store)]) == 1
    assert capsys.readouterr().out.splitlines() == [*lines[:2], "2 problems, repaired"]
    assert main(["fsck", str(store)]) == 0


def test_no_store_and_one_in_use(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "none", tmp_path / "pipe"):
        assert main(["fsck", str(path)]) == 2
        assert len(capsys.readouterr().err.splitlines()) == 1
    with lock_store(store):
        assert main(["fsck", str(store)]) == 2
    assert "is in use by a running daemon" in capsys.readouterr().err


def test_lock_that_is_a_link_is_not_followed(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (store / "lock").symlink_to(tmp_path / "made")
    assert main(["fsck", str(store)]) == 2
    assert "is a link" in capsys.readouterr().err
    assert not (tmp_path / "made").exists()


def test_a_store_that_one_may_not_read(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("os.access", lambda path, mode: False)  # root may read all
    assert main(["fsck", str(tmp_path)]) == 2
    err = capsys.readouterr().err
    assert "may not be read by you; run it as the daemon's user" in err
    assert err.count("\n") == 1
