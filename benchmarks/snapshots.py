"""Memory snapshots of PyTorch: entries per second, time and peak memory, next to `pickle.load` of the same file.

The histories are made up, in the form in which torch writes them: of every frame there is one dictionary, and each
entry has a list of them. Shared lists are what other writers make of equal stacks."""

from __future__ import annotations

import json
import pickle
import random
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from benchmarks.readers import JSON_SNAPSHOTS, SNAPSHOTS, Reading, measure

if TYPE_CHECKING:
    from rich.console import Console

ENTRIES, QUICK = 1_000_000, 20_000
AS_JSON = 5  # the part of the entries that is written as JSON, which repeats all frames: 2 GiB hold no million
BEGIN_US, BASE, NBYTES = 1_764_000_000_000_000, 0x7F00_0000_0000, 2**43
DEPTH, FUNCTIONS, STACKS, HELD = 20, 3_000, 5_000, 3_000
WITHOUT, OWN, SHARED = "no stacks", f"stacks of {DEPTH} frames", f"stacks of {DEPTH} in shared lists"

Block = tuple[int, int, list[Any]]  # its address, size and frames


def run(console: Console, quick: bool = False) -> None:
    """Print the table."""
    table = Table(
        "file", "reader", "entries/CPU s", "s", "CPU s", "peak MB", title="Reading memory snapshots of PyTorch"
    )
    for column in table.columns[2:]:
        column.justify = "right"
    with tempfile.TemporaryDirectory() as folder:
        for file in _write_files(Path(folder, "snapshot"), QUICK if quick else ENTRIES):
            for reader in JSON_SNAPSHOTS if file.is_json else SNAPSHOTS:
                table.add_row(file.describe(), *list_cells(reader.name, measure(reader, file.path), file.entries))
            table.add_section()
    console.print(table)


@dataclass(frozen=True)
class _SnapshotFile:
    """A file with a snapshot; `frames` states of which stacks."""

    path: Path
    entries: int
    frames: str
    is_json: bool = False

    def describe(self) -> str:
        """Return what the file is."""
        kind, size = "JSON" if self.is_json else "pickle", self.path.stat().st_size / 1e6
        return f"{kind}, {self.entries:,} entries, {self.frames}, {size:.0f} MB"


def _write_files(path: Path, entries: int) -> Iterator[_SnapshotFile]:
    """Yield one file after the other, each in the place of the one before it."""
    for frames in (WITHOUT, OWN, SHARED):
        with path.open("wb") as file:
            pickle.dump(make_snapshot(entries, frames), file)
        yield _SnapshotFile(path, entries, frames)
    with path.open("w") as text:
        json.dump(make_snapshot(entries // AS_JSON, OWN), text)
    yield _SnapshotFile(path, entries // AS_JSON, OWN, is_json=True)


def list_cells(name: str, found: Reading | str, entries: int) -> list[str]:
    """Return the cells of one reader of a file, or why it did not read it."""
    if isinstance(found, str):
        return [name, found]
    return [name, f"{entries / found.cpu_s:,.0f}", f"{found.wall_s:.2f}", f"{found.cpu_s:.2f}", f"{found.peak_mb:.0f}"]


def make_snapshot(entries: int, frames: str, seed: int = 1) -> dict[str, Any]:
    """Return a snapshot with a history of `entries`, or one more; frames are `WITHOUT`, `OWN` or `SHARED`."""
    rng = random.Random(seed)
    stacks = [[] for _ in range(STACKS)] if frames == WITHOUT else _make_stacks(rng)
    held: list[Block] = []
    history = list(_allocate(rng, entries, stacks, held))
    if frames == OWN:
        for entry in history:
            entry["frames"] = list(entry["frames"])
    return {"segments": [_describe_segment(held)], "device_traces": [history], "external_annotations": []}


def _describe_segment(held: list[Block]) -> dict[str, Any]:
    """Return one segment with the blocks in use."""
    blocks = [
        {"address": addr, "size": size, "requested_size": size, "state": "active_allocated", "frames": frames}
        for addr, size, frames in sorted(held, key=lambda block: block[0])
    ]
    return {"device": 0, "address": BASE, "total_size": NBYTES, "stream": 0, "blocks": blocks}


def _make_stacks(rng: random.Random) -> list[list[dict[str, Any]]]:
    """Return stacks of a program: many ends on few beginnings."""
    functions = [
        {"name": f"forward_{i}", "filename": f"/job/model/layer_{i % 200}.py", "line": 10 + i} for i in range(FUNCTIONS)
    ]
    callers = [rng.choices(functions, k=DEPTH - 6) for _ in range(300)]
    return [rng.choices(functions, k=6) + rng.choice(callers) for _ in range(STACKS)]


def _allocate(rng: random.Random, entries: int, stacks: list[Any], held: list[Block]) -> Iterator[dict[str, Any]]:
    """Yield what an allocator does: it releases as often as it allocates once `HELD` blocks are `held`."""
    count, address, now_us = 0, BASE, BEGIN_US
    while count < entries:
        release = len(held) > HELD or (len(held) > 0 and rng.random() < 0.3)
        if release:
            addr, size, frames = held.pop(rng.randrange(len(held)))
        else:
            addr, size, frames = address, rng.randrange(1, 10**7), stacks[count % len(stacks)]
            held.append((addr, size, frames))
            address += -(-size // 512) * 512
        for action in ("free_requested", "free_completed") if release else ("alloc",):
            now_us += rng.randrange(1, 9)
            count += 1
            known = {"action": action, "addr": addr, "size": size, "stream": 0, "time_us": now_us, "frames": frames}
            yield known | {"compile_context": "N/A", "user_metadata": "", "pool_id": (0, 0)}
