"""What is wrong with a message: which field, and what of it."""

from __future__ import annotations

from deepprof.collectors.errors import printable

__all__ = ["MalformedArrowError", "WireError"]

CHARS = 300  # of a problem: texts of the sender are quoted in it


class MalformedArrowError(ValueError):
    """Bytes that are not the Arrow stream that they should be; says why."""


class WireError(ValueError):
    """A message that breaks the contract of `records.proto`: `field` names the part, `problem` says what it is.

    The text is one printable line of bounded length, whatever the message holds.
    """

    def __init__(self, field: str, problem: str) -> None:
        self.field, self.problem = field, printable(problem[:CHARS])
        super().__init__(f"{self.field}: {self.problem}")
