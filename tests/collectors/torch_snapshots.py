"""Memory snapshots as torch's documentation describes them, made by a small caching allocator that keeps account."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

Entry = dict[str, Any]
SEGMENT_NBYTES, ROUND_NBYTES = 2 * 1024**2, 512
BEGIN_US = 1_764_000_000_000_000
FRAMES = [{"filename": f"/job/train_{i % 3}.py", "name": f"step_{i}", "line": 10 + i} for i in range(12)]
STACKS = [[FRAMES[(i + k) % 12] for k in range(4)] for i in range(12)]


@dataclass
class SmallAllocator:
    """Hands out memory from segments of 2 MiB; records a history from `record()` on."""

    device: int = 0
    base: int = 0x7F00_0000_0000
    now_us: int = BEGIN_US
    recording: bool = False
    trace: list[Entry] = field(default_factory=list)
    segments: list[Entry] = field(default_factory=list)
    in_use: dict[int, tuple[int, list[Entry]]] = field(default_factory=dict)
    pending: set[int] = field(default_factory=set)
    peak: int = 0

    def note(self, action: str, addr: int, size: int, frames: list[Entry], **more: Any) -> None:
        """Record an entry."""
        self.now_us += 3
        self.peak = max(self.peak, self.allocated())
        if self.recording:
            entry = {
                "action": action,
                "addr": addr,
                "size": size,
                "stream": 0,
                "time_us": self.now_us,
                "frames": frames,
            }
            self.trace.append(entry | {"pool_id": (0, 0), "compile_context": "N/A", "user_metadata": ""} | more)

    def allocated(self) -> int:
        """Return the bytes in use, as they were requested."""
        return sum(size for size, _ in self.in_use.values())

    def reserved(self) -> int:
        """Return the bytes of all segments."""
        return sum(segment["total_size"] for segment in self.segments)

    def alloc(self, size: int, stack: int = 0) -> int:
        """Allocate `size` bytes and return where."""
        frames, rounded = STACKS[stack % len(STACKS)], -(-size // ROUND_NBYTES) * ROUND_NBYTES
        place = next((place for place in (self.room(segment, rounded) for segment in self.segments) if place), None)
        if place is None:
            address = self.base
            self.base += 2 * SEGMENT_NBYTES
            self.segments.append({"address": address, "total_size": max(SEGMENT_NBYTES, rounded)})
            self.note("segment_alloc", address, max(SEGMENT_NBYTES, rounded), frames)
            place = address
        self.in_use[place] = (size, frames)
        self.note("alloc", place, size, frames)
        return place

    def room(self, segment: Entry, rounded: int) -> int | None:
        """Return the first place in a segment with this much room; None for none."""
        at = segment["address"]
        for place, size in self.blocks_of(segment):
            if place - at >= rounded:
                return int(at)
            at = place + size
        return int(at) if segment["address"] + segment["total_size"] - at >= rounded else None

    def blocks_of(self, segment: Entry) -> list[tuple[int, int]]:
        """Return place and rounded size of the blocks in use in a segment, in order."""
        end = segment["address"] + segment["total_size"]
        places = sorted(place for place in self.in_use if segment["address"] <= place < end)
        return [(place, -(-self.in_use[place][0] // ROUND_NBYTES) * ROUND_NBYTES) for place in places]

    def request_free(self, place: int) -> None:
        """Ask for the release of a block that another stream still uses."""
        size, frames = self.in_use[place]
        self.pending.add(place)
        self.note("free_requested", place, size, frames)

    def complete_free(self, place: int) -> None:
        """Release a block for which that was asked."""
        size, frames = self.in_use.pop(place)
        self.pending.discard(place)
        self.note("free_completed", place, size, frames)

    def free(self, place: int) -> None:
        """Release a block."""
        self.request_free(place)
        self.complete_free(place)

    def fail(self, size: int, left: int) -> None:
        """Record that there was no room."""
        self.note("oom", 0, size, STACKS[1], device_free=left)
        if self.recording:
            del self.trace[-1]["addr"]

    def empty_cache(self) -> None:
        """Give back the segments without blocks in use."""
        for segment in [each for each in self.segments if not self.blocks_of(each)]:
            self.segments.remove(segment)
            self.note("segment_free", segment["address"], segment["total_size"], [])

    def list_segments(self) -> list[Entry]:
        """Return the segments as a snapshot has them."""
        return [self.describe(segment) for segment in self.segments]

    def describe(self, segment: Entry) -> Entry:
        """Return a segment with its blocks, in use and not."""
        at, blocks, end = segment["address"], [], segment["address"] + segment["total_size"]
        for place, size in [*self.blocks_of(segment), (end, 0)]:
            if place > at:
                blocks.append(
                    {"address": at, "size": place - at, "requested_size": 0, "state": "inactive", "frames": []}
                )
            if place < end:
                asked, frames = self.in_use[place]
                state = "active_pending_free" if place in self.pending else "active_allocated"
                blocks.append(
                    {"address": place, "size": size, "requested_size": asked, "state": state, "frames": frames}
                )
            at = place + size
        active = sum(block["size"] for block in blocks if block["state"] != "inactive")
        fixed = {"device": self.device, "stream": 0, "segment_type": "large", "segment_pool_id": (0, 0)}
        return {**fixed, **segment, "allocated_size": active, "active_size": active, "blocks": blocks}


def make_snapshot(*allocators: SmallAllocator, **more: Any) -> dict[str, Any]:
    """Return the snapshot of the allocators of all devices."""
    return {
        "segments": [segment for each in allocators for segment in each.list_segments()],
        "device_traces": [each.trace for each in allocators],
        "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": "", "garbage_collection_threshold": 0.5},
        "external_annotations": [],
    } | more


def train(allocator: SmallAllocator, steps: int, seed: int = 1) -> SmallAllocator:
    """Let a program allocate and release at random."""
    rng, held = random.Random(seed), list(allocator.in_use)
    for step in range(steps):
        if held and rng.random() < 0.45:
            allocator.free(held.pop(rng.randrange(len(held))))
        else:
            held.append(allocator.alloc(rng.choice((100, 5_000, 300_000, 3_000_000)), step))
        if rng.random() < 0.02:
            allocator.empty_cache()
    return allocator
