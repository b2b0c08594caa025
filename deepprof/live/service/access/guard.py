"""Which client calls, and whether it may: by its token, its certificate, or the address that it could reach."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from deepprof.live.service.access.attempts import TokenAttempts, place_of
from deepprof.live.service.access.tokens import SCOPES, Grant, digest, find_grant, read_tokens
from deepprof.live.service.access.watched import WatchedFiles
from deepprof.live.service.config.sections import Config, ShareSection

HEADER, SCHEME = "authorization", "bearer"
TLS = b"ssl"  # gRPC's name for the type; in some versions plain connections have a type too
MAX_TOKEN_CHARS = 1024  # characters of the header
LONG = 32  # characters of a token: one as long cannot be guessed with any number of tries
# The grant of a plain TCP port: every user of the machine can reach it, so it cannot remove or stop anything.
WITHOUT_PROOF = Grant("anyone", frozenset({"ingest", "read"}))
# A Unix socket needs no proof: its mode decides which users may connect.
BY_SOCKET = Grant("socket", SCOPES)


@dataclass(frozen=True, slots=True)
class AccessRefusal:
    """Why a call is refused; `name` is the caller's name if it is available and only lacks a scope."""

    problem: str
    name: str = ""


class AccessGuard:
    """Allows or refuses calls. Tokens are read again when their file changes; `clock` returns seconds."""

    def __init__(self, config: Config, clock: Callable[[], float] = time.monotonic) -> None:
        path = config.tokens.file
        self.tls, self.share = config.tls, config.share
        self.tokens = WatchedFiles([path], lambda: read_tokens(path), "tokens") if path else None
        self.attempts = TokenAttempts(clock)
        self._shares: tuple[tuple[Grant, ...], dict[str, ShareSection]] = (), {}  # made from the grants last seen

    def share_of(self, name: str) -> ShareSection:
        """Return the share of the sender `name`, as the token file now states it."""
        grants = self.tokens.look() if self.tokens is not None else ()
        known, shares = self._shares
        if grants is not known:
            shares = {grant.name: replace(self.share, **dict(grant.share)) for grant in grants}
            self._shares = grants, shares
        return shares.get(name, self.share)

    def decide(
        self, scope: str, headers: Iterable[tuple[str, str | bytes]], peer: str, security: Mapping[str, Iterable[bytes]]
    ) -> Grant | AccessRefusal:
        """Return the caller's grant if it has `scope`, else the refusal.

        `peer` is gRPC's name of the other side, `security` its `auth_context`, with the data of the certificate.
        """
        grant = self.identify([value for name, value in headers if name == HEADER], peer, security)
        if isinstance(grant, AccessRefusal) or scope in grant.scopes:
            return grant
        return AccessRefusal(f"{grant.name} lacks the scope {scope}{_advise(grant)}", grant.name)

    def identify(
        self, given: list[str | bytes], peer: str, security: Mapping[str, Iterable[bytes]]
    ) -> Grant | AccessRefusal:
        """Return the caller's grant, with any scopes."""
        if self.tokens is not None and given:
            return self.check_token(given, place_of(peer), self.tokens.look())
        if self.tls.client_ca and TLS in security.get("transport_security_type", ()):
            return self.by_certificate(security)
        if self.tokens is not None:
            return AccessRefusal("a token is needed, as authorization: Bearer TOKEN")
        return BY_SOCKET if peer.startswith("unix:") else WITHOUT_PROOF

    def check_token(self, given: list[str | bytes], place: str, grants: tuple[Grant, ...]) -> Grant | AccessRefusal:
        """Return the grant of the token shown; short ones can be guessed, so an address's tries of them are limited."""
        token = _read_header(given)
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
        """Return the grant of a client's certificate, which TLS has verified; several common names count as none."""
        names = [name.decode(errors="replace") for name in security.get("x509_common_name", ())]
        name = names[0] if len(names) == 1 else ""
        return Grant(name or "certificate", frozenset(self.tls.subjects.get(name, self.tls.scopes)))


def _advise(grant: Grant) -> str:
    """Return advice for callers without proof, empty for others."""
    return "; use the daemon's Unix socket or a token" if grant is WITHOUT_PROOF else ""


def _read_header(given: list[str | bytes]) -> str | None:
    """Return the token in the only header, None where there are several or it contains something else."""
    if len(given) != 1 or not isinstance(given[0], str) or len(given[0]) > MAX_TOKEN_CHARS:
        return None
    scheme, _, token = given[0].partition(" ")
    return token.strip() if scheme.lower() == SCHEME and token.strip() else None
