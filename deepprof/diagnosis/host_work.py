"""Advice on work of the host, by what the recording shows of it: the operator, the Python frame or the range."""

from __future__ import annotations

import re
from weakref import WeakKeyDictionary

from deepprof.collectors.trace import Trace
from deepprof.metrics.breakdown.costs import host_of, spans_of_parts
from deepprof.metrics.breakdown.other_threads import AwaitedThread, find_awaited
from deepprof.metrics.breakdown.program_places import Place
from deepprof.metrics.loop import Loop

BETWEEN = re.compile(r"(?<=[a-z])(?=[A-Z])|[^A-Za-z]+")  # words of names such as `EnqueueExecution` or `aten::normal_`
STAGES = r"\b(?:forward|backward|training|train|iteration|epoch|step|optimizer)\b"  # of ranges
KINDS = ("operator", "frame", "range", "call")  # the most certain name of work first
# What work does, by the words of its name: the first that matches.
WAITS = (
    r"^(?:queue|threading|selectors) py|\b(?:acquire|wait|poll|select|recv|sleep)\b",
    "it waits there: find out for what (a request, another thread or process), and let that come earlier; where the "
    "program had nothing to do, nothing is lost.",
)
ADVICE = (
    (
        r"\b(?:normal|uniform|random|xavier|kaiming|orthogonal|init|initialize|reset parameters)\b",
        "it sets values of tensors on the host: create them on the device (with torch.device('cuda')), or once, "
        "outside of what repeats.",
    ),
    (
        r"\b(?:item|local scalar dense|nonzero|tolist|is nonzero|numpy)\b",
        "it makes a value of the device's results on the host: keep it on the device, or read it less often.",
    ),
    (
        r"\b(?:save|checkpoint|dumps?|serialize|write|log|logger|logging|summary|tensorboard|wandb|print)\b",
        "it writes: do that in another thread or process, from a copy, or less often.",
    ),
    (
        r"\b(?:json|pickle|yaml|parse|decode|decoder|open|read|readline|load|loads|tokenizer?|unpack|unzip)\b",
        "it reads or parses: do that before the device needs it (in workers of a data loader, in a thread ahead), "
        "and keep the result instead of making it again.",
    ),
)
ANY = "do it before or while the device works (in another thread or process, or after the launches), or less often."


_AWAITED: WeakKeyDictionary[Loop, AwaitedThread | None] = WeakKeyDictionary()


def find_awaited_by(loop: Loop, trace: Trace) -> AwaitedThread | None:
    """Return what a loop's launching threads wait for; kept with the loop, because two rules need it."""
    if loop not in _AWAITED:
        _AWAITED[loop] = find_awaited(trace, spans_of_parts(loop, ("idle_host_ns",)), host_of(loop))
    return _AWAITED[loop]


def name_work(place: Place) -> str:
    """Return the name of the work that is done at a place."""
    return str(next(place[kind] for kind in KINDS if kind in place))


def advise_on_work(name: str) -> str:
    """Return what to do about work of the host."""
    return f"Look at {name}: {_find_advice(name) or ANY}"


def is_work(place: Place) -> bool:
    """Return whether a place names work, and not only the stage of an iteration that the host is in."""
    return (
        any(kind in place for kind in KINDS if kind != "range") or re.search(STAGES, _split(name_work(place))) is None
    )


def _find_advice(name: str) -> str | None:
    """Return what to do about work whose name states what it does, None for any other."""
    return next((text for pattern, text in (WAITS, *ADVICE) if re.search(pattern, _split(name))), None)


def _split(name: str) -> str:
    return BETWEEN.sub(" ", name).lower().strip()
