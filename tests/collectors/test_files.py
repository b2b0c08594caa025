import gzip
import os
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepprof.collectors.errors import TraceError
from deepprof.collectors.importers import files


def save(tmp_path, content):
    path = tmp_path / "trace.json.gz"
    path.write_bytes(content)
    return path


def test_plain_content_comes_back(tmp_path):
    path = save(tmp_path, b"plain")
    assert files.read_bytes(path) == b"plain"
    assert files.read_head(path) == b"plain"


def test_gzip_members_follow_each_other_and_zeros_may_pad_them(tmp_path):
    path = save(tmp_path, gzip.compress(b"one ") + bytes(7) + gzip.compress(b"two") + bytes(512))
    assert files.read_bytes(path) == b"one two"
    assert files.read_head(path) == b"one two"


@given(st.lists(st.binary(max_size=400), min_size=1, max_size=4), st.integers(1, 300))
def test_pieces_of_any_size_add_up(tmp_path_factory, members, size):
    path = save(tmp_path_factory.mktemp("gz"), b"".join(gzip.compress(member) for member in members))
    found = list(files.read_pieces(path, size))
    assert b"".join(found) == b"".join(members)
    assert max(map(len, found), default=0) <= size


def test_head_is_bounded_and_outlives_a_truncated_tail(tmp_path):
    content = os.urandom(300_000)
    path = save(tmp_path, gzip.compress(content)[:200_000])
    assert files.read_head(path) == content[: files.HEAD_NBYTES]
    assert files.read_head(path, 10) == content[:10]


def test_more_than_the_limit_is_an_error_that_says_the_limit(tmp_path):
    for content in (gzip.compress(bytes(2_000)), b"x" * 2_000):
        path = save(tmp_path, content)
        assert len(files.read_bytes(path, limit=2_000)) == 2_000
        with pytest.raises(TraceError, match="more than the limit of 1999 bytes"):
            files.read_bytes(path, limit=1_999)


def test_a_bomb_is_stopped_at_the_limit(tmp_path):
    path = save(tmp_path, gzip.compress(bytes(100_000_000), compresslevel=1))
    with pytest.raises(TraceError, match="more than the limit"):
        files.read_bytes(path, limit=1_000_000)


def test_a_plain_file_beyond_the_limit_is_not_read(tmp_path, monkeypatch):
    path = save(tmp_path, b"{")
    with path.open("r+b") as file:
        file.truncate(20 * 1024**3)
    monkeypatch.setattr(files, "pieces", lambda *_args: pytest.fail("read"))
    with pytest.raises(TraceError, match="more than the limit"):
        files.read_bytes(path)


def test_gzip_that_holds_far_more_than_its_size_is_stopped_early(tmp_path):
    path = save(tmp_path, gzip.compress(bytes(files.RATIO_FROM_NBYTES)))
    assert len(files.read_bytes(path)) == files.RATIO_FROM_NBYTES  # a small one may be anything
    path = save(tmp_path, gzip.compress(bytes(files.RATIO_FROM_NBYTES + 1)))
    with pytest.raises(TraceError, match="more than 300 times its"):
        files.read_bytes(path)


@pytest.mark.parametrize("cut", [3, 20, -9, -1])
def test_truncated_gzip_is_one_line(tmp_path, cut):
    path = save(tmp_path, gzip.compress(os.urandom(1_000))[:cut])
    with pytest.raises(TraceError, match=r"trace\.json\.gz: is truncated: .*; copy or export it again") as caught:
        files.read_bytes(path)
    assert "\n" not in str(caught.value)


def test_corrupt_gzip_says_so(tmp_path):
    content = bytearray(gzip.compress(os.urandom(1_000)))
    content[-6] ^= 0xFF  # the checksum
    with pytest.raises(TraceError, match="damaged gzip"):
        files.read_bytes(save(tmp_path, content))
    with pytest.raises(TraceError, match="damaged gzip"):
        files.read_head(save(tmp_path, b"\x1f\x8b" + b"\xff" * 50))


def test_what_is_no_readable_file_is_a_trace_error(tmp_path):
    with pytest.raises(TraceError, match="no such file"):
        files.read_bytes(tmp_path / "absent")
    with pytest.raises(TraceError, match="is a directory"):
        files.read_head(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(TraceError, match="not a regular file"):
        files.read_head(tmp_path / "pipe")
    with pytest.raises(TraceError, match="cannot be read"):
        files.read_head(tmp_path / ("x" * 300))
    with pytest.raises(TraceError, match="cannot be read"):
        files.read_head(tmp_path / "a\0b")


def test_permission_denied(tmp_path, monkeypatch):
    path = save(tmp_path, b"secret")

    def refuse(*_args):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(type(path), "open", refuse)  # root may read everything, so mode 0 would prove nothing
    with pytest.raises(TraceError, match="permission denied; make the file readable"):
        files.read_bytes(path)


@given(st.lists(st.binary(max_size=400), min_size=1, max_size=4), st.integers(1, 300), st.data())
def test_zstd_frames_add_up_and_break_off_aloud(tmp_path_factory, frames, size, data):
    zstandard = pytest.importorskip("zstandard")
    packed = [zstandard.compress(frame) for frame in frames]
    path = save(tmp_path_factory.mktemp("zst"), b"".join(packed))
    assert b"".join(files.read_pieces(path, size)) == b"".join(frames)
    cut = data.draw(st.integers(4, len(packed[0]) - 1))
    path.write_bytes(packed[0][:cut])
    with pytest.raises(TraceError, match="zstd stream breaks off"):
        files.read_bytes(path)


def test_a_zstd_bomb_is_refused_before_it_fills_the_memory(tmp_path):
    zstandard = pytest.importorskip("zstandard")
    path = save(tmp_path, zstandard.compress(bytes(200 * 1024**2)))
    with pytest.raises(TraceError, match="decompresses to more than 300 times"):
        files.read_bytes(path)


def test_without_zstandard_the_line_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(TraceError, match=r"pip install 'deepprof\[zstd\]'"):
        files.read_bytes(save(tmp_path, b"\x28\xb5\x2f\xfdrest"))
