"""The flags of `deepprof serve` that set keys of the configuration."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Mapping

SHORT: Mapping[str, tuple[str, str, str]] = {
    "listen.addresses": ("--listen", "ADDRESS", "unix:PATH or HOST:PORT; with commas for several"),
    "metrics.address": ("--metrics", "HOST:PORT", "of /metrics, /healthz, /readyz and the page; empty: none"),
    "store.path": ("--store", "DIR", "where records and history are kept"),
    "tokens.file": ("--token-file", "FILE", "who may do what, by token"),
    "tls.cert": ("--cert", "FILE", "the daemon's certificate, PEM"),
    "tls.key": ("--key", "FILE", "its private key, PEM"),
    "tls.client_ca": ("--client-ca", "FILE", "who signs clients' certificates, PEM; every client then needs one"),
    "log.level": ("--log-level", "LEVEL", "debug, info, warning or error"),
    "log.format": ("--log-format", "FORMAT", "json, text or auto (text on a terminal)"),
}


def add_flags(parser: ArgumentParser) -> None:
    """Add the flags of common keys, `--insecure`, and `--set` for every other key."""
    for path, (flag, value, text) in SHORT.items():
        parser.add_argument(flag, dest=path, metavar=value, help=text)
    insecure = "listen on other than loopback addresses without TLS and credentials"
    parser.add_argument("--insecure", dest="insecure", action="store_const", const="true", help=insecure)
    anything = "any key of the configuration, such as history.keep_for=7d; may be repeated"
    parser.add_argument("--set", dest="set", metavar="KEY=VALUE", type=_parse_setting, action="append", help=anything)


def read_flags(args: Namespace) -> dict[str, str]:
    """Return the values of the flags, as `load_config` takes them; a key's own flag wins over `--set`."""
    given = vars(args)
    own = {path: given[path] for path in (*SHORT, "insecure") if given.get(path) is not None}
    return dict(given.get("set") or ()) | own


def _parse_setting(text: str) -> tuple[str, str]:
    """Return key and value of `KEY=VALUE`."""
    key, equals, value = text.partition("=")
    if not (key and equals):
        raise ArgumentTypeError(f"{text[:60]!r} is not KEY=VALUE, such as history.keep_for=7d")
    return key, value
