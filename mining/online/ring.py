"""The last values of a stream, read by their position in it."""

from __future__ import annotations

from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

Value = TypeVar("Value", bound=np.generic)
SPARE = 4  # parts of the size: the memory is one part larger, and each value moves this many times


class Ring(Generic[Value]):
    """Keeps at least the last `size` values of a stream, from any start position on.

    The values are in one section of memory, a quarter longer than the size; when it is full, the kept values move to
    the front. So a window is a view, not a copy, and one more value costs amortised O(1).

    Args:
        size: values kept; a chunk must not be longer than a quarter of it.
        dtype: their type.
        start: the stream position of the first value to come.
    """

    def __init__(self, size: int, dtype: npt.DTypeLike, start: int = 0) -> None:
        self.size = size
        self.start = start
        self.end = start
        self._values: npt.NDArray[Value] = np.empty(size + size // SPARE, dtype)
        self._used = 0

    @property
    def begin(self) -> int:
        """Position of the oldest value that is guaranteed to be kept."""
        return max(self.start, self.end - self.size)

    @property
    def dtype(self) -> np.dtype[Value]:
        """The type of the values."""
        return self._values.dtype

    def append(self, values: npt.NDArray[Value]) -> None:
        """Append the next values, at most a quarter of `size`."""
        count = len(values)
        if self._used + count > len(self._values):
            kept = min(self._used, self.size)
            self._values[:kept] = self._values[self._used - kept : self._used]
            self._used = kept
        self._values[self._used : self._used + count] = values
        self._used += count
        self.end += count

    def read(self, first: int, end: int) -> npt.NDArray[Value]:
        """Return the values at [first, end) as a view that the next `append` may overwrite.

        Raises:
            IndexError: for positions that are no longer, or not yet, kept.
        """
        if not self.begin <= first <= end <= self.end:
            raise IndexError(f"[{first}, {end}) is not within what is kept, [{self.begin}, {self.end})")
        shift = self._used - self.end
        return self._values[first + shift : end + shift]

    @classmethod
    def restored(cls, values: npt.NDArray[Value], size: int, start: int, end: int) -> Ring[Value]:
        """Return the ring of this many values from which `read(begin, end)` returned these."""
        ring = cls(size, values.dtype, start)
        ring._values[: len(values)] = values
        ring._used, ring.end = len(values), end
        return ring

    def widen(self, dtype: npt.DTypeLike) -> None:
        """Convert the values to a larger type."""
        self._values = self._values.astype(dtype)
