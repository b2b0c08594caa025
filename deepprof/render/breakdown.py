"""Where the time goes, as a table with bars: for an iteration, or for a whole device where there is none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deepprof.render.units import format_duration, format_ratio

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deepprof.render.page import Page

__all__ = ["WORDS", "print_breakdown"]

WORDS = {
    "compute_ns": "compute",
    "exposed_communication_ns": "communication, exposed",
    "exposed_htod_ns": "copies from host, exposed",
    "exposed_dtoh_ns": "copies to host, exposed",
    "exposed_dtod_ns": "copies on device, exposed",
    "exposed_ptop_ns": "copies to peers, exposed",
    "exposed_copy_ns": "other copies, exposed",
    "exposed_memset_ns": "memset, exposed",
    "idle_input_ns": "idle: data loading",
    "idle_launch_ns": "idle: launching",
    "idle_sync_ns": "idle: synchronisation",
    "idle_allocator_ns": "idle: allocator",
    "idle_first_use_ns": "idle: first use, code loading",
    "idle_host_ns": "idle: other host work",
    "idle_dependency_ns": "idle: other stream",
    "idle_startup_ns": "idle: kernel start-up",
    "idle_shared_ns": "idle: another process",
    "idle_unknown_ns": "idle: cause unknown",
}
SMALL = 0.005  # of the time: smaller parts share a line
OTHERS = "other parts"
WIDEST = 30  # columns of a bar
AROUND = 17  # columns: the indent, the share, and what separates them
BAR, ASCII_BAR = "█", "#"


def print_breakdown(title: str, parts_ns: Mapping[str, float], page: Page) -> None:
    """Print the parts of a time, the largest first, with bars where the page is wide enough, in sentences where not."""
    whole = sum(parts_ns.values())
    if whole <= 0:
        return
    rows = choose_rows(parts_ns, whole)
    label, number = max(len(name) for name, _ in rows), max(len(format_duration(ns)) for _, ns in rows)
    page.skip()
    page.line(title, "dim", indent=2)
    room = page.width - label - number - AROUND
    for name, ns in rows:
        if room < 0:
            page.line(f"{name}: {format_duration(ns)}, {format_ratio(ns / whole)}", indent=4, hang=2)
            continue
        text = f"{name:<{label}}  {format_duration(ns):>{number}}  {format_ratio(ns / whole):>7}"
        width = round(min(WIDEST, max(0, room)) * ns / whole)
        page.draw(f"{text}  {(ASCII_BAR if page.ascii else BAR) * width}".rstrip(), indent=4)


def choose_rows(parts_ns: Mapping[str, float], whole: float) -> list[tuple[str, float]]:
    """Return the parts in words, the largest first, small ones as one."""
    ordered = sorted(parts_ns.items(), key=lambda part: -part[1])
    large = [(WORDS[name], ns) for name, ns in ordered if ns >= SMALL * whole]
    rest = whole - sum(ns for _, ns in large)
    return [*large, (OTHERS, rest)] if round(rest) > 0 else large
