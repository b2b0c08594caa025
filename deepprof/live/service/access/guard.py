"""Who calls, and whether they may: by token, by certificate, or by the address that they could reach."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from deepprof.live.service.access.attempts import TokenAttempts, place_of
from deepprof.live.service.access.tokens import SCOPES, Grant, digest, find_grant, read_tokens
from deepprof.live.service.access.watched import WatchedFiles
from deepprof.live.service.config.sections import Config, ShareSection

__all__ = ["AccessGuard", "AccessRefusal"]

HEADER, SCHEME = "authorization", "bearer"
TLS = b"ssl"  # gRPC's word; plain connections have one too in some versions
MAX_TOKEN_CHARS = 1024  # characters of the header
LONG = 32  # characters of a token from which on nobody guesses it, however often they try
# What a plain TCP port gives: every user of the machine reaches it, so nothing that removes or stops.
WITHOUT_PROOF = Grant("anyone", frozenset({"ingest", "read"}))
# A Unix socket's mode says who may connect.
BY_SOCKET = Grant("socket", SCOPES)


@dataclass(frozen=True, slots=True)
class AccessRefusal:
    """Why a call is refused; `name` is the caller's where it is known, and only lacks a scope."""

    problem: str
    name: str = ""


class AccessGuard:
    """Decides about calls. Tokens are read again when their file changes; `clock` gives seconds."""

    def __init__(self, config: Config, clock: Callable[[], float] = time.monotonic) -> None:
        path = config.tokens.file
        self.tls, self.share = config.tls, config.share
        self.tokens = WatchedFiles([path], lambda: read_tokens(path), "tokens") if path else None
        self.attempts = TokenAttempts(clock)
        self._shares: tuple[tuple[Grant, ...], dict[str, ShareSection]] = (), {}  # as made of the grants last seen

    def share_of(self, name: str) -> ShareSection:
        """Return what the sender of a name may have, as the file of tokens says now."""
        grants = self.tokens.look() if self.tokens is not None else ()
        known, shares = self._shares
        if grants is not known:
            shares = {grant.name: replace(self.share, **dict(grant.share)) for grant in grants}
            self._shares = grants, shares
        return shares.get(name, self.share)

    def decide(
        self, scope: str, headers: Iterable[tuple[str, str | bytes]], peer: str, security: Mapping[str, Iterable[bytes]]
    ) -> Grant | AccessRefusal:
        """Return who calls where they have `scope`, else why not.

        `peer` is what gRPC calls the other side, `security` what it says of its certificate (`auth_context`).
        """
        grant = self.identify([value for name, value in headers if name == HEADER], peer, security)
        if isinstance(grant, AccessRefusal) or scope in grant.scopes:
            return grant
        return AccessRefusal(f"{grant.name} lacks the scope {scope}{advise(grant)}", grant.name)

    def identify(
        self, given: list[str | bytes], peer: str, security: Mapping[str, Iterable[bytes]]
    ) -> Grant | AccessRefusal:
        """Return who calls, whatever they may."""
        if self.tokens is not None and given:
            return self.check_token(given, place_of(peer), self.tokens.look())
        if self.tls.client_ca and TLS in security.get("transport_security_type", ()):
            return self.by_certificate(security)
        if self.tokens is not None:
            return AccessRefusal("a token is needed, as authorization: Bearer TOKEN")
        return BY_SOCKET if peer.startswith("unix:") else WITHOUT_PROOF

    def check_token(self, given: list[str | bytes], place: str, grants: tuple[Grant, ...]) -> Grant | AccessRefusal:
        """Return whose token is shown; of short ones, which could be guessed, as often as the address may still try."""
        token = read_header(given)
        if token is None:
            return AccessRefusal("the header must be one authorization: Bearer TOKEN")
        grant = find_grant(grants, proof := digest(token))
        if len(token) < LONG:
            if not self.attempts.are_open(place, proof):
                return AccessRefusal("too many unknown tokens from this address; wait a minute")
            note = self.attempts.note_wrong if grant is None else self.attempts.note_good
            note(place, proof)
        return AccessRefusal("the token is not known") if grant is None else grant

    def by_certificate(self, security: Mapping[str, Iterable[bytes]]) -> Grant:
        """Return what the holder of a certificate may, which TLS has verified; several common names are none."""
        names = [name.decode(errors="replace") for name in security.get("x509_common_name", ())]
        name = names[0] if len(names) == 1 else ""
        return Grant(name or "certificate", frozenset(self.tls.subjects.get(name, self.tls.scopes)))


def advise(grant: Grant) -> str:
    """Return what helps the callers without proof."""
    return "; use the daemon's Unix socket or a token" if grant is WITHOUT_PROOF else ""


def read_header(given: list[str | bytes]) -> str | None:
    """Return the token of the one header there is, None where it says something else."""
    if len(given) != 1 or not isinstance(given[0], str) or len(given[0]) > MAX_TOKEN_CHARS:
        return None
    scheme, _, token = given[0].partition(" ")
    return token.strip() if scheme.lower() == SCHEME and token.strip() else None
