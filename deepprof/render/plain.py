"""Text from elsewhere (paths, names, messages), made safe to show."""

from __future__ import annotations

CUT = "..."  # plain ASCII: it goes to a stderr of any encoding


def printable(text: str) -> str:
    """Return `text` with `?` for what a terminal would interpret: control and bidirectional characters."""
    return "".join(char if char.isprintable() else " " if char.isspace() else "?" for char in text)


def shorten(text: str, most: int = 60) -> str:
    """Return `text`, cut in its middle to `most` characters at most (≥ 0)."""
    if len(text) <= most:
        return text
    half = max(most - len(CUT), 0) // 2
    return text[:half] + CUT[:most] + text[len(text) - half :]  # [-half:] would be the whole text for half = 0
