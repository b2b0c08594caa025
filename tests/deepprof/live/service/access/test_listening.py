"""Addresses: what is refused, what is never taken from another, and who can use what was opened."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
from pathlib import Path

import pytest
from grpc import aio

from deepprof.collectors.errors import UsageError
from deepprof.live.service.access import find_metrics_address, offers_reflection, open_ports
from deepprof.live.service.access.exposure import is_loopback
from deepprof.live.service.access.sockets import take_lock
from deepprof.live.service.config import Config
from tests.deepprof.live.service.access.servers import ask, certify, configure, dialled, serving


def refusal(config: Config) -> str:
    """Return the line with which the addresses of `config` are refused."""

    async def attempt() -> str:
        server = aio.server()
        with pytest.raises(UsageError) as caught:
            open_ports(server, config)
        await server.stop(None)
        return str(caught.value)

    line = asyncio.run(attempt())
    assert line.isprintable()
    return line


def answer(config: Config, call: str = "ListJobs") -> str:
    """Serve and return the answer to one call."""

    async def run() -> str:
        async with serving(config) as (address, *_), dialled(address) as channel:
            return await ask(channel, call)

    return asyncio.run(run())


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "localhost", "127.0.0.2"])
def test_loopback_is_open(host: str) -> None:
    assert answer(configure(listen__addresses=f"{host}:0")) == "OK"


EVERYWHERE = [
    "0.0.0.0",  # noqa: S104 - must be refused
    "[::]",
    "0",
    "0x0",
    "[::ffff:0.0.0.0]",
    "[0:0:0:0:0:0:0:0]",
    "10.0.0.1",
    "[::ffff:10.0.0.1]",
    "192.0.2.1",
]


@pytest.mark.parametrize("host", ["127.1", "0x7f000001", "2130706433"])
def test_loopback_as_the_system_reads_it(host: str) -> None:
    async def run() -> None:
        config = configure(listen__addresses=f"{host}:0")
        async with serving(config) as (address,), dialled(address.replace(host, "127.0.0.1")) as channel:
            assert await ask(channel) == "OK"

    asyncio.run(run())


@pytest.mark.parametrize("host", EVERYWHERE)
def test_other_hosts_need_credentials(host: str) -> None:
    line = refusal(configure(listen__addresses=f"{host}:0"))
    assert "refused, other hosts can reach it; give TLS" in line


@pytest.mark.parametrize("given", ["tls", "tokens", "client_ca"])
def test_half_of_the_credentials_is_none(given: str, tmp_path: Path) -> None:
    cert, key = certify("s", certify("ca")).write(tmp_path, "s")
    tls = {"tls__cert": cert, "tls__key": key}
    parts = {"tls": tls, "tokens": {"tokens__file": "t"}, "client_ca": {"tokens__file": "t"}}
    assert "refused, other hosts" in refusal(configure(listen__addresses="0.0.0.0:0", **parts[given]))


def test_a_name_with_one_address_outside_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def resolve(*_: object, **__: object) -> list[object]:
        return [(0, 0, 0, "", ("127.0.0.1", 0)), (0, 0, 0, "", ("192.0.2.7", 0))]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    assert "refused, other hosts" in refusal(configure(listen__addresses="two-homes:0"))


def test_what_was_checked_is_what_is_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter(["127.0.0.1"])  # a second look-up finds nothing to answer
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [(0, 0, 0, "", (next(answers), 0))])
    assert answer_at_bound_port() == "OK"


def answer_at_bound_port() -> str:
    async def run() -> str:
        config = configure(listen__addresses="here:0")
        async with serving(config) as (address,), dialled(address.replace("here", "127.0.0.1")) as channel:
            return await ask(channel)

    return asyncio.run(run())


def test_insecure_is_insecure() -> None:
    assert answer(configure(listen__addresses="0.0.0.0:0", insecure="true")) == "OK"
    assert answer(configure(listen__addresses="0.0.0.0:0", insecure="true"), "Drain").startswith("PERMISSION_DENIED")


def test_unknown_names_and_absent_addresses() -> None:
    assert "check the host's name" in refusal(configure(listen__addresses="no-such-host.invalid:0"))
    assert "choose another address" in refusal(configure(listen__addresses="192.0.2.1:0", insecure="true"))


@pytest.mark.parametrize("ip", ["::ffff:127.0.0.1", "127.255.255.254", "::1"])
def test_loopback_in_every_spelling(ip: str) -> None:
    assert is_loopback(ip)


@pytest.mark.parametrize("ip", ["::ffff:8.8.8.8", "128.0.0.1", "::", "0.0.0.0", "fe80::1%1", "::2"])  # noqa: S104
def test_not_loopback_in_every_spelling(ip: str) -> None:
    assert not is_loopback(ip)


@pytest.mark.parametrize("first", ["127.0.0.1", "localhost"])
def test_two_daemons_never_share_a_port(first: str) -> None:
    async def run() -> None:
        async with serving(configure(listen__addresses=f"{first}:0")) as (address,):
            port = address.rpartition(":")[2]
            with pytest.raises(UsageError, match="another program listens there"):
                open_ports(
                    aio.server(options=[("grpc.so_reuseport", 0)]), configure(listen__addresses=f"127.0.0.1:{port}")
                )

    asyncio.run(run())


def test_several_addresses(tmp_path: Path) -> None:
    async def run() -> None:
        config = configure(listen__addresses=f"127.0.0.1:0,unix:{tmp_path}/a.sock")
        async with serving(config) as addresses:
            for address, wanted in zip(addresses, ["PERMISSION_DENIED", "OK"], strict=True):
                async with dialled(address) as channel:
                    assert (await ask(channel, "Drain")).startswith(wanted)

    asyncio.run(run())


@pytest.mark.parametrize("call", ["ListJobs", "Watch", "Send", "Drain"])
def test_a_socket_gives_everything(call: str, tmp_path: Path) -> None:
    assert answer(configure(listen__addresses=f"unix:{tmp_path}/run/a b%41.sock"), call) == "OK"


@pytest.mark.parametrize(("mode", "folder_mode", "group"), [("0600", 0o700, False), ("0660", 0o750, True)])
def test_modes_of_socket_and_directory(mode: str, folder_mode: int, group: bool, tmp_path: Path) -> None:
    path = tmp_path / "run" / "deepprof.sock"
    owner = {"listen__socket_group": str(os.getegid())} if group else {}

    async def run() -> None:
        umask = os.umask(0)
        try:
            async with serving(configure(listen__addresses=f"unix:{path}", listen__socket_mode=mode, **own)):
                assert stat.S_IMODE(path.stat().st_mode) == int(mode, 8)
                assert stat.S_IMODE(path.parent.stat().st_mode) == folder_mode
        finally:
            assert os.umask(umask) == 0

    import grp

    own = {key: grp.getgrgid(int(value)).gr_name for key, value in owner.items()}
    asyncio.run(run())
    assert not path.exists()


def test_a_group_that_is_not_ours(tmp_path: Path) -> None:
    config = configure(listen__addresses=f"unix:{tmp_path}/run/a.sock", listen__socket_group="no-such-group")
    assert "name a group that the daemon's user is in" in refusal(config)


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o770])
def test_a_directory_that_others_can_write_to(mode: int, tmp_path: Path) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(mode)
    assert "others can write to the socket's directory" in refusal(configure(listen__addresses=f"unix:{folder}/a.sock"))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_a_directory_of_another_user(tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    folder.mkdir(mode=0o755)
    os.chown(folder, 12345, 12345)
    assert "belongs to another user" in refusal(configure(listen__addresses=f"unix:{folder}/a.sock"))


def test_a_stale_socket_is_replaced(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "a.sock"))
    assert answer(configure(listen__addresses=f"unix:{tmp_path}/a.sock")) == "OK"


def test_a_living_socket_is_not(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as alive:
        alive.bind(str(tmp_path / "a.sock"))
        alive.listen(1)
        assert "another daemon listens there" in refusal(configure(listen__addresses=f"unix:{tmp_path}/a.sock"))
        assert (tmp_path / "a.sock").exists()


def test_two_daemons_never_share_a_socket(tmp_path: Path) -> None:
    config = configure(listen__addresses=f"unix:{tmp_path}/a.sock")

    async def run() -> None:
        async with serving(config) as (address,):
            with pytest.raises(UsageError, match="another daemon listens there"):
                open_ports(aio.server(), config)
            async with dialled(address) as channel:
                assert await ask(channel) == "OK"

    asyncio.run(run())
    assert answer(config) == "OK"  # the lock has gone with the first


def test_what_is_no_socket_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "a.sock").write_text("precious")
    assert "is there and no socket" in refusal(configure(listen__addresses=f"unix:{tmp_path}/a.sock"))
    assert (tmp_path / "a.sock").read_text() == "precious"
    assert "choose another directory" in refusal(configure(listen__addresses=f"unix:{tmp_path}/a.sock/b.sock"))


def test_an_address_that_fails_gives_up_the_others(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    refusal(configure(listen__addresses=f"unix:{tmp_path}/a.sock,unix:{tmp_path}/file"))
    os.close(take_lock(tmp_path / "a.sock"))


def test_where_the_metrics_are() -> None:
    assert find_metrics_address(Config()) == ("127.0.0.1", 7601)
    assert find_metrics_address(configure(metrics__address="")) is None
    assert find_metrics_address(configure(metrics__address="0.0.0.0:1", metrics__exposed="true")) == ("0.0.0.0", 1)  # noqa: S104
    for address, problem in (
        ("0.0.0.0:1", "refused, other hosts"),
        ("unix:/a", "asks over HTTP"),
        ("x", "is no address"),
    ):
        with pytest.raises(UsageError, match=problem):
            find_metrics_address(configure(metrics__address=address))


def test_reflection_is_for_this_machine() -> None:
    assert offers_reflection(configure(listen__addresses="unix:/a,127.0.0.1:0"))
    assert not offers_reflection(configure(listen__addresses="unix:/a,0.0.0.0:0"))
