"""Extension points: built-ins and installed plug-ins are loaded through one interface, `importlib.metadata`."""

from __future__ import annotations

import warnings
from importlib.metadata import EntryPoint, entry_points

__all__ = ["load"]


def load(group: str, builtins: tuple[str, ...]) -> list[object]:
    """Return the extensions of `group` (such as `deepprof.importers`): `builtins` first, then installed ones.

    `builtins` are dotted names, `"package.module:Name"`. A class is returned as an instance, made without arguments.
    A name that occurs twice is loaded once. An extension that fails to load is left out, with a warning that names it.
    """
    points = [EntryPoint(value.rpartition(":")[2], value, group) for value in builtins]
    points += sorted(entry_points(group=group), key=lambda point: (point.name, point.value))
    unique = {point.value: point for point in points[::-1]}  # backwards, so that the built-in wins
    loaded = [(point, load_one(point)) for point in points if unique[point.value] is point]
    return [extension for _, extension in loaded if extension is not None]


def load_one(point: EntryPoint) -> object | None:
    """Return the object that `point` names, or warn and return None: a broken plug-in must not stop the rest."""
    try:
        extension: object = point.load()
        return extension() if isinstance(extension, type) else extension
    except Exception as error:  # whatever a plug-in's import can raise
        warnings.warn(f"{point.group}: {point.value} does not load: {type(error).__name__}: {error}", stacklevel=3)
        return None
