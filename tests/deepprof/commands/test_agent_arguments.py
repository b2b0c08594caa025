"""Arguments of `deepprof agent` that make no sense: one line, and nothing begins."""

from __future__ import annotations

import pytest

from deepprof.commands import main


@pytest.fixture
def complain(tmp_path, monkeypatch, capsys):
    """Returns what is stated to arguments, next to a socket and a spool that are free."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("SQLite")
    (tmp_path / "folder").mkdir()

    def complain(*words, socket=("--socket", "s")):
        code = main(["agent", "--until-idle", *socket, "--spool", "spool", *words])
        said = capsys.readouterr()
        assert (code, said.out) == (2, "")
        assert not (tmp_path / "s").exists()
        (line,) = said.err.splitlines()
        return line

    return complain


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--spool-limit", "much"], "'much' is not a size such as"),
        (["--spool-limit", "0"], "'0' is less than 64 KiB"),
        (["--spool-limit", "65535"], "'65535' is less than 64 KiB"),
        (["--overhead", "0"], "'0' is no number above 0"),
        (["--overhead", "nan"], "'nan' is no number above 0"),
        (["--overhead", "1.01"], "'1.01' is no number above 0"),
        (["--kineto", "x"], "'x' is no EVERY_S:WINDOW_MS"),
        (["--job", "a b"], "'a b' is not 1 to 128 letters"),
        (["--tail", "folder"], "'folder' is no file"),
        (["--tail", ""], "'' is no file"),
        (["--watch", "file"], "'file' is no directory"),
        (["--socket", "file"], "'file' is there and no socket"),
        (["--socket", "folder"], "'folder' is there and no socket"),
        (["--socket", "x" * 200], "is no path of a socket, 107 bytes at most"),
        (["--spool", "file"], "file: cannot be made to keep records in: File exists"),
    ],
)
def test_arguments_that_make_no_sense(complain, words, said):
    assert said in complain(*words)


def test_the_environments_socket(complain, monkeypatch):
    monkeypatch.setenv("DEEPPROF_SOCKET", "file")
    assert "DEEPPROF_SOCKET: 'file' is there and no socket" in complain(socket=())
