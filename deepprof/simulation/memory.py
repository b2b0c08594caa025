"""PyTorch's caching allocator, as far as a trace shows it."""

from __future__ import annotations

__all__ = ["Allocator"]

MODEL_NBYTES = 3_221_225_472  # weights, gradients and the optimizer's state, allocated before the capture
SEGMENT_NBYTES = 20_971_520  # memory is taken from the device in pieces of this size
ALIGNMENT_NBYTES = 512
FIRST_ADDRESS = 0x7F2C_4000_0000


class Allocator:
    """Allocates device memory and keeps the totals: `allocated_nbytes` is in use, `reserved_nbytes` is held."""

    def __init__(self) -> None:
        self.allocated_nbytes = MODEL_NBYTES
        self.reserved_nbytes = MODEL_NBYTES + SEGMENT_NBYTES
        self.address = FIRST_ADDRESS
        self.blocks: list[tuple[int, int]] = []

    def allocate(self, nbytes: int, *, kept: bool) -> tuple[int, int]:
        """Allocate memory and return its address and true size; a kept block is never released."""
        block = self.address, -(-nbytes // ALIGNMENT_NBYTES) * ALIGNMENT_NBYTES
        self.address += block[1]
        self.allocated_nbytes += block[1]
        if self.allocated_nbytes > self.reserved_nbytes:
            missing = self.allocated_nbytes - self.reserved_nbytes
            self.reserved_nbytes += -(-missing // SEGMENT_NBYTES) * SEGMENT_NBYTES
        if not kept:
            self.blocks.append(block)
        return block

    def release(self) -> tuple[int, int] | None:
        """Release the latest block and return it; None where it was allocated before the capture."""
        if not self.blocks:
            return None
        block = self.blocks.pop()
        self.allocated_nbytes -= block[1]
        return block
