"""Extension points: built-ins and installed plug-ins are loaded through one interface, `importlib.metadata`.

A plug-in is other people's code: what it raises is reported in its name, and stops nothing else. What a built-in raises
is a bug of ours, and is raised.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from typing import TypeVar

from deepprof.collectors.errors import EndRequest, escaped

REPORT_IT = "uninstall or report it to its author"
FAILURES = (Exception, SystemExit)  # whatever a plug-in can raise; Ctrl-C is the user's
LONGEST_TEXT = 200  # characters of what it says
Result = TypeVar("Result")


class PlugInWarning(UserWarning):
    """A plug-in raised an exception and was skipped."""


class PlugIn:
    """An installed extension that may fail: the first exception of its code is a warning that names it."""

    def __init__(self, point: EntryPoint) -> None:
        self.point, self.reported = point, False

    def blame(self, error: BaseException) -> str:
        """Return one line that says what the plug-in, and which distribution it is of, has raised."""
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
    own = {value: EntryPoint(value.rpartition(":")[2], value, group) for value in builtins}
    points = sorted(entry_points(group=group), key=lambda point: (point.name, point.value))
    installed = {point.value: point for point in reversed(points) if point.value not in own}
    make = _make if instantiate else EntryPoint.load
    loaded = [_load_builtin(point, make) for point in own.values()]
    loaded += [_load_plugin(point, make, fence) for point in reversed(installed.values())]
    return [extension for extension in loaded if extension is not None]


def _load_builtin(point: EntryPoint, make: Callable[[EntryPoint], object]) -> object | None:
    """Return the object that `point` names, or warn and return None, as where an installation is incomplete."""
    try:
        return make(point)
    except Exception as error:
        warnings.warn(f"{point.group}: {point.value} does not load: {type(error).__name__}: {error}", stacklevel=3)
        return None


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
