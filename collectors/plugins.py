"""Extension points: built-ins and installed plug-ins are loaded through one interface, `importlib.metadata`.

A plug-in is other people's code: what it raises is reported in its name, and stops nothing else. What a built-in raises
is a bug of ours, and is raised.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from importlib import metadata
from importlib.metadata import EntryPoint, EntryPoints
from typing import Any, TypeVar

from deepprof.collectors.errors import EndRequest, escaped

REPORT_IT = "uninstall or report it to its author"
FAILURES = (Exception, SystemExit)  # whatever a plug-in can raise; Ctrl-C is the user's
LONGEST_TEXT = 200  # characters of what it states
Result = TypeVar("Result")


class PlugInWarning(UserWarning):
    """A plug-in raised an exception and was skipped."""


class PlugIn:
    """An installed extension that may fail: the first exception of its code is a warning that names it."""

    def __init__(self, point: EntryPoint) -> None:
        self.point, self.reported = point, False

    def blame(self, error: BaseException) -> str:
        """Return one line that states what the plug-in, and which distribution it is of, has raised."""
        home = f" of {self.point.dist.name}" if self.point.dist else f" ({self.point.value})"
        return f"plug-in {self.point.name}{home} {describe_error(error)}"

    def attempt(self, work: Callable[[], Result], otherwise: Result) -> Result:
        """Return the result of `work`, or `otherwise` when the plug-in raises in it; warn the first time."""
        try:
            return work()
        except EndRequest:
            raise
        except FAILURES as error:
            if not self.reported:
                self.reported = True
                warnings.warn(f"{self.blame(error)}; {REPORT_IT}", PlugInWarning, stacklevel=2)
            return otherwise


def describe_error(error: BaseException) -> str:
    """Return on one line of bounded length what other people's code has raised."""
    return f"raised {type(error).__name__}: {escaped(' '.join(str(error).split()))[:LONGEST_TEXT]}"


def load(
    group: str, builtins: tuple[str, ...], fence: Callable[[object, PlugIn], object], *, instantiate: bool = True
) -> list[object]:
    """Return the extensions of `group` (such as `deepprof.importers`): `builtins` first, then installed ones.

    `builtins` are dotted names, `"package.module:Name"`. With `instantiate` a class is returned as an instance, made
    without arguments. A name that occurs twice is loaded once. Of a plug-in the result of `fence` is returned, which
    keeps what it raises later from others. An extension that fails to load is left out, with a warning that names it.
    """
    own = [load_builtin(group, value, instantiate=instantiate) for value in dict.fromkeys(builtins)]
    return [each for each in own if each is not None] + load_installed(group, builtins, fence, instantiate=instantiate)


def load_builtin(group: str, value: str, *, instantiate: bool = True) -> object | None:
    """Return the built-in extension that `value` names, or warn and return None: the installation is incomplete."""
    point = EntryPoint(value.rpartition(":")[2], value, group)
    try:
        return _make(point) if instantiate else point.load()
    except Exception as error:
        warnings.warn(f"{group}: {value} does not load: {type(error).__name__}: {error}", stacklevel=3)
        return None


def load_installed(
    group: str, builtins: tuple[str, ...], fence: Callable[[object, PlugIn], object], *, instantiate: bool = True
) -> list[object]:
    """Return the extensions of `group` that other packages install, as `load` does."""
    points = sorted(entry_points(group), key=lambda point: (point.name, point.value))
    installed = {point.value: point for point in reversed(points) if point.value not in builtins}
    make = _make if instantiate else EntryPoint.load
    loaded = [_load_plugin(point, make, fence) for point in reversed(installed.values())]
    return [extension for extension in loaded if extension is not None]


def entry_points(group: str) -> EntryPoints:
    """Return the entry points of `group`; those of all packages are read once in a process."""
    found: EntryPoints = _read_entry_points().select(group=group)
    return found


@cache
def _read_entry_points() -> Any:
    return metadata.entry_points()  # of Python 3.11 another class than of later ones


def _load_plugin(
    point: EntryPoint, make: Callable[[EntryPoint], object], fence: Callable[[object, PlugIn], object]
) -> object | None:
    """Return the fenced object that `point` names, or warn and return None."""
    plugin = PlugIn(point)
    return plugin.attempt(lambda: fence(make(point), plugin), None)


def _make(point: EntryPoint) -> object:
    """Return the object that `point` names, an instance if it is a class."""
    extension: object = point.load()
    return extension() if isinstance(extension, type) else extension
