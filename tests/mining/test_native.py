import os
import shutil
import subprocess
import sys
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


CHECKED_RUN = """
import numpy as np
from pathlib import Path
from deepprof.mining import native
found = native.load(Path(r"{library}"))
assert found is not None
native.library = lambda: found
from deepprof.mining.matching import Matcher
from deepprof.mining.suffix_tree import SuffixTree
random = np.random.default_rng(0)
for round in range(400):
    size, alphabet = int(random.integers(0, 90)), int(random.integers(1, 9))
    scale = 1 if round % 2 else 70_000
    symbols = random.integers(0, alphabet, size) * scale
    SuffixTree.build(symbols).nodes()
    period = int(random.integers(1, 30))
    matcher = Matcher(random.integers(0, alphabet, period) * scale)
    stream = np.concatenate([np.resize(symbols, 3 * size), random.integers(0, alphabet, 200) * scale])
    for chunk in np.split(stream, np.sort(random.integers(0, stream.size, 9))):
        matcher.feed(chunk)
    matcher.feed([], final=True)
"""


@needs_compiler
@pytest.mark.skipif(sys.platform != "linux", reason="the sanitizer is preloaded as on Linux")
def test_the_sanitizers_find_nothing(tmp_path):
    library = tmp_path / "library.so"
    flags = ["-std=c11", "-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-shared", "-fPIC"]
    if subprocess.run(["cc", *flags, "-o", library, SOURCE], check=False, capture_output=True).returncode:
        pytest.skip("this compiler has no sanitizers")
    runtime = subprocess.run(["cc", "-print-file-name=libasan.so"], check=True, capture_output=True, text=True)
    if not Path(runtime.stdout.strip()).is_file():
        pytest.skip("this compiler does not say where its sanitizer lies")
    environment = os.environ | {"LD_PRELOAD": runtime.stdout.strip(), "ASAN_OPTIONS": "detect_leaks=0"}
    script = CHECKED_RUN.format(library=library)
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


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
