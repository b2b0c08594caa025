"""Which hosts can reach an address: this machine only, or others, for which credentials are needed."""

from __future__ import annotations

import socket
from ipaddress import IPv4Address, IPv6Address, ip_address

from deepprof.collectors.errors import UsageError, escaped
from deepprof.live.service.config.default_paths import listen_addresses
from deepprof.live.service.config.sections import Config
from deepprof.live.wire.addresses import DaemonAddress, parse_address


def resolve(address: DaemonAddress) -> tuple[str, ...]:
    """Return the IP addresses of a host and port, looked up now and only here.

    The addresses that are bound must be those that were checked, so a name is never looked up twice. Raises
    `UsageError` for unknown names.
    """
    try:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(escaped(f"{address}: {reason}; check the host's name")) from error
    return tuple(dict.fromkeys(str(entry[4][0]) for entry in found))


def is_loopback(ip: str) -> bool:
    """Return whether an IP address can be reached from this machine only, also an IPv4 address written as IPv6."""
    parsed: IPv4Address | IPv6Address = ip_address(ip.partition("%")[0])
    mapped = parsed.ipv4_mapped if isinstance(parsed, IPv6Address) else None
    return (mapped or parsed).is_loopback


def check_exposure(address: DaemonAddress, ips: tuple[str, ...], config: Config) -> bool:
    """Return whether other hosts can reach one of `ips` without credentials.

    Raises `UsageError` where they can and `insecure` is not set. Credentials are TLS with tokens or with clients'
    certificates.
    """
    proven = config.tls.cert and (config.tokens.file or config.tls.client_ca)
    if proven or all(is_loopback(ip) for ip in ips):
        return False
    if not config.insecure:
        raise UsageError(
            f"{address}: refused, other hosts can reach it; give TLS (--cert, --key) and tokens (--token-file) or "
            "clients' certificates (--client-ca), listen on 127.0.0.1, or say --insecure"
        )
    return True


def find_metrics_address(config: Config) -> tuple[str, int] | None:
    """Return IP address and port of the exporter, None where there is none.

    Raises `UsageError` where other hosts can reach it and neither `metrics.exposed` nor `insecure` allows that.
    """
    if not config.metrics.address:
        return None
    address = parse_address(config.metrics.address)
    if address.is_unix:
        raise UsageError(f"metrics.address: {address}: Prometheus asks over HTTP; give HOST:PORT")
    ips = resolve(address)
    if not (config.metrics.exposed or config.insecure or all(is_loopback(ip) for ip in ips)):
        raise UsageError(
            f"{address}: refused, other hosts can reach these metrics, which name jobs and hosts; "
            "say metrics.exposed=true where that is meant, or take 127.0.0.1"
        )
    return ips[0], address.port


def find_page_hosts(config: Config) -> tuple[str, ...]:
    """Return the names under which the page is shown: the one in the address, and those that are configured."""
    return (*config.metrics.hosts, parse_address(config.metrics.address).host)


def offers_reflection(config: Config) -> bool:
    """Return whether to offer gRPC reflection: only where no other host can reach any address."""
    addresses = [address for address in listen_addresses(config) if not address.is_unix]
    return all(is_loopback(ip) for address in addresses for ip in resolve(address))
