"""The part of HTTP that scrapes and probes need: reading a request's head, and writing an answer."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

__all__ = ["HEAD_NBYTES", "HttpAnswer", "HttpRequest", "RefusedRequestError", "read_request", "say"]

HEAD_NBYTES = 8192  # of a request; Prometheus sends about 300
REASONS = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
}


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """An answer; `extra` are whole header lines."""

    status: int
    body: bytes
    content_type: str = "text/plain; charset=utf-8"
    extra: tuple[str, ...] = ()

    @property
    def head(self) -> bytes:
        """The status line and headers."""
        lines = (
            f"HTTP/1.1 {self.status} {REASONS[self.status]}",
            f"Content-Type: {self.content_type}",
            f"Content-Length: {len(self.body)}",
            "Cache-Control: no-store",
            "X-Content-Type-Options: nosniff",
            "Connection: close",
            *self.extra,
        )
        return "\r\n".join((*lines, "", "")).encode()


def say(status: int, text: str, *extra: str) -> HttpAnswer:
    """Return an answer of one line."""
    return HttpAnswer(status, f"{text}\n".encode(errors="backslashreplace"), extra=extra)


class RefusedRequestError(Exception):
    """A refused request, whose client gets `answer`; it may not have been read to its end."""

    def __init__(self, answer: HttpAnswer) -> None:
        super().__init__(answer.status)
        self.answer = answer


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """The parts of a request that are used; `authorization` is empty where there is none."""

    method: str
    path: str
    authorization: str


async def read_request(reader: asyncio.StreamReader, timeout_s: float) -> HttpRequest:
    """Return the request whose head comes within `timeout_s` seconds, or raise a `RefusedRequestError`.

    The reader's own limit bounds the head. A client that leaves raises `asyncio.IncompleteReadError`.
    """
    try:
        async with asyncio.timeout(timeout_s):
            head = await reader.readuntil(b"\r\n\r\n")
    except TimeoutError:
        raise RefusedRequestError(say(408, f"no request within {timeout_s:g} s")) from None
    except asyncio.LimitOverrunError:
        raise RefusedRequestError(say(431, f"more than {HEAD_NBYTES} bytes of headers")) from None
    return parse_head(head.decode("latin-1"))


def parse_head(head: str) -> HttpRequest:
    """Return the request that a head describes."""
    first, *lines = head.removesuffix("\r\n\r\n").split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        raise RefusedRequestError(say(400, "this is no request of HTTP/1"))
    method, target, _ = words
    if method not in ("GET", "HEAD"):
        raise RefusedRequestError(say(405, "only GET and HEAD", "Allow: GET, HEAD"))
    return HttpRequest(method, target.split("?", 1)[0], find_header(lines, "authorization"))


def find_header(lines: list[str], name: str) -> str:
    """Return the first header with `name` (in small letters), empty where there is none."""
    pairs = (line.partition(":") for line in lines)
    return next((value.strip() for key, _, value in pairs if key.lower() == name), "")
