"""The cost of one operator: its floating-point operations and the bytes that it must move."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OperationCost:
    """What one operator costs, at least.

    `flops` counts a multiplication and its addition as two. `product_flops` are those of them that belong to matrix
    products, convolutions and attention, which tensor cores can do; `product_dtype` is the type of their operands, None
    where there are none. Each operand is read once and each result written once, whatever caches do.
    """

    flops: int
    read_nbytes: int
    written_nbytes: int
    product_flops: int = 0
    product_dtype: str | None = None

    @property
    def nbytes(self) -> int:
        """The bytes that it reads and writes."""
        return self.read_nbytes + self.written_nbytes
