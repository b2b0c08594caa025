"""Errors of a message: the field that is wrong, and the problem."""

from __future__ import annotations

from deepprof.collectors.errors import escaped

CHARS = 300  # of a problem; bounded because it quotes texts of the sender


class MalformedArrowError(ValueError):
    """Bytes that are not the Arrow stream that they should be; its text is the reason."""


class WireError(ValueError):
    """A message that breaks the contract of `records.proto`: `field` names the part, `problem` what is wrong with it.

    The text is one printable line of bounded length, whatever the message holds.
    """

    def __init__(self, field: str, problem: str) -> None:
        self.field, self.problem = field, escaped(problem[:CHARS])
        super().__init__(f"{self.field}: {self.problem}")
