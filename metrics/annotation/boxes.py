"""Boxes: what a person sees of an iteration, from the whole of it down to single events."""

from __future__ import annotations

import polars as pl

from deepprof.collectors.table_schema import TableSchema

SIDES = ("host", "device")
RECORDED_KINDS = ("operator", "kernel", "call")  # what the recorder wrote; the others state what it belongs to
BOX_KINDS = ("iteration", "stage", "layer", "section", *RECORDED_KINDS)

BOXES = TableSchema.of(
    "One box; parents come before their children, siblings in the order of time.",
    {
        "box": (pl.UInt32(), "its number, and the row's"),
        "parent": (pl.UInt32(), "the box around it, a smaller number; null: none"),
        "depth": (pl.UInt16(), "how many boxes are around it"),
        "side": (pl.Enum(SIDES), "where its time was spent"),
        "kind": (pl.Enum(BOX_KINDS), "what it is"),
        "title": (pl.String(), "what it is called, for people"),
        "start_ns": (pl.Int64(), "when it begins"),
        "end_ns": (pl.Int64(), "when it ends"),
        "busy_ns": (pl.Int64(), "on a device the union of its events, on the host its time; of a section the sum"),
        "events": (pl.UInt32(), "how many single events are in it"),
        "name": (pl.String(), "its whole name, where the title is not all of it"),
        "file": (pl.String(), "the file of the function that it is, or from which it was called or launched"),
        "line": (pl.UInt32(), "the line in that file; null: none is known"),
    },
)
