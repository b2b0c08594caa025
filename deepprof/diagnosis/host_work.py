"""Advice on work of the host, by what the recording shows of it: the operator, the Python frame or the range."""

from __future__ import annotations

import re

from deepprof.metrics.breakdown.program_places import Place

KINDS = ("operator", "frame", "range", "call")  # the most certain name of work first
# What work does, by its name: the first that matches.
ADVICE = (
    (
        r"(?i)normal_|uniform_|random_|xavier|kaiming|orthogonal_|init(?:ialize|_weights|_params)|reset_parameters",
        "it sets values of tensors on the host: create them on the device (with torch.device('cuda')), or once, "
        "outside of what repeats.",
    ),
    (
        r"(?i)\b(?:item|_local_scalar_dense|nonzero|tolist|is_nonzero|numpy)\b",
        "it makes a value of the device's results on the host: keep it on the device, or read it less often.",
    ),
    (
        r"(?i)save|checkpoint|dump|serialize|\bwrite|log(?:ger|ging)?\b|summary|tensorboard|wandb|print",
        "it writes: do that in another thread or process, from a copy, or less often.",
    ),
    (
        r"(?i)json|pickle|yaml|parse|decode|\bopen\b|read|load|tokeniz|unpack|zip",
        "it reads or parses: do that before the device needs it (in workers of a data loader, in a thread ahead), "
        "and keep the result instead of making it again.",
    ),
)
WAITS = (
    r"(?i)\b(?:queue|threading|selectors)\.py|_wait\b|\b(?:acquire|wait|poll|select|recv|sleep|get)\b",
    "it waits there: find out for what (a request, another thread or process), and let that come earlier; where the "
    "program had nothing to do, nothing is lost.",
)
ANY = "do it before or while the device works (in another thread or process, or after the launches), or less often."


def name_work(place: Place) -> str:
    """Return the name of the work that is done at a place."""
    return str(next(place[kind] for kind in KINDS if kind in place))


def advise_on_work(name: str) -> str:
    """Return what to do about work of the host."""
    return f"Look at {name}: {next((text for pattern, text in (WAITS, *ADVICE) if re.search(pattern, name)), ANY)}"
