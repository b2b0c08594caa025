"""The journal: what goes in comes out, in order, after any end of the process, around any damage."""

from __future__ import annotations

import os
import secrets
import stat
from itertools import pairwise
from pathlib import Path

import pytest

from deepprof.live.segments.segment_files import HEAD_NBYTES as HEAD
from deepprof.live.service.folder import StoreError
from deepprof.live.service.journal import Journal, JournalError, JournalFrame, JournalPlace
from deepprof.live.service.journal.segments import HEADER, pack_blank, pack_header
from tests.deepprof.live.service.journal.building import contents, filled, flip, frame, oldest, opened, segments


def test_empty_journal_has_nothing(tmp_path: Path) -> None:
    journal = opened(tmp_path / "journal")
    assert contents(journal) == []
    assert journal.window(1) == []
    assert journal.append([]) == []
    assert (journal.repaired, journal.damages) == (0, ())
    assert journal.end == oldest(journal) == JournalPlace(1, HEAD, 0)


def test_one_frame_comes_back(tmp_path: Path) -> None:
    journal = opened(tmp_path / "journal")
    (place,) = journal.append([frame(7, 42, b"hello", "hello")])
    journal.sync()
    assert journal.read(place) == JournalFrame(7, "hello", 42, 5, b"hello")
    assert list(journal.replay()) == [(place, frame(7, 42, b"hello", "hello"))]
    assert list(journal.replay(place)) == []
    assert place.length == HEADER + 5


# A segment with the salt 0x0123456789abcdef as earlier releases wrote it: a hello, and an end without a payload.
WRITTEN = bytes.fromhex(
    "44506a6f75726e6c01000000000000000100000000000000efcdab89674523017147049000000000"
    "44506a660100000007000000000000002a00000000000000050000000500000087ee71ee05a5dc2868656c6c6f"
    "44506a6601030000000000000000001000000000000000100000000000000000e6574d0cd14d0e21"
)
BLANK = bytes.fromhex("44506a6601ff000000000000000000000000000000000000000000003c000000000000005f0f2f56")


def test_the_bytes_on_disk_are_those_of_earlier_releases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "randbits", lambda _: 0x0123456789ABCDEF)
    frames = [frame(7, 42, b"hello", "hello"), frame(1 << 60, 1 << 60, b"", "end")]
    journal = opened(tmp_path)
    journal.append(frames)
    journal.sync()
    journal.close()
    (path,) = segments(tmp_path)
    assert path.read_bytes() == WRITTEN
    path.write_bytes(WRITTEN)
    assert contents(opened(tmp_path)) == frames
    assert pack_blank(60, 5, HEAD) == BLANK


def test_frames_survive_reopening_and_go_on(tmp_path: Path) -> None:
    frames = filled(tmp_path)
    journal = opened(tmp_path)
    more = frame(9, 0, b"")
    journal.append([more])
    assert contents(journal) == [*frames, more]
    assert journal.repaired == 0
    assert journal.nbytes == sum(path.stat().st_size for path in segments(tmp_path))


def test_every_position_gives_the_rest(tmp_path: Path) -> None:
    frames = filled(tmp_path)
    journal = opened(tmp_path)
    places = [place for place, _ in journal.replay()]
    for number, place in enumerate(places):
        assert contents(journal, place) == frames[number + 1 :]
        assert contents(journal, JournalPlace(place.segment, place.offset, 0)) == frames[number:]
    assert contents(journal, journal.end) == []


def test_window_has_the_frames_of_one_session(tmp_path: Path) -> None:
    frames = filled(tmp_path)
    journal = opened(tmp_path)
    for session in (1, 2, 3):
        wanted = [one for one in frames if one.session == session]
        assert [journal.read(place) for place in journal.window(session)] == wanted
    assert journal.window(4) == []


def test_files_are_for_the_owner_alone(tmp_path: Path) -> None:
    filled(tmp_path / "journal")
    assert stat.S_IMODE((tmp_path / "journal").stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in segments(tmp_path / "journal")} == {0o600}


def test_group_larger_than_a_segment_stays_together(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    places = journal.append([frame(payload=b"x" * 400), frame(payload=b"y" * 400)])
    assert {place.segment for place in places} == {1}
    assert journal.append([frame()])[0].segment == 2


def test_group_of_more_buffers_than_one_call_writes(tmp_path: Path) -> None:
    frames = [frame(first=number, payload=bytes([number % 251]) * (number % 3)) for number in range(3000)]
    journal = opened(tmp_path)
    journal.append(frames)
    assert contents(journal) == frames


@pytest.mark.parametrize("bad", [frame(session=-1), frame(first=1 << 64), JournalFrame(1, "gap", 0, 1 << 32, b"")])
def test_numbers_that_do_not_fit_are_refused(tmp_path: Path, bad: JournalFrame) -> None:
    journal = opened(tmp_path)
    with pytest.raises(ValueError, match="fit"):
        journal.append([frame(), bad])
    assert contents(journal) == []


@pytest.mark.parametrize("nbytes", [1, HEADER - 1, HEADER, HEADER + 99])
def test_torn_tail_is_cut_and_new_frames_lie_elsewhere(tmp_path: Path, nbytes: int) -> None:
    frames = filled(tmp_path)
    last = segments(tmp_path)[-1]
    os.truncate(last, last.stat().st_size - (HEADER + 100) + nbytes)
    journal = opened(tmp_path)
    assert journal.repaired == nbytes
    assert journal.damages == ()
    journal.append([frame(8)])
    assert contents(journal) == [*frames[:-1], frame(8)]
    assert journal.end.segment == len(segments(tmp_path)) == 8  # a noted position never comes to mean other frames


def test_zeros_at_the_end_are_torn_too(tmp_path: Path) -> None:
    frames = filled(tmp_path)
    with segments(tmp_path)[-1].open("ab") as file:
        file.write(bytes(200))
    journal = opened(tmp_path)
    assert (journal.repaired, journal.damages, contents(journal)) == (200, (), frames)


@pytest.mark.parametrize("content", [b"", b"DPjourn", bytes(HEAD)])
def test_segment_that_was_only_begun_is_dropped(tmp_path: Path, content: bytes) -> None:
    frames = filled(tmp_path)
    (tmp_path / f"{8:012d}.seg").write_bytes(content)
    journal = opened(tmp_path)
    assert (journal.repaired, journal.damages, contents(journal)) == (len(content), (), frames)
    assert journal.end.segment == 9


@pytest.mark.parametrize("at", [0, 20, HEADER - 1, HEADER, HEADER + 99])
@pytest.mark.parametrize("segment", [0, 6])
def test_damaged_frame_costs_itself_alone(tmp_path: Path, at: int, segment: int) -> None:
    frames = filled(tmp_path)
    flip(segments(tmp_path)[segment], HEAD + at)
    journal = opened(tmp_path)
    survivors = contents(journal)
    lost = [one for one in frames if one not in survivors]
    assert lost == [frames[3 * segment]]
    (damage,) = journal.damages
    assert (damage.offset, damage.length) == (HEAD, HEADER + 100)
    assert journal.damaged == 1


def test_reading_a_damaged_frame_says_where(tmp_path: Path) -> None:
    filled(tmp_path)
    flip(segments(tmp_path)[1], HEAD + HEADER + 5)
    journal = opened(tmp_path)
    place = next(place for session in (1, 2, 3) for place in journal.window(session) if place.segment == 2)
    with pytest.raises(JournalError, match=rf"0002\.seg: the frame at byte {HEAD} is damaged"):
        journal.read(JournalPlace(2, HEAD, place.length))
    assert [damage.segment for damage in journal.damages] == [2]


def test_segment_with_a_damaged_head_is_reported_and_skipped(tmp_path: Path) -> None:
    frames = filled(tmp_path)
    flip(segments(tmp_path)[1], 10)
    journal = opened(tmp_path)
    kept = contents(journal)
    assert [one for one in frames if one not in kept] == frames[3:6]
    assert [(damage.segment, damage.offset) for damage in journal.damages] == [(2, 0)]


def test_frame_copied_to_another_place_is_none(tmp_path: Path) -> None:
    frames = filled(tmp_path, count=3)
    path = segments(tmp_path)[0]
    path.write_bytes(path.read_bytes() + path.read_bytes()[HEAD : HEAD + HEADER + 100])
    journal = opened(tmp_path)
    assert (contents(journal), journal.repaired) == (frames, HEADER + 100)


def test_clients_bytes_that_look_like_a_frame_are_none(tmp_path: Path) -> None:
    forged = frame(99, 0, b"forged")
    inner = pack_header(forged, 0, HEAD + HEADER) + forged.payload
    journal = opened(tmp_path)
    journal.append([frame(1, 0, inner), frame(2)])
    flip(segments(tmp_path)[0], HEAD + 9)  # so that the search for the next header goes through the payload
    assert contents(journal) == [frame(2)]


def test_segment_file_under_another_number_is_damage(tmp_path: Path) -> None:
    frames = filled(tmp_path)
    segments(tmp_path)[0].rename(tmp_path / f"{77:012d}.seg")
    journal = opened(tmp_path)
    assert contents(journal) == frames[3:]
    assert [damage.segment for damage in journal.damages] == [77]
    assert journal.end.segment == 78


def test_positions_beyond_the_end_are_never_used_again(tmp_path: Path) -> None:
    filled(tmp_path)
    noted = JournalPlace(41, 4000, 0)
    journal = opened(tmp_path, beyond=noted)
    journal.append([frame(5)])
    assert contents(journal, noted) == [frame(5)]
    with pytest.raises(StoreError, match="end of its segments' numbers"):
        opened(tmp_path, beyond=JournalPlace(10**12, 0, 0))


def test_release_keeps_the_total_and_what_is_needed(tmp_path: Path) -> None:
    frames = filled(tmp_path)
    journal = opened(tmp_path, total_nbytes=1200)
    assert journal.release(oldest(journal)) == 0
    assert journal.release(JournalPlace(2, HEAD, 0)) == 1
    assert contents(journal) == frames[3:]
    assert journal.release(journal.end) == 5  # one of three frames and the last, of two, would leave no room for 512
    assert contents(journal) == frames[18:]
    assert [path.name for path in segments(tmp_path)] == [f"{number:012d}.seg" for number in journal_numbers(journal)]
    assert all(place.segment >= oldest(journal).segment for session in (1, 2, 3) for place in journal.window(session))


def journal_numbers(journal: Journal) -> range:
    return range(oldest(journal).segment, journal.end.segment + 1)


def test_disk_stays_within_the_total(tmp_path: Path) -> None:
    journal = opened(tmp_path, total_nbytes=2048)
    peaks = []
    for number in range(200):
        journal.append([frame(first=number, payload=bytes(100))])
        peaks.append(sum(path.stat().st_size for path in segments(tmp_path)))
        journal.sync()
        journal.release(journal.end)
    assert max(peaks) <= 2048
    assert len(contents(journal)) > 5


def test_pinned_segments_stay(tmp_path: Path) -> None:
    filled(tmp_path)
    journal = opened(tmp_path, total_nbytes=0)
    with journal.pin(), journal.pin():
        assert journal.release(journal.end) == 0
    assert journal.release(journal.end) > 0
    gone = JournalPlace(1, HEAD, HEADER + 100)
    with pytest.raises(JournalError, match="no longer kept"):
        journal.read(gone)


def test_replay_goes_on_while_segments_go(tmp_path: Path) -> None:
    frames = filled(tmp_path)
    journal = opened(tmp_path, total_nbytes=0)
    replay = journal.replay()
    first = next(replay)[1]
    journal.release(journal.end)
    assert [first, *(one for _, one in replay)] in ([*frames[:3]], frames[:3] + frames[-2:])
    assert journal.damages == ()


def test_segment_removed_from_outside_is_damage(tmp_path: Path) -> None:
    frames = filled(tmp_path)
    journal = opened(tmp_path, total_nbytes=1 << 20)
    segments(tmp_path)[2].unlink()
    assert [one for one in frames if one not in contents(journal)] == frames[6:9]
    assert [damage.segment for damage in journal.damages] == [3]


@pytest.mark.parametrize("kind", ["link", "folder", "pipe"])
def test_nothing_but_files_under_our_names(tmp_path: Path, kind: str) -> None:
    outside, path = tmp_path / "outside", tmp_path / "journal" / f"{1:012d}.seg"
    outside.write_bytes(b"precious")
    path.parent.mkdir()
    {"link": lambda: path.symlink_to(outside), "folder": path.mkdir, "pipe": lambda: os.mkfifo(path)}[kind]()
    with pytest.raises(StoreError, match=r"^[^\n]*where the store has a plain file|is no plain file"):
        opened(tmp_path / "journal")
    assert outside.read_bytes() == b"precious"


def test_journal_behind_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "journal").symlink_to(tmp_path / "real")
    with pytest.raises(StoreError, match="is a link"):
        opened(tmp_path / "journal")
    assert list((tmp_path / "real").iterdir()) == []


def test_foreign_files_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / f"{0:012d}.seg").write_text("not ours")
    frames = filled(tmp_path)
    assert contents(opened(tmp_path)) == frames
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_newer_version_is_refused(tmp_path: Path) -> None:
    import struct
    import zlib

    filled(tmp_path, count=1)
    path = segments(tmp_path)[0]
    head = bytearray(path.read_bytes())
    struct.pack_into("<I", head, 8, 2)
    struct.pack_into("<I", head, 32, zlib.crc32(head[:32]))
    path.write_bytes(head)
    with pytest.raises(StoreError, match="is of version 2; this DeepProf reads 1; update DeepProf"):
        opened(tmp_path)


def test_places_are_in_order_and_touch(tmp_path: Path) -> None:
    filled(tmp_path)
    places = [place for place, _ in opened(tmp_path).replay()]
    assert places == sorted(places)
    for one, following in pairwise(places):
        assert following.stop > one.stop
        assert following.segment > one.segment or (following.segment, following.offset) == one.stop


def test_closed_journal_takes_nothing(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    journal.close()
    journal.close()
    with pytest.raises(OSError, match="closed"):
        journal.append([frame()])
