"""A session as bytes and back: numbers as msgpack, arrays and tables as their bytes; reading executes no code."""

from __future__ import annotations

import struct
import zlib
from io import BytesIO
from typing import Any, TypeVar, get_origin

import msgspec
import numpy as np
import polars as pl

from deepprof.mining.online import OnlineMiner

Saved = TypeVar("Saved")

MAGIC, VERSION = b"DPSESSION", 1
TYPES = {np.dtype(kind).str for kind in ("u1", "u2", "u4", "u8", "i4", "i8", "f8", "b1")}
_HEAD = struct.Struct("<9sHI")


def pack(value: object) -> bytes:
    """Return dataclasses of numbers, texts, arrays, tables and miners as bytes.

    Layout, little-endian: magic, version, CRC-32 of the rest; then msgpack.
    """
    body = msgspec.msgpack.encode(value, enc_hook=write)
    return _HEAD.pack(MAGIC, VERSION, zlib.crc32(body)) + body


def unpack(data: bytes, kind: type[Saved]) -> Saved:
    """Return the value from the bytes that `pack` made.

    Raises:
        ValueError: for any other bytes; its text is what is wrong with them.
    """
    if len(data) < _HEAD.size or not data.startswith(MAGIC):
        raise ValueError("this is no saved session")
    _, version, checksum = _HEAD.unpack_from(data)
    if version != VERSION:
        raise ValueError(f"a session saved in version {version}, not {VERSION}")
    body = memoryview(data)[_HEAD.size :]
    if zlib.crc32(body) != checksum:
        raise ValueError("the saved session is damaged: its checksum differs")
    try:
        return msgspec.msgpack.decode(body, type=kind, dec_hook=read)
    except (msgspec.DecodeError, TypeError, OverflowError, pl.exceptions.PolarsError) as error:
        raise ValueError(f"the saved session cannot be read: {error}") from error


def write(value: object) -> object:
    """Return a value that msgpack cannot encode in a form that it can."""
    if isinstance(value, np.ndarray) and value.dtype.str in TYPES and value.ndim == 1:
        return value.dtype.str, np.ascontiguousarray(value).data
    if isinstance(value, OnlineMiner):
        return value.save()
    if isinstance(value, pl.DataFrame):
        table = BytesIO()
        value.write_ipc(table, compression="lz4")
        return table.getvalue()
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value)} cannot be saved")


def read(kind: type, value: Any) -> Any:
    """Return the value of type `kind` from the form that `write` returned."""
    if get_origin(kind) is np.ndarray or kind is np.ndarray:
        name, content = value
        if name not in TYPES:
            raise ValueError(f"an array of {name!r}")
        return np.frombuffer(content, name).copy()
    if kind is OnlineMiner:
        return OnlineMiner.restore(value)
    if kind is pl.DataFrame:
        return pl.read_ipc(BytesIO(value))
    raise TypeError(f"{kind} is never saved")
