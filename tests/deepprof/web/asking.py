"""Asking a server over HTTP, for tests: one answer, or the events of a stream."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse
from typing import Any

from tests.patience import PATIENCE_S

__all__ = ["ask", "ask_bytes", "listen", "read_event"]

Answer = tuple[int, str, dict[str, str]]


def ask(address: tuple[str, int], path: str, method: str = "GET", **headers: str) -> Answer:
    """Return status, text and headers of an answer."""
    status, body, found = ask_bytes(address, path, method, **headers)
    return status, body.decode(errors="replace"), found


def ask_bytes(
    address: tuple[str, int], path: str, method: str = "GET", **headers: str
) -> tuple[int, bytes, dict[str, str]]:
    """Return status, body and headers of an answer."""
    connection = HTTPConnection(*address, timeout=PATIENCE_S)
    try:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read(), {name.title(): value for name, value in answer.getheaders()}
    finally:
        connection.close()


@contextmanager
def listen(address: tuple[str, int], path: str, last_id: str = "") -> Iterator[HTTPResponse]:
    """Give the open answer of a stream."""
    connection = HTTPConnection(*address, timeout=PATIENCE_S)
    connection.request("GET", path, headers={"Last-Event-ID": last_id} if last_id else {})
    answer = connection.getresponse()  # has the socket from here on
    try:
        yield answer
    finally:
        answer.close()
        connection.close()


def read_event(stream: HTTPResponse) -> dict[str, Any] | None:
    """Return the next block of a stream: its fields, a comment under an empty name; None at its end."""
    fields: dict[str, Any] = {}
    while line := stream.readline().decode():
        name, _, value = line.rstrip("\n").partition(":")
        if not line.strip():
            return fields
        fields[name] = json.loads(value) if name == "data" else value.strip()
    return None
