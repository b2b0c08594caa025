"""Traces with a row in every table, and the way over the wire."""

import polars as pl
from hypothesis import strategies as st
from msgspec.structs import replace

from deepprof.collectors.trace import (
    COLLECTIVES,
    CONTEXT_NODES,
    CONTEXT_SUMS,
    DEVICES,
    EVENT_STACKS,
    LAUNCH_SHAPES,
    MEMORY_EVENTS,
    OPERANDS,
    STACKS,
    Accounting,
    Trace,
)
from deepprof.live.wire import TraceAssembly, WireLimits, cut, make_end, make_hello
from deepprof.live.wire.sent_tables import SENT_RECORDS, SENT_TABLES
from tests.tables import copy, event, launch, make_nodes, make_sum, make_trace, span, table

TIMES = range(0, 100, 10)


def make_full_trace(times=TIMES, **header):
    """A trace with a row in every table, and side tables that join to some of the rows."""
    device = [event(i % 3, t, t + 7, correlation=i + 1) for i, t in enumerate(times)] + [copy(5, 25, 4096)]
    host = [launch(i + 1, t, t + 2, 1) for i, t in enumerate(times)]
    ranges = [span(2, 15, 45, domain="user"), span(1, 30, None), span(0, 60, 60)]
    trace = make_trace(device, host, ranges, names=["gemm", "launch", "Zürich €", "never used", ""], rank=3)
    memory = table([{"time_ns": t, "device": 0, "nbytes": -64, "address": 2**63} for t in times], MEMORY_EVENTS)
    sides = {
        "devices": table([{"device": 0, "name": "H200", "memory_nbytes": 2**37}, {"device": 1}], DEVICES),
        "collectives": table(
            [{"event": i, "collective": "allreduce", "group": "0", "sequence": i} for i in (0, 0, 4, 9)], COLLECTIVES
        ),
        "launch_shapes": table([{"event": i, "grid": 2**40 + i, "block": 64} for i in (2, 4, 5)], LAUNCH_SHAPES),
        "operands": table([{"event": i, "dims": f"[[{i}]]", "dtypes": '["float"]'} for i in (1, 8)], OPERANDS),
        "stacks": table([{"stack_id": i, "frames": f"train.py({i}): step"} for i in range(4)], STACKS),
        "event_stacks": table([{"event": i, "stack_id": 3 - i % 2} for i in (2, 5, 9)], EVENT_STACKS),
        "context_nodes": make_nodes({2**63: 0, 3: 2**63, 7: 3, 5: 0, 9: 0, 10: 9}),
    }
    sums = table([make_sum(t, context) for t in times for context in (7, 5, 7)], CONTEXT_SUMS)  # 9 and 10 in none
    rows = trace.host_events.height
    stacks = pl.Series([(7 * i) % 3 if i % 2 else None for i in range(rows)], dtype=pl.UInt32)
    kept = trace.accounting.kept + memory.height + sums.height
    counts = Accounting(kept + 5, kept, {"metadata": 5}, {"unlinked": 1})
    fixed = {"epoch_ns": 17 * 10**17, "clock": "session", "world_size": 8, "notes": ("a note — 3 µs",)}
    host_events = trace.host_events.with_columns(stack_id=stacks)
    records = {"memory_events": memory, "host_events": host_events, "context_sums": sums}
    return replace(trace, accounting=counts, **records, **sides, **fixed | header)


def over_the_wire(trace, *, records=8192, limits=None):
    """Return what arrives of a trace."""
    limits = limits or WireLimits()
    assembly = TraceAssembly(make_hello(trace, "job"), limits=limits)
    for message in cut(trace, records=records, limits=limits):
        assembly.add_batch(type(message).FromString(message.SerializeToString()))
    assembly.add_end(make_end(trace))
    return assembly.trace()


def assert_same(one, other):
    """The first came over the wire, which has no word for the process behind a rank."""
    assert one.processes == ()
    other = replace(other, processes=())
    for name in Trace.__struct_fields__:
        a, b = getattr(one, name), getattr(other, name)
        assert a.equals(b, null_equal=True) if hasattr(a, "equals") else a == b, name
    for name, schema in SENT_TABLES.items():
        assert getattr(one, name).schema == schema, name


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
SIZES = {"start_ns": (0, 50), "end_ns": (50, 60), "time_ns": (0, 50), "name_id": (0, 4), "nbytes": (0, 2**44)}
ALWAYS = ("start_ns", "end_ns", "time_ns", "device", "stream", "activity", "name_id", "category", "side", "event")
BITS = {pl.UInt16: (0, 2**16), pl.UInt32: (0, 2**32), pl.UInt64: (0, 2**64), pl.Int32: (-(2**31), 2**31)}


def values(column, dtype):
    """Return a strategy for the values of a column."""
    if isinstance(dtype, pl.Enum):
        found = st.sampled_from(dtype.categories.to_list())
    elif dtype == pl.String:
        found = TEXTS
    elif dtype == pl.Boolean:
        found = st.booleans()
    else:
        low, end = SIZES.get(column) or BITS.get(type(dtype), (-(2**63), 2**63))
        found = st.integers(low, end - 1)
    return found if column in ALWAYS else st.none() | found


@st.composite
def rows_of(draw, name, most=12, events=0):
    """Return a table with every column filled, some with nulls; `event` is below `events`."""
    schema = SENT_TABLES[name]
    kinds = {column: values(column, dtype) for column, dtype in schema.items()}
    if "event" in kinds:
        kinds["event"] = st.integers(0, max(0, events - 1))
        most = most if events else 0
    return table(draw(st.lists(st.fixed_dictionaries(kinds), max_size=most)), schema)


@st.composite
def contexts(draw):
    """Return a tree of contexts, and sums of some of them."""
    numbers = draw(st.lists(st.integers(1, 2**64 - 1), unique=True, max_size=8))
    kinds = st.sampled_from(CONTEXT_NODES["kind"].categories.to_list())
    rows = [
        {"context": number, "parent": draw(st.sampled_from([0, *numbers[:place]])), "kind": draw(kinds)}
        | {"name_id": draw(st.integers(0, 3)), "line": draw(st.integers(0, 2**32 - 1))}
        for place, number in enumerate(numbers)
    ]
    sums = st.builds(make_sum, st.integers(0, 50), st.sampled_from(numbers or [0]), st.integers(0, 2**53))
    return table(rows, CONTEXT_NODES), table(draw(st.lists(sums, max_size=12 if numbers else 0)), CONTEXT_SUMS)


@st.composite
def made_up_traces(draw):
    """Return traces with anything in every column."""
    nodes, sums = draw(contexts())
    records = {name: draw(rows_of(name)) for name in SENT_RECORDS if name != "context_sums"} | {"context_sums": sums}
    sides = {
        "collectives": draw(rows_of("collectives", 5, records["device_events"].height)),
        "launch_shapes": draw(rows_of("launch_shapes", 5, records["device_events"].height)),
        "operands": draw(rows_of("operands", 5, records["host_events"].height)),
        "event_stacks": draw(rows_of("event_stacks", 5, records["device_events"].height)),
        "devices": draw(rows_of("devices", 3)),
        "stacks": draw(rows_of("stacks", 5)).unique("stack_id", maintain_order=True),
        "context_nodes": nodes,
    }
    kept = sum(rows.height for rows in records.values())
    dropped = draw(st.dictionaries(st.sampled_from(["flow", "invalid"]), st.integers(0, 9)))
    names = draw(st.lists(TEXTS, min_size=4, max_size=9))
    return Trace(
        path=draw(TEXTS),
        format="test",
        names=pl.Series("name", names, dtype=pl.String),
        accounting=Accounting(kept + sum(dropped.values()), kept, dropped, {"unlinked": 2}),
        clock=draw(st.sampled_from(["unix", "session"])),
        epoch_ns=draw(st.none() | st.integers(0, 10**18)),
        rank=draw(st.none() | st.integers(0, 3)),
        world_size=draw(st.none() | st.integers(4, 9)),
        notes=tuple(draw(st.lists(TEXTS, max_size=3))),
        **records,
        **sides,
    )
