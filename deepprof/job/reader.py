"""A process that reads traces for another one: `python -m deepprof.job.reader`.

Each line of stdin is a job as JSON: the file `path`, the name `shown` for it in reports or null, the `folder` to write
it to in the format of the native store, and `details` and `shapes` as for `importers.read`. Each answer is a line of
JSON on stdout: an object with the `warnings` that arrived up, and the error if there is one. The process ends when
stdin ends."""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
import warnings
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from deepprof.collectors.errors import TraceError
from deepprof.collectors.importers import importers, read
from deepprof.collectors.plugins import PlugInWarning
from deepprof.collectors.store.rank import write_rank


def main() -> None:
    """Answer jobs until there are no more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when this process ends
    answers = os.fdopen(os.dup(1), "w", encoding="ascii")
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 1)  # what plug-ins print must not be taken for an answer
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the parent has already warned of plug-ins that do not load
        importers()
    for line in sys.stdin.buffer:
        told = answer(json.loads(line))
        try:
            answers.write(json.dumps(told) + "\n")
            answers.flush()
        except BrokenPipeError:  # the parent has ended; a normal exit would flush again and print an error
            os._exit(1)


def answer(job: dict[str, Any]) -> dict[str, Any]:
    """Read and write one trace, and return the answer to the parent."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.simplefilter("ignore", PlugInWarning)  # it has asked the same plug-ins, too
        told = _carry_out(job)
    return told | {"warnings": list(dict.fromkeys(str(warning.message) for warning in caught))}


def _carry_out(job: dict[str, Any]) -> dict[str, Any]:
    """Read and write one trace, and return its error if there is one."""
    try:
        trace = read(job["path"], details=job.get("details", False), shapes=job.get("shapes", True))
        write_rank(replace(trace, path=job["shown"] or trace.path), Path(job["folder"]))
    except TraceError as error:
        return {"trace_error": [error.path, error.problem, error.advice]}
    except MemoryError:
        return {"trace_error": [job["path"], "needs more memory than there is", "read fewer at once"]}
    except OSError as error:
        return {"os_error": [error.errno, error.strerror or str(error), error.filename and str(error.filename)]}
    except Exception:
        return {"bug": traceback.format_exc()}
    return {}


if __name__ == "__main__":
    main()
