"""Convert nested values to bytes and back: JSON values and arrays; checked field by field, nothing is executed."""

from __future__ import annotations

import json
import math
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = ["CheckedFields", "damaged", "pack", "unpack"]

Array: TypeAlias = npt.NDArray[Any]

MAGIC, VERSION = b"DPONLINE", 1
TYPES = {"u1": np.uint8, "u2": np.uint16, "u4": np.uint32, "i8": np.int64, "f8": np.float64, "b1": np.bool_}

_HEAD, _SIZE = struct.Struct("<8sII"), struct.Struct("<Q")


def pack(fields: Mapping[str, object]) -> bytes:
    """Return nested dicts and lists of numbers, texts, bytes and one-dimensional arrays as bytes.

    Layout, little-endian: magic, version, CRC-32 of what follows; the length of a JSON text, the text, and the arrays
    one after the other; the text gives their type, length and order.
    """
    arrays: list[Array] = []

    def named(value: object) -> object:
        if isinstance(value, bytes):
            value = np.frombuffer(value, np.uint8)
        if isinstance(value, np.ndarray):
            arrays.append(value)
            return {"array": [value.dtype.str[1:], value.size]}
        if isinstance(value, np.generic):
            return value.item()
        raise TypeError(f"{type(value)} cannot be saved")

    text = json.dumps(fields, default=named, separators=(",", ":")).encode()
    stored = (array.astype(array.dtype.newbyteorder("<")).tobytes() for array in arrays)
    body = b"".join([_SIZE.pack(len(text)), text, *stored])
    return _HEAD.pack(MAGIC, VERSION, zlib.crc32(body)) + body


def unpack(data: bytes) -> CheckedFields:
    """Return what `pack` has written.

    Raises:
        ValueError: for bytes that `pack` has not written, or that another version of it has.
    """
    if len(data) < _HEAD.size or not data.startswith(MAGIC):
        raise ValueError("these bytes are not the saved state of an online miner")
    _, version, checksum = _HEAD.unpack_from(data)
    if version != VERSION:
        raise ValueError(f"the saved state of the online miner is of version {version}; this program reads {VERSION}")
    body = data[_HEAD.size :]
    if len(body) < _SIZE.size or zlib.crc32(body) != checksum:
        raise damaged("length or checksum is wrong")
    (size,) = _SIZE.unpack_from(body)
    if size > len(body) - _SIZE.size:
        raise damaged("it is too short")
    return CheckedFields(_parse(body[_SIZE.size : _SIZE.size + size], memoryview(body)[_SIZE.size + size :]))


def _parse(text: bytes, stored: memoryview) -> dict[str, object]:
    at = 0

    def revive(found: dict[str, Any]) -> object:
        nonlocal at
        if list(found) != ["array"]:
            return found
        array = _array(found["array"], stored[at:])
        at += array.nbytes
        return array

    try:
        fields = json.loads(text, object_hook=revive)
    except (ValueError, RecursionError):
        raise damaged("its fields cannot be read") from None
    if not isinstance(fields, dict) or at != len(stored):
        raise damaged("its fields and its arrays do not belong together")
    return fields


def _array(description: object, stored: memoryview) -> Array:
    match description:
        case [str(name), int(count)] if name in TYPES and 0 <= count <= len(stored) // np.dtype(TYPES[name]).itemsize:
            dtype = np.dtype(np.uint8 if name == "b1" else TYPES[name])
            array = np.frombuffer(stored, dtype.newbyteorder("<"), count) if count else np.empty(0, dtype)
            return array.astype(TYPES[name])
    raise ValueError


def damaged(why: str) -> ValueError:
    """Return the error that states what is wrong with saved bytes."""
    return ValueError(f"the saved state of the online miner is truncated or damaged: {why}")


@dataclass(frozen=True, slots=True)
class CheckedFields:
    """A dict whose values are checked when they are read: each method raises `ValueError` for any other value."""

    values: Mapping[str, object]

    def integer(self, name: str, least: int, most: int) -> int:
        """Return the integer from `least` to `most`."""
        value = self.values.get(name)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise damaged(f"{name} cannot be")
        return value

    def number(self, name: str) -> float:
        """Return the finite number."""
        value = self.values.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise damaged(f"{name} is no number")
        return float(value)

    def flag(self, name: str) -> bool:
        """Return the boolean."""
        value = self.values.get(name)
        if not isinstance(value, bool):
            raise damaged(f"{name} is neither true nor false")
        return value

    def text(self, name: str) -> str:
        """Return the text."""
        value = self.values.get(name)
        if not isinstance(value, str):
            raise damaged(f"{name} is no text")
        return value

    def array(self, name: str, *types: type[np.generic]) -> Array:
        """Return the array of one of these types."""
        value = self.values.get(name)
        if not isinstance(value, np.ndarray) or value.dtype.type not in types:
            raise damaged(f"{name} is no array of this type")
        return value

    def inner(self, name: str) -> CheckedFields:
        """Return the fields inside this one."""
        value = self.values.get(name)
        if not isinstance(value, dict):
            raise damaged(f"{name} has no fields")
        return CheckedFields(value)

    def listed(self, name: str, most: int) -> list[CheckedFields]:
        """Return the fields of each entry of a list of at most `most`."""
        value = self.values.get(name)
        if not isinstance(value, list) or len(value) > most or not all(isinstance(one, dict) for one in value):
            raise damaged(f"{name} is no list of at most {most}")
        return [CheckedFields(one) for one in value]

    def has(self, name: str) -> bool:
        """Return whether the field has a value other than null."""
        return self.values.get(name) is not None
