"""Bytes that went bad anywhere: what is whole is kept, what is not is a gap, and no message is half."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deepprof.live.agent.spool import Spool, SpoolBudget, find_spools
from deepprof.v1.ingest_pb2 import SendRequest
from deepprof.v1.records_pb2 import End
from tests.chance import examples

from .spooling import append, find_segments, hello, numbers, payloads

SMALL = 400


def fill(root: Path, *, end: bool = False) -> list[bytes]:
    """Make a spool of some segments; returns its messages."""
    spool = Spool.open(root, hello(), segment_nbytes=SMALL)
    for number in range(30):
        append(spool, 1 + number % 3, spool.next, names=[f"n{number}"], first_name=number)
    if end:
        spool.append(SendRequest(end=End()), 0)
    found = payloads(spool)
    spool.close()
    return found


def check(root: Path, before: list[bytes]) -> tuple[Spool, bool]:
    """Assert that all that is read is from before or represents it, without holes; returns whether a gap does."""
    spool = Spool.open(root, hello(), segment_nbytes=SMALL)
    known, expected, names, gaps = set(before), spool.first, spool.names_first, 0
    for message in spool.read():
        request = SendRequest.FromString(message.payload)
        assert message.first == expected
        if message.payload not in known:
            kind = request.WhichOneof("message")
            gaps += kind == "gap"
            assert kind == "end" or (kind == "gap" and request.gap.reason == "damaged") or not request.batch.tables
        if request.batch.names:
            assert request.batch.first_name == names
            names += len(request.batch.names)
        expected = message.end
    assert (expected, names) == (spool.next, spool.names_count)
    assert spool.ended or append(spool, names=["more"], first_name=spool.names_count)
    return spool, gaps > 0


def damage(path: Path, at: int, how: str) -> None:
    """Change one byte, cut the file there, or put zeros over the rest."""
    content = bytearray(path.read_bytes())
    if how == "flip":
        content[at] ^= 0x40
    elif how == "cut":
        del content[at:]
    else:
        content[at:] = bytes(len(content) - at)
    path.write_bytes(content)


@settings(max_examples=examples(150), deadline=None)
@given(
    where=st.floats(0, 0.9999),
    segment=st.integers(0, 20),
    how=st.sampled_from(["flip", "cut", "zero"]),
    end=st.booleans(),
)
def test_damage_anywhere_in_a_segment_is_a_gap(
    tmp_path_factory: pytest.TempPathFactory, where: float, segment: int, how: str, end: bool
) -> None:
    root = tmp_path_factory.mktemp("spool")
    before = fill(root, end=end)
    paths = find_segments(root)
    path = paths[segment % len(paths)]
    damage(path, int(where * path.stat().st_size), how)
    spool, has_gap = check(root, before)
    is_last = path == paths[-1]
    assert has_gap or (is_last and how == "cut") or (spool.first > 0) or end
    spool.close()
    shutil.rmtree(root)


@settings(max_examples=examples(60), deadline=None)
@given(where=st.floats(0, 0.9999), how=st.sampled_from(["flip", "cut", "zero"]))
def test_damaged_names_are_told_apart(tmp_path_factory: pytest.TempPathFactory, where: float, how: str) -> None:
    root = tmp_path_factory.mktemp("spool")
    before = fill(root)
    (path,) = root.glob("*/names")
    damage(path, int(where * path.stat().st_size), how)
    spool, has_gap = check(root, before)
    assert not has_gap
    assert len(set(spool.names)) == 31
    assert all(text in {f"n{number}", f"name-{number}-lost"} for number, text in enumerate(spool.names[:30]))
    spool.close()
    shutil.rmtree(root)


def test_damage_in_the_middle_loses_one_message(tmp_path: Path) -> None:
    before = fill(tmp_path)
    first = find_segments(tmp_path)[0]
    content = bytearray(first.read_bytes())
    at = content.index(before[2])  # within the payload of the third
    content[at + len(before[2]) - 1] ^= 1
    first.write_bytes(content)
    spool = Spool.open(tmp_path, hello())
    found = list(spool.read())
    lost = SendRequest.FromString(before[2]).batch
    assert [message.payload for message in found[:2]] == before[:2]
    assert [message.payload for message in found[4:]] == before[3:]
    names, gap = (SendRequest.FromString(message.payload) for message in found[2:4])
    assert (list(names.batch.names), names.batch.first_name, names.batch.first) == (["n2"], 2, lost.first)
    assert (gap.gap.first, gap.gap.lost, gap.gap.reason) == (lost.first, 3, "damaged")


def test_the_file_that_was_going_bad_while_it_was_read_is_a_gap(tmp_path: Path) -> None:
    spool = Spool.open(tmp_path, hello())
    for _ in range(5):
        append(spool)
    (path,) = find_segments(tmp_path)
    damage(path, path.stat().st_size - 150, "zero")
    found = numbers(spool)
    assert found[:2] == [(0, 5), (5, 5)]
    assert found[-1][1] in {0, 5}


def test_a_file_that_is_no_segment_is_set_aside(tmp_path: Path) -> None:
    fill(tmp_path)
    last = find_segments(tmp_path)[-1]
    last.write_bytes(random.Random(1).randbytes(5000))
    spool = Spool.open(tmp_path, hello())
    assert last.with_name(last.name + ".damaged").exists()
    *_, gap = spool.read()
    assert SendRequest.FromString(gap.payload).gap.reason == "damaged"
    assert gap.first == spool.next


def test_a_spool_without_its_hello_is_set_aside_by_those_who_look_for_it(tmp_path: Path) -> None:
    fill(tmp_path)
    (path,) = tmp_path.glob("*/hello")
    path.write_bytes(b"\xff" * 20)
    (tmp_path / "theirs").mkdir()
    (tmp_path / "file").write_text("x")
    assert find_spools(tmp_path, SpoolBudget()) == []
    assert {found.name for found in tmp_path.iterdir()} == {"file", f"{path.parent.name}.damaged", "theirs"}
    assert find_spools(tmp_path / "nowhere", SpoolBudget()) == []


def test_a_spool_without_its_hello_goes_on_where_its_process_comes_back(tmp_path: Path) -> None:
    before = fill(tmp_path)
    (path,) = tmp_path.glob("*/hello")
    path.write_bytes(b"\xff" * 20)
    spool = Spool.open(tmp_path, hello())
    assert payloads(spool) == before
    spool.close()
    assert [found.hello for found in find_spools(tmp_path, SpoolBudget())] == [hello()]
