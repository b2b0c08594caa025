"""Readers of traces, DeepProf's and others', each run in a fresh process so that its peak memory is its own."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "ANNOTATED",
    "CONTEXTS",
    "DIAGNOSES",
    "JSON_SNAPSHOTS",
    "KINETO",
    "NSYS",
    "SMALL",
    "SNAPSHOTS",
    "STORE",
    "Reader",
    "Reading",
    "measure",
]

MEASURE = """
import json, re, sys, time
start, begin = time.process_time(), time.perf_counter()
events = read(sys.argv[1])
used, wall = time.process_time() - start, time.perf_counter() - begin
# Not ru_maxrss, which a child takes over from its parent.
peak = int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) / 1024
print(json.dumps({"events": events, "cpu_s": used, "wall_s": wall, "peak_mb": peak}))
"""
TIMEOUT_S = 300
SAID = 60  # characters of an error


@dataclass(frozen=True)
class Reader:
    """`code` defines `read(path)`, which returns how many events it read; what it imports is not counted."""

    name: str
    code: str
    runs: int = 1
    package: str = "deepprof"  # what must be installed


@dataclass(frozen=True)
class Reading:
    events: int
    cpu_s: float
    peak_mb: float
    wall_s: float = 0.0


DEEPPROF = Reader(
    "deepprof.read",
    "import deepprof; import deepprof.collectors.importers.kineto, deepprof.collectors.importers.nsys\n"
    "def read(path): return deepprof.read(path).accounting.read\n",
    runs=3,
)
STORE = Reader(
    "deepprof.read of its store",
    "import deepprof; import deepprof.collectors.importers.store\n"
    "def read(path): return deepprof.read(path).accounting.read\n",
    runs=2,
)
ANALYZE = Reader(
    "deepprof.analyze of it",
    "import deepprof; from deepprof import analyze, read as load\n"
    "def read(path): trace = load(path); analyze(trace); return trace.accounting.read\n",
    runs=2,
)
# The same fields of an event that DeepProf's importer reads, and nothing done with them.
MSGSPEC = Reader(
    "msgspec typed decode",
    "import gzip, msgspec; from deepprof.collectors.importers.kineto.kineto_schema import KinetoEvent\n"
    "Document = msgspec.defstruct('Document', [('traceEvents', list[KinetoEvent])], gc=False)\n"
    "decoder = msgspec.json.Decoder(Document)\n"
    "def read(path): return len(decoder.decode(gzip.open(path).read()).traceEvents)\n",
    runs=3,
)
GUNZIP = Reader("gunzip alone", "import gzip\ndef read(path):\n  gzip.open(path).read(); return 0\n")
JSON_LOAD = Reader(
    "json.load", "import gzip, json\ndef read(path): return len(json.load(gzip.open(path))['traceEvents'])\n"
)
# One rank is read in the process itself; TraceAnalysis(…) is what its users call, and returns with the trace loaded.
HTA = Reader(
    "HolisticTraceAnalysis",
    "import contextlib, os; from hta.trace_analysis import TraceAnalysis\n"
    "def read(path):\n"
    "  with contextlib.redirect_stdout(open(os.devnull, 'w')):\n"
    "    return len(TraceAnalysis(trace_files={0: path}, trace_dir='/').t.get_trace(0))\n",
    package="hta",
)
KINETO = (DEEPPROF, ANALYZE, MSGSPEC, GUNZIP, JSON_LOAD, HTA)
DIAGNOSIS = Reader(
    "import, analysis and report",
    "import deepprof; from deepprof.analysis import analyze; from deepprof.diagnosis.engine import installed_rules\n"
    "import deepprof.collectors.importers.kineto, deepprof.render.json; installed_rules()\n"
    "def read(path):\n"
    "  trace = deepprof.read(path); analyze(trace).to_json(); return trace.accounting.read\n",
)
# Where the time goes is one of seven analyses that its users run; these two come closest.
HTA_BREAKDOWN = Reader(
    "HTA, temporal and idle breakdown",
    "import contextlib, os, warnings; from hta.trace_analysis import TraceAnalysis\n"
    "def read(path):\n"
    "  warnings.simplefilter('ignore')\n"
    "  with contextlib.redirect_stdout(open(os.devnull, 'w')):\n"
    "    analysis = TraceAnalysis(trace_files={0: path}, trace_dir='/')\n"
    "    analysis.get_temporal_breakdown(visualize=False); analysis.get_idle_time_breakdown(visualize=False)\n"
    "    return len(analysis.t.get_trace(0))\n",
    package="hta",
)
# The trace is read before the clock starts; the peak has both.
CONTEXT_TREE = Reader(
    "its calling contexts alone",
    "import sys, deepprof; from deepprof.metrics.contexts.tree import build_tree\n"
    "from deepprof.metrics.contexts.measures import measure_contexts\n"
    "trace = deepprof.read(sys.argv[1])\n"
    "def read(path): measure_contexts(trace, build_tree(trace)); return trace.accounting.read\n",
    runs=3,
)
HTA_STACKS = Reader(
    "HTA, its call graph alone",
    "import contextlib, os, sys, warnings; from hta.trace_analysis import TraceAnalysis\n"
    "from hta.common.trace_call_graph import CallGraph\n"
    "warnings.simplefilter('ignore')\n"
    "with contextlib.redirect_stdout(open(os.devnull, 'w')):\n"
    "  trace = TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir='/').t\n"
    "def read(path):\n"
    "  with contextlib.redirect_stdout(open(os.devnull, 'w')):\n"
    "    CallGraph(trace); return len(trace.get_trace(0))\n",
    package="hta",
)
CONTEXTS = (DEEPPROF, CONTEXT_TREE, HTA_STACKS)
# What comes before (iterations, calling contexts) is not counted; the "events" are annotations of a typical iteration.
ANNOTATION = Reader(
    "stages, layers and sections",
    "import sys, deepprof\n"
    "from deepprof.metrics.annotation.anatomy import read_anatomy\n"
    "from deepprof.metrics.annotation.sections import count_annotations\n"
    "from deepprof.metrics.annotation.trace_annotation import annotate\n"
    "from deepprof.metrics.annotation.typical import box_typical\n"
    "analysis = deepprof.analyze(deepprof.read(sys.argv[1]))\n"
    "trace, = analysis.traces\n"
    "lines = [analysis.timelines[loop.rank, loop.device] for loop in analysis.loops]\n"
    "def read(path):\n"
    "  known = annotate(trace, analysis.loops, analysis.trees.get(trace.rank or 0))\n"
    "  for loop, line in zip(analysis.loops, lines): read_anatomy(known, loop, line)\n"
    "  return sum(count_annotations(box_typical(known, loop, line)) for loop, line in zip(analysis.loops, lines))\n",
)
ANNOTATED = (DEEPPROF, ANNOTATION)
DIAGNOSES = (DEEPPROF, DIAGNOSIS, HTA_BREAKDOWN)
SMALL = (DEEPPROF, MSGSPEC, JSON_LOAD)  # for a look whether it runs

SNAPSHOT_STACKS = Reader(
    "deepprof.read, with details",
    "import deepprof; import deepprof.collectors.importers.torch_snapshot\n"
    "def read(path): return deepprof.read(path, details=True).accounting.read\n",
    runs=3,
)
SNAPSHOT = Reader(
    "deepprof.read",
    "import deepprof; import deepprof.collectors.importers.torch_snapshot\n"
    "def read(path): return deepprof.read(path).accounting.read\n",
    runs=3,
)
UNPICKLE = Reader(
    "pickle.load",
    "import pickle\ndef read(path): return sum(map(len, pickle.load(open(path, 'rb'))['device_traces']))\n",
    runs=3,
)
LOAD_SNAPSHOT = Reader(
    "json.load", "import json\ndef read(path): return sum(map(len, json.load(open(path))['device_traces']))\n"
)
SNAPSHOTS = (SNAPSHOT, SNAPSHOT_STACKS, UNPICKLE)
JSON_SNAPSHOTS = (SNAPSHOT, SNAPSHOT_STACKS, LOAD_SNAPSHOT)

# What deepprof.read reads of these tables, as far as a table has it.
TABLES = """
import sqlite3
TIMES, DEVICE = "start end ", "deviceId contextId streamId correlationId globalPid graphNodeId "
WANTED = {
    "CUPTI_ACTIVITY_KIND_KERNEL": TIMES + DEVICE + "demangledName",
    "CUPTI_ACTIVITY_KIND_MEMCPY": TIMES + DEVICE + "bytes copyKind srcKind dstKind",
    "CUPTI_ACTIVITY_KIND_MEMSET": TIMES + DEVICE + "bytes",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": TIMES + DEVICE + "syncType",
    "CUPTI_ACTIVITY_KIND_RUNTIME": TIMES + "globalTid correlationId nameId",
    "OSRT_API": TIMES + "globalTid nameId",
    "PROFILER_OVERHEAD": TIMES + "globalTid nameId",
    "NVTX_EVENTS": TIMES + "eventType globalTid textId domainId text",
}
def queries(connection):
    for table, wanted in WANTED.items():
        there = [row[1] for row in connection.execute(f'PRAGMA table_info("{table}")')]
        names = ", ".join(f'"{name}"' for name in wanted.split() if name in there)
        if names:
            yield f'SELECT {names} FROM "{table}"'
"""
COLUMNS = Reader(
    "its columns alone",
    TABLES + "from pathlib import Path\n"
    "from deepprof.collectors.importers.sqlite.sqlite_database import open_database\n"
    "def read(path):\n"
    "  with open_database(Path(path)) as d:\n"
    "    wanted = {t: dict.fromkeys(w.replace(' text', '').split()) for t, w in WANTED.items()}\n"
    "    return sum(d.integers(t, names).height for t, names in wanted.items())\n",
    runs=2,
)
FETCHALL = Reader(
    "sqlite3 fetchall, polars",
    TABLES + "import polars\n"
    "def read(path):\n"
    "  c = sqlite3.connect(path); rows = (c.execute(query).fetchall() for query in queries(c))\n"
    "  return sum(polars.DataFrame(r, orient='row', infer_schema_length=None).height for r in rows)\n",
)
PANDAS = Reader(
    "pandas.read_sql",
    TABLES + "import pandas\n"
    "def read(path):\n"
    "  c = sqlite3.connect(path); return sum(len(pandas.read_sql(query, c)) for query in queries(c))\n",
    package="pandas",
)
NSYS = (DEEPPROF, COLUMNS, FETCHALL, PANDAS)


def measure(reader: Reader, path: Path, runs: int | None = None) -> Reading | str:
    """Run `reader` in fresh processes and return its fastest run, or why there is none."""
    if find_spec(reader.package) is None:
        return "not installed"
    readings = []
    for _ in range(runs or reader.runs):
        command = [sys.executable, "-c", reader.code + MEASURE, str(path)]
        try:
            done = subprocess.run(command, capture_output=True, check=True, timeout=TIMEOUT_S, text=True)
        except subprocess.CalledProcessError as error:
            said = str((error.stderr.strip().splitlines() or [f"exit {error.returncode}"])[-1])
            return f"failed: {textwrap.shorten(said, SAID)}"
        except subprocess.TimeoutExpired:
            return f"more than {TIMEOUT_S} s"
        readings.append(Reading(**json.loads(done.stdout.splitlines()[-1])))
    return min(readings, key=lambda reading: reading.cpu_s)
