import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from deepprof.mining import native
from deepprof.mining.matching import Matcher

needs_library = pytest.mark.skipif(native.library() is None, reason="no compiled library here")
needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler here")

SOURCE = Path(native.__file__).with_name("native.c")


def build(folder, source):
    path = folder / "library.so"
    subprocess.run(["cc", "-std=c11", "-shared", "-fPIC", "-o", path, source], check=True)
    return path


@pytest.fixture
def fresh_library():
    native.library.cache_clear()
    yield
    native.library.cache_clear()


def test_the_environment_forces_the_fallback(monkeypatch, fresh_library):
    monkeypatch.setenv("DEEPPROF_NATIVE", "0")
    assert native.library() is None


@needs_library
def test_the_library_has_the_version_of_this_code():
    assert native.library().dp_version() == native.VERSION


@needs_library
def test_the_library_is_loaded_once():
    assert native.library() is native.library()


def test_without_a_file_there_is_no_library(monkeypatch, fresh_library, tmp_path):
    monkeypatch.delenv("DEEPPROF_NATIVE", raising=False)
    monkeypatch.setattr(native, "__file__", str(tmp_path / "native.py"))
    assert native.library() is None


def test_a_file_that_is_no_library_counts_as_absent(tmp_path):
    path = tmp_path / "broken.so"
    path.write_bytes(b"no library")
    assert native.load(path) is None


@needs_compiler
def test_a_library_without_our_functions_counts_as_absent(tmp_path):
    source = tmp_path / "other.c"
    source.write_text("int dp_version(void) { return 1; }\n")
    assert native.load(build(tmp_path, source)) is None


@needs_compiler
def test_a_library_of_another_version_counts_as_absent(tmp_path, monkeypatch):
    path = build(tmp_path, SOURCE)
    assert native.load(path) is not None
    monkeypatch.setattr(native, "VERSION", native.VERSION + 1)
    assert native.load(path) is None


@needs_compiler
def test_the_source_compiles_without_warnings(tmp_path):
    flags = ["-std=c11", "-O2", "-Wall", "-Wextra", "-Wconversion", "-Werror", "-shared", "-fPIC"]
    subprocess.run(["cc", *flags, "-o", tmp_path / "library.so", SOURCE], check=True)


@needs_library
def test_a_matcher_frees_its_state_once(monkeypatch):
    freed = []
    found = native.library()
    monkeypatch.setattr(found, "dp_matcher_free", freed.append)
    matcher = Matcher(np.arange(10))
    matcher.feed(np.arange(10))
    assert freed == []
    del matcher
    assert len(freed) == 1
    assert freed[0]
