"""nvprof's CSV and databases made by hand, and what reads them."""

from __future__ import annotations

import sqlite3
import struct
from pathlib import Path

from deepprof.collectors.importers import Importer
from deepprof.collectors.importers.nvprof import Nvprof
from deepprof.collectors.importers.nvprof.csv_files import NvprofCsv
from deepprof.collectors.trace import Trace

BANNER = "==7== NVPROF is profiling process 7, command: ./train\n==7== Profiling application: ./train\n"
RESULT = "==7== Profiling result:\n"
HEADER = (
    '"Start","Duration","Grid X","Grid Y","Grid Z","Block X","Block Y","Block Z","Registers Per Thread","Static SMem",'
    '"Dynamic SMem","Size","Throughput","Device","Context","Stream","Name"\n'
)
UNITS = "ms,us,,,,,,,,KB,B,MB,GB/s,,,,\n"
START = BANNER + RESULT + HEADER + UNITS
KERNEL = '{start},{duration},1,1,1,32,1,1,16,0,0,,,"Tesla K40c (0)","1","{stream}","{name}"\n'
COPY = '{start},{duration},,,,,,,,,,{size},1.5,"Tesla K40c (0)","1","7","{name}"\n'
API_HEADER = '"Start","Duration","Name","Correlation_ID"\n'

STRINGS = {0: "-- null --", 1: "_Z4gemmIfEvPT_i", 2: "forward", 3: "Tesla K40c", 4: "layers"}
PLACED = {"start": 10**18 + 100, "end": 10**18 + 200, "deviceId": 0, "contextId": 1, "streamId": 7, "correlationId": 11}
DB_KERNEL = {**PLACED, "name": 1}
DB_COPY = {**PLACED, "bytes": 4096, "copyKind": 1, "srcKind": 1, "dstKind": 3}
DB_CALL = {
    "cbid": 211,
    "start": 10**18 + 50,
    "end": 10**18 + 60,
    "processId": 7,
    "threadId": -2,
    "correlationId": 11,
    "returnValue": 0,
}
DB_MARKER = {
    "flags": 2,
    "timestamp": 10**18 + 10,
    "id": 1,
    "objectKind": 2,
    "objectId": struct.pack("<III", 7, 2**32 - 2, 0),
    "name": 2,
    "domain": 0,
}

Rows = list[dict[str, object]]


def rows(base: dict[str, object], *changes: dict[str, object]) -> Rows:
    return [{**base, **change} for change in changes]


def kernel(start: float = 1, duration: float = 2, stream: int = 7, name: str = "gemm(float*) [11]") -> str:
    return KERNEL.format(start=start, duration=duration, stream=stream, name=name)


def copy(start: float = 1, duration: float = 2, size: object = "1.000000", name: str = "[CUDA memcpy HtoD]") -> str:
    return COPY.format(start=start, duration=duration, size=size, name=name)


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def build(path: Path, *, strings: dict[int, object] | None = None, **tables: Rows) -> Path:
    """Write a database with `tables`, named without what all names start with."""
    connection = sqlite3.connect(path)
    strings = STRINGS if strings is None else strings
    everything = {f"CUPTI_ACTIVITY_KIND_{name}": content for name, content in tables.items()}
    everything["StringTable"] = [{"_id_": key, "value": text} for key, text in strings.items()]
    for table, content in everything.items():
        columns = list(content[0]) if content else ["_id_"]
        connection.execute(f'CREATE TABLE "{table}" ({", ".join(columns)})')
        marks = ", ".join("?" * len(columns))
        connection.executemany(f'INSERT INTO "{table}" VALUES ({marks})', [tuple(row.values()) for row in content])
    connection.commit()
    connection.close()
    return path


def read_text(path: Path, content: str | bytes) -> Trace:
    return NvprofCsv().read(write(path, content))


def read_database(path: Path, **tables: Rows) -> Trace:
    return Nvprof().read(build(path, **tables))


def named(trace: Trace, table: str, *columns: str) -> list[tuple[object, ...]]:
    frame = getattr(trace, table)
    return frame.with_columns(name=trace.names.gather(frame["name_id"])).select(*columns).rows()


def accepts(importer: Importer, path: Path) -> bool:
    return importer.accepts(path.read_bytes()[: 64 * 1024], path)
