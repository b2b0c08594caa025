"""The XPlane message types, built at run time from `xplane.binpb`, which `make proto` compiles from `xplane.proto`.

Generated Python code needs a protobuf as new as itself or newer, and torch, TensorFlow and JAX each pin one. The
compiled schema is only data, which every protobuf from 4.25 on can read.
"""

from __future__ import annotations

import importlib
from functools import cache
from pathlib import Path
from typing import Any

from msgspec import Struct

from deepprof.collectors.errors import TraceError

SCHEMA = Path(__file__).with_name("xplane.binpb")
PACKAGE = "deepprof.xplane"
MESSAGES = {
    "space": "Space",
    "plane": "Plane",
    "line": "Line",
    "module": "HloModule",
    "computation": "HloComputation",
    "instruction": "HloInstruction",
}


class XPlaneSchema(Struct, frozen=True):
    """The message types of the pieces, and the error that protobuf raises for content that it cannot decode."""

    space: Any
    plane: Any
    line: Any
    module: Any
    computation: Any
    instruction: Any
    error: type[Exception]


def load_schema(path: Path) -> XPlaneSchema:
    """Return the message types; raise `TraceError` for `path`, the file to be read, if protobuf is missing."""
    try:
        return build_schema()
    except (ImportError, AttributeError) as error:  # AttributeError: before 4.22
        advice = "`pip install 'deepprof[xplane]'`"
        raise TraceError(
            path, "is an XPlane profile, which needs the package protobuf 4.25 or newer", advice
        ) from error


@cache
def build_schema() -> XPlaneSchema:
    """Return the message types from the compiled schema, in their own pool."""
    descriptors = importlib.import_module("google.protobuf.descriptor_pb2")
    pool = importlib.import_module("google.protobuf.descriptor_pool").DescriptorPool()
    factory = importlib.import_module("google.protobuf.message_factory")
    for file in descriptors.FileDescriptorSet.FromString(SCHEMA.read_bytes()).file:
        pool.AddSerializedFile(file.SerializeToString())
    types = {
        field: factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{name}"))
        for field, name in MESSAGES.items()
    }
    return XPlaneSchema(**types, error=importlib.import_module("google.protobuf.message").DecodeError)
