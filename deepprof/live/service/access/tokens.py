"""Tokens: a client that holds one has the rights in its line. They are kept as digests, compared in constant time."""

from __future__ import annotations

import hashlib
import hmac
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, get_args

from deepprof.collectors.errors import UsageError, escaped
from deepprof.live.service.access.watched import read_private
from deepprof.live.service.config.conversion import convert
from deepprof.live.service.config.keys import keys
from deepprof.live.service.config.sections import Scope

SCOPES: frozenset[str] = frozenset(get_args(Scope))
NAME = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)
TOKEN = re.compile(r"[\x21-\x7e]{16,512}", re.ASCII)
DIGEST = re.compile(r"sha256:([0-9a-f]{64})", re.ASCII)
FILE_NBYTES, MAX_TOKENS = 1 << 20, 1000  # every one is compared at every call


@dataclass(frozen=True, slots=True)
class Grant:
    """A caller's name and its scopes (`ingest`, `read`, `admin`). `proof` is the token's digest, if any.

    `share` has the attributes of the configuration's `share` that differ for this caller, with their values.
    """

    name: str
    scopes: frozenset[str]
    proof: bytes = b""
    share: tuple[tuple[str, Any], ...] = ()

    def __repr__(self) -> str:
        return f"Grant({self.name!r}, {sorted(self.scopes)})"


def digest(token: str) -> bytes:
    """Return the digest that is kept of a token. A plain hash is enough for texts that cannot be guessed."""
    return hashlib.sha256(token.encode()).digest()


def find_grant(grants: tuple[Grant, ...], proof: bytes) -> Grant | None:
    """Return the grant whose token has the digest `proof`. All are compared, so that the time taken reveals nothing."""
    found = None
    for grant in grants:
        if hmac.compare_digest(grant.proof, proof):
            found = grant
    return found


def read_tokens(path: str) -> tuple[Grant, ...]:
    """Return the grants of a token file.

    Raises `UsageError` for a file that cannot be read, has a wrong line, or that others can read or write. A group may
    read a file that holds only digests, because Kubernetes and systemd give files to a service in this way.
    """
    content, mode = read_private(path, FILE_NBYTES, forbidden=0o027)
    try:
        text = content.decode("ascii")
    except UnicodeDecodeError as error:
        raise UsageError(escaped(f"{path}: is not ASCII; name the file of tokens")) from error
    grants = parse_tokens(text, path)
    if mode & stat.S_IRGRP and any(not DIGEST.fullmatch(words[2]) for _, words in _lines(text)):
        raise UsageError(escaped(f"{path}: a group can read these tokens; chmod 600 {path}, or write sha256: digests"))
    return grants


def parse_tokens(text: str, path: str) -> tuple[Grant, ...]:
    """Return the grants of lines `NAME SCOPE[,SCOPE] TOKEN [KEY=VALUE]`.

    Raises `UsageError` that names a wrong line, never its token. A name may have several tokens, all with one share.
    """
    grants: dict[bytes, Grant] = {}
    shares: dict[str, tuple[tuple[str, Any], ...]] = {}
    for number, words in _lines(text):
        try:
            grant = _parse_line(words)
            if grant.proof in grants:
                raise ValueError("has the token of another line; give each its own")
            if shares.setdefault(grant.name, grant.share) != grant.share:
                raise ValueError(f"gives {grant.name} other limits than a line above; give all the same")
        except ValueError as error:
            raise UsageError(escaped(f"{path}: line {number} {error}")) from error
        grants[grant.proof] = grant
    if not 1 <= len(grants) <= MAX_TOKENS:
        raise UsageError(escaped(f"{path}: holds {len(grants)} tokens; 1 to {MAX_TOKENS:,} are allowed"))
    return tuple(grants.values())


def _lines(text: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the number and the words of every line that is neither empty nor a comment."""
    for number, line in enumerate(text.split("\n"), 1):
        words = line.split()
        if words and not words[0].startswith("#"):
            yield number, words


def _parse_line(words: list[str]) -> Grant:
    """Return the grant of one line; `ValueError` states what is wrong with it."""
    if len(words) < 3:
        raise ValueError(f"has {len(words)} words; write NAME SCOPE[,SCOPE] TOKEN [KEY=VALUE]")
    name, scopes, token, *limits = words
    if not NAME.fullmatch(name):
        raise ValueError("begins with no name: up to 64 letters, digits and ._-")
    given = frozenset(scopes.split(","))
    if not given <= SCOPES:
        raise ValueError("names an unknown scope; there are ingest, read and admin")
    return Grant(name, given, _parse_proof(token), _parse_share(limits))


def _parse_share(words: list[str]) -> tuple[tuple[str, Any], ...]:
    """Return the attributes of a share that the words KEY=VALUE set, sorted by name."""
    found: dict[str, Any] = {}
    known = {key.name: key for key in keys().values() if key.section == "share"}
    for number, word in enumerate(words, 4):
        name, equals, value = word.partition("=")
        if not equals or name not in known:  # it may be a token with a blank in it, so it is not repeated
            raise ValueError(f"has no limit as word {number}; write KEY=VALUE with one of {', '.join(known)}")
        if known[name].attribute in found:
            raise ValueError(f"says {name} twice")
        try:
            found[known[name].attribute] = convert(known[name], value)
        except ValueError as error:
            raise ValueError(f"has a wrong {name}: {error}") from error
    return tuple(sorted(found.items()))


def _parse_proof(token: str) -> bytes:
    """Return the digest of a line's token, which is given itself or as `sha256:` and its digest in hexadecimal."""
    if token.startswith("sha256:"):
        found = DIGEST.fullmatch(token)
        if found is None:
            raise ValueError("has a wrong digest; sha256: is followed by 64 of 0-9 and a-f")
        return bytes.fromhex(found[1])
    if not TOKEN.fullmatch(token):
        raise ValueError("has a token of less than 16 or more than 512 characters")
    return digest(token)
