"""Answers that all pages give: one line of text, a document, a file of the page; and what a page may load."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

PIECE_NBYTES = 1 << 16  # written at a time, so that the whole answer is not copied into a buffer for a slow reader
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
JSON = "application/json"
HTML = "text/html; charset=utf-8"


class PiecewiseResponse(Response):
    """An answer that is written piece by piece, each once the client has taken the one before it."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Write the answer."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        for begin in range(0, len(self.body), PIECE_NBYTES):
            piece = self.body[begin : begin + PIECE_NBYTES]
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def say(status: int, text: str, headers: Mapping[str, str] | None = None) -> Response:
    """Return an answer of one line."""
    return PlainTextResponse(f"{text}\n".encode(errors="backslashreplace"), status, headers)


def give(body: bytes, media_type: str, headers: Mapping[str, str] | None = None, policy: str = POLICY) -> Response:
    """Return a document or a file of the page, which loads nothing from elsewhere."""
    return PiecewiseResponse(body, 200, {"Content-Security-Policy": policy, **(headers or {})}, media_type)


def give_document(body: bytes | None) -> Response:
    """Return a document, or that there is none."""
    return say(404, "there is no such document; `session` names all of them") if body is None else give(body, JSON)


async def tell_bug(_: Request, __: Exception) -> Response:
    """Answer where the app has met a bug; the exception itself is in the log."""
    return say(500, "this is a bug of DeepProf; its log says more")


async def tell_missing(_: Request, __: Exception) -> Response:
    """Answer where there is no such path."""
    return say(404, "there is nothing at this address")
