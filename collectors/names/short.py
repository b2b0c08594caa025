"""A kernel's name cut to the part that people use: no return type, namespaces, template arguments or parameters."""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec import Struct, field

LENGTH_LIMIT = 64 * 1024
DEPTH_LIMIT = 3  # of `Kernel<Kernel<…>>`
UNKNOWN = "unknown"
CPLUSPLUS = re.compile(r"::|[<({]")
TOKEN = re.compile(
    r"\boperator\s*(?:\(\)|\[\]|->\*?|[<>=!+\-*/%^&|~,]+|\"\"\s*\w+|[\w:][\w:\s]*[\s*&]*)(?:\s+(?=<))?"
    r"|'lambda\d*'|::|->|[<>(){}\[\],]|\s+|[^\s<>(){}\[\],:'\-]+|."
)
CLOSES = {")": "(", ">": "<", "}": "{", "]": "["}
OPENS = {opening: closing for closing, opening in CLOSES.items()}
QUALIFIERS = ("const", "volatile", "&", "&&", "noexcept")
# Names that many different kernels share: their first template argument that is no number distinguishes them.
GENERIC = re.compile(r"[Kk]ernel2?|device_kernel|_kernel_agent|kernel_entry|kentry|run|apply|enable_sm\w+")
NUMBER = re.compile(r"(?:\(\w+\))?-?\d+[uUlL]*|true|false")
NAMELESS = frozenset({"lambda", "operator()"})
SOURCE_NAME = re.compile(r"(\d{1,4})(?=[A-Za-z_])")
MANGLED_START = re.compile(r"_Z(?:N[rVKRO]*)?(?:St)?")


def shorten(name: str) -> str:
    """Return the short name of a kernel, never empty: "vectorized_elementwise_kernel".

    A C++ name loses its return type, namespaces, template arguments and parameter list; a lambda is named after the
    function that contains it, and a generic name (`cutlass::Kernel<…>`) keeps its first template argument. A name that
    is not C++ (`ampere_sgemm_128x64_tn`, "Memcpy HtoD (Pageable -> Device)") stays as it is.
    """
    return _shorten_at(name, 0) or UNKNOWN


def _shorten_at(name: str, depth: int) -> str:
    """Return the short name of `name`, which is nested in `depth` others; "" for white space only."""
    text = name[:LENGTH_LIMIT].strip().removesuffix(".kd")
    if text.startswith("_Z"):
        return _last_source_name(text) or text
    if text.startswith("[") or not CPLUSPLUS.search(text):
        return text
    last = _read_path(text)
    if last is None:
        return text
    argument = _first_argument(last.arguments) if GENERIC.fullmatch(last.name) and depth < DEPTH_LIMIT else ""
    full = f"{last.name}<{_shorten_at(argument, depth + 1)}>" if argument else last.name
    return full if len(full) <= len(text) else last.name  # it is longer if brackets were never closed


class _Declarator(Struct):
    """The parts of a name such as `a::b<int>::c` that have been read: the closed ones, and the current one."""

    parts: list[str] = field(default_factory=list)  # those that are closed by "::"
    name: str = ""  # of the part that is being read
    arguments: str = ""  # its template arguments
    called: bool = False  # its parameter list has been read

    def close(self) -> None:
        """Close the current part of the path."""
        self.parts.append(self.name)
        self.name, self.arguments, self.called = "", "", False

    def group(self, bracket: str, content: str) -> None:
        """Add the `content` of a pair of brackets to the current part."""
        if bracket == "(" and self.name:
            self.called = self.name != "decltype"
        elif bracket == "<" and self.name:
            self.arguments = content
        elif bracket in "{<" and content.startswith("lambda"):
            self.name = "lambda"

    def finished(self) -> _Declarator | None:
        """Return this path with a distinctive name, or None if it has no name at all."""
        named = [part for part in (*self.parts, self.name) if part]
        if not named:
            return None
        telling = next((part for part in reversed(named) if part not in NAMELESS), "")
        if named[-1] in NAMELESS and telling:
            # The call operator of a lambda is the lambda.
            last = "lambda" if "lambda" in named[len(named) - 2 :] else named[-1]
            return _Declarator(name=f"{telling}::{last}")
        return _Declarator(name=named[-1], arguments=self.arguments if self.name else "")


def _read_path(text: str) -> _Declarator | None:
    """Return the path of the function that the C++ name `text` declares, None if it is no such name."""
    path = _Declarator()
    for piece, content in _outline(text):
        if piece == ",":
            return None
        if piece.isspace():
            if path.called:
                continue  # "const" may follow, and then more of the path
            path = _Declarator()
        elif piece == "::":
            path.close()
        elif content is not None:
            path.group(piece, content)
        elif path.called:
            if piece not in QUALIFIERS:
                break
        else:
            path.name += "lambda" if piece.startswith("'lambda") else piece.rstrip()
    return path.finished()


def _outline(text: str) -> Iterator[tuple[str, str | None]]:
    """Yield the pieces of `text` outside all brackets, and of every outermost pair the opening one with its content.

    Unmatched brackets are allowed: one that is never closed ends with the text.
    """
    opened: list[tuple[str, int]] = []
    depth = dict.fromkeys(OPENS, 0)
    for match in TOKEN.finditer(text):
        piece = match[0]
        if piece in OPENS:
            opened.append((piece, match.end()))
            depth[piece] += 1
        elif piece in CLOSES and depth[CLOSES[piece]]:
            if piece == ">" and opened[-1][0] != "<":
                continue  # a comparison in parentheses
            bracket, start = _close_bracket(opened, depth, CLOSES[piece])
            if not opened:
                yield bracket, text[start : match.start()]
        elif not opened and piece not in CLOSES:
            yield piece, None
    if opened:
        yield opened[0][0], text[opened[0][1] :]


def _close_bracket(opened: list[tuple[str, int]], depth: dict[str, int], bracket: str) -> tuple[str, int]:
    """Close the innermost `bracket` and the unclosed ones inside it; return it and where its content starts."""
    while True:
        last = opened.pop()
        depth[last[0]] -= 1
        if last[0] == bracket:
            return last


def _first_argument(arguments: str) -> str:
    """Return the first of the template `arguments` that is no number; the first one if all are."""
    spelled: list[str] = [""]
    for piece, content in _outline(arguments):
        if piece == ",":
            if not NUMBER.fullmatch(spelled[-1].strip()):
                break
            spelled.append("")
        else:
            spelled[-1] += piece if content is None else piece + content + OPENS[piece]
    last = spelled[-1].strip()
    return spelled[0].strip() if NUMBER.fullmatch(last) else last


def _last_source_name(text: str) -> str:
    """Return the last plain name at the start of the mangled name `text`, "" if it starts with none."""
    start = MANGLED_START.match(text)
    at, name = start.end() if start else len(text), ""
    while found := SOURCE_NAME.match(text, at):
        at = found.end() + int(found[1])
        name = text[found.end() : at]
    return name
