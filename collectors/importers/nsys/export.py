"""Raw Nsight Systems reports (.nsys-rep, .qdrep), made into a database by the user's own `nsys`.

Their format is private to every release of nsys and an older release refuses newer reports, so only `nsys` can read it.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from deepprof.collectors.errors import TraceError

if TYPE_CHECKING:
    from collections.abc import Iterator

REPORT_MAGIC = b"NVIDIA Tegra Profiler Report"
TIMEOUT_S = 1800  # nsys exports about 20 MB of report a second
QUOTE_LENGTH = 300


@contextmanager
def exported_database(report: Path) -> Iterator[Path]:
    """Export `report` with the `nsys` on PATH and yield the SQLite file, which is removed afterwards.

    Raises `TraceError` when there is no `nsys`, or when it fails or uses more than `TIMEOUT_S` seconds.
    """
    nsys = shutil.which("nsys")
    if nsys is None:
        problem = "is a raw Nsight Systems report, which only `nsys` can read, and there is no `nsys` on PATH"
        raise TraceError(report, problem, _advise(report))
    with tempfile.TemporaryDirectory(prefix="deepprof-") as directory:
        database = Path(directory) / "report.sqlite"
        run(export_command(nsys, report, database), report)
        if not database.is_file():
            raise TraceError(report, "was exported by `nsys`, which wrote nothing", f"run `{_manual_command(report)}`")
        yield database


def export_command(nsys: str, report: Path, database: Path) -> list[str]:
    """Return the command that exports `report` to `database`."""
    # An absolute path never looks like an option.
    target = str(database.absolute())
    return [nsys, "export", "--type", "sqlite", "--output", target, "--force-overwrite", "true", str(report.absolute())]


def _advise(report: Path) -> str:
    """Return the advice for a machine without `nsys`."""
    export = report.with_suffix(".sqlite")
    if export.is_file():
        return f"name its export, {export}"
    return f"where nsys is installed, run `{_manual_command(report)}`"


def _manual_command(report: Path) -> str:
    database = report.with_suffix(".sqlite")
    return f"nsys export --type sqlite --output {shlex.quote(str(database))} {shlex.quote(str(report))}"


def run(command: list[str], report: Path) -> None:
    """Run `command`; a failure is a `TraceError` on `report` that quotes the last line of its output."""
    advice = f"run `{_manual_command(report)}` with an nsys at least as new as the report"
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise TraceError(report, f"could not be exported: `nsys` took more than {TIMEOUT_S} s", advice) from error
    except (OSError, ValueError) as error:
        raise TraceError(report, f"could not be exported: {error}", advice) from error
    if done.returncode:
        said = _last_line(done.stderr) or _last_line(done.stdout) or f"exit status {done.returncode}"
        raise TraceError(report, f"could not be exported: `nsys` said: {said}", advice)


def _last_line(output: bytes) -> str:
    """Return the last line of `output` that is not blank."""
    lines = output.decode("utf-8", "replace").split("\n")
    return next((" ".join(line.split())[:QUOTE_LENGTH] for line in reversed(lines) if line.strip()), "")
