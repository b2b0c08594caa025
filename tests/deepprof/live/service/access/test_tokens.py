"""Tokens: the file's lines, who may read it, how guessing is slowed."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepprof.collectors.errors import UsageError
from deepprof.live.service.access.attempts import MAX_ADDRESSES, TokenAttempts, place_of
from deepprof.live.service.access.guard import AccessGuard
from deepprof.live.service.access.tokens import SCOPES, Grant, digest, find_grant, parse_tokens, read_tokens
from deepprof.live.service.access.watched import WatchedFiles
from deepprof.live.service.config.sections import Config, ShareSection, TokensSection

TOKEN = "correct-horse-battery"  # noqa: S105


def write(path: Path, text: str | bytes, mode: int = 0o600) -> str:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    path.chmod(mode)
    return str(path)


def test_lines() -> None:
    hashed = hashlib.sha256(b"another-long-token").hexdigest()
    text = f"# who may what\n\nnode-1 ingest {TOKEN}\n  ops\tread,admin   sha256:{hashed}  \r\n"
    first, second = parse_tokens(text, "t")
    assert (first.name, first.scopes) == ("node-1", {"ingest"})
    assert (second.name, second.scopes) == ("ops", {"read", "admin"})
    assert find_grant((first, second), digest("another-long-token")) is second
    assert find_grant((first, second), digest(TOKEN)) is first
    assert find_grant((first, second), digest(TOKEN + "x")) is None


def test_the_example_of_the_page_is_a_token_file() -> None:
    page = (Path(__file__).resolve().parents[5] / "docs" / "security.md").read_text()
    example = page.split("```text\n")[1].split("```")[0]
    assert [(grant.name, *grant.scopes) for grant in parse_tokens(example, "t")] == [
        ("node-7", "ingest"),
        ("grafana", "read"),
    ]


def test_limits_of_a_line() -> None:
    limits = "jobs=team-a-*,shared ranks=64 kept_nbytes=20GiB records_per_s=50000"
    (grant,) = parse_tokens(f"a ingest {TOKEN} {limits}", "t")
    wanted = {"jobs": ("team-a-*", "shared"), "ranks": 64, "kept_nbytes": 20 << 30, "records_per_s": 50_000}
    assert dict(grant.share) == wanted


def test_what_a_line_does_not_say_is_the_configurations(tmp_path: Path) -> None:
    path = write(tmp_path / "t", f"a ingest {TOKEN} ranks=2\nops admin {TOKEN}-2\nold ingest {TOKEN}-3 ranks=0")
    guard = AccessGuard(Config(tokens=TokensSection(file=path), share=ShareSection(ranks=9, records_per_s=7)))
    assert guard.share_of("a") == ShareSection(ranks=2, records_per_s=7)
    assert guard.share_of("ops") == guard.share_of("socket") == ShareSection(ranks=9, records_per_s=7)
    assert guard.share_of("old") == ShareSection(records_per_s=7)
    write(tmp_path / "t", f"a ingest {TOKEN} ranks=33")
    assert guard.share_of("a").ranks == 33
    write(tmp_path / "t", f"a ingest {TOKEN} ranks=x")
    assert guard.share_of("a").ranks == 33


def test_tokens_are_not_kept_or_shown() -> None:
    (grant,) = parse_tokens(f"a read {TOKEN}", "t")
    assert TOKEN not in repr(grant)
    assert grant.proof.hex() not in repr(grant)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (f"a read {TOKEN} x", "line 1 has no limit as word 4; write KEY=VALUE with one of ranks, records_per_s"),
        (f"a read {TOKEN} colour=red", "has no limit as word 4"),
        (f"a read some {TOKEN}", "less than 16"),  # a token with a blank in it
        (f"a read {TOKEN} ranks=1 ranks=2", "says ranks twice"),
        (f"a read {TOKEN} ranks=many", "has a wrong ranks: 'many' is not a whole number from 0 to"),
        (f"a read {TOKEN} kept_nbytes=20GX", "has a wrong kept_nbytes"),
        (f"a ingest {TOKEN} ranks=1\na ingest {TOKEN}-2 ranks=2", "line 2 gives a other limits than a line above"),
        (f"\n{TOKEN}", "line 2 has 1 words"),
        (f"a/b read {TOKEN}", "begins with no name"),
        (f"{'a' * 65} read {TOKEN}", "begins with no name"),
        (f"a root {TOKEN}", "unknown scope"),
        (f"a read, {TOKEN}", "unknown scope"),
        (f"a Read {TOKEN}", "unknown scope"),
        ("a read " + "x" * 15, "less than 16"),
        (f"a read {'x' * 513}", "more than 512"),
        ("a read sha256:abc", "wrong digest"),
        (f"a read sha256:{'A' * 64}", "wrong digest"),
        (f"a read {TOKEN}\nb admin {TOKEN}", "line 2 has the token of another line"),
        (f"a read {TOKEN}\nb admin sha256:{hashlib.sha256(TOKEN.encode()).hexdigest()}", "token of another line"),
        ("", "holds 0 tokens"),
        ("# nothing\n", "holds 0 tokens"),
        ("\n".join(f"a read token-number-{n:09}" for n in range(1001)), "holds 1001 tokens"),
    ],
)
def test_wrong_lines_are_named_and_not_repeated(text: str, problem: str) -> None:
    with pytest.raises(UsageError, match=problem) as caught:
        parse_tokens(text, "tokens")
    assert str(caught.value).startswith("tokens: ")
    assert TOKEN not in str(caught.value)


@pytest.mark.parametrize("mode", [0o604, 0o602, 0o620, 0o666, 0o644])
def test_a_file_that_others_can_read_or_write(mode: int, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="others can read or write it; chmod 600"):
        read_tokens(write(tmp_path / "t", f"a read {TOKEN}", mode))


def test_a_group_may_read_digests_only(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="a group can read these tokens"):
        read_tokens(write(tmp_path / "t", f"a read {TOKEN}", 0o640))
    hashed = f"a read sha256:{hashlib.sha256(TOKEN.encode()).hexdigest()}"
    assert find_grant(read_tokens(write(tmp_path / "t", hashed, 0o440)), digest(TOKEN)) is not None


def test_files_that_are_none(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    (tmp_path / "folder").mkdir(mode=0o700)
    cases = {
        str(tmp_path / "none"): "No such file",
        str(tmp_path / "folder"): "directory|is no file",
        str(tmp_path / "pipe"): "is no file",
        write(tmp_path / "large", b"#" * ((1 << 20) + 1)): "is larger than",
        write(tmp_path / "bytes", b"a read \xff"): "is not ASCII",
        "a\0b": "null",
    }
    for path, problem in cases.items():
        with pytest.raises(UsageError, match=problem):
            read_tokens(path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_of_another_user(tmp_path: Path) -> None:
    path = write(tmp_path / "t", f"a read {TOKEN}")
    os.chown(path, 12345, 12345)
    with pytest.raises(UsageError, match="belongs to another user"):
        read_tokens(path)


@given(st.text() | st.lists(st.sampled_from(["a", "read", TOKEN, ",", "\n", "sha256:", "0" * 64, "#"])).map(" ".join))
def test_any_text_is_grants_or_one_line(text: str) -> None:
    try:
        grants = parse_tokens(text, "t")
    except UsageError as error:
        refused = str(error)
        assert refused.isprintable() and TOKEN not in refused  # noqa: PT018
    else:
        assert all(grant.scopes <= SCOPES and len(grant.proof) == 32 for grant in grants)


def test_a_changed_file_is_read_again_and_a_broken_one_is_not(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    path = tmp_path / "t"
    write(path, f"a read {TOKEN}")
    counted = Counted(lambda: read_tokens(str(path)))
    watched = WatchedFiles([str(path)], counted, "tokens")
    first = watched.look()
    assert watched.look() is first
    assert counted.times == 1
    write(tmp_path / "new", "b admin another-long-token")
    (tmp_path / "new").replace(path)
    (second,) = watched.look()
    assert second.name == "b"
    for damage in (lambda: write(path, "broken"), path.unlink):
        damage()
        assert watched.look() == watched.look() == (second,)
    assert [record.getMessage() for record in caplog.records] == ["tokens-renewed", "tokens-kept", "tokens-kept"]
    assert "another-long-token" not in caplog.text
    write(path, f"c read {TOKEN}")
    assert [grant.name for grant in watched.look()] == ["c"]


class Counted:
    """A function that has how often it was called."""

    def __init__(self, function: Callable[[], tuple[Grant, ...]]) -> None:
        self.function, self.times = function, 0

    def __call__(self) -> tuple[Grant, ...]:
        self.times += 1
        return self.function()


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_guessing_is_slow_and_locks_nobody_else_out() -> None:
    clock = Clock()
    attempts = TokenAttempts(clock)
    attempts.note_good("1.2.3.4", b"honest")
    looked_at = 0
    for second in range(600):
        clock.now = float(second)
        for guess in range(5):
            proof = b"%d-%d" % (second, guess)
            if attempts.are_open("1.2.3.4", proof):
                looked_at += 1
                attempts.note_wrong("1.2.3.4", proof)
        assert attempts.are_open("1.2.3.4", b"honest")  # at the guesser's own address
        assert attempts.are_open("1.2.3.5", b"new")
    assert looked_at == 10 + 599 // 6
    clock.now += 60
    assert attempts.are_open("1.2.3.4", b"another")


def test_a_token_that_was_good_and_is_not_counts() -> None:
    attempts = TokenAttempts(Clock())
    attempts.note_good("a", b"old")
    for _ in range(10):
        assert attempts.are_open("a", b"old")
        attempts.note_wrong("a", b"old")
    assert not attempts.are_open("a", b"old")


def test_what_is_remembered_is_bounded() -> None:
    attempts = TokenAttempts(Clock())
    for number in range(2 * MAX_ADDRESSES):
        attempts.note_wrong(str(number), b"")
        attempts.note_good(str(number), b"")
    assert len(attempts._budgets) == len(attempts._good) == MAX_ADDRESSES


@pytest.mark.parametrize(
    ("peer", "place"),
    [
        ("ipv4:10.0.0.1:5000", "10.0.0.1"),
        ("ipv6:%5B::1%5D:5000", "::/64"),
        ("ipv6:[2001:db8:1:2:3:4:5:6]:5000", "2001:db8:1:2::/64"),
        ("ipv6:%5B::ffff:10.0.0.1%5D:5000", "10.0.0.1"),
        ("ipv6:[fe80::1%25eth0]:1", "fe80::/64"),
        ("unix:", "unix"),
        ("unix:/run/a.sock", "unix"),
        ("", ""),
        ("ipv4:" + "x" * 1000, ""),
    ],
)
def test_where_a_peer_is(peer: str, place: str) -> None:
    assert place_of(peer) == place


@given(st.text())
def test_any_peer_is_somewhere(peer: str) -> None:
    assert len(place_of(peer)) <= 64
    assert len(place_of(f"ipv6:{peer}")) <= 64
