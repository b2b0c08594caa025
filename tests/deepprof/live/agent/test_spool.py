"""The spool is a list that survives its process: appended, read, trimmed, found again, never above its budget."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

import polars as pl
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from deepprof.live.agent.spool import Spool, SpoolBudget, SpoolCursor, SpoolError, find_spools
from deepprof.live.agent.spool.fillers import make_gap
from deepprof.live.agent.spool.segments import WATERMARK_NBYTES
from deepprof.live.wire.decoding import encode_table
from deepprof.v1.ingest_pb2 import SendRequest
from deepprof.v1.records_pb2 import Batch, End
from tests.chance import examples

from .spooling import append, batch, find_segments, hello, numbers, payloads

SMALL = 300  # bytes of a segment: some messages each


def test_an_empty_spool_has_nothing(tmp_path: Path) -> None:
    spool = Spool.open(tmp_path, hello())
    assert (spool.next, spool.source_next, spool.names, spool.ended, spool.is_new) == (0, 0, [], False, True)
    assert list(spool.read()) == []
    assert spool.seek(0) <= SpoolCursor(1, 1 << 20)
    spool.trim(1 << 60)
    spool.close()
    again = Spool.open(tmp_path, hello())
    assert not again.is_new
    assert again.next == 0


def test_messages_come_back_in_order_and_numbered(tmp_path: Path) -> None:
    spool = Spool.open(tmp_path, hello())
    assert append(spool, 5, 50, names=["a", "ü\0"])
    assert spool.append(make_gap(0, 7, "buffer-full"), 7, 70)
    assert append(spool, 2, 0, names=["c"], first_name=2)
    assert spool.append(SendRequest(end=End(dropped={"late": 1})), 0)
    assert numbers(spool) == [(0, 5), (5, 7), (12, 2), (14, 0)]
    before = payloads(spool)
    spool.close()
    again = Spool.open(tmp_path, hello())
    assert payloads(again) == before
    assert (again.next, again.source_next, again.names, again.ended) == (14, 70, ["a", "ü\0", "c"], True)
    assert [message.names for message in again.read()] == [2, 2, 3, 3]
    with pytest.raises(ValueError, match="nothing follows"):
        append(again)


def test_reading_goes_on_where_it_stopped(tmp_path: Path) -> None:
    spool = Spool.open(tmp_path, hello(), segment_nbytes=SMALL)
    cursor, seen = SpoolCursor(), []
    for _ in range(30):
        append(spool)
        for message in spool.read(cursor):
            cursor = message.after
            seen.append(message.first)
        assert list(spool.read(cursor)) == []
    assert seen == list(range(0, 150, 5))


@pytest.mark.parametrize("count", [0, 5])
def test_what_comes_while_one_reads_is_read_the_next_time(tmp_path: Path, count: int) -> None:
    spool = Spool.open(tmp_path, hello(), segment_nbytes=SMALL)
    append(spool)
    cursor, seen = SpoolCursor(), list[bytes]()
    for turn in range(30):
        for message in spool.read(cursor):
            cursor = message.after
            seen.append(message.payload)
            append(spool, count, nbytes=100 + turn)
        assert len(seen) == turn + 1
    assert seen == payloads(spool)[: len(seen)]


def test_a_promise_is_told_from_other_batches_by_its_length() -> None:
    most = Batch(first=2**64 - 1, first_name=2**32 - 1, complete_until_ns=2**63 - 1)
    assert SendRequest(batch=most).ByteSize() <= WATERMARK_NBYTES
    rows = pl.DataFrame(schema={"a": pl.Int8})
    assert len(encode_table(rows)) > WATERMARK_NBYTES


def test_only_its_owner_can_read_it_and_no_name_from_outside_is_in_a_path(tmp_path: Path) -> None:
    root = tmp_path / "spool"
    spool = Spool.open(root, hello())
    append(spool, names=["../x"])
    found = list(root.rglob("*"))
    assert {stat.S_IMODE(path.stat().st_mode) for path in found if path.is_file()} == {0o600}
    assert {stat.S_IMODE(path.stat().st_mode) for path in (root, *found) if path.is_dir()} == {0o700}
    assert {path.name for path in found if path.is_file()} == {"hello", "names", "000000000001.seg"}


def test_a_spool_is_held_by_one_process(tmp_path: Path) -> None:
    spool = Spool.open(tmp_path, hello())
    with pytest.raises(SpoolError, match="held by another agent"):
        Spool.open(tmp_path, hello())
    assert find_spools(tmp_path, SpoolBudget()) == []
    spool.close()
    (found,) = find_spools(tmp_path, SpoolBudget())
    assert found.hello == hello()


def test_links_are_not_followed(tmp_path: Path) -> None:
    spool = Spool.open(tmp_path / "s", hello())
    folder = spool.folder.path
    spool.close()
    (tmp_path / "theirs").write_text("precious")
    for name in ("names", "000000000001.seg", "hello"):
        (folder / name).unlink()
        (folder / name).symlink_to(tmp_path / "theirs")
    again = Spool.open(tmp_path / "s", hello())
    append(again, names=["a"])
    assert (tmp_path / "theirs").read_text() == "precious"
    again.close()
    os.rename(folder, tmp_path / "moved")
    folder.symlink_to(tmp_path / "moved")
    with pytest.raises(SpoolError):
        Spool.open(tmp_path / "s", hello())


def test_trimming_keeps_the_last_segment_and_what_is_not_durable(tmp_path: Path) -> None:
    spool = Spool.open(tmp_path, hello(), segment_nbytes=SMALL)
    for _ in range(40):
        append(spool, source_next=spool.next + 5)
    spool.trim(100)
    assert numbers(spool)[-20:] == [(first, 5) for first in range(100, 200, 5)]
    assert len(numbers(spool)) < 25
    assert spool.first == numbers(spool)[0][0]
    spool.trim(200)
    assert len(find_segments(tmp_path)) == 1
    spool.close()
    again = Spool.open(tmp_path, hello())
    assert (again.next, again.source_next) == (200, 200)


def test_messages_without_records_wait_for_what_comes_after(tmp_path: Path) -> None:
    spool = Spool.open(tmp_path, hello(), segment_nbytes=1)
    append(spool, 5)
    append(spool, 0)
    append(spool, 0)
    append(spool, 3)
    spool.trim(5)
    assert numbers(spool) == [(5, 0), (5, 0), (5, 3)]
    assert next(spool.read(spool.seek(5))).count == 0
    spool.trim(8)
    assert numbers(spool) == [(5, 3)]
    assert list(spool.read(spool.seek(8))) == []


def test_the_budget_is_shared_and_given_back(tmp_path: Path) -> None:
    budget = SpoolBudget(4000)
    one, two = (Spool.open(tmp_path, hello(rank=rank), budget, segment_nbytes=SMALL) for rank in (0, 1))
    while append(one, nbytes=100):
        pass
    assert "full" in one.problem
    assert not append(two, nbytes=2000)
    assert budget.nbytes <= 4000
    assert two.append(make_gap(0, 9, "spool-full"), 9, forced=True)
    one.trim(one.next)
    assert append(one, nbytes=100)
    assert one.nbytes + two.nbytes == budget.nbytes
    assert one.nbytes == sum(path.stat().st_size for path in one.folder.path.glob("*[!o]") if path.name != "hello")
    one.remove()
    two.close()
    assert budget.nbytes == 0
    assert not one.folder.path.exists()


def test_a_full_disk_takes_nothing_and_harms_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool = Spool.open(tmp_path, hello())
    append(spool)

    def half(file: int, parts: list[bytes], offset: int) -> int:
        os.pwrite(file, b"".join(parts)[:30], offset)
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("deepprof.live.segments.segment_files.write_all", half)
        assert not append(spool, names=["a"])
        assert "No space left" in spool.problem
    assert append(spool, names=["a"])
    assert spool.problem == ""
    assert numbers(spool) == [(0, 5), (5, 5)]
    assert spool.names == ["a"]
    spool.close()
    assert numbers(Spool.open(tmp_path, hello())) == [(0, 5), (5, 5)]


def test_names_must_follow_those_known(tmp_path: Path) -> None:
    spool = Spool.open(tmp_path, hello())
    with pytest.raises(ValueError, match="expected 0"):
        append(spool, names=["b"], first_name=1)
    assert spool.budget.nbytes == spool.nbytes


def test_skipping_takes_the_numbers_that_the_daemon_has(tmp_path: Path) -> None:
    spool = Spool.open(tmp_path, hello())
    append(spool, 5)
    spool.skip(4)
    assert spool.next == 5
    spool.skip(40)
    assert spool.next == 40
    assert numbers(spool) == [(0, 5), (5, 35)]


def is_watermark(payload: bytes) -> bool:
    """Return whether a batch of `spooling.batch` has neither records nor names."""
    said = SendRequest.FromString(payload)
    is_empty = not said.batch.complete_until_ns and not said.batch.names
    return said.HasField("batch") and is_empty and len(payload) <= WATERMARK_NBYTES


# The files of a spool as earlier releases wrote them.
WRITTEN = {
    "000000000001.seg": "445073706f6f6c3101000000000000000000000000000000000000000000000000000000c892397e"
    "44506631000000000000000000000000050000000000000032000000000000000200000014000000d0ec51d5715471c2"
    "121212016112016220052a0808011204050505054450663101000000050000000000000007000000000000004600000000000000"
    "020000000c000000849cdd0ff8be08d91a0a080510071a0466756c6c",
    "000000000002.seg": "445073706f6f6c3102000000000000000c000000000000004600000000000000020000009f7286da"
    "44506631020000000c00000000000000000000000000000046000000000000000200000002000000caa1f799cf3434772200",
    "hello": "0a092e2e2f2e2e2f657463100322016328016001",
    "names": "0000000005000000c6d186c592a161a162",
}


def test_the_bytes_on_disk_are_those_of_earlier_releases(tmp_path: Path) -> None:
    spool = Spool.open(tmp_path, hello(), segment_nbytes=150)
    append(spool, 5, 50, names=["a", "b"], nbytes=4)
    spool.append(make_gap(0, 7, "full"), 7, 70)
    spool.append(SendRequest(end=End()), 0)
    found, before = spool.folder.path, payloads(spool)
    spool.close()
    assert {path.name: path.read_bytes().hex() for path in found.iterdir()} == WRITTEN
    for name, content in WRITTEN.items():
        (found / name).write_bytes(bytes.fromhex(content))
    again = Spool.open(tmp_path, hello())
    assert (payloads(again), numbers(again), again.source_next) == (before, [(0, 5), (5, 7), (12, 0)], 70)


class SpoolIsAList(RuleBasedStateMachine):
    """Whatever is done, the spool is the list of what was appended, from some durable place on."""

    def __init__(self) -> None:
        super().__init__()
        self.root = tempfile.TemporaryDirectory(prefix="dp-")
        self.budget = SpoolBudget(6000)
        self.spool = Spool.open(Path(self.root.name), hello(), self.budget, segment_nbytes=SMALL)
        self.kept: list[bytes] = []
        self.ends: list[tuple[int, int]] = []
        self.names: list[str] = []
        self.next = self.durable = self.source = 0

    def teardown(self) -> None:
        self.spool.close()
        assert self.budget.nbytes == 0
        self.root.cleanup()

    @rule(count=st.integers(0, 9), names=st.lists(st.text(max_size=5), max_size=3), nbytes=st.integers(0, 400))
    def append(self, count: int, names: list[str], nbytes: int) -> None:
        request = SendRequest(batch=batch(count, names, len(self.names), nbytes))
        self.keep(request, count, self.spool.append(request, count, self.source + count), names)

    @rule(lost=st.integers(0, 9))
    def gap(self, lost: int) -> None:
        request = make_gap(0, lost, "buffer-full")
        self.keep(request, lost, self.spool.append(request, lost, self.source + lost, forced=True), [])

    def keep(self, request: SendRequest, count: int, kept: bool, names: list[str]) -> None:
        if kept:
            self.kept.append(request.SerializeToString())
            self.next += count
            self.source += count
            self.ends.append((self.next, count))
            self.names += names

    @precondition(lambda self: self.ends)
    @rule(data=st.data())
    def trim(self, data: st.DataObject) -> None:
        self.durable = max(self.durable, data.draw(st.sampled_from(self.ends))[0])
        self.spool.trim(self.durable)

    @rule()
    def reopen(self) -> None:
        self.spool.close()
        self.spool = Spool.open(Path(self.root.name), hello(), self.budget, segment_nbytes=SMALL)

    def is_durable(self, ended: tuple[int, int]) -> bool:
        end, count = ended
        return end < self.durable or (count > 0 and end == self.durable)

    def is_missed_by_nobody(self, at: int) -> bool:
        """Return whether a message is durable, or says nothing but what is complete, which the next one says too."""
        return self.is_durable(self.ends[at]) or is_watermark(self.kept[at])

    @invariant()
    def is_the_list(self) -> None:
        found = payloads(self.spool)
        assert found == self.kept[len(self.kept) - len(found) :]
        assert all(map(self.is_missed_by_nobody, range(len(self.kept) - len(found))))
        rest = [message.payload for message in self.spool.read(self.spool.seek(self.durable))]
        first = next((at for at, end in enumerate(self.ends) if not self.is_durable(end)), len(self.kept))
        assert rest == self.kept[len(self.kept) - len(rest) :]
        assert len(rest) <= len(self.kept) - first
        assert all(map(self.is_missed_by_nobody, range(first, len(self.kept) - len(rest))))
        assert (self.spool.next, self.spool.source_next, self.spool.names) == (self.next, self.source, self.names)
        assert self.budget.nbytes == self.spool.nbytes


def test_a_first_message_that_only_promises_is_not_missed() -> None:
    state = SpoolIsAList()
    state.append(0, [], 0)
    state.is_the_list()
    state.teardown()


TestSpoolIsAList = SpoolIsAList.TestCase
TestSpoolIsAList.settings = settings(max_examples=examples(40), stateful_step_count=30, deadline=None)
