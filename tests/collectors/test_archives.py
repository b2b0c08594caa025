"""Zip and tar archives: what they hold is reached, and what they try is refused in one line."""

from __future__ import annotations

import gzip
import io
import random
import struct
import tarfile
import zipfile
from pathlib import Path

import pytest

from deepprof.collectors.errors import TraceError
from deepprof.collectors.importers import archives
from deepprof.collectors.importers.archives import is_archive, is_tar, is_zip, open_archive
from tests.collectors.damage import checked, damaged

FILES = {"job/rank-0.json": b"zero" * 1000, "job/rank 1.json.gz": bytes(range(256)), "c.csv": b""}


def make_zip(path: Path, files: dict[str, bytes] = FILES, **options: object) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, **options) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def make_tar(path: Path, files: dict[str, bytes] = FILES, mode: str = "w") -> Path:
    with tarfile.open(path, mode) as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return path


def make_links(path: Path, **fields: object) -> Path:
    with tarfile.open(path, "w") as archive:
        entry = tarfile.TarInfo("link")
        for name, value in fields.items():
            setattr(entry, name, value)
        archive.addfile(entry)
    return path


def refusal(path: Path) -> str:
    with pytest.raises(TraceError) as caught:
        read_all(path)
    return str(checked(caught.value))


def read_all(path: Path) -> list[bytes]:
    with open_archive(path) as archive:
        return [archive.read(member) for member in archive.members]


@pytest.fixture(params=["zip", "tar", "tar.gz", "tar.zst"])
def archive(request, tmp_path) -> Path:
    path = tmp_path / f"a.{request.param}"
    if request.param == "zip":
        return make_zip(path)
    if request.param == "tar.zst":
        zstandard = pytest.importorskip("zstandard")
        path.write_bytes(zstandard.compress(make_tar(tmp_path / "b.tar").read_bytes()))
        return path
    return make_tar(path, mode="w:gz" if request.param == "tar.gz" else "w")


def test_members_are_listed_read_and_extracted(archive):
    with open_archive(archive) as opened:
        assert {member.name: member.nbytes for member in opened.members} == {n: len(c) for n, c in FILES.items()}
        for member in reversed(opened.members):
            assert opened.read(member) == FILES[member.name]
            assert opened.head(member, 3) == FILES[member.name][:3]
            assert opened.extract(member).read_bytes() == FILES[member.name]
        second = opened.extract(opened.members[1])
        assert second.name == "rank_1.json.gz"
        assert second.is_relative_to(opened.directory)
    assert not second.exists()


def test_content_tells_archives_from_other_files(tmp_path):
    packed, taped = make_zip(tmp_path / "a.zip").read_bytes(), make_tar(tmp_path / "a.tar").read_bytes()
    assert is_zip(packed)
    assert not is_tar(packed)
    assert is_tar(taped)
    assert not is_zip(taped)
    assert not any(map(is_archive, (b"", b"{}", bytes(600), taped[:500], b"x" * 600, gzip.compress(taped))))


def test_directories_and_hidden_files_are_no_members(tmp_path):
    path = make_zip(tmp_path / "a.zip", {"d/": b"", "__MACOSX/a": b"", "d/._a": b"", ".git/a": b"", "./d/a": b"1"})
    with open_archive(path) as archive:
        assert [member.name for member in archive.members] == ["./d/a"]


@pytest.mark.parametrize("name", ["../a", "a/../../b", "/etc/passwd", "\\\\host\\a", "C:\\a", "a\\..\\b", "c:a"])
@pytest.mark.parametrize("make", [make_zip, make_tar])
def test_names_that_lead_out_are_refused(tmp_path, make, name):
    assert "lies outside of it" in refusal(make(tmp_path / "a", {name: b"1"}))
    assert list(tmp_path.iterdir()) == [tmp_path / "a"]


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE, b"S"])
def test_links_and_devices_are_refused(tmp_path, kind):
    assert "holds link, which is a" in refusal(make_links(tmp_path / "a", type=kind, linkname="/etc/passwd"))


def test_a_link_in_a_zip_is_refused(tmp_path):
    entry = zipfile.ZipInfo("link")
    entry.external_attr = 0o120777 << 16
    with zipfile.ZipFile(tmp_path / "a", "w") as archive:
        archive.writestr(entry, "/etc/passwd")
    assert "is a link" in refusal(tmp_path / "a")


def test_encrypted_members_are_refused(tmp_path):
    content = bytearray(make_zip(tmp_path / "a", {"a": b"1"}).read_bytes())
    at = content.index(b"PK\x01\x02")
    content[6] |= 1
    content[at + 8] |= 1
    (tmp_path / "a").write_bytes(content)
    assert "is encrypted" in refusal(tmp_path / "a")


def test_other_packings_are_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "a", "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("a", b"1")
    assert "is packed by method 14" in refusal(tmp_path / "a")


@pytest.mark.parametrize("make", [make_zip, make_tar])
def test_too_many_members_are_refused(tmp_path, make, monkeypatch):
    monkeypatch.setattr(archives, "MEMBERS", 20)
    with open_archive(make(tmp_path / "a", {f"{at}": b"" for at in range(20)})) as archive:
        assert len(archive.members) == 20
    assert "more than 20 entries" in refusal(make(tmp_path / "b", {f"{at}": b"" for at in range(21)}))


def test_too_much_content_is_refused(tmp_path, monkeypatch):
    path = make_zip(tmp_path / "a", {"a": bytes(600), "b": bytes(600)})
    monkeypatch.setattr(archives, "TOTAL_NBYTES", 1000)
    assert "holds more than the limit of 1000 bytes" in refusal(path)
    monkeypatch.setattr(archives, "LIMIT_NBYTES", 500)
    assert "holds a, which has more than 500 bytes" in refusal(path)


def test_content_of_an_impossible_ratio_is_refused(tmp_path):
    path = make_zip(tmp_path / "a", {"a": bytes(80 * 1024**2)})
    assert "more than 300 times" in refusal(path)
    packed = tmp_path / "b"
    packed.write_bytes(gzip.compress(make_tar(tmp_path / "c", {"a": bytes(80 * 1024**2)}).read_bytes()))
    assert "more than 300 times" in refusal(packed)


def test_a_size_that_is_a_lie_is_found(tmp_path):
    content = bytearray(make_zip(tmp_path / "a", {"a": b"1" * 5000}).read_bytes())
    at = content.index(b"PK\x01\x02")
    for stated in (10, 50_000):
        content[at + 24 : at + 28] = struct.pack("<I", stated)
        (tmp_path / "a").write_bytes(content)
        assert refusal(tmp_path / "a")


def test_a_long_name_of_any_size_is_not_read(tmp_path):
    long = tarfile.TarInfo("././@LongLink")
    long.type, long.size = tarfile.GNUTYPE_LONGNAME, 100 * 1024**2
    (tmp_path / "a").write_bytes(long.tobuf(tarfile.GNU_FORMAT) + bytes(1024**2))
    assert "header of impossible size" in refusal(tmp_path / "a")


def test_errors_of_the_caller_stay_what_they_are(archive):
    with pytest.raises(ValueError, match="a bug"), open_archive(archive):
        raise ValueError("a bug")


def test_a_full_disk_is_one_line(archive, monkeypatch):
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with open_archive(archive) as opened:
        monkeypatch.setattr(Path, "mkdir", full)
        with pytest.raises(TraceError, match="cannot be unpacked: No space left on device; make room"):
            opened.extract(opened.members[0])


@pytest.mark.parametrize("content", [b"", b"{}", b"PK\x03\x04", bytes(2000), b"\x1f\x8b\x08"])
def test_what_is_no_archive_is_one_line(tmp_path, content):
    (tmp_path / "a").write_bytes(content)
    try:
        with open_archive(tmp_path / "a") as archive:
            assert archive.members == ()
    except TraceError as error:
        checked(error)


def test_a_missing_file_and_a_directory_are_one_line(tmp_path):
    assert "no such file" in refusal(tmp_path / "none")
    assert "is a directory" in refusal(tmp_path)


def test_a_nameless_member_of_a_zip_is_refused(tmp_path):
    content = bytearray(make_zip(tmp_path / "a", {"a": b"1"}).read_bytes())
    at = content.index(b"PK\x01\x02")
    content[at + 28 : at + 32] = struct.pack("<HH", 0, 1)  # its one byte is an extra field now, too short for any
    (tmp_path / "a").write_bytes(content)
    assert "which has no name" in refusal(tmp_path / "a")


def test_a_chain_of_long_names_is_one_line(tmp_path):
    link = tarfile.TarInfo("././@LongLink")
    link.type, link.size = tarfile.GNUTYPE_LONGNAME, 10
    (tmp_path / "a").write_bytes((link.tobuf(tarfile.GNU_FORMAT) + b"a" * 10 + bytes(502)) * 2000)
    assert "is a damaged archive" in refusal(tmp_path / "a")


BUGS = (AttributeError, KeyError, IndexError, TypeError, RuntimeError)


@pytest.mark.parametrize("bug", [*BUGS, ValueError])
@pytest.mark.parametrize("place", ["_ZipFormat.fault", "_TarFormat.fault", "_checked", "misplaced", "_shown"])
def test_a_bug_in_what_judges_members_is_no_damaged_archive(tmp_path, monkeypatch, place, bug):
    def fail(*_: object) -> None:
        raise bug("a bug")

    path = (make_zip if place == "_ZipFormat.fault" else make_tar)(tmp_path / "a", {"../a": b"1"})
    monkeypatch.setattr(f"deepprof.collectors.importers.archives.{place}", fail)
    with pytest.raises(bug, match="a bug"):
        read_all(path)


@pytest.mark.parametrize("bug", BUGS)
@pytest.mark.parametrize("reads", range(4))
def test_a_bug_in_what_the_libraries_call_is_no_damaged_archive(archive, monkeypatch, bug, reads):
    left, read = [reads], archives.GuardedFile.read

    def fail(self: archives.GuardedFile, size: int = -1) -> bytes:
        left[0] -= 1
        if left[0] < 0:
            raise bug("a bug")
        return read(self, size)

    monkeypatch.setattr(archives.GuardedFile, "read", fail)
    with pytest.raises(bug, match="a bug"):
        read_all(archive)


def test_damage_gives_content_or_one_line(archive, tmp_path):
    for piece in damaged(archive.read_bytes(), random.Random(archive.name).randrange(99), 40):
        (tmp_path / "d").write_bytes(piece)
        is_archive(piece)
        try:
            with open_archive(tmp_path / "d") as opened:
                for member in opened.members:
                    assert len(opened.read(member)) == member.nbytes
        except TraceError as error:
            checked(error)
