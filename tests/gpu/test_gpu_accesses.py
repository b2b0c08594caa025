"""On an NVIDIA GPU: accesses that Compute Sanitizer shows, against kernels whose accesses are known to the byte.

Needs the CUDA toolkit with compute-sanitizer; the kernels are those of `known_accesses.cu`. Run it with
`-rA` to see what was counted.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pytest

import deepprof
from benchmarks.gpu import devices
from deepprof.collectors.errors import UsageError
from deepprof.collectors.live.accesses.toolkit import SanitizerToolkit, find_toolkit
from deepprof.collectors.trace import Trace
from deepprof.tools import find_tool, run
from deepprof.tools.options import make_tool

pytestmark = pytest.mark.gpu
find_gpu = cache(devices.find_gpu)
ROOT = Path(__file__).resolve().parents[2]
NBYTES, BLOCK_NBYTES, THREADS = 32 << 20, 1 << 21, 256
COUNT = NBYTES // 4
READS, WRITES = ("reads", "read_nbytes"), ("writes", "write_nbytes")
LOOKUP_ROWS, LOOKUP_WIDTH, LOOKUPS = 1 << 16, 1024, 5
TORCH = f"""
import json, torch
x = torch.zeros(3 << 20, device="cuda")
table = torch.zeros({LOOKUP_ROWS}, {LOOKUP_WIDTH}, device="cuda")
index = torch.arange({LOOKUPS}, device="cuda") * 10_000
x[: x.numel() // 3].add_(1)
found = table.index_select(0, index)
y = x + 1
torch.cuda.synchronize()
places = {{"x": x, "table": table, "index": index, "found": found, "y": y}}
print(json.dumps({{name: [each.data_ptr(), each.nbytes] for name, each in places.items()}}))
"""
PRODUCT = """
import json, torch
left, right = (torch.randn(2048, 2048, device="cuda", dtype=getattr(torch, "DTYPE")) for _ in range(2))
product = left @ right
torch.cuda.synchronize()
places = {"left": left, "right": right, "product": product}
print(json.dumps({name: [each.data_ptr(), each.nbytes] for name, each in places.items()}))
"""


@pytest.fixture(scope="module")
def toolkit() -> SanitizerToolkit:
    """Skip without a GPU or the toolkit; asked only here, since the answer costs an import of torch."""
    if (problem := find_gpu()) is not None:
        pytest.skip(f"no NVIDIA GPU: {problem}")
    try:
        return find_toolkit(os.environ)
    except UsageError as error:
        pytest.skip(str(error))


@dataclass(frozen=True)
class Recorded:
    """What a program printed, and the recording of it."""

    said: Any
    trace: Trace
    path: Path
    errors: str

    def sums(self, kernel: str) -> pl.DataFrame:
        """Return what the only launch of a kernel accessed, by block."""
        events = self.trace.device_events.with_row_index("event")
        names = self.trace.names.gather(events["name_id"])
        (event,) = events.filter(names.str.contains(kernel, literal=True))["event"]
        return self.trace.accesses.filter(event=event).drop("event", "nbytes").sort("address")

    def blocks(self, kernel: str, columns: tuple[str, str]) -> dict[int | None, tuple[int, int]]:
        """Return accesses and bytes by block, where there are any."""
        rows = self.sums(kernel).filter(pl.col(columns[0]) > 0)
        return {address: (accesses, nbytes) for address, accesses, nbytes in rows.select("address", *columns).rows()}


def record(folder: Path, command: list[str], *options: str) -> Recorded:
    path = folder / "job.accesses"
    words = [sys.executable, "-m", "deepprof", "accesses", "-o", str(path), *options, "--", *command]
    variables = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))}
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=variables, timeout=300)
    head = path.read_text()[:1500] if path.exists() else "no recording"
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{head}"
    recorded = Recorded(json.loads(done.stdout.splitlines()[-1]), deepprof.read(path), path, done.stderr)
    sys.stdout.write(f"{done.stderr}\n{recorded.trace.accounting}\n{describe(recorded.trace)}\n")
    assert "failed:" not in done.stderr
    return recorded


def describe(trace: Trace) -> pl.DataFrame:
    """Return the sums of every kernel, for the eye."""
    sums = trace.accesses.group_by("event").agg(pl.len().alias("blocks"), pl.exclude("address", "nbytes").sum())
    names = trace.names.gather(trace.device_events["name_id"]).str.slice(0, 60)
    with pl.Config(tbl_rows=-1, tbl_cols=-1, tbl_width_chars=200, fmt_str_lengths=60):
        named = pl.DataFrame({"kernel": names}).with_row_index("event").join(sums, on="event", how="left")
        sys.stdout.write(f"{named}\n")
    return sums


@pytest.fixture(scope="module")
def program(toolkit: SanitizerToolkit, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("known") / "known"
    source = str(Path(__file__).with_name("known_accesses.cu"))
    subprocess.run([str(toolkit.nvcc), "-arch=all-major", source, "-o", str(path)], check=True, timeout=200)
    return path


@pytest.fixture(scope="module")
def known(program: Path, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    return record(tmp_path_factory.mktemp("recorded"), [str(program)])


def expect(addresses: npt.NDArray[np.int64], nbytes: int) -> dict[int | None, tuple[int, int]]:
    """Return accesses and bytes by block of accesses of `nbytes` each, by brute force."""
    blocks, counts = np.unique(addresses // BLOCK_NBYTES, return_counts=True)
    pairs = zip(blocks.tolist(), counts.tolist(), strict=True)
    return {block * BLOCK_NBYTES: (many, many * nbytes) for block, many in pairs}


def every(first: int, nbytes: int, size: int) -> npt.NDArray[np.int64]:
    return np.arange(first, first + nbytes, size)


@pytest.mark.parametrize(("kernel", "size"), [("known_copy", 4), ("known_vectors", 16)])
def test_a_copy_reads_its_size_and_writes_it(known: Recorded, kernel: str, size: int) -> None:
    assert known.blocks(kernel, READS) == expect(every(known.said["x"], NBYTES, size), size)
    assert known.blocks(kernel, WRITES) == expect(every(known.said["y"], NBYTES, size), size)


def test_a_kernel_touches_a_third_of_its_operand(known: Recorded) -> None:
    third = expect(every(known.said["x"], COUNT // 3 * 4, 4), 4)
    assert known.blocks("known_third", READS) == third
    assert known.blocks("known_third", WRITES) == third


def test_a_gather_touches_the_blocks_of_its_rows(known: Recorded) -> None:
    rows = np.arange(7)[:, None] * (COUNT // 8) + np.arange(256)
    assert known.blocks("known_gather", READS) == expect(known.said["x"] + 4 * rows.ravel(), 4)
    assert sum(nbytes for _, nbytes in known.blocks("known_gather", WRITES).values()) == 7 * 256 * 4


def test_each_atomic_operation_counts(known: Recorded) -> None:
    many = COUNT // 64
    assert known.said["total"] == many
    (counted,) = known.blocks("known_atomics", WRITES).values()
    assert counted == (many, 4 * many)


def test_threads_that_are_switched_off_access_nothing(known: Recorded) -> None:
    active = np.arange(0, COUNT, 3)
    assert known.blocks("known_branches", WRITES) == expect(known.said["y"] + 4 * active, 4)
    assert known.blocks("known_branches", READS) == expect(known.said["x"] + 4 * active[active % 2 == 0], 8)


def test_a_kernel_without_global_memory_has_no_row(known: Recorded) -> None:
    assert known.sums("known_nothing").is_empty()


def test_copies_past_the_registers_count(known: Recorded) -> None:
    if known.said["major"] < 8:
        pytest.skip("this GPU has no cp.async")
    assert known.blocks("known_async", READS) == expect(every(known.said["x"], NBYTES, 16), 16)
    assert known.blocks("known_async", WRITES) == {}


def test_bulk_copies_count(known: Recorded) -> None:
    if known.said["major"] < 9:
        pytest.skip("this GPU has no bulk copies")
    assert known.blocks("known_bulk", READS) == expect(every(known.said["x"], NBYTES, 4096), 4096)


def test_what_is_not_counted_is_named(known: Recorded) -> None:
    dropped = known.trace.accounting.dropped
    assert dropped["graph-kernel"] == 3
    assert dropped["copy"] >= 2
    assert dropped["memset"] == 2
    assert known.trace.device_events.height == 9
    assert known.trace.device_events["stream"].n_unique() == 2


def test_allocations_and_releases_are_recorded(known: Recorded) -> None:
    rows = known.trace.memory_events
    for name, nbytes in (("x", NBYTES), ("y", NBYTES), ("sums", 4 * THREADS)):
        found = rows.filter(address=known.said[name])["nbytes"].to_list()
        assert len(found) == 2
        assert found[0] == -found[1]
        assert found[0] >= nbytes


def test_blocks_without_room_are_counted_together(program: Path, tmp_path: Path) -> None:
    found = record(tmp_path, [str(program)], "--slots", "16", "--kernels", "known_copy")
    rows = found.sums("known_copy")
    assert rows["address"].is_not_null().sum() == 16
    assert rows.filter(pl.col("address").is_null())["read_nbytes"].sum() > 0
    assert (rows["read_nbytes"].sum(), rows["write_nbytes"].sum()) == (NBYTES, NBYTES)


def test_launches_are_chosen(program: Path, tmp_path: Path) -> None:
    found = record(tmp_path, [str(program)], "--skip", "1", "--launches", "2", "--kernels", "known_", "--block", "4096")
    names = found.trace.names.gather(found.trace.device_events["name_id"]).to_list()
    assert names == ["known_vectors", "known_third"]
    assert found.trace.accounting.dropped["skipped"] == 1
    assert found.trace.accounting.dropped["launch-limit"] == 6
    pages = -(-(COUNT // 3 * 4) // 4096)
    assert found.sums("known_third").height == pages


@pytest.fixture(scope="module")
def torch_job(toolkit: SanitizerToolkit, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    return record(tmp_path_factory.mktemp("torch"), [sys.executable, "-c", TORCH])


def find_kernel(recorded: Recorded, place: str, columns: tuple[str, str], nth: int = 0) -> Mapping[str, int]:
    """Return the sums over an array of PyTorch's of the kernel that accesses it as the `nth`."""
    first, nbytes = recorded.said[place]
    inside = pl.col("address").is_between(first // BLOCK_NBYTES * BLOCK_NBYTES, first + nbytes - 1)
    rows = recorded.trace.accesses.filter(inside & (pl.col(columns[0]) > 0))
    event = rows["event"].unique().sort()[nth]
    return rows.filter(event=event).select(pl.len().alias("blocks"), pl.exclude("address").sum()).row(0, named=True)


def test_pytorch_touches_a_third(torch_job: Recorded) -> None:
    third = torch_job.said["x"][1] // 3
    sums = find_kernel(torch_job, "x", READS)  # the first that reads: x was filled before
    assert (sums["read_nbytes"], sums["write_nbytes"]) == (third, third)


def test_an_embedding_touches_less_than_its_operands(torch_job: Recorded) -> None:
    sums = find_kernel(torch_job, "table", READS)
    assert sums["read_nbytes"] == LOOKUPS * LOOKUP_WIDTH * 4
    assert LOOKUPS <= sums["blocks"] <= 2 * LOOKUPS
    assert sums["blocks"] * BLOCK_NBYTES < torch_job.said["table"][1] / 10


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_matrix_product_touches_all_of_its_operands(toolkit: SanitizerToolkit, tmp_path: Path, dtype: str) -> None:
    """Or copies by tensors maps, whose bytes are unknown: then that is stated."""
    found = record(tmp_path, [sys.executable, "-c", PRODUCT.replace("DTYPE", dtype)])
    notes = " ".join(found.trace.notes)
    is_partial = "tensor memory accelerator" in notes or "tensor-copies" in found.trace.accounting.flagged
    for place, (column, nth) in {"left": ("read_nbytes", 0), "product": ("write_nbytes", -1)}.items():
        first, nbytes = found.said[place]
        inside = pl.col("address").is_between(first // BLOCK_NBYTES * BLOCK_NBYTES, first + nbytes - 1)
        sums = found.trace.accesses.filter(inside).group_by("event").agg(pl.col(column).sum()).sort("event")
        sums = sums.filter(pl.col(column) > 0)
        moved = int(sums[column][nth]) if sums.height else 0
        sys.stdout.write(f"{dtype} {place}: {moved:,} bytes of {nbytes:,} {notes}\n")
        assert moved >= nbytes or (is_partial and dtype != "float32")


@pytest.mark.parametrize("name", ["hotness", "working-set"])
def test_tools_say_that_accesses_were_counted(torch_job: Recorded, name: str) -> None:
    report = run(make_tool(find_tool(name), ()), torch_job.trace)
    sys.stdout.write(f"{report}\n")
    assert "counted accesses" in str(report["summary"])
