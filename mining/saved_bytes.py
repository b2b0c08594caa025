"""The bytes of a saved state: magic, version, the CRC-32 of what follows, then arrays; all of it little-endian."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]

VERSION = 1
_HEAD = struct.Struct("<8sII")


@dataclass(frozen=True, slots=True)
class SavedFormat:
    """One kind of saved state: its magic, whose state it is ("a", "matcher"), and the fewest bytes after the head."""

    magic: bytes
    article: str
    owner: str
    least_nbytes: int

    def seal(self, *arrays: Array) -> bytes:
        """Return the arrays, one after the other, behind a head."""
        body = b"".join(np.ascontiguousarray(array, array.dtype.newbyteorder("<")).data for array in arrays)
        return _HEAD.pack(self.magic, VERSION, zlib.crc32(body)) + body

    def open(self, data: bytes) -> bytes:
        """Return what follows the head.

        Raises:
            ValueError: for bytes without such a head, of another version, or damaged.
        """
        if len(data) < _HEAD.size or not data.startswith(self.magic):
            raise ValueError(f"these bytes are not the saved state of {self.article} {self.owner}")
        _, version, checksum = _HEAD.unpack_from(data)
        if version != VERSION:
            raise ValueError(
                f"the saved state of the {self.owner} is of version {version}; this program reads {VERSION}"
            )
        body = data[_HEAD.size :]
        if len(body) < self.least_nbytes or zlib.crc32(body) != checksum:
            raise self.damaged("length or checksum is wrong")
        return body

    def check(self, claims: dict[str, bool]) -> None:
        """Raise an error that names the first claim that does not hold."""
        for what, holds in claims.items():
            if not holds:
                raise self.damaged(f"{what} cannot be")

    def damaged(self, why: str) -> ValueError:
        """Return the error that states what is wrong with the bytes."""
        return ValueError(f"the saved state of the {self.owner} is truncated or damaged: {why}")


def read_array(body: bytes, dtype: npt.DTypeLike, count: int, at: int) -> Array:
    """Return `count` numbers from byte `at` on, copied in the machine's own byte order."""
    stored = np.frombuffer(body, np.dtype(dtype).newbyteorder("<"), count, at)
    return stored.astype(stored.dtype.newbyteorder("="))
