"""The doctor's findings, and their text: a verdict, then a line for each with what, why and what to do."""

from __future__ import annotations

import textwrap
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

from deepprof.collectors.errors import escaped

SCHEMA = "deepprof.doctor/1"
PROCESS = "process"  # the finding whether the process exists
NARROWEST = 40
CHARS = 600  # of one part of a finding: it may contain paths and other programs' texts


class CheckState(Enum):
    """The result of a check."""

    OK = "ok"
    NOTE = "note"
    WRONG = "wrong"


SIGNS = {CheckState.OK: "✓", CheckState.NOTE: "–", CheckState.WRONG: "✗"}
PLAIN_SIGNS = {CheckState.OK: "+", CheckState.NOTE: "-", CheckState.WRONG: "x"}


@dataclass(frozen=True, slots=True)
class DoctorFinding:
    """`what` was checked, `why` it is as it is, and what to do about it (`advice`, empty for nothing)."""

    state: CheckState
    what: str
    why: str = ""
    advice: str = ""


@dataclass(frozen=True, slots=True)
class DoctorReport:
    """All findings; on a process if `pid` is given, else on the machine."""

    findings: tuple[DoctorFinding, ...]
    pid: int | None = None

    @property
    def is_healthy(self) -> bool:
        """Whether nothing is wrong."""
        return not self.wrong

    @property
    def wrong(self) -> list[DoctorFinding]:
        """The findings that prevent collecting."""
        return [each for each in self.findings if each.state is CheckState.WRONG]

    @property
    def verdict(self) -> str:
        """The first line."""
        whose = "on this machine" if self.pid is None else f"from process {self.pid}"
        if self.is_healthy:
            return f"nothing stands in the way of collecting {whose}"
        first, count = self.wrong[0], len(self.wrong)
        things = "one thing stands" if count == 1 else f"{count} things stand"
        what = "" if first.what == PROCESS else f"{first.what}: "
        return _clean(f"{things} in the way of collecting {whose}: {what}{first.why}"[:CHARS])

    def write_text(self, width: int, *, plain: bool = False) -> str:
        """Return the report for people, wrapped; `plain`: for a terminal that has only ASCII."""
        signs = PLAIN_SIGNS if plain else SIGNS
        lines = [self.verdict, *(f"{signs[each.state]} {_describe(each)}" for each in self.findings)]
        if plain:
            lines = [line.replace(" · ", " - ").encode("ascii", "replace").decode() for line in lines]
        return "\n".join([_wrap(lines[0], width, ""), *(_wrap(line, width, "  ") for line in lines[1:])]) + "\n"

    def to_json(self) -> dict[str, Any]:
        """Return the report as a JSON object."""
        findings = [asdict(each) | {"state": each.state.value} for each in self.findings]
        head = {"schema": SCHEMA, "healthy": self.is_healthy, "verdict": self.verdict, "pid": self.pid}
        return head | {"findings": findings}


def _describe(finding: DoctorFinding) -> str:
    return _clean(" · ".join(part[:CHARS] for part in (finding.what, finding.why, finding.advice) if part))


def _clean(text: str) -> str:
    """Return `text` on one line, with characters escaped that a terminal would obey."""
    return escaped(" ".join(text.split()))


def _wrap(line: str, width: int, indent: str) -> str:
    """Return `line` in lines of `width` columns; paths are not broken."""
    options = {"break_long_words": False, "break_on_hyphens": False, "subsequent_indent": indent}
    return "\n".join(textwrap.wrap(line, max(width, NARROWEST), **options))  # type: ignore[arg-type]


def ok(what: str, why: str = "") -> DoctorFinding:
    """Return a finding without a problem."""
    return DoctorFinding(CheckState.OK, what, why)


def note(what: str, why: str, advice: str = "") -> DoctorFinding:
    """Return a finding that may be intended."""
    return DoctorFinding(CheckState.NOTE, what, why, advice)


def wrong(what: str, why: str, advice: str) -> DoctorFinding:
    """Return a finding that prevents collecting."""
    return DoctorFinding(CheckState.WRONG, what, why, advice)
