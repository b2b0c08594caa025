import os

import pytest

from deepprof.collectors.errors import UsageError
from deepprof.files import check_target, write_file


def test_a_new_file_and_its_replacement(tmp_path):
    target = tmp_path / "report.txt"
    for content in (b"one", b"two"):
        check_target(target)
        write_file(target, content)
        assert target.read_bytes() == content
    assert [path.name for path in tmp_path.iterdir()] == ["report.txt"]


@pytest.mark.parametrize("path", ["", "-", "a\0b"])
def test_a_name_that_is_no_file(path):
    with pytest.raises(UsageError):
        check_target(path)


def test_links_that_lead_back_to_themselves(tmp_path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(UsageError, match="links"):
        check_target(tmp_path / "a")
    with pytest.raises(UsageError, match="links"):
        write_file(tmp_path / "a", b"")
    with pytest.raises(UsageError):
        check_target(tmp_path / "a" / "report")
    assert (tmp_path / "a").is_symlink()


def test_a_link_to_a_file_that_is_not_there_yet(tmp_path):
    (tmp_path / "link").symlink_to("real")
    check_target(tmp_path / "link")
    write_file(tmp_path / "link", b"x")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"x"


def test_an_open_file_by_its_number_keeps_what_it_holds(tmp_path):
    """As in `deepprof diagnose … -o /dev/stdout >> log`."""
    log = tmp_path / "log"
    log.write_bytes(b"before ")
    with log.open("ab") as file:
        same = log.stat().st_ino
        write_file(f"/dev/fd/{file.fileno()}", b"x")
    assert (log.read_bytes(), log.stat().st_ino) == (b"before x", same)


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "real").write_bytes(b"old")
    (tmp_path / "link").symlink_to("real")
    write_file(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"new"


def test_a_device_stays_a_device():
    write_file(os.devnull, b"x")
    assert not os.path.isfile(os.devnull)


def test_a_pipe_is_written_in_place():
    reader, writer = os.pipe()
    write_file(f"/dev/fd/{writer}", b"x")
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        assert pipe.read() == b"x"
