"""The errors that a user can cause, as a hierarchy; each message states what is wrong, where, and what to do next.

DeepProfError
├── TraceError          a file or directory that cannot be read as a trace
└── UsageError          arguments that contradict each other or name nothing
"""

from __future__ import annotations


class DeepProfError(Exception):
    """Base of every error caused by the input and not by a bug: shown as one line, never as a traceback."""


class TraceError(DeepProfError):
    """An input that cannot be read as a trace.

    The message is printable on one line, whatever characters the path and the texts quoted in `problem` contain.
    """

    def __init__(self, path: object, problem: str, advice: str) -> None:
        self.path, self.problem, self.advice = str(path), problem, advice
        super().__init__(escaped(f"{path}: {problem}; {advice}"))


class UsageError(DeepProfError):
    """Arguments that contradict each other or name nothing."""


class EndRequest(SystemExit):
    """A signal that asks the program to end: no failure of the code that it interrupts, a plug-in's or a tool's."""


def escaped(text: str) -> str:
    """Return `text` with escapes such as `\\x1b` for characters that a terminal would interpret or cannot show."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
