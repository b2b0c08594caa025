"""The instructions of XLA's compiled programs that ran: `Trace.instructions` and `Trace.event_instructions`."""

from __future__ import annotations

import polars as pl

from deepprof.collectors.table_schema import TableSchema

I64, U32, TEXT = pl.Int64(), pl.UInt32(), pl.String()

INSTRUCTIONS = TableSchema.of(
    "One instruction of a program that XLA compiled, of those that ran; stored, not sent.",
    {
        "instruction": (U32, "its number, and the row's"),
        "program": (TEXT, "the name of its program (XLA's module)"),
        "program_id": (I64, "the number of the program in the process; null: not recorded"),
        "name": (TEXT, "its name in the program, `fusion.12`"),
        "opcode": (TEXT, "what it does, as XLA calls it: `fusion`, `dot`, `custom-call`; null: not recorded"),
        "target": (TEXT, "what a custom call calls (`__cublas$gemm`), how a fusion is compiled (`kLoop`), else null"),
        "parts": (TEXT, "the opcodes fused in it, separated by spaces, the most frequent first; null: it is no fusion"),
        "shape": (TEXT, "type and dimensions of its result, `bf16[64,32]`; of a tuple those of its first part"),
        "operands": (TEXT, "those of its first operands, separated by spaces; null: none"),
        "factors": (TEXT, "the types of the first two operands of its product, or of a custom call: `bf16 bf16`"),
        "precision": (TEXT, "how exactly it multiplies: `DEFAULT`, `HIGHEST`, `ALG_DOT_…`; null: not stated"),
        "op_name": (TEXT, "the operation of the user's program, within its name scopes; null: not recorded"),
    },
)
EVENT_INSTRUCTIONS = TableSchema.of(
    "Which instruction a device event ran, where a compiled program is recorded.",
    {"event": (U32, "the row of `device_events`"), "instruction": (U32, "the row of `instructions`")},
)
