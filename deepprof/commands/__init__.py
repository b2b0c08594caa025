"""The command line: one class per sub-command, and a `main` that alone turns errors into messages and exit codes.

Exit 0 = done, 1 = `--fail-on` met, 2 = usage or unreadable input (one line on stderr), 130 = interrupted,
141 = the reader of our output has closed it, as a shell reports a tool that SIGPIPE ended. Bugs keep their traceback.
"""

from __future__ import annotations

import argparse
import difflib
import gc
import re
import sys
import warnings
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from deepprof.collectors.errors import DeepProfError, UsageError
from deepprof.commands.accesses import Accesses
from deepprof.commands.agent import Agent
from deepprof.commands.convert import Convert
from deepprof.commands.diagnose import Diagnose
from deepprof.commands.diff import Diff
from deepprof.commands.doctor import Doctor
from deepprof.commands.export import Export
from deepprof.commands.flame import Flame
from deepprof.commands.fsck import Fsck
from deepprof.commands.jobs import Jobs
from deepprof.commands.kernels import ListKernels
from deepprof.commands.layers import Layers
from deepprof.commands.locate import Locate
from deepprof.commands.model import Model
from deepprof.commands.peak import Peak
from deepprof.commands.report import Report
from deepprof.commands.roofline import Roofline
from deepprof.commands.run import Run
from deepprof.commands.send import Send
from deepprof.commands.serve import Serve
from deepprof.commands.signals import tidying
from deepprof.commands.simulate import Simulate
from deepprof.commands.streams import require_stdout, say, settle
from deepprof.commands.tool import RunTool
from deepprof.commands.view import View
from deepprof.commands.watch import Watch
from deepprof.render.plain import shorten

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Command", "main", "prepare_parser"]

UNUSABLE, INTERRUPTED, PIPE_CLOSED = 2, 130, 141
# New objects after which garbage is collected. Commands make many objects and few cycles: after every 700, as is the
# default, looking for these uses 5 % of a diagnosis.
COLLECT_AFTER = 50_000
LONGEST_MESSAGE = 240  # characters of argparse's message, which repeats the arguments


class Command(Protocol):
    """A sub-command; the first line of its docstring is its help in the list, the whole docstring its own help.

    It is called as its class, unless `command` gives another name.
    """

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's arguments to `parser`."""

    def run(self, args: argparse.Namespace) -> int:
        """Run the command and return its exit code. Raises `DeepProfError` for a problem that the user can fix."""
        ...


COMMANDS: tuple[type[Command], ...] = (
    Diagnose,
    Report,
    Diff,
    View,
    Flame,
    Locate,
    Export,
    Convert,
    ListKernels,
    Layers,
    Model,
    Roofline,
    Peak,
    RunTool,
    Simulate,
    Serve,
    Send,
    Watch,
    Jobs,
    Fsck,
    Run,
    Accesses,
    Doctor,
    Agent,
)


class _Parser(argparse.ArgumentParser):
    """A parser that states a problem in one line instead of printing the usage first."""

    def error(self, message: str) -> NoReturn:
        """Raise `UsageError` with argparse's message and the command that prints the help."""
        words = re.sub(r"\S{61,}", lambda word: shorten(word[0]), message)
        raise UsageError(f"{_suggest(message)}{shorten(words, LONGEST_MESSAGE)}; see {self.prog} --help")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse as usual; a command with `words` has there what follows `--`, and its paths may be between options."""
        if self.get_default("words") is None:
            return super().parse_known_args(args, namespace)
        given = list(args)
        end = given.index("--") if "--" in given else len(given)
        found, unknown = super().parse_known_args(given[:end], namespace)
        found.words = given[end + 1 :]
        if any(word.startswith("-") for word in unknown):
            self.error(f"unrecognized arguments: {' '.join(unknown)} (options of the tool itself come after --)")
        found.paths = [*found.paths, *unknown]
        return found, []

    def print_help(self, file: Any = None) -> None:
        """Print the help; argparse's own method would hide the error of a full disk."""
        (file or require_stdout()).write(self.format_help())


def _suggest(message: str) -> str:
    """Return a question that names the closest choice, where argparse reports an invalid one that resembles it."""
    choice = re.search(r"invalid choice: '(\w+)' \(choose from (.*)\)", message)
    near = difflib.get_close_matches(choice[1], re.findall(r"\w+", choice[2]), 1) if choice else []
    return f"did you mean {near[0]}? " if near else ""


class _Version(argparse.Action):
    """`--version`, which looks the version up only when it is used."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        """Print the version and exit."""
        from deepprof.version import read_version

        require_stdout().write(f"deepprof {read_version()}\n")
        parser.exit()


class _Formats(argparse.Action):
    """`--formats`, which loads the importers only when it is used."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        """Print the formats of traces that are read and exit."""
        from deepprof.collectors.importers import list_formats

        require_stdout().write(list_formats())
        parser.exit()


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; `argv` does not contain the program's name."""
    try:
        return run(argv)
    except DeepProfError as error:
        return _complain(str(error))
    except BrokenPipeError:
        settle(sys.stdout)
        return PIPE_CLOSED
    except OSError as error:
        settle(sys.stdout)
        return _complain(f"{error.filename or 'output'}: {error.strerror or error}; check the path and the disk")
    except KeyboardInterrupt:
        return INTERRUPTED


def run(argv: Sequence[str] | None) -> int:
    """Parse the arguments and run the command they name."""
    gc.set_threshold(COLLECT_AFTER, *gc.get_threshold()[1:])
    try:
        args = prepare_parser(sys.argv[1:] if argv is None else argv).parse_args(argv)
    except SystemExit:  # argparse has printed the help; a closed pipe is still to be reported here
        status = 0
    else:
        status = _run_command(args)
    if sys.stdout is not None:
        sys.stdout.flush()  # here, because `main` can still report a closed pipe or a full disk
    return status


def _run_command(args: argparse.Namespace) -> int:
    """Run the command, with warnings as lines of DeepProf's own."""
    with warnings.catch_warnings(), tidying():
        warnings.showwarning = _show_warning
        status: int = args.run(args)
    return status


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    """Print a warning, such as a plug-in that does not load, as one line."""
    say(f"deepprof: warning: {message}")


def prepare_parser(argv: Sequence[str] | None = None) -> argparse.ArgumentParser:
    """Return the parser of the command line; given `argv`, with the arguments of the command that it begins with."""
    description = "Finds the training iteration in a GPU trace, and says where its time goes and why the GPU waits."
    parser = _Parser(prog="deepprof", description=description, allow_abbrev=False)
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    parser.add_argument("--formats", action=_Formats, nargs=0, help="list the formats of traces that are read and exit")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for kind in COMMANDS:
        text = kind.__doc__ or ""
        name = getattr(kind, "command", kind.__name__.lower())
        own = commands.add_parser(
            name,
            help=text.partition("\n")[0].rstrip("."),
            description=text.replace("\n    ", "\n"),
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        command = kind()
        if argv is None or [name] == list(argv[:1]):
            command.prepare_parser(own)
        own.set_defaults(run=command.run)
    return parser


def _complain(problem: str) -> int:
    """Print one line on stderr, whatever characters `problem` contains, and return the exit code."""
    say(f"deepprof: {problem}")
    return UNUSABLE
