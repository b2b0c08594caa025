"""AMD's formats side by side: one job in two of them is one table, and none takes another's files."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from deepprof.collectors import importers
from deepprof.collectors.importers.amd.rocpd import Rocpd
from deepprof.collectors.importers.amd.rocprof import Rocprof
from deepprof.collectors.importers.amd.rpd import Rpd
from deepprof.collectors.importers.amd.rpd_json import RpdJson
from tests import manifest
from tests.collectors.rocpd_database import Writer, process, symbol

OURS = {
    "rpd": Rpd,
    "rpd-chrome-json": RpdJson,
    "rocprofv3-json": Rocprof,
    "rocprofv3-csv": Rocprof,
    "rocprofv3-csv(hip api)": Rocprof,
}


@pytest.mark.traces
@pytest.mark.parametrize("row", manifest.rows())
def test_only_our_files_are_ours(row):
    path = manifest.path_of(row)
    head = importers.look_at(path)
    accepting = [kind for kind in (Rpd, RpdJson, Rocpd, Rocprof) if kind().accepts(head, path)]
    assert accepting == [OURS[row["format"]]] if row["format"] in OURS else accepting == []
    if accepting:
        assert importers.read(path).format == accepting[0].name  # no other importer is asked first


@pytest.mark.traces
@pytest.mark.parametrize("row", manifest.rows("rpd", "rocprofv3-json", "rocprofv3-csv"))
def test_counts_are_the_manifests(row):
    device = importers.read(manifest.path_of(row)).device_events
    kernels = device.filter(device["activity"] == "kernel")
    assert kernels.height == int(row["kernels"])
    assert kernels["stream"].n_unique() == int(row["streams"])
    assert kernels["device"].n_unique() == int(row["ranks_or_devices"])


def write_database(path: Path, document: dict[str, Any], layout: str) -> None:
    """Write one process of a JSON document as rocprofv3 would have written it as a database."""
    nodes = {agent["id"]["handle"]: agent["node_id"] for agent in document["agents"]}
    base = min(handle - node for handle, node in nodes.items())  # for agents that the excerpt leaves out
    writer = Writer(path, layout)
    columns = {
        "id": "node_id",
        "absolute_index": "node_id",
        "type_index": "logical_node_type_id",
        "product_name": "product_name",
    }
    process(writer, [{name: agent[key] for name, key in columns.items()} for agent in document["agents"]], pid=908)
    for kernel in document["kernel_symbols"]:
        symbol(writer, kernel["kernel_id"], kernel["formatted_kernel_name"], kernel["kernel_name"])
    for record in document["buffer_records"]["kernel_dispatch"]:
        info = record["dispatch_info"]
        writer.kernel(
            info["kernel_id"],
            record["start_timestamp"],
            record["end_timestamp"],
            record["correlation_id"]["internal"],
            agent_id=info["agent_id"]["handle"] - base,
            queue_id=info["queue_id"]["handle"],
            stream_id=record["stream_id"]["handle"],
            dispatch_id=info["dispatch_id"],
            tid=record["thread_id"],
            pid=908,
        )
    writer.close()


@pytest.mark.traces
@pytest.mark.parametrize("layout", ["3.0", "4.1"])
def test_one_job_in_two_formats_is_one_table(traces, tmp_path, layout):
    path = traces / "rocprofv3-json-excerpt" / "excerpt_results.json.gz"
    with gzip.open(path) as file:
        document = json.load(file)["rocprofiler-sdk-tool"][0]
    write_database(tmp_path / "a.db", document, layout)
    expected, found = importers.read(path), importers.read(tmp_path / "a.db")
    assert (expected.format, found.format) == ("rocprof", "rocpd")
    assert found.device_events.equals(expected.device_events)
    assert found.names.equals(expected.names)
    assert found.accounting == expected.accounting
