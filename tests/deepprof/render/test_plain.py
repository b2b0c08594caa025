"""Text from elsewhere, cut: never longer than it may be, nor than it was."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from deepprof.render.plain import CUT, shorten


@given(st.text(), st.integers(0, 80))
@example("Kernel<0", 4)  # nothing of it has room
@example("Kernel<0", 0)
def test_a_cut_text_has_room(text: str, most: int) -> None:
    short = shorten(text, most)
    assert len(short) <= min(most, len(text))
    assert len(text) > most or short == text
    assert len(text) <= most or CUT[:most] in short


def test_both_ends_of_a_text_stay() -> None:
    assert shorten("abcdefghijklmnopqrstuvwxyz", 11) == "abcd...wxyz"
