"""Peaks that are given by hand or were stored."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from deepprof.collectors.errors import UsageError
from deepprof.metrics.cost.peak_files import LARGEST_NBYTES, encode_peaks, find_store, load_peaks, read_peaks
from deepprof.metrics.cost.roofs import DevicePeaks, PeaksFile, find_peaks

PEAKS = DevicePeaks(
    "made up", "of the test", vector_flops_per_s={"float32": 1e12}, memory_nbytes_per_s={"memory": 1e11}, threads=3
)


def test_a_known_device_by_its_name() -> None:
    assert load_peaks("H100 PCIe") is find_peaks("NVIDIA H100 PCIe")


def test_a_file_that_was_written(tmp_path: Path) -> None:
    path = tmp_path / "peaks.json"
    path.write_bytes(encode_peaks(PEAKS))
    assert load_peaks(str(path)) == PEAKS


def test_a_file_in_toml(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_bytes(in_toml(b"memory_nbytes_per_s = { memory = 1e12 }"))
    assert load_peaks(str(path)).memory_nbytes_per_s == {"memory": 1e12}


def test_what_was_measured_here(tmp_path: Path) -> None:
    variables = {"XDG_DATA_HOME": str(tmp_path)}
    with pytest.raises(UsageError, match="deepprof peak --device cpu"):
        load_peaks("cpu", variables)
    store = find_store("cpu", variables)
    assert tmp_path in store.parents
    store.parent.mkdir(parents=True)
    store.write_bytes(encode_peaks(PEAKS))
    assert load_peaks("cpu", variables) == PEAKS
    assert find_store("cuda", variables) != store


def test_an_unknown_device_names_those_alike() -> None:
    with pytest.raises(UsageError, match=r"H100.*known.*deepprof peak") as caught:
        load_peaks("NVIDIA H100")
    assert "\n" not in str(caught.value)


def in_toml(line: bytes) -> bytes:
    return b'schema = "deepprof.peaks/1"\n[[devices]]\nname = "mine"\nsource = "by hand"\n' + line


def in_json(field: bytes, schema: bytes = b"deepprof.peaks/1") -> bytes:
    return b'{"schema": "' + schema + b'", "devices": [{"name": "a", "source": "b", ' + field + b"}]}"


BROKEN = {
    "empty": b"",
    "no text": b"\xff\xfe\x00",
    "other schema": in_json(b'"threads": 1', b"deepprof.peaks/2"),
    "no device": b'{"schema": "deepprof.peaks/1", "devices": []}',
    "unknown field": in_json(b'"tflops": 1'),
    "unknown type": in_json(b'"vector_flops_per_s": {"x": 1}'),
    "a rate of nothing": in_json(b'"vector_flops_per_s": {"float32": 0}'),
    "no number": in_toml(b"memory_nbytes_per_s = { memory = inf }"),
    "deep": b"{" + b'"a":[' * 100_000,
    "deep toml": b"a = " + b"[" * 100_000,
}


@pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_file_is_one_line(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "broken.json"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=r"broken\.json") as caught:
        read_peaks(path)
    assert "\n" not in str(caught.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        load_peaks(str(tmp_path / "none.json"))
    with pytest.raises(UsageError, match="directory"):
        read_peaks(tmp_path)
    large = tmp_path / "large.json"
    large.write_bytes(b" " * (LARGEST_NBYTES + 1))
    with pytest.raises(UsageError, match="more than"):
        read_peaks(large)


def test_a_file_of_two_devices(tmp_path: Path) -> None:
    path = tmp_path / "two.json"
    path.write_bytes(msgspec.json.encode(PeaksFile("deepprof.peaks/1", (PEAKS, PEAKS))))
    with pytest.raises(UsageError, match="2 devices"):
        read_peaks(path)
