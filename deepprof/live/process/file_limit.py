"""The limit on open files: the highest that the system allows."""

from __future__ import annotations

import resource
from contextlib import suppress


def raise_file_limit() -> None:
    """Raise the limit on open files as far as the system allows."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
