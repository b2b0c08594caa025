"""Every error a user can cause, as a hierarchy; each message says what, where and what to do next.

DeepProfError
├── TraceError          a file or directory that cannot be read as a trace
└── UsageError          arguments that contradict each other or name nothing
"""

from __future__ import annotations

__all__ = ["DeepProfError", "TraceError", "UsageError", "printable"]


class DeepProfError(Exception):
    """Base of every error that is the input's fault and not a bug: shown as one line, never as a traceback."""


class TraceError(DeepProfError):
    """An input that cannot be read as a trace.

    The message is printable on one line, whatever the path and the libraries quoted in `problem` bring along.
    """

    def __init__(self, path: object, problem: str, advice: str) -> None:
        self.path, self.problem, self.advice = str(path), problem, advice
        super().__init__(printable(f"{path}: {problem}; {advice}"))


class UsageError(DeepProfError):
    """Arguments that cannot be meant as they stand."""


def printable(text: str) -> str:
    """Return `text` with escapes such as `\\x1b` for what a terminal would obey or could not show."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
