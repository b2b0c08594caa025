"""The Python hook: the code that a job's interpreter runs at its start when this folder is first on PYTHONPATH.

The modules here run inside the job, in any Python from 3.8 on, with nothing but the standard library.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["find_hook"]


def find_hook() -> Path:
    """Return the folder to put first on a job's PYTHONPATH."""
    return Path(__file__).resolve().parent
