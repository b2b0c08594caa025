"""Why the daemon does not take something, as gRPC tells it to who sent it."""

from __future__ import annotations

__all__ = ["RefusedError"]


class RefusedError(Exception):
    """What cannot be taken: `code` is the name of a gRPC status, the text says why and what to do."""

    def __init__(self, code: str, text: str) -> None:
        self.code = code
        super().__init__(text)
