"""The content of a Kineto JSON document as msgspec types; only the fields that the tables need are decoded.

The values are typed `Any` on purpose: some writers write numbers, others texts, and the columns accept both. Decoding
still fails for an event that is no object, has invalid `args`, or contains text that is no UTF-8: then `batches`
decodes the events around it one by one."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw, Struct, field

from deepprof.collectors.errors import TraceError

NULL = Raw(b"null")
NOT_A_NUMBER = re.compile(rb"[:\[,]\s*[-+]?(?:nan|inf)", re.IGNORECASE)
BARE = re.compile(rb"nan|inf", re.IGNORECASE)
TEXT_OR_NOT_A_NUMBER = re.compile(rb'"(?:[^"\\]|\\.)*+"|[-+]?(?:nan|inf(?:inity)?)', re.IGNORECASE)
SURROGATES = re.compile(rb"\\\\|\\u[dD][89abAB]..\\u[dD][c-fC-F]..|\\u[dD][89a-fA-F]..")
ESCAPE_OR_BACKSLASH = re.compile(rb'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})|\\')
CONTROL = re.compile(rb"[\x00-\x1f]")
SPACED = bytes([32] * 32) + bytes(range(32, 256))  # a space for every control character
SPACE = re.compile(rb"[ \t\r\n]*")
NEAR_NBYTES = 16  # from the position in msgspec's error to the start of the faulty value
POSITION = re.compile(r"\(byte (\d+)\)")
# UnicodeDecodeError is a ValueError; msgspec's own errors are ValueErrors only in later releases.
UNDECODABLE = (msgspec.DecodeError, ValueError, RecursionError)


class KinetoDocument(Struct, gc=False):
    """The top level: the list of events and the header fields as raw JSON (views of the document)."""

    events: Raw = field(name="traceEvents")
    version: Raw = field(default=NULL, name="schemaVersion")
    base: Raw = field(default=NULL, name="baseTimeNanoseconds")
    devices: Raw = field(default=NULL, name="deviceProperties")
    distributed: Raw = field(default=NULL, name="distributedInfo")
    layers: Raw = field(default=NULL, name="deepprof_layers")
    cuda_runtime_version: Raw = NULL
    cuda_driver_version: Raw = NULL
    hip_runtime_version: Raw = NULL
    hip_driver_version: Raw = NULL


class _KinetoArgs(Struct, gc=False, frozen=True):
    """The `args` of any event; None where absent."""

    correlation: Any = None
    external_id: Any = field(default=None, name="External id")
    old_external_id: Any = field(default=None, name="external id")
    device: Any = None
    context: Any = None
    stream: Any = None
    nbytes: Any = field(default=None, name="bytes")
    graph_node: Any = field(default=None, name="graph node id")
    span_id: Any = field(default=None, name="Python id")
    parent_id: Any = field(default=None, name="Python parent id")
    module_id: Any = field(default=None, name="Python module id")
    sequence: Any = field(default=None, name="Sequence number")
    forward_thread: Any = field(default=None, name="Fwd thread id")
    flops: Any = None
    device_type: Any = field(default=None, name="Device Type")
    device_id: Any = field(default=None, name="Device Id")
    changed: Any = field(default=None, name="Bytes")
    address: Any = field(default=None, name="Addr")
    allocated: Any = field(default=None, name="Total Allocated")
    reserved: Any = field(default=None, name="Total Reserved")
    collective: Any = field(default=None, name="Collective name")
    dtype: Any = None
    in_elements: Any = field(default=None, name="In msg nelems")
    out_elements: Any = field(default=None, name="Out msg nelems")
    group: Any = field(default=None, name="Process Group Name")
    group_size: Any = field(default=None, name="Group size")
    collective_sequence: Any = field(default=None, name="Seq")
    registers: Any = field(default=None, name="registers per thread")
    shared_nbytes: Any = field(default=None, name="shared memory")


class _DetailedKinetoArgs(_KinetoArgs, gc=False, frozen=True):
    """`_KinetoArgs` with the fields that stay JSON text (`batches.JSON_TEXTS`)."""

    dims: Raw = field(default=NULL, name="Input Dims")
    old_dims: Raw = field(default=NULL, name="Input dims")
    dtypes: Raw = field(default=NULL, name="Input type")
    values: Raw = field(default=NULL, name="Concrete Inputs")
    strides: Raw = field(default=NULL, name="Input Strides")
    stack: Raw = field(default=NULL, name="Call stack")
    grid: Raw = NULL
    block: Raw = NULL


class KinetoEvent(Struct, gc=False):
    """One element of `traceEvents`. `ts` and `dur` are microseconds."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: Any = None
    tid: Any = None
    ts: Any = None
    dur: Any = None
    args: _KinetoArgs = _KinetoArgs()


class BareKinetoEvent(KinetoEvent, gc=False):
    """An event whose `args` cannot be read."""

    args: _KinetoArgs = field(default=_DetailedKinetoArgs(), name="")


class DetailedKinetoEvent(KinetoEvent, gc=False):
    """An event with `_DetailedKinetoArgs`."""

    args: _DetailedKinetoArgs = _DetailedKinetoArgs()


def decode_document(content: bytes, path: Path, hole: tuple[int, int] = (0, 0)) -> KinetoDocument:
    """Return the document in `content`, an object with `traceEvents` or a bare list of events.

    `hole` is the byte of `content` at which bytes of the file were left out, and their number. Common violations of
    JSON are repaired: see `repair`. Raises `TraceError` when it is damaged, truncated, or something else.
    """
    try:
        return _decode_top(content)
    except UNDECODABLE as error:
        if not _may_be_repaired(content, str(error)):
            raise _explain(error, path, len(content), hole) from error
    try:
        return _decode_top(repair(content))
    except UNDECODABLE as error:
        raise _explain(error, path, len(content), hole) from error


def find_fault(content: bytes) -> int | None:
    """Return the byte at which `content` stops being one JSON value, 0 if that is unknown; None if it is one."""
    try:
        msgspec.json.decode(content, type=Raw)
    except UNDECODABLE as error:
        found = POSITION.search(str(error))
        return int(found[1]) if found else 0
    return None


def _may_be_repaired(content: bytes, error: str) -> bool:
    """Return whether `repair`, which is slow on a large file, may remove the cause of msgspec's `error`."""
    if "surrogate" in error or "escape" in error:
        return True
    if "truncated" in error:  # also the error for half a surrogate pair close to the end
        return SURROGATES.search(content, max(0, len(content) - NEAR_NBYTES)) is not None
    found = POSITION.search(error)
    at = int(found[1]) if found else len(content)
    if CONTROL.search(content, max(0, at - 1), at + 1):
        return True
    return BARE.search(content, max(0, at - NEAR_NBYTES), at + NEAR_NBYTES) is not None


def repair(content: bytes) -> bytes:
    """Return `content` as valid JSON where writers have copied values unchanged.

    It has null for `NaN` and `inf` outside of texts, U+FFFD for half a surrogate pair, two backslashes for one that
    escapes nothing, as in paths of Windows, and a space for a control character.
    """
    content = content.translate(SPACED)
    if NOT_A_NUMBER.search(content):  # this may be inside a text: the slow check follows only then
        content = TEXT_OR_NOT_A_NUMBER.sub(lambda found: found[0] if found[0][:1] == b'"' else b"null", content)
    content = ESCAPE_OR_BACKSLASH.sub(lambda found: found[0] if len(found[0]) > 1 else rb"\\", content)
    return SURROGATES.sub(lambda found: rb"\ufffd" if len(found[0]) == 6 else found[0], content)


def _decode_top(content: bytes) -> KinetoDocument:
    """Return the document in `content`; raises msgspec's errors."""
    start = 3 if content.startswith(b"\xef\xbb\xbf") else 0  # a byte-order mark
    view = memoryview(content)[start:]
    if content.startswith(b"[", SPACE.match(content, start).end()):  # type: ignore[union-attr]
        return KinetoDocument(events=msgspec.json.decode(view, type=Raw))
    document = msgspec.json.decode(view, type=KinetoDocument)
    if memoryview(document.events)[0] != ord("["):
        raise msgspec.ValidationError("Expected `array` - at `$.traceEvents`")
    return document


def _explain(error: Exception, path: Path, nbytes: int, hole: tuple[int, int]) -> TraceError:
    """Return the `TraceError` that explains msgspec's `error` about `nbytes` of JSON to the user."""
    again = "copy or export the trace again"
    if isinstance(error, msgspec.ValidationError):
        return TraceError(path, f"is no Kineto trace: {error}", "give a file written by torch.profiler")
    if "truncated" in str(error):
        return TraceError(path, f"is truncated: its JSON breaks off at byte {nbytes + hole[1]}", again)
    if found := POSITION.search(str(error)):
        at = int(found[1])
        return TraceError(path, f"is damaged: its JSON breaks near byte {at + hole[1] * (at > hole[0])}", again)
    return TraceError(path, f"is damaged: its JSON cannot be read ({error})", again)


def decode_loosely(raw: Raw) -> Any:
    """Return the header field in `raw` as plain Python values, None when it cannot be read."""
    try:
        return msgspec.json.decode(raw)
    except UNDECODABLE:
        return None
