"""The process that demangles, separate from all others because a hostile name may kill it.

Run by path: `worker.py DIRECTORY`, where DIRECTORY contains the package pydemumble. It reads one mangled name per
line and answers each at once with one line: the C++ name, or an empty line if there is none. It imports nothing of
DeepProf, so that it starts as fast as Python does.
"""

from __future__ import annotations

import sys

DATA_NBYTES = 128 * 1024**2  # a name of 400 characters can expand to more text than any machine holds
SPACE_NBYTES = 1024**3  # of addresses, for systems that do not count data
CPU_SECONDS = 10
TEXT_LIMIT = 64 * 1024


def _limit_resources() -> None:
    """Limit memory and time where the system supports it, and leave no core file behind."""
    try:
        import resource
    except ImportError:  # Windows: only the parent's timeout ends the work
        return
    limits = {
        resource.RLIMIT_DATA: DATA_NBYTES,
        resource.RLIMIT_AS: SPACE_NBYTES,
        resource.RLIMIT_CPU: CPU_SECONDS,
        resource.RLIMIT_CORE: 0,
    }
    for limit, value in limits.items():
        try:
            resource.setrlimit(limit, (value, value))
        except (ValueError, OSError):  # a lower limit is already set
            continue


def _answer(directory: str) -> None:
    sys.path.append(directory)
    import pydemumble

    _limit_resources()
    for line in sys.stdin:
        text = pydemumble.demangle(line.strip())
        sys.stdout.write(text + "\n" if len(text) <= TEXT_LIMIT and text.isprintable() else "\n")
        sys.stdout.flush()  # keeps the answers before a name that kills the process


if __name__ == "__main__":
    _answer(sys.argv[1])
