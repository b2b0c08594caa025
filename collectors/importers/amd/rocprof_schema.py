"""The records of rocprofv3's JSON document as msgspec types: only the fields that are read; any of them may be absent.

Lists of records stay undecoded (`msgspec.Raw` is a view of the content) until each is read: one decoded list is in
memory at a time, and a list with unexpected content does not affect the others.
"""

from __future__ import annotations

from msgspec import Raw, Struct, field

NOTHING = Raw(b"null")


class RocprofProcess(Struct):
    """What one process recorded."""

    metadata: Raw = NOTHING
    agents: Raw = NOTHING
    strings: Raw = NOTHING
    kernel_symbols: Raw = NOTHING
    buffer_records: Raw = NOTHING
    callback_records: Raw = NOTHING


class RocprofDocument(Struct):
    """The whole file."""

    processes: list[RocprofProcess] = field(name="rocprofiler-sdk-tool")


class _Node(Struct):
    """The machine: the fields that distinguish it from others."""

    machine_id: str | int | None = None
    hostname: str | None = None


class Metadata(Struct):
    """The process and its machine."""

    pid: int | None = None
    node: _Node | None = None


class Handle(Struct):
    """An id wrapped in an object."""

    handle: int | None = None


Id = Handle | int | None


class _MemoryBank(Struct, frozen=True):
    """A part of an agent's memory."""

    size_in_bytes: int = 0


class ListedAgent(Struct):
    """A processor; `logical_node_type_id` counts the processors of its type from 0."""

    id: Id = None
    type: int | None = None
    node_id: int | None = None
    logical_node_type_id: int | None = None
    name: str | None = None
    product_name: str | None = None
    cu_count: int | None = None
    mem_banks: list[_MemoryBank] = []


class KernelSymbol(Struct):
    """A kernel and its names."""

    kernel_id: int | None = None
    kernel_name: str | None = None
    formatted_kernel_name: str | None = None
    demangled_kernel_name: str | None = None
    truncated_kernel_name: str | None = None


class KernelRegisters(Struct):
    """The vector registers that each thread of a kernel has."""

    kernel_id: int | None = None
    arch_vgpr_count: int | None = None
    accum_vgpr_count: int | None = None


class ApiNames(Struct):
    """The names of the operations of one kind of record; kinds and operations are numbered by position."""

    kind: str | None = None
    operations: list[str | None] = []


class RocprofMessage(Struct):
    """The text of a marker, by correlation id."""

    key: int | None = None
    value: str | None = None


class Strings(Struct):
    """The texts of a process."""

    buffer_records: Raw = NOTHING
    marker_api: Raw = NOTHING


class _Correlation(Struct, frozen=True):
    """The ids of a record: `internal` is the recorder's own; other fields belong to the application."""

    internal: int | None = None


class Record(Struct, frozen=True):
    """The fields of all records. Times are nanoseconds."""

    start_timestamp: int | None = None
    end_timestamp: int | None = None
    kind: int | None = None
    operation: int | None = None
    thread_id: int | None = None
    correlation_id: _Correlation | None = None


class _DispatchInfo(Struct, frozen=True):
    """Which kernel ran where."""

    agent_id: Id = None
    queue_id: Id = None
    kernel_id: int | None = None


class Dispatch(Record, frozen=True):
    """A kernel."""

    dispatch_info: _DispatchInfo = _DispatchInfo()
    stream_id: Id = None
    graph_node_id: int | None = None


class Counted(Record, frozen=True):
    """A kernel whose counters were read."""

    dispatch_data: Dispatch = Dispatch()
    stream_id: Id = None


class _Sides(Struct, frozen=True):
    """The sides of a grid or of a workgroup, in threads."""

    x: int | None = None
    y: int | None = None
    z: int | None = None


class _DetailedDispatchInfo(_DispatchInfo, frozen=True):
    """Which kernel ran where, and how it was launched."""

    group_segment_size: int | None = None
    workgroup_size: _Sides = _Sides()
    grid_size: _Sides = _Sides()


class DetailedDispatch(Dispatch, frozen=True):
    """A kernel, and how it was launched."""

    dispatch_info: _DetailedDispatchInfo = _DetailedDispatchInfo()


class DetailedCounted(Counted, frozen=True):
    """A kernel whose counters were read, and how it was launched."""

    dispatch_data: DetailedDispatch = DetailedDispatch()


class RocprofCopy(Record, frozen=True):
    """A copy."""

    dst_agent_id: Id = None
    src_agent_id: Id = None
    bytes: int | None = None
    stream_id: Id = None
    graph_node_id: int | None = None


class RocprofCall(Record, frozen=True):
    """A call or a marker."""


class Allocation(Record, frozen=True):
    """Memory allocated or freed."""

    agent_id: Id = None
    address: Handle | int | str | None = None
    allocation_size: int | None = None
