"""A tool's options, as words of the command line: `--rows 5 --share=0.5`; of several values: `--name a --name b`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import msgspec

from deepprof.collectors.errors import UsageError, escaped
from deepprof.render.plain import shorten
from deepprof.tools.tool import Tool, guard

REQUIRED = "required"
LARGEST = (1 << 63) - 1
ONCE_FOR_EACH = "once for each value"
SEVERAL = (list, tuple, set, frozenset)


class _ToolOption(msgspec.Struct, frozen=True):
    """An option: how it is typed, its type, its default (or `required`), and what it means where the tool states it."""

    option: str
    type: str
    default: str
    description: str = ""


def list_options(kind: type[Tool]) -> list[_ToolOption]:
    """Return the options of a tool; raises `ToolError` where its fields have no types that exist."""
    return [_describe_field(field) for field in _fields_of(kind)]


def make_tool(kind: type[Tool], words: Sequence[str]) -> Tool:
    """Return the tool with the options that words give; raises `UsageError` that lists the options that there are."""
    fields = {_spell(field): field for field in _fields_of(kind)}

    def convert() -> Tool:
        try:
            given = {fields[option].encode_name: value for option, value in _pair_words(words, fields).items()}
            return _check_numbers(msgspec.convert(given, kind, strict=False))
        except ValueError as error:  # msgspec's own among them
            raise UsageError(_explain(kind, escaped(str(error)))) from error

    return guard(kind.name, "its options", convert)


def _check_numbers(tool: Tool) -> Tool:
    """Return the tool; raises `ValueError` for a number that no table can hold, which its report would stumble over."""
    for field in msgspec.structs.fields(tool):
        value = getattr(tool, field.name)
        for each in value if isinstance(value, SEVERAL) else (value,):
            if isinstance(each, int) and not -LARGEST - 1 <= each <= LARGEST:
                raise ValueError(f"{_spell(field)} {each} is beyond the numbers of 64 bits")
    return tool


def _fields_of(kind: type[Tool]) -> tuple[msgspec.structs.FieldInfo, ...]:
    return guard(kind.name, "its options", lambda: msgspec.structs.fields(kind))


def _spell(field: msgspec.structs.FieldInfo) -> str:
    return f"--{field.encode_name.replace('_', '-')}"


def _pair_words(words: Sequence[str], known: Mapping[str, msgspec.structs.FieldInfo]) -> dict[str, str | list[str]]:
    """Return options and their values; one that can be true is so without a value. Raises `ValueError`."""
    pairs: dict[str, str | list[str]] = {}
    at = 0
    while at < len(words):
        option, equals, value = words[at].partition("=")
        at += 1
        if option not in known:
            raise ValueError(f"{shorten(escaped(option))} is no option of it")
        several = _takes_several(known[option].type)
        if option in pairs and not several:
            raise ValueError(f"{option} is given twice")
        if not equals and at < len(words) and words[at].partition("=")[0] not in known:
            value, at = words[at], at + 1
        elif not equals:
            value = _find_implied(option, known[option].type)
        pairs[option] = [*pairs.get(option, []), value] if several else value
    return pairs


def _takes_several(kind: Any) -> bool:
    hint = get_args(kind)[0] if get_origin(kind) is Annotated else kind
    kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    return any((get_origin(each) or each) in SEVERAL for each in kinds)


def _find_implied(option: str, kind: Any) -> str:
    """Return what an option without a value means: true. Raises `ValueError` for one that cannot be true."""
    try:
        msgspec.convert(True, kind)
    except msgspec.ValidationError:
        raise ValueError(f"{option} needs a value") from None
    return "true"


def _explain(kind: type[Tool], problem: str) -> str:
    """Return a line on options that do not fit, with those that there are."""
    there = ", ".join(f"{each.option} {each.type} ({each.default})" for each in list_options(kind))
    return f"tool {kind.name}: {problem}; its options: {there or 'none'}"


def _describe_field(field: msgspec.structs.FieldInfo) -> _ToolOption:
    hint, *notes = get_args(field.type) if get_origin(field.type) is Annotated else (field.type,)
    said = next((note.description for note in notes if isinstance(note, msgspec.Meta) and note.description), "")
    if _takes_several(field.type):
        said = f"{said}; {ONCE_FOR_EACH}" if said else ONCE_FOR_EACH
    return _ToolOption(_spell(field), _name_type(hint), _find_default(field), said)


def _find_default(field: msgspec.structs.FieldInfo) -> str:
    if field.default_factory is not msgspec.NODEFAULT:
        return str(field.default_factory())
    return REQUIRED if field.required else str(field.default)


def _name_type(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) else str(hint).replace("typing.", "")
