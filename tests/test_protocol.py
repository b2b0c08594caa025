"""The generated code is that of the .proto files, and states to every client what the comments state of limits."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

from deepprof.live.service.config import Config
from deepprof.live.wire import WireLimits

ROOT = Path(__file__).resolve().parents[1]
FILES = sorted(path.relative_to(ROOT / "proto") for path in (ROOT / "proto/deepprof/v1").glob("*.proto"))


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, FileDescriptorProto]:
    """Return what today's compiler makes of the files, by name."""
    out = tmp_path_factory.mktemp("proto") / "all.binpb"
    command = [sys.executable, "-W", "ignore", "-m", "grpc_tools.protoc", "-Iproto", f"--descriptor_set_out={out}"]
    subprocess.run([*command, *(f"proto/{path}" for path in FILES)], cwd=ROOT, check=True)
    return {file.name: file for file in FileDescriptorSet.FromString(out.read_bytes()).file}


@pytest.mark.parametrize("path", FILES, ids=str)
def test_generated_messages_are_those_of_the_file(path: Path, compiled: dict[str, FileDescriptorProto]) -> None:
    module = import_module(f"deepprof.v1.{path.stem}_pb2")
    committed = FileDescriptorProto()
    module.DESCRIPTOR.CopyToProto(committed)
    assert without_json_names(committed) == without_json_names(compiled[str(path)]), "run make proto"


def without_json_names(file: FileDescriptorProto) -> FileDescriptorProto:
    """Return a file without what only the compiler writes."""
    for message in file.message_type:
        for field in (*message.field, *(field for nested in message.nested_type for field in nested.field)):
            field.ClearField("json_name")
    return file


@pytest.mark.parametrize("path", FILES, ids=str)
def test_generated_stubs_have_every_method(path: Path, compiled: dict[str, FileDescriptorProto]) -> None:
    module = import_module(f"deepprof.v1.{path.stem}_pb2_grpc")
    for service in compiled[str(path)].service:
        servicer = getattr(module, f"{service.name}Servicer")
        assert {method.name for method in service.method} == {name for name in vars(servicer) if name[0].isupper()}


def test_generated_code_runs_with_every_protobuf_from_the_lowest_on() -> None:
    for path in (ROOT / "deepprof/v1").glob("*_pb2*.py"):
        assert "runtime_version" not in path.read_text(), path.name  # a newer compiler ties its code to its own release


def test_comments_name_the_limits_that_hold() -> None:
    text = (ROOT / "proto/deepprof/v1/records.proto").read_text()
    limits, config = WireLimits(), Config()
    assert config.wire_limits() == limits
    for number in (limits.batch_records, limits.names, limits.name_nbytes, limits.batch_names, limits.source_chars):
        assert f"{number:,}" in text
    assert f"{limits.message_nbytes >> 20} MiB" in text
    assert f"1 to {limits.job_chars} characters" in text
    assert f"1 to {limits.collector_chars} characters" in text
