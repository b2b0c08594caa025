"""No test passes or fails by luck: the same examples in every run, unless someone explores."""

from __future__ import annotations

from hypothesis import settings
from hypothesis.internal.conjecture import providers

from deepprof.collectors import trace
from tests.chance import EXPLORES, draw_seed


def test_examples_are_the_same_in_every_run() -> None:
    assert settings.default.derandomize is not EXPLORES
    assert settings.default.deadline is None
    assert (settings.default.database is None) is not EXPLORES
    assert (draw_seed("a") == draw_seed("a")) is not EXPLORES


def test_examples_do_not_depend_on_the_modules_that_other_tests_have_loaded() -> None:
    assert trace  # a module with constants
    assert (len(providers._get_local_constants()) == 0) is not EXPLORES
