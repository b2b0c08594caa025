"""A model of the allocator of `torch.cuda`, on one stream: how large the blocks are that it gives for what is asked.

It follows the allocator's constants: sizes are rounded up to 512 bytes, small ones come from segments of 2 MiB, large
ones from segments of 20 MiB or of their own, the smallest free block that is long enough is taken, and what is left of
a large one is split off only if it is longer than 1 MiB. It contains no memory.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass, field

__all__ = ["CachingAllocator", "MemoryBlock"]

ROUNDED, SMALL, SMALL_SEGMENT = 512, 1 << 20, 2 << 20
LARGE_SEGMENT, OWN_SEGMENT_FROM, OWN_SEGMENT_ROUNDED = 20 << 20, 10 << 20, 2 << 20


@dataclass(eq=False)
class MemoryBlock:
    """A piece of a segment, between its neighbours there; `asked` bytes of it were requested, 0 where it is free."""

    nbytes: int
    place: int  # among free blocks of equal size
    is_small: bool
    asked: int = 0
    before: MemoryBlock | None = None
    after: MemoryBlock | None = None


@dataclass
class CachingAllocator:
    """Counts as torch does: blocks that were given, what was requested, and segments."""

    allocated: int = 0
    requested: int = 0
    reserved: int = 0
    places: int = 0
    free_blocks: dict[bool, list[tuple[int, int, MemoryBlock]]] = field(default_factory=lambda: {False: [], True: []})

    def allocate(self, nbytes: int) -> MemoryBlock:
        """Return the block that is given for a request of at least one byte."""
        size = -(-nbytes // ROUNDED) * ROUNDED
        block = self._take(size)
        left = block.nbytes - size
        if left >= ROUNDED if block.is_small else left > SMALL:
            self._split(block, size)
        block.asked = nbytes
        self.allocated, self.requested = self.allocated + block.nbytes, self.requested + nbytes
        return block

    def free(self, block: MemoryBlock) -> None:
        """Take a block back, and join it with free neighbours."""
        self.allocated, self.requested = self.allocated - block.nbytes, self.requested - block.asked
        block.asked = 0
        for neighbour in (block.before, block.after):
            if neighbour is not None and not neighbour.asked:
                self._join(block, neighbour)
        self._keep(block)

    def _take(self, size: int) -> MemoryBlock:
        """Return the smallest free block that is long enough, or a new segment."""
        is_small = size <= SMALL
        free = self.free_blocks[is_small]
        place = bisect_left(free, (size, 0))
        if place < len(free):
            return free.pop(place)[2]
        own = -(-size // OWN_SEGMENT_ROUNDED) * OWN_SEGMENT_ROUNDED
        nbytes = SMALL_SEGMENT if is_small else LARGE_SEGMENT if size < OWN_SEGMENT_FROM else own
        self.reserved += nbytes
        return self._make(nbytes, is_small=is_small)

    def _make(self, nbytes: int, *, is_small: bool) -> MemoryBlock:
        self.places += 1
        return MemoryBlock(nbytes, self.places, is_small)

    def _keep(self, block: MemoryBlock) -> None:
        insort(self.free_blocks[block.is_small], (block.nbytes, block.place, block))

    def _split(self, block: MemoryBlock, size: int) -> None:
        """Keep the end of a block for other requests."""
        rest = self._make(block.nbytes - size, is_small=block.is_small)
        rest.before, rest.after, block.nbytes = block, block.after, size
        if block.after is not None:
            block.after.before = rest
        block.after = rest
        self._keep(rest)

    def _join(self, block: MemoryBlock, neighbour: MemoryBlock) -> None:
        """Make a free neighbour a part of a block."""
        free = self.free_blocks[block.is_small]
        free.pop(bisect_left(free, (neighbour.nbytes, neighbour.place)))
        block.nbytes += neighbour.nbytes
        if neighbour is block.before:
            block.before = neighbour.before
            if block.before is not None:
                block.before.after = block
        else:
            block.after = neighbour.after
            if block.after is not None:
                block.after.before = block
