"""What DeepProf states in a job that it is part of: lines of the logger `deepprof`, which DEEPPROF_QUIET silences."""

from __future__ import annotations

import logging
import os

LOG = logging.getLogger("deepprof")


def warn(text: str) -> None:
    """Log one line, unless DEEPPROF_QUIET is set."""
    if not os.environ.get("DEEPPROF_QUIET"):
        LOG.warning("deepprof: %s", text)
