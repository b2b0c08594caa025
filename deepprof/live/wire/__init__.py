"""How traces are sent over the network: cut into batches, checked, and put together again.

A sender uses `make_hello`, `cut` and `make_end`. A receiver uses `read_request`, then `check_hello`, `check_batch`,
`check_gap` or `check_end`. `TraceAssembly` turns the messages back into a trace.

`cutting` cuts a trace by time, `assembly` puts it together again. Everything that a client sends passes through
`requests`, `checking`, `decoding` and `values`, in this order: nothing is used before it is checked.
"""

from __future__ import annotations

from deepprof.live.wire.assembly import TraceAssembly
from deepprof.live.wire.checking import check_batch, check_end, check_gap, check_hello, check_status, count_records
from deepprof.live.wire.cutting import cut
from deepprof.live.wire.decoding import encode_table
from deepprof.live.wire.errors import WireError
from deepprof.live.wire.heads import make_end, make_hello
from deepprof.live.wire.limits import WireLimits
from deepprof.live.wire.records import CheckedRecords
from deepprof.live.wire.requests import read_request

__all__ = [
    "CheckedRecords",
    "TraceAssembly",
    "WireError",
    "WireLimits",
    "check_batch",
    "check_end",
    "check_gap",
    "check_hello",
    "check_status",
    "count_records",
    "cut",
    "encode_table",
    "make_end",
    "make_hello",
    "read_request",
]
