"""The rules in `launch_rules.toml`: what a kernel is inside an operator, where that shows more than its name."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from typing import Annotated, Literal

import msgspec

from deepprof.metrics.kernels.kinds import Category
from deepprof.metrics.kernels.pattern_tables import Text, TypePattern


class OperatorRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What kernels are that an operator launches, of some kinds or names; `doubtful`: only where the name is not sure.

    `operands` restricts it to operators of which the first two operands have equal or different types.
    """

    operator: Text
    category: Category
    example: tuple[Text, Text]
    source: Text
    kinds: tuple[Category, ...] = ()
    kernel: Text | None = None
    doubtful: bool = False
    operands: Literal["equal", "different"] | None = None


class OperatorRules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The rules, and how the types of operands are named."""

    schema: Literal["deepprof.kernel-operators/1"]
    rules: Annotated[tuple[OperatorRule, ...], msgspec.Meta(max_length=200)]
    types: Annotated[tuple[TypePattern, ...], msgspec.Meta(max_length=100)]


@cache
def read_rules() -> OperatorRules:
    """Return the rules that ship with DeepProf."""
    text = files(__package__).joinpath("launch_rules.toml").read_text(encoding="utf-8")
    return msgspec.convert(tomllib.loads(text), OperatorRules)
