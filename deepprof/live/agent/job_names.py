"""Names of jobs: which names the daemon accepts, how a text becomes one, and the default name of a command."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import PurePosixPath

# The rule of wire.checking and wire.limits, but without polars, whose import would delay every job's start.
NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.:/-]*[A-Za-z0-9])?", re.ASCII)
NAME_CHARS = 128
OTHER, ENDS = re.compile(r"[^A-Za-z0-9_.:/-]+", re.ASCII), "_.:/-"
STEM_CHARS = 60  # of a script's name; the time has to fit after it
SCRIPT = ".py"


def is_name(text: str) -> bool:
    """Whether the daemon accepts `text` as the name of a job."""
    return len(text) <= NAME_CHARS and NAME.fullmatch(text) is not None


def clean_name(text: str) -> str | None:
    """Return `text` as the name of a job, other characters as dashes; None where nothing is left of it."""
    return OTHER.sub("-", text).strip(ENDS)[:NAME_CHARS].rstrip(ENDS) or None


def name_job(command: Sequence[str], unix_s: float) -> str:
    """Return a name such as `train-20261121-1642`: the script's, and the minute in UTC, alike on all hosts."""
    stem = clean_name(_find_script(command)[:STEM_CHARS]) or "job"
    return f"{stem}-{time.strftime('%Y%m%d-%H%M', time.gmtime(unix_s))}"


def _find_script(command: Sequence[str]) -> str:
    """Return the name of what is run: a script without its suffix, the module after -m, else the program.

    The first script counts, also after a launcher such as torchrun with its own options.
    """
    scripts = (PurePosixPath(word).stem for word in command if word.endswith(SCRIPT))
    modules = (after for word, after in pairwise(command) if word == "-m")
    return next(scripts, None) or next(modules, None) or PurePosixPath(command[0] if command else "").name
