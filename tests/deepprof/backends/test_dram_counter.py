"""Bytes of a GPU's memory, through a made-up driver and libcupti that were compiled against NVIDIA's headers."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deepprof.backends import cuda_context, cupti_calls, dram_counter, onnxruntime, range_profiler
from deepprof.backends.backend import RunOptions, load_backend
from deepprof.backends.cuda_context import UncountedError
from deepprof.backends.cupti_calls import FORBIDDEN, LIMITS, MEANINGS, REASONS, CuptiLibrary, find_cupti
from deepprof.backends.dram_counter import DramCounter
from deepprof.collectors.models.backend_profile import BackendProfile
from deepprof.collectors.models.graph import TensorSpec
from tests.collectors.live.building import FLAGS, build, compiler, run
from tests.collectors.live.test_cupti_headers import cxx
from tests.collectors.live.vendor_wheels import CUDA
from tests.deepprof.backends.small_models import write_convolutions

SOURCE = Path(__file__).with_name("fake_cupti.cpp")
MOVED = 4_001.0  # by a run
OPEN = ["cuInit", "cuDeviceGetCount", "cuDevicePrimaryCtxRetain", "cuCtxPushCurrent_v2", "cuptiProfilerInitialize"]
ASK = ["cuptiProfilerDeviceSupported", "cuptiDeviceGetChipName", *2 * ["cuptiProfilerGetCounterAvailability"]]
HOST = ["Initialize", "ConfigAddMetrics", "GetConfigImageSize", "GetConfigImage", "GetNumOfPasses"]
RANGE = ["Enable", "GetCounterDataSize", "CounterDataImageInitialize", "SetConfig", "Start"]
PUSH = ["cuCtxSynchronize", "cuptiRangeProfilerPushRange"]
POP = ["cuCtxSynchronize", "cuptiRangeProfilerPopRange", "cuptiRangeProfilerStop"]
READING = [
    "cuptiRangeProfilerDecodeData",
    "cuptiRangeProfilerGetCounterDataInfo",
    "cuptiProfilerHostEvaluateToGpuValues",
]
RELEASES = ["cuptiRangeProfilerDisable", "cuptiProfilerHostDeinitialize", "cuptiProfilerDeInitialize"]
RELEASES += ["cuCtxPopCurrent_v2", "cuDevicePrimaryCtxRelease_v2"]
BEFORE = [*OPEN, *ASK, *(f"cuptiProfilerHost{name}" for name in HOST), *(f"cuptiRangeProfiler{name}" for name in RANGE)]
CALLS = [*BEFORE, *PUSH, *POP, *READING, *RELEASES]
ENDS = ["cuptiRangeProfilerPopRange", "cuptiRangeProfilerStop"]  # of the range: they give back, and may lose it
LEVELS = {"unsupported": 1, "disabled": 2}


class FakeGpu:
    """The made-up library, as a test drives it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.library = ctypes.CDLL(str(path))
        self.library.fake_calls.restype = ctypes.c_char_p
        self.library.fake_move.argtypes = [ctypes.c_double]

    @property
    def calls(self) -> list[str]:
        return self.library.fake_calls().decode().splitlines()

    def set(self, name: str, value: int) -> None:
        self.library.fake_set(name.encode(), value)

    def move(self, nbytes: float = MOVED) -> None:
        self.library.fake_move(nbytes)

    def count_open(self) -> int:
        return int(self.library.fake_open())


@pytest.fixture(scope="module", params=["12.9", "13.5"])
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> FakeGpu:
    library = tmp_path_factory.mktemp("fake") / "libcupti.so"
    folders = [f"-isystem{path}" for path in CUDA[request.param].include_folders()]
    flags = ["-std=c++17", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-fvisibility=hidden"]
    run([cxx(), *flags, *folders, str(SOURCE), "-o", str(library)])
    return FakeGpu(library)


@pytest.fixture
def gpu(built: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    """A machine with the made-up driver and library."""
    built.library.fake_reset()
    monkeypatch.setattr(cuda_context, "DRIVER", str(built.path))
    monkeypatch.setattr(dram_counter, "find_cupti", lambda: built.path)
    return built


def count(gpu: FakeGpu, runs: int = 1) -> DramCounter:
    """Count what `runs` runs move; work that was launched before is still waiting, and more follows."""
    counter, done = DramCounter(), []
    gpu.move(1e9)
    with counter.count():
        for run_number in range(runs):
            gpu.move()
            done.append(run_number)
    gpu.move(1e9)
    assert len(done) == runs
    return counter


def refuse(gpu: FakeGpu) -> str:
    """Return why nothing is counted; a block runs all the same, and nothing stays open."""
    counter = count(gpu)
    assert counter.count_nbytes(1) is None
    assert counter.reason
    assert "\n" not in counter.reason
    assert not counter.reason.endswith(".")
    return counter.reason


def test_what_a_run_reads_and_writes_is_counted_and_nothing_before_or_after(gpu: FakeGpu) -> None:
    counter = count(gpu, runs=3)
    assert counter.count_nbytes(3) == MOVED
    assert counter.reason is None
    assert gpu.calls == CALLS
    assert gpu.count_open() == 0


def test_it_can_count_again(gpu: FakeGpu) -> None:
    for _ in range(2):
        gpu.library.fake_reset()
        assert count(gpu).count_nbytes(1) == MOVED


def test_no_run_is_no_byte(gpu: FakeGpu) -> None:
    assert count(gpu, runs=0).count_nbytes(1) == 0


@pytest.mark.parametrize("function", sorted({*CALLS} - {*RELEASES} - {*ENDS}))
def test_every_call_may_fail_and_then_all_is_given_back(gpu: FakeGpu, function: str) -> None:
    gpu.set(function, 9)
    reason = refuse(gpu)
    assert reason.startswith(
        "the NVIDIA driver refuses" if function.startswith("cu") and "cupti" not in function else function
    )
    assert function in reason
    assert gpu.count_open() == 0
    assert not [call for call in gpu.calls if call.startswith("!")]


@pytest.mark.parametrize("function", [BEFORE[0], BEFORE[-1], PUSH[-1]])
def test_what_did_not_begin_is_given_back_before_the_block_runs(gpu: FakeGpu, function: str) -> None:
    gpu.set(function, 9)
    counter = DramCounter()
    with counter.count():
        assert gpu.count_open() == 0
        before = gpu.calls
    assert gpu.calls == before


@pytest.mark.parametrize("function", ENDS)
def test_a_range_that_does_not_end_is_not_counted(gpu: FakeGpu, function: str) -> None:
    gpu.set(function, 9)
    assert refuse(gpu) == f"{function} fails: CUPTI_ERROR_HARDWARE"
    assert gpu.count_open() == 1  # what could not be given back, and nothing else
    assert gpu.calls[-5:] == RELEASES


@pytest.mark.parametrize("function", RELEASES)
def test_what_cannot_be_given_back_takes_nothing_from_the_count(gpu: FakeGpu, function: str) -> None:
    gpu.set(function, 9)
    counter = count(gpu)
    assert (counter.count_nbytes(1), counter.reason) == (MOVED, None)
    assert gpu.calls == CALLS
    assert gpu.count_open() == 1


def test_a_block_that_fails_fails_as_it_would_alone(gpu: FakeGpu) -> None:
    counter = DramCounter()
    with pytest.raises(KeyError, match="its own"), counter.count():
        raise KeyError("its own")
    assert gpu.count_open() == 0
    assert gpu.calls == [
        call for call in CALLS if "Decode" not in call and "Info" not in call and "Evaluate" not in call
    ]
    assert counter.count_nbytes(1) is None


def test_a_block_that_fails_does_so_though_its_range_does_not_end(gpu: FakeGpu) -> None:
    gpu.set("cuptiRangeProfilerPopRange", 9)
    with pytest.raises(KeyError, match="its own"), DramCounter().count():
        raise KeyError("its own")
    assert gpu.calls[-5:] == RELEASES


@pytest.mark.parametrize("result", REASONS)
def test_results_with_a_known_reason_are_told_by_it(gpu: FakeGpu, result: int) -> None:
    gpu.set("cuptiRangeProfilerEnable", result)
    assert refuse(gpu) == REASONS[result]


@pytest.mark.parametrize(("function", "result"), MEANINGS)
def test_results_are_told_by_where_they_come_from(gpu: FakeGpu, function: str, result: int) -> None:
    gpu.set(f"cupti{function}", result)
    assert refuse(gpu) == MEANINGS[function, result]


def test_other_results_are_told_by_name_or_number(gpu: FakeGpu) -> None:
    gpu.set("cuptiRangeProfilerEnable", 999)
    assert refuse(gpu) == "cuptiRangeProfilerEnable fails: error 999"


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("limit", LIMITS)
def test_a_device_that_cannot_be_profiled_is_told_by_what_forbids_it(gpu: FakeGpu, limit: str, level: str) -> None:
    gpu.set("isSupported", 1)
    gpu.set(limit, LEVELS[level])
    assert refuse(gpu) == LIMITS[limit]
    assert gpu.count_open() == 0


def test_a_device_that_cannot_be_profiled_for_a_new_reason_is_told(gpu: FakeGpu) -> None:
    gpu.set("isSupported", 1)
    assert refuse(gpu) == range_profiler.NO_SUPPORT


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("passes", 2, range_profiler.SEVERAL_PASSES),
        ("submitted", 0, range_profiler.LOST),
        ("dropped", 1, range_profiler.LOST),
        ("ranges", 0, range_profiler.LOST),
        ("ranges", 2, range_profiler.LOST),
        ("nan", 1, range_profiler.NO_NUMBERS),
        ("devices", 0, "the NVIDIA driver shows no device"),
    ],
)
def test_counts_that_are_not_whole_are_none(gpu: FakeGpu, name: str, value: int, reason: str) -> None:
    gpu.set(name, value)
    assert refuse(gpu) == reason
    assert gpu.count_open() == 0


def test_numbers_below_zero_are_none(gpu: FakeGpu) -> None:
    counter = DramCounter()
    with counter.count():
        gpu.move(-1.0)
    assert (counter.count_nbytes(1), counter.reason) == (None, range_profiler.NO_NUMBERS)


def test_without_a_driver_nothing_else_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_context, "DRIVER", "libnowhere.so.1")
    counter = DramCounter()
    with counter.count():
        pass
    assert counter.reason == "there is no NVIDIA driver (libnowhere.so.1)"


def define(kind: str, name: str, value: str) -> str:
    """Return a function in C that returns a constant."""
    return f"{kind}{name}(void);\n{kind}{name}(void) {{ return {value}; }}\n"


class CudaSession:
    """A session of ONNX Runtime that states it is on CUDA, and moves bytes in every run."""

    def __init__(self, session: Any, gpu: FakeGpu) -> None:
        self.session, self.gpu = session, gpu

    def run(self, *arguments: object) -> object:
        self.gpu.move()
        return self.session.run(*arguments)

    def end_profiling(self) -> object:
        return self.session.end_profiling()

    def get_providers(self) -> list[str]:
        return list(onnxruntime.PROVIDERS)


@pytest.fixture
def on_cuda(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    """A machine whose ONNX Runtime has CUDA, and counters of misses that must not be taken for those of the GPU."""
    make = onnxruntime._build
    monkeypatch.setattr(onnxruntime, "_build", lambda *arguments: CudaSession(make(*arguments), gpu))
    monkeypatch.setattr(onnxruntime.MissCounter, "count_nbytes", lambda *_: 1)
    return gpu


def profile(folder: Path) -> BackendProfile:
    path = write_convolutions(folder / "model.onnx")
    options = RunOptions({"x": TensorSpec((1, 3, 16, 16), "float32")}, runs=4, warmup=2, threads=1)
    return load_backend("onnxruntime").profile(path, options)


def test_onnx_runtime_on_cuda_has_the_bytes_of_its_timed_runs(on_cuda: FakeGpu, tmp_path: Path) -> None:
    found = profile(tmp_path)
    assert (found.device, found.counted_nbytes, found.uncounted_reason) == (
        "CUDAExecutionProvider",
        MOVED,
        None,
    )
    assert on_cuda.calls == CALLS


def test_onnx_runtime_on_cuda_runs_all_the_same_where_nothing_is_counted(on_cuda: FakeGpu, tmp_path: Path) -> None:
    on_cuda.set("cuptiProfilerGetCounterAvailability", 35)
    found = profile(tmp_path)
    assert (found.counted_nbytes, found.uncounted_reason) == (None, FORBIDDEN)
    assert found.latency_ns
    assert on_cuda.count_open() == 0


@pytest.fixture
def make_library(tmp_path: Path) -> Callable[[str, str], Path]:
    """Compiles C into a library of a name."""

    def make(name: str, text: str) -> Path:
        source, library = tmp_path / "source.c", tmp_path / name
        source.write_text(text)
        flags = [flag for flag in FLAGS if flag != "-fvisibility=hidden"]
        run([compiler(), *flags, "-shared", f"-Wl,-soname,{name}", str(source), "-o", str(library)])
        return library

    return make


def test_the_library_is_the_one_that_the_collector_takes(
    make_library: Callable[[str, str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = define("const char *", "deepprof_find_cupti", '"/a/libcupti.so.12"')
    monkeypatch.setattr(cupti_calls, "find_library", lambda: make_library("inject.so", text))
    assert find_cupti() == Path("/a/libcupti.so.12")


def test_where_the_collector_finds_no_library_it_says_how_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    library = build("plain").library
    monkeypatch.setattr(cupti_calls, "find_library", lambda: library)
    monkeypatch.setenv("DEEPPROF_CUPTI", "/nowhere/libcupti.so")
    with pytest.raises(UncountedError, match=r"no libcupti is found .*; name its file in DEEPPROF_CUPTI"):
        find_cupti()


@pytest.mark.parametrize("text", [None, define("int ", "other", "0")])
def test_without_the_compiled_search_there_is_no_library(
    text: str | None, make_library: Callable[[str, str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cupti_calls, "find_library", lambda: text and make_library("older.so", text))
    with pytest.raises(UncountedError, match="the compiled part that finds libcupti was not built"):
        find_cupti()


def test_an_older_library_is_told(make_library: Callable[[str, str], Path]) -> None:
    old = make_library("libcupti.so.12", define("int ", "cuptiProfilerInitialize", "0"))
    with pytest.raises(UncountedError, match=r"older than CUDA 12\.6 update 2"):
        CuptiLibrary(old)


def test_a_file_that_is_no_library_is_told_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "libcupti.so.12"
    path.write_text("nothing")
    with pytest.raises(UncountedError, match=r"^libcupti cannot be loaded: [^\n]*$"):
        CuptiLibrary(path)


def test_what_lies_beside_the_library_is_found_by_its_name_afterwards(
    built: FakeGpu, make_library: Callable[[str, str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"lib{tmp_path.name}.so"  # what is loaded stays
    monkeypatch.setattr(cupti_calls, "NVPERF", (name,))
    with pytest.raises(OSError, match=name):
        ctypes.CDLL(name)
    make_library(name, define("int ", "made_up", "7"))
    (tmp_path / "libcupti.so.12").write_bytes(built.path.read_bytes())
    CuptiLibrary(tmp_path / "libcupti.so.12")
    assert ctypes.CDLL(name).made_up() == 7
