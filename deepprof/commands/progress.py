"""Progress on stderr, shown only on a terminal."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from deepprof.commands.streams import open_console

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import Console
    from rich.progress import Progress


def _is_watched() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()


@contextmanager
def progress(doing: str) -> Iterator[None]:
    """Show a spinner next to the text `doing`."""
    if not _is_watched():
        yield
        return
    console = open_console(sys.stderr)
    with console.status(doing, spinner=_choose_spinner(console)):
        yield


@contextmanager
def reading() -> Iterator[Callable[[int, int], None] | None]:
    """Show a spinner, and a bar once the first of several traces is read; gives the function to call per trace read."""
    if not _is_watched():
        yield None
        return
    with _make_bar(open_console(sys.stderr)) as bar:
        task = bar.add_task("reading", total=None, count="")

        def watch(done: int, total: int) -> None:
            if total > 1:
                bar.update(task, completed=done, total=total, count=f"{done} of {total} traces")

        yield watch


@contextmanager
def counting(doing: str, what: str) -> Iterator[Callable[[int, int], None] | None]:
    """Show a bar; gives the function to call with the number done and the number of all."""
    if not _is_watched():
        yield None
        return
    with _make_bar(open_console(sys.stderr)) as bar:
        task = bar.add_task(doing, total=None, count="")

        def watch(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total, count=f"{done:,} of {total:,} {what}")

        yield watch


def _make_bar(console: Console) -> Progress:
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

    spinner = SpinnerColumn(_choose_spinner(console))
    columns = (spinner, TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[count]}"))
    return Progress(*columns, console=console, transient=True)


def _choose_spinner(console: Console) -> str:
    """Return the name of a spinner that the terminal can show; dots are braille."""
    return "dots" if console.encoding.lower().startswith("utf") else "line"
