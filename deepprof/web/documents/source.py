"""Lines of code, shown next to what they cost by a page that is served where the code is."""

from __future__ import annotations

from typing import Literal

import msgspec


class SourceDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Lines of a file, the first of which has the number `first`; `problem` states why there are none."""

    schema: Literal["deepprof.view.source/1"] = "deepprof.view.source/1"
    file: str
    line: int
    first: int = 1
    lines: list[str] = []
    problem: str | None = None
