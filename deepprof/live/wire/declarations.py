"""How figures of running jobs are declared: one field of a value states everything that other parts derive from it.

A field that is a `figure` declares its metric for Prometheus, the largest value that a daemon accepts, how the values
of several ranks are merged, and its column in `deepprof watch`. The field has its name in the message, which ends in
the unit (`_ns`, `nbytes`, `_ratio`). `encode` and `build` convert between values and messages.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field
from functools import cache
from operator import attrgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

if TYPE_CHECKING:
    from google.protobuf.message import Message

MetricType = Literal["counter", "gauge", "histogram"]
Labels = tuple[str, ...]
Samples = Sequence[tuple[Labels, float]]
"""Numbers, after the values of the metric's own labels."""

Kind = TypeVar("Kind")
Sent = TypeVar("Sent", bound="Message")

NS_PER_S = 1e9
UNITS = {
    "_timestamp_seconds": "Unix time, s",
    "_seconds": "s",
    "_bytes": "bytes",
    "_ratio": "0 to 1",
    "_per_second": "1/s",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A metric of a figure; `name` lacks the prefix `deepprof_`. There are no series while the figure is None.

    `labels` are its own: the keys of a mapping, a text, or the `words` of a state. `needs` is the field without which
    there is no series. `samples` reads the value that has the field, where the figure alone is not the number.
    """

    name: str
    type: MetricType
    meaning: str
    unit: str = ""
    labels: Labels = ()
    words: Sequence[str] = ()
    needs: str = ""
    samples: Callable[[Any], Samples] | None = None

    def make_reader(self, name: str) -> Callable[[Any], Samples]:
        """Return the function that reads the samples from a value with the field `name`."""
        get: Callable[[Any], Any] = attrgetter(name)
        if self.samples is not None:
            return self.samples
        if self.words:
            return lambda value: [((word,), int(word == get(value))) for word in self.words]
        if self.type == "counter" and self.labels:
            return lambda value: [((key,), count) for key, count in get(value).items()]
        if self.labels:
            return lambda value: (((get(value),), 1),)
        return self._make_number_reader(name)

    def _make_number_reader(self, name: str) -> Callable[[Any], Samples]:
        """Return the function that reads one number, times in seconds."""
        get, per = attrgetter(name), NS_PER_S if re.search(r"_ns(_|$)", name) else None

        def read(value: Any) -> Samples:
            number = get(value)
            return () if number is None else (((), number / per if per else +number),)

        if not self.needs:
            return read
        needed = attrgetter(self.needs)
        return lambda value: read(value) if needed(value) else ()


def gauge(name: str, meaning: str, **options: Any) -> Metric:
    """Return a gauge."""
    return Metric(name=name, type="gauge", meaning=meaning, **options)


def counter(name: str, meaning: str, **options: Any) -> Metric:
    """Return a counter."""
    return Metric(name=name, type="counter", meaning=meaning, **options)


@dataclass(frozen=True, slots=True)
class _LiveFigure:
    """What a field declares.

    A daemon accepts numbers from 0 to `most`, and texts of `most` characters.
    `merge` returns the figure of a job from those of its ranks, which is exported as `of_job`. `column` is its title in
    a terminal, and how early it is left out of a narrow one.
    """

    metric: Metric | None = None
    most: float | None = None
    merge: Callable[[Iterable[Any]], Any] | None = None
    of_job: Metric | None = None
    column: tuple[str, int] | None = None


def figure(default: Any = MISSING, metric: Metric | None = None, **options: Any) -> Any:
    """Return a field of a dataclass with a `_LiveFigure`; a `default` that can be called makes the default."""
    metadata = {"figure": _LiveFigure(metric, **options)}
    if callable(default):
        return field(default_factory=default, metadata=metadata)
    return field(default=default, metadata=metadata)


@cache
def find_figures(kind: Any) -> Mapping[str, _LiveFigure]:
    """Return the figures of a value by field, in their order."""
    found = {each.name: each.metadata.get("figure") for each in dataclasses.fields(kind)}
    return MappingProxyType({name: declared for name, declared in found.items() if declared is not None})


def no_counts() -> Mapping[str, int]:
    """Return an empty mapping."""
    return MappingProxyType({})


def add_counts(counts: Iterable[Mapping[str, int]]) -> Mapping[str, int]:
    """Return the sums of mappings by key."""
    total = Counter[str]()
    for each in counts:
        total.update(each)
    return MappingProxyType(total)


def merge(kind: type, values: Iterable[object]) -> dict[str, Any]:
    """Return the merged figures of several values of `kind`, of those that state how; no figure for no values."""
    known = tuple(values)
    figures = find_figures(kind).items() if known else ()
    return {name: each.merge(getattr(one, name) for one in known) for name, each in figures if each.merge is not None}


def encode(message: type[Sent], value: object, **other: object) -> Sent:
    """Return a value as a message, of the same field names; `other` are fields that it lacks or replaces."""
    plan = _plan(message, type(value))  # type: ignore[arg-type]
    return message(**{name: convert(getattr(value, name)) for name, convert in plan if name not in other}, **other)


@cache
def _plan(message: Any, kind: Any) -> tuple[tuple[str, Callable[[Any], Any]], ...]:
    """Return the fields that a message and a value of `kind` have in common, and how they are converted."""
    hints = get_type_hints(kind)
    shared = (each for each in message.DESCRIPTOR.fields if each.name in hints)
    return tuple((each.name, _make_encoder(each, hints[each.name])) for each in shared)


def _make_encoder(descriptor: Any, hint: Any) -> Callable[[Any], Any]:
    """Return the function that converts a field of the type `hint` for its message."""
    if descriptor.enum_type is not None:
        return _find_words(hint).index
    if descriptor.message_type is None or get_origin(hint) is Mapping:
        return dict if get_origin(hint) is Mapping else lambda value: value
    inner = descriptor.message_type._concrete_class  # its public way is slower and needs a pool
    if get_origin(hint) is tuple:
        return lambda values: [encode(inner, each) for each in values]
    return lambda value: None if value is None else encode(inner, value)


def build(kind: type[Kind], message: Any) -> Kind:
    """Return a protobuf message as the value `kind`, whose fields have the message's names."""
    return kind(**{name: _read_field(hint, message, name) for name, hint in _find_fields(kind)})  # type: ignore[arg-type]


@cache
def _find_fields(kind: Any) -> tuple[tuple[str, Any], ...]:
    """Return the names and types of a value's fields."""
    hints = get_type_hints(kind)
    return tuple((each.name, hints[each.name]) for each in dataclasses.fields(kind))


def _find_words(hint: Any) -> tuple[str, ...]:
    """Return the words of a state in the order of the protocol's numbers; none for another type."""
    return get_args(hint) if get_origin(hint) is Literal else ()


def _read_field(hint: Any, message: Any, name: str) -> Any:
    """Return one field of a message as the type `hint`."""
    if type(None) in get_args(hint):
        if not message.HasField(name):
            return None
        (hint,) = set(get_args(hint)) - {type(None)}
    value = getattr(message, name)
    if words := _find_words(hint):
        return words[value] if 0 <= value < len(words) else words[0]
    if get_origin(hint) is tuple:
        return tuple(_convert(get_args(hint)[0], each) for each in value)
    return MappingProxyType(dict(value)) if hint == Mapping[str, int] else _convert(hint, value)


def _convert(hint: Any, value: Any) -> Any:
    """Return a message as the value `hint`, and anything else unchanged."""
    return build(hint, value) if dataclasses.is_dataclass(hint) and isinstance(hint, type) else value
