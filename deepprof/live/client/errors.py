"""Errors between a client and a daemon, in one line each; gRPC's codes are translated here and nowhere else."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Protocol

from grpc import StatusCode

from deepprof.collectors.errors import DeepProfError, escaped
from deepprof.render.plain import shorten

if TYPE_CHECKING:
    from deepprof.live.wire.addresses import DaemonAddress

MAX_DETAIL_CHARS = 300  # characters of the daemon's own text
# Codes after which the same call may succeed later: the daemon is away, drains, or has no space now.
PASSING = frozenset(
    {
        *(StatusCode.UNAVAILABLE, StatusCode.RESOURCE_EXHAUSTED, StatusCode.DEADLINE_EXCEEDED),
        *(StatusCode.INTERNAL, StatusCode.UNKNOWN, StatusCode.CANCELLED),  # codes of a connection that breaks
    }
)
NEVER = re.compile(
    r"(?i)larger than max|handshake failed|certificate|verification|permission denied"
)  # waiting does not solve these


class _CallFailure(Protocol):
    """The end of a call, as gRPC reports it."""

    def code(self) -> StatusCode:
        """Return the status code."""
        ...

    def details(self) -> str | None:
        """Return the explanation of the other side or of gRPC itself."""
        ...


class DaemonError(DeepProfError):
    """A daemon that cannot be reached, or does not do what it was asked; the message is one printable line.

    `passing`: the same call may succeed a little later. `absent`: there is no such job.
    """

    def __init__(
        self, address: object, problem: str, advice: str, *, passing: bool = False, absent: bool = False
    ) -> None:
        self.address, self.problem, self.advice = str(address), problem, advice
        self.passing, self.absent = passing, absent
        super().__init__(escaped(f"daemon at {address}: {problem}; {advice}"))


def is_passing(failure: _CallFailure) -> bool:
    """Return whether the same call may succeed a little later."""
    return failure.code() in PASSING and not NEVER.search(failure.details() or "")


def explain(failure: _CallFailure, address: DaemonAddress) -> DaemonError:
    """Return `failure` of a call to the daemon at `address` as an error with a problem and an advice."""
    details = shorten(" ".join((failure.details() or "").split()), MAX_DETAIL_CHARS)
    problem, advice = _find_words(failure.code(), details, address)
    absent = failure.code() is StatusCode.NOT_FOUND
    return DaemonError(address, problem, advice, passing=is_passing(failure), absent=absent)


def _find_words(code: StatusCode, details: str, address: DaemonAddress) -> tuple[str, str]:
    if code is StatusCode.UNAVAILABLE:
        return _find_reason(details, address)
    if code is StatusCode.RESOURCE_EXHAUSTED and "larger than max" in details:
        return f"takes no message of this size ({details})", "send fewer records at once"
    said, advice = WORDS.get(code, (f"failed with {code.name}", "its log says more"))
    return f"{said} ({details})" if details else said, advice


WORDS = {
    StatusCode.UNAUTHENTICATED: ("wants a token, and not this one", "name its file with --token-file"),
    StatusCode.PERMISSION_DENIED: ("the token may not do this", "use one whose scope allows it"),
    StatusCode.INVALID_ARGUMENT: ("refused what it was told", "mend what it names"),
    StatusCode.OUT_OF_RANGE: ("misses records before these", "send again under another collector name"),
    StatusCode.ALREADY_EXISTS: (
        "another collector is connected for this rank",
        "wait until it has ended, or name another job",
    ),
    StatusCode.ABORTED: ("a newer stream of the same collector took over", "let one of them send"),
    StatusCode.RESOURCE_EXHAUSTED: ("has no room", "free some on its disk, or raise its limits"),
    StatusCode.NOT_FOUND: ("knows nothing of it", "deepprof watch --once shows what it knows"),
    StatusCode.FAILED_PRECONDITION: ("does not do this now", "end what stands in the way, and try again"),
    StatusCode.UNIMPLEMENTED: ("what answers there does not know this call", "check the address and the versions"),
    StatusCode.DEADLINE_EXCEEDED: ("did not answer in time", "try again; its log says more"),
}


def _find_reason(details: str, address: DaemonAddress) -> tuple[str, str]:
    """Return why a daemon is not available, as far as the details of the connection show, and the advice."""
    for pattern, problem, advice in REASONS:
        if re.search(pattern, details):
            return problem, advice.format(listen=f"--listen {address}")
    if "failed to connect" in details and address.is_unix:
        return "broke the connection off", "try again; its log says more"
    if "failed to connect" in details:
        return (
            "cannot be reached",
            "check that it runs and that the address is its own; where it wants TLS give --ca, and --cert and --key "
            "where it wants certificates of its clients",
        )
    return f"is not available{f' ({details})' if details else ''}", "try again a little later"


# Texts of the system and of TLS, which gRPC passes on; the first pattern that matches decides.
REASONS = (
    (r"(?i)lookup error|errors resolving|Name or service", "its host name is not known", "check the address"),
    (
        r"(?i)Failed parsing HTTP/2|http1\.x server",
        "what answers there is no daemon",
        "give an address at which it takes records, not that of its metrics",
    ),
    (r"(?i)create security handshaker", "the certificate and its key do not fit", "check --cert and --key"),
    (r"(?i)No such file", "there is no such socket", "start it with deepprof serve {listen}, or name its address"),
    (
        r"(?i)Connection refused",
        "nothing listens there",
        "start it with deepprof serve {listen}, or name its address",
    ),
    (r"(?i)Permission denied", "you may not open its socket", "run as the user that it runs as"),
    (r"(?i)WRONG_VERSION_NUMBER", "speaks no TLS", "leave out --ca, --cert and --key"),
    (r"(?i)certificate.required|bad.certificate", "wants a client certificate", "give --cert and --key"),
    (
        r"(?i)CERTIFICATE_VERIFY_FAILED|hostname|peer name",
        "its certificate is not one that --ca vouches for, or not for this name",
        "check --ca and the name in the address",
    ),
    (r"(?i)handshake failed|SSL_ERROR", "the TLS handshake failed", "check --ca, --cert and --key"),
    (r"(?i)drain|shut", "is about to stop", "try again when it is back"),
)
