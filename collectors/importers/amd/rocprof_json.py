"""The JSON document of rocprofv3: a list of processes, each with its records, agents, kernels and texts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import polars as pl

from deepprof.collectors.errors import TraceError
from deepprof.collectors.importers.amd import words
from deepprof.collectors.importers.amd.places import RocmProcessor
from deepprof.collectors.importers.amd.rocprof_schema import (
    Allocation,
    ApiNames,
    Counted,
    DetailedCounted,
    DetailedDispatch,
    Dispatch,
    Handle,
    KernelRegisters,
    KernelSymbol,
    ListedAgent,
    Metadata,
    Record,
    RocprofCall,
    RocprofCopy,
    RocprofDocument,
    RocprofMessage,
    RocprofProcess,
    Strings,
)
from deepprof.collectors.importers.amd.rocprof_trace import ALLOCATION, DEVICE, HOST, Loose, frame
from deepprof.collectors.importers.files import read_bytes
from deepprof.collectors.importers.json_bounds import check_values
from deepprof.collectors.importers.launch_shapes import blocks_of, product_of, shape_columns
from deepprof.collectors.importers.value_columns import integers, unsigned

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

OPENING = b'"rocprofiler-sdk-tool"'
GPU = 2  # of `type`; 1 is a CPU
PROCESSES = 1_000  # at most in one file; rocprofv3 writes one file per process
CALLS = {"hip_api": "runtime", "hsa_api": "runtime", "marker_api": "annotation"}
OTHER_CALLS = ("rccl_api", "rocdecode_api", "rocjpeg_api", "ompt")
ALLOCATIONS = ("memory_allocation", "scratch_memory")
SAMPLES = ("pc_sample_host_trap", "pc_sample_stochastic")
DAMAGED = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
T = TypeVar("T")
D = TypeVar("D")
R = TypeVar("R", bound=Record)


def accepts(head: bytes) -> bool:
    """Return whether a file that starts with `head` is a document of rocprofv3."""
    return head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{") and OPENING in head[:4096]


def read_document(path: Path, loose: Loose) -> int:
    """Add the records of all processes in `path` to `loose`; return how many there are. Raises `TraceError`."""
    content = read_bytes(path)
    check_values(path, content)
    try:
        document = msgspec.json.decode(
            memoryview(content)[3 * content.startswith(b"\xef\xbb\xbf") :], type=RocprofDocument
        )
    except DAMAGED as error:
        raise TraceError(path, f"is truncated or damaged JSON ({error})", "copy or export it again") from error
    if len(document.processes) > PROCESSES:
        raise TraceError(path, f"holds more than {PROCESSES} processes", "give the file of one process")
    read = 0
    for number, process in enumerate(document.processes):
        read += _ProcessReader(process, number, loose).read()
    if len(document.processes) > 1:
        loose.notes.append(f"{len(document.processes)} processes are in this file")
    return read


def _decoded(raw: msgspec.Raw, kind: type[T], default: D) -> T | D:
    """Return `raw` decoded as `kind`, bad UTF-8 replaced; `default` where it is something else."""
    try:
        return msgspec.json.decode(raw, type=kind)
    except DAMAGED:  # releases of msgspec differ in the error for bad UTF-8
        mended = bytes(raw).decode("utf-8", "replace").encode()
        return default if mended == bytes(raw) else _decoded(msgspec.Raw(mended), kind, default)


def _each(raw: msgspec.Raw, kind: type[T]) -> list[T]:
    """Return the items of the list in `raw` decoded as `kind`, without those that are something else."""
    whole = _decoded(raw, list[kind], None)  # type: ignore[valid-type]
    if whole is not None:
        return whole
    items = (_decoded(item, kind, None) for item in _decoded(raw, list[msgspec.Raw], []))
    return [item for item in items if item is not None]


def _handle(value: Handle | int | None) -> int | None:
    """Return the id in `value`, which is a handle or a bare number."""
    return value.handle if isinstance(value, Handle) else value


def _correlation(record: Record) -> int | None:
    """Return the recorder's own correlation id of `record`."""
    return record.correlation_id.internal if record.correlation_id is not None else None


class _ProcessReader:
    """Reads one process of the document, the `number`-th, into `loose`."""

    def __init__(self, process: RocprofProcess, number: int, loose: Loose) -> None:
        self.number, self.loose, self.lists = (
            number,
            loose,
            _decoded(process.buffer_records, dict[str, msgspec.Raw], {}),
        )
        self.seen, self.has_kernels = 0, False
        metadata = _decoded(process.metadata, Metadata, Metadata())
        node = metadata.node
        self.pid = integers([metadata.pid])[0]
        self.node = f"{node.machine_id} {node.hostname} " if node is not None else f"{number} "
        self.agents = _each(process.agents, ListedAgent)
        self.symbols = _each(process.kernel_symbols, KernelSymbol)
        self.registers = _each(process.kernel_symbols, KernelRegisters) if loose.shapes else []
        strings = _decoded(process.strings, Strings, Strings())
        self.names = [_decoded(item, ApiNames, ApiNames()) for item in _each(strings.buffer_records, msgspec.Raw)]
        self.messages = _each(strings.marker_api, RocprofMessage)
        counted = _decoded(process.callback_records, dict[str, msgspec.Raw], {})
        self.counted = counted.get("counter_collection", msgspec.Raw(b"[]"))

    def read(self) -> int:
        """Add the records; return how many there are."""
        self.loose.agents.extend(self.list_agents())
        readers: dict[str, Callable[[msgspec.Raw], None]] = {
            "kernel_dispatch": self.read_kernels,
            "memory_copy": self.read_copies,
        }
        readers |= {name: self.calls_reader(category) for name, category in CALLS.items()}
        readers |= dict.fromkeys(OTHER_CALLS, self.calls_reader("other"))
        readers |= dict.fromkeys(ALLOCATIONS, self.read_allocations)
        for name, raw in self.lists.items():
            readers.get(name, self.dropper(name))(raw)
        self.read_counted()
        return self.seen

    def records(self, raw: msgspec.Raw, kind: type[R]) -> list[R]:
        """Return the records in `raw`; those that are not of `kind` are left out and counted."""
        whole = _decoded(raw, list[kind], None)  # type: ignore[valid-type]
        if whole is not None:
            self.seen += len(whole)
            return whole
        records = [_decoded(one, kind, None) for one in _decoded(raw, list[msgspec.Raw], [])]
        sound = [record for record in records if record is not None]
        self.seen += len(sound)
        self.drop("invalid", len(records) - len(sound))
        return sound

    def drop(self, reason: str, count: int) -> None:
        """Count `count` records as seen and left out."""
        self.seen += count
        if count:
            self.loose.tally.dropped[reason] += count

    def dropper(self, name: str) -> Callable[[msgspec.Raw], None]:
        """Return a function that counts and leaves out the records of the list `name`."""
        reason = "sample" if name in SAMPLES else "unsupported"
        return lambda raw: self.drop(reason, len(_decoded(raw, list[msgspec.Raw], [])))

    def columns(self, records: Sequence[Record]) -> dict[str, Any]:
        """Return the columns that DEVICE and HOST rows of `records` have in common."""
        return {
            "start_ns": integers([record.start_timestamp for record in records]),
            "end_ns": integers([record.end_timestamp for record in records]),
            "correlation": integers(list(map(_correlation, records))),
            "process": self.number,
        }

    def keys(self, agents: Iterable[Handle | int | None]) -> pl.Series:
        """Return the keys of `agents`."""
        ids = [_handle(agent) for agent in agents]
        return pl.Series([None if at is None else f"{self.node}{at}" for at in ids], dtype=pl.String)

    def list_agents(self) -> list[RocmProcessor]:
        """Return the agents, in the order of their nodes."""
        agents = [agent for agent in sorted(self.agents, key=lambda agent: agent.node_id or 0) if agent.id is not None]
        return [
            RocmProcessor(
                key=f"{self.node}{_handle(agent.id)}",
                node=self.node,
                gpu=agent.type == GPU,
                number=agent.logical_node_type_id,
                name=agent.product_name or agent.name,
                memory_nbytes=sum(bank.size_in_bytes for bank in agent.mem_banks) or None,
                multiprocessors=agent.cu_count,
            )
            for agent in agents
        ]

    def read_kernels(self, raw: msgspec.Raw) -> None:
        """Add the dispatches in `raw`."""
        records = self.records(raw, DetailedDispatch if self.loose.shapes else Dispatch)
        self.add_kernels(records, [record.stream_id for record in records])

    def add_kernels(self, records: Sequence[Dispatch], streams: Sequence[Handle | int | None]) -> None:
        """Add `records`, which ran on `streams`."""
        self.has_kernels = self.has_kernels or bool(records)
        kernels = integers([record.dispatch_info.kernel_id for record in records])
        columns = {
            **self.columns(records),
            "agent": self.keys(record.dispatch_info.agent_id for record in records),
            "queue": integers([_handle(record.dispatch_info.queue_id) for record in records]),
            "stream_id": integers([_handle(stream) for stream in streams]),
            "activity": "kernel",
            "kernel": pl.col("kernel"),
            "name": pl.col("name"),
            "graph_node": integers([record.graph_node_id for record in records]),
        }
        rows = pl.DataFrame({"kernel": kernels, **_list_shapes(records)})
        for table in (self.kernel_names(), self.kernel_registers()):
            rows = rows.join(table, on="kernel", how="left", maintain_order="left")
        self.loose.device.append(self.loose.kernels(columns, _shape_of_dispatches(), rows))

    def kernel_registers(self) -> pl.DataFrame:
        """Return `kernel` and `registers` of the kernels, read with launch shapes."""
        vectors = integers([found.arch_vgpr_count for found in self.registers])
        accumulators = integers([found.accum_vgpr_count for found in self.registers]).fill_null(0)
        table = pl.DataFrame({"kernel": integers([found.kernel_id for found in self.registers])})
        table = table.with_columns(registers=vectors + accumulators)
        return table.drop_nulls("kernel").unique("kernel", keep="first", maintain_order=True)

    def kernel_names(self) -> pl.DataFrame:
        """Return `kernel` and `name` of the kernels."""
        names = [
            s.formatted_kernel_name or s.demangled_kernel_name or s.truncated_kernel_name or s.kernel_name
            for s in self.symbols
        ]
        table = pl.DataFrame(
            {"kernel": integers([s.kernel_id for s in self.symbols]), "name": pl.Series(names, dtype=pl.String)}
        )
        table = table.with_columns(name=words.kernel_label(pl.col("name")))
        return table.drop_nulls("kernel").unique("kernel", keep="first", maintain_order=True)

    def read_counted(self) -> None:
        """Count the counter records; if no kernels were recorded, add their dispatches as the kernels."""
        if self.has_kernels:
            self.drop("counter", len(_decoded(self.counted, list[msgspec.Raw], [])))
            return
        records = self.records(self.counted, DetailedCounted if self.loose.shapes else Counted)
        self.add_kernels([record.dispatch_data for record in records], [record.stream_id for record in records])

    def read_copies(self, raw: msgspec.Raw) -> None:
        """Add the copies in `raw`."""
        records = self.records(raw, RocprofCopy)
        rows = pl.DataFrame(
            {
                "text": pl.Series(self.operations(records), dtype=pl.String),
                "target": self.keys(record.dst_agent_id for record in records),
                "source": self.keys(record.src_agent_id for record in records),
            }
        )
        rows = words.labelled(rows, "text", kind=words.copy_kind_of, label=words.copy_name)
        columns = {
            **self.columns(records),
            **words.copy_columns("target", "source"),
            "stream_id": integers([_handle(record.stream_id) for record in records]),
            "nbytes": integers([record.bytes for record in records]),
            "graph_node": integers([record.graph_node_id for record in records]),
        }
        self.loose.device.append(frame(DEVICE, columns, rows))

    def operations(self, records: Sequence[Record]) -> list[str | None]:
        """Return the name of every record's operation from `strings.buffer_records`."""
        names: dict[tuple[int | None, int | None], str | None]
        names = {(kind, at): name for kind, api in enumerate(self.names) for at, name in enumerate(api.operations)}
        return [names.get((record.kind, record.operation)) for record in records]

    def calls_reader(self, category: str) -> Callable[[msgspec.Raw], None]:
        """Return a function that adds a list of calls as host rows of `category`."""

        def read(raw: msgspec.Raw) -> None:
            records = self.records(raw, RocprofCall)
            names = self.operations(records)
            if category == "annotation":
                messages = {message.key: message.value for message in self.messages}
                names = [messages.get(_correlation(r)) or name for r, name in zip(records, names, strict=True)]
            self.loose.host.append(self.host_rows(records, names, category))

        return read

    def host_rows(self, records: Sequence[RocprofCall], names: Sequence[str | None], category: str) -> pl.DataFrame:
        """Return `records` as HOST rows."""
        columns = {
            **self.columns(records),
            "pid": self.pid,
            "thread": integers([record.thread_id for record in records]),
            "category": category,
            "name": pl.col("name"),
        }
        return frame(HOST, columns, pl.DataFrame({"name": pl.Series(names, dtype=pl.String)}))

    def read_allocations(self, raw: msgspec.Raw) -> None:
        """Add the allocations and frees in `raw`."""
        records = self.records(raw, Allocation)
        operations = pl.Series(self.operations(records), dtype=pl.String)
        columns = {
            "time_ns": integers([record.end_timestamp for record in records]),
            "process": self.number,
            "pid": self.pid,
            "thread": integers([record.thread_id for record in records]),
            "agent": self.keys(record.agent_id for record in records),
            "address": unsigned([_address_of(record.address) for record in records]),
            "nbytes": integers([record.allocation_size or 0 for record in records]),
            "freed": operations.str.contains("FREE|RECLAIM").fill_null(False),
        }
        self.loose.allocations.append(frame(ALLOCATION, columns, pl.DataFrame({"row": range(len(records))})))


def _list_shapes(records: Sequence[Dispatch]) -> dict[str, pl.Series]:
    """Return how `records` were launched, as far as they state: memory and sides by name."""
    found = [each.dispatch_info for each in records if isinstance(each, DetailedDispatch)]
    if len(found) < len(records):
        return {}
    sides = {"grid": [info.grid_size for info in found], "block": [info.workgroup_size for info in found]}
    columns = {
        f"{what}_{at}": integers([getattr(each, at) for each in of]) for what, of in sides.items() for at in "xyz"
    }
    return {"shared_nbytes": integers([info.group_segment_size for info in found]), **columns}


def _shape_of_dispatches() -> dict[str, pl.Expr]:
    """Return the columns of SHAPES; the size of a grid is in threads."""
    grid, block = (product_of([pl.col(f"{what}_{at}") for at in "xyz"]) for what in ("grid", "block"))
    registers, shared_nbytes = pl.col("registers"), pl.col("shared_nbytes")
    return shape_columns(registers=registers, shared_nbytes=shared_nbytes, grid=blocks_of(grid, block), block=block)


def _address_of(value: Handle | int | str | None) -> int | None:
    """Return the address in `value`, which versions write as a number, a handle or hexadecimal text."""
    if isinstance(value, str):
        digits = value.strip().removeprefix("0x")
        return (
            int(digits, 16)
            if 0 < len(digits) <= 16 and digits.isalnum() and digits.isascii() and _is_hex(digits)
            else None
        )
    return _handle(value)


def _is_hex(digits: str) -> bool:
    """Return whether `digits` are hexadecimal."""
    return not digits.strip("0123456789abcdefABCDEF")
