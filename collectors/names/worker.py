"""The process that demangles, apart from everybody else: a hostile name may cost it its life.

Run by path: `worker.py DIRECTORY`, where DIRECTORY holds the package pydemumble. It reads one mangled name a
line and answers each at once with one line: the C++ name, or nothing where there is none. It imports nothing of
DeepProf, so that it starts in the time that Python takes.
"""

from __future__ import annotations

import sys

DATA_NBYTES = 128 * 1024**2  # a name of 400 characters can stand for more text than any machine holds
SPACE_NBYTES = 1024**3  # where the system does not count data
CPU_SECONDS = 10
TEXT_LIMIT = 64 * 1024


def limit_resources() -> None:
    """Bound memory and time where the system knows such limits, and leave no core file behind."""
    try:
        import resource
    except ImportError:  # Windows: the parent's clock alone ends the work
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
        except (ValueError, OSError):  # a lower one holds already
            continue


def answer(directory: str) -> None:
    """Answer every line of the standard input."""
    sys.path.append(directory)
    import pydemumble

    limit_resources()
    for line in sys.stdin:
        text = pydemumble.demangle(line.strip())
        sys.stdout.write(text + "\n" if len(text) <= TEXT_LIMIT and text.isprintable() else "\n")
        sys.stdout.flush()  # what is answered before a name that kills is kept


if __name__ == "__main__":
    answer(sys.argv[1])
