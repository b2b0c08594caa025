"""`deepprof doctor`."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from deepprof.commands.arguments import parse_count
from deepprof.commands.output import FORMATS
from deepprof.commands.streams import require_stdout

if TYPE_CHECKING:
    from deepprof.live.agent.doctor.machine import DoctorMachine

COLUMNS = 80  # where the output is no terminal
PATIENCE_S = 2.0


class Doctor:
    """Say why no records come: from this machine, or from the process PID.

    The first line is the verdict. Then a line each of what was examined, why it is so, and what to do about it:
    ✓ is well, – may be meant so, ✗ is in the way.

    Exit 0 = nothing is in the way, 1 = something does, 2 = arguments that make no sense.
    """

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's arguments."""
        from deepprof.commands.run import parse_socket

        add = parser.add_argument
        add("pid", metavar="PID", nargs="?", type=parse_count, help="a process that should give records and does not")
        add(
            "--agent", metavar="SOCKET", type=parse_socket, help="the agent's socket (default: DEEPPROF_SOCKET or ours)"
        )
        add("--to", metavar="ADDRESS", help="the daemon (default: DEEPPROF_DAEMON or this machine's)")
        add("--format", choices=FORMATS, default="text", help="what to write (default text)")

    def run(self, args: argparse.Namespace) -> int:
        """Examine, write the report, and return 1 if something is wrong, else 0."""
        import json

        from deepprof.live.agent.doctor import examine_machine, examine_process
        from deepprof.live.agent.doctor.file_tree import FileTree

        around, tree = _look_around(args), FileTree()
        report = examine_machine(tree, around) if args.pid is None else examine_process(tree, around, args.pid)
        stdout = require_stdout()
        if args.format == "json":
            stdout.write(json.dumps(report.to_json()) + "\n")
        else:
            stdout.write(report.write_text(_measure_width(), plain=not _can_write(stdout.encoding)))
        return 0 if report.is_healthy else 1


def _look_around(args: argparse.Namespace) -> DoctorMachine:
    from deepprof.collectors.live import __file__ as live
    from deepprof.collectors.live.identity import find_socket
    from deepprof.collectors.live.inject import find_library
    from deepprof.live.agent.asking import ask
    from deepprof.live.agent.doctor.machine import DoctorMachine

    return DoctorMachine(
        socket=args.agent or find_socket(),
        ask=ask,
        daemon=lambda address: _call_daemon(address or args.to),
        library=find_library(),
        hook=Path(live).parent / "hook",
        variables=os.environ,
        search=[path for path in sys.path if path.endswith("-packages")],
        is_root=os.geteuid() == 0,
    )


def _call_daemon(to: str | None) -> str | None:
    """Return why the daemon does not answer, None where it listens. Raises `PermissionError` with its address."""
    import socket

    from deepprof.live.wire.addresses import default_address, parse_address

    said = to or os.environ.get("DEEPPROF_DAEMON")
    address = parse_address(said) if said else default_address()
    try:
        if address.path is None:
            socket.create_connection((address.host, address.port), PATIENCE_S).close()
            return None
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as endpoint:
            endpoint.settimeout(PATIENCE_S)
            endpoint.connect(address.path)
    except PermissionError as error:
        raise PermissionError(error.errno, error.strerror, str(address)) from error
    except OSError as error:
        return f"nobody answers at {address} ({error.strerror or error})"
    return None


def _measure_width() -> int:
    import shutil

    return shutil.get_terminal_size((COLUMNS, 25)).columns


def _can_write(encoding: str | None) -> bool:
    try:
        "✓–✗·".encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
