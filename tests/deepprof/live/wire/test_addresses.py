"""Addresses of daemons: what is understood, what is refused in one line, and where one listens by default."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepprof.collectors.errors import UsageError
from deepprof.live.wire.addresses import DaemonAddress, default_address, parse_address


@pytest.mark.parametrize(
    ("text", "address", "local"),
    [
        ("unix:/run/a.sock", DaemonAddress(path="/run/a.sock"), True),
        ("unix:///run/a.sock", DaemonAddress(path="/run/a.sock"), True),
        ("unix:/run/../srv/a b.sock", DaemonAddress(path="/srv/a b.sock"), True),
        ("127.0.0.1:7600", DaemonAddress(host="127.0.0.1", port=7600), True),
        ("localhost:1", DaemonAddress(host="localhost", port=1), True),
        ("LocalHost:1", DaemonAddress(host="LocalHost", port=1), True),
        ("[::1]:65535", DaemonAddress(host="::1", port=65535), True),
        ("127.9.8.7:0", DaemonAddress(host="127.9.8.7", port=0), True),
        ("0.0.0.0:7600", DaemonAddress(host="0.0.0.0", port=7600), False),  # noqa: S104 - not bound here
        ("[::]:7600", DaemonAddress(host="::", port=7600), False),
        ("node-7.cluster.example:7600", DaemonAddress(host="node-7.cluster.example", port=7600), False),
        ("localhost.example:7600", DaemonAddress(host="localhost.example", port=7600), False),
        ("10.0.0.1:7600", DaemonAddress(host="10.0.0.1", port=7600), False),
    ],
)
def test_an_address_is_understood(text, address, local):
    assert parse_address(text) == address
    assert address.is_local is local
    assert parse_address(str(address)) == address


@pytest.mark.parametrize(
    "text",
    [
        *("", ":", "host", "host:", ":7600", "host:65536", "host:-1", "host:٣", "host:1e3", "host:000001"),
        *("::1:7600", "[::1]", "[127.0.0.1]:1", "[]:1", "a b:1", "-a:1", "a-:1", "http://a:1", "dns:///a:1", "a/b:1"),
        *(
            "unix:",
            "unix:/",
            "unix:a\0b",
            "unix:/a\nb",
            "unix-abstract:x",
            "unix:/tmp/",
            "x\x1b[2J:1",
            "unix:/" + "a" * 120,
        ),
        *("h" * 254 + ":1", "[::1%eth0\x07]:1"),
    ],
)
def test_anything_else_is_refused_in_one_printable_line(text):
    with pytest.raises(UsageError) as told:
        parse_address(text)
    assert str(told.value).isprintable()
    assert "; " in str(told.value)
    assert len(str(told.value)) < 330


def test_a_relative_path_counts_from_here(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert parse_address("unix:a.sock").path == f"{tmp_path}/a.sock"


@given(st.text(max_size=40))
def test_no_text_breaks_it(text):
    try:
        address = parse_address(text)
    except UsageError:
        return
    assert parse_address(str(address)) == address


def test_the_default_is_the_sessions_else_the_systems_else_the_homes(tmp_path):
    runtime, system = {"XDG_RUNTIME_DIR": "/run/user/7", "HOME": "/h"}, tmp_path / "run"
    assert default_address(runtime, system) == DaemonAddress(path="/run/user/7/deepprof/deepprof.sock")
    assert default_address({"HOME": "/h"}, system) == DaemonAddress(path="/h/.local/state/deepprof/deepprof.sock")
    (system / "deepprof").mkdir(parents=True)
    (system / "deepprof" / "deepprof.sock").touch()
    assert default_address({"HOME": "/h"}, system) == DaemonAddress(path=f"{system}/deepprof/deepprof.sock")
    assert default_address(runtime, system) == DaemonAddress(path="/run/user/7/deepprof/deepprof.sock")
