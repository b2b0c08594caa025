"""`deepprof.range`, `start` and `stop`: every range is written, nested as it was opened, and no program notices."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import deepprof
from deepprof.collectors.live import program_ranges
from deepprof.collectors.live.program_ranges import ProgramRange
from tests.collectors.live.building import compiler
from tests.patience import PATIENCE_S

LIBRARY = """
#include <stdio.h>
#include <string.h>
static int depth;
static char last[64];
int roctxRangePushA(const char *name) { strncpy(last, name, 63); return depth++; }
int roctxRangePop(void) { return --depth; }
int depth_of(void) { return depth; }
const char *last_of(void) { return last; }
"""


class Written:
    """A library that notes what is written with it, by thread."""

    def __init__(self) -> None:
        self.lines: list[tuple[int, str]] = []
        self.writer = program_ranges._RangeWriter(self.push, self.pop)

    def push(self, name: str) -> str:
        self.lines.append((threading.get_ident(), f"+{name}"))
        return name

    def pop(self, name: str) -> None:
        self.lines.append((threading.get_ident(), f"-{name}"))

    @property
    def words(self) -> list[str]:
        return [word for _, word in self.lines]


@contextlib.contextmanager
def writing(*writers: Any) -> Iterator[None]:
    """Have ranges written with nothing but `writers`, and warnings logged anew."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(program_ranges, "_find_writers", lambda: writers)
        patch.setattr(program_ranges, "WARNED", set())
        patch.setattr(program_ranges, "OPEN", program_ranges._OpenRanges())
        yield


@pytest.fixture
def written() -> Iterator[Written]:
    found = Written()
    with writing(found.writer):
        yield found


def test_ranges_lie_in_each_other(written: Written) -> None:
    with deepprof.range("outer"):
        deepprof.start("inner")
        with deepprof.range("innermost"):
            pass
        deepprof.stop()
    assert written.words == ["+outer", "+inner", "+innermost", "-innermost", "-inner", "-outer"]
    assert isinstance(deepprof.range("a"), ProgramRange)


def test_a_decorated_function_is_a_range_each_time_also_within_itself(written: Written) -> None:
    @deepprof.range("factorial")
    def factorial(number: int) -> int:
        """Multiply."""
        return number * factorial(number - 1) if number else 1

    assert factorial(2) == 2
    assert (factorial.__name__, factorial.__doc__) == ("factorial", "Multiply.")
    assert written.words == ["+factorial"] * 3 + ["-factorial"] * 3


def test_coroutines_in_turns_take_each_others_ranges_along(written: Written) -> None:
    async def work(name: str) -> None:
        with deepprof.range(name):
            await asyncio.sleep(0)

    async def both() -> None:
        await asyncio.gather(work("a"), work("b"))

    asyncio.run(both())
    assert written.words == ["+a", "+b", "-b", "-a"]
    assert program_ranges.OPEN.ranges == []


def test_a_decorator_of_a_generator_marks_the_call_that_makes_it(written: Written) -> None:
    @deepprof.range("made")
    def count() -> Iterator[int]:
        written.lines.append((0, "works"))
        yield 1

    assert list(count()) == [1]
    assert written.words == ["+made", "-made", "works"]


def test_an_exception_ends_the_ranges_that_it_leaves_and_goes_on(written: Written) -> None:
    def fail() -> None:
        with deepprof.range("outer"):
            deepprof.start("never stopped")
            raise ValueError("the program's own")

    with pytest.raises(ValueError, match="the program's own"):
        fail()
    assert written.words == ["+outer", "+never stopped", "-never stopped", "-outer"]


def test_a_stop_without_a_start_is_one_warning(written: Written, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "deepprof"), deepprof.range("outer"):
        deepprof.stop()
        deepprof.stop()
    assert written.words == ["+outer", "-outer"]
    assert [record.getMessage() for record in caplog.records] == [f"deepprof: {program_ranges.UNSTARTED}"]


def test_threads_do_not_see_the_ranges_of_others(written: Written, caplog: pytest.LogCaptureFixture) -> None:
    shared, both = deepprof.range("shared"), threading.Barrier(2)

    def work() -> None:
        with shared:
            both.wait(PATIENCE_S)
            deepprof.start("own")
            both.wait(PATIENCE_S)
            deepprof.stop()

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for thread in threads:
        own = [word for ident, word in written.lines if ident == thread.ident]
        assert own == ["+shared", "+own", "-own", "-shared"]
    assert len(written.lines) == 8
    assert not caplog.records


def test_a_library_that_fails_is_reported_once_and_the_others_go_on(caplog: pytest.LogCaptureFixture) -> None:
    def fail(_: object) -> None:
        raise OSError("broken")

    good, broken = Written(), program_ranges._RangeWriter(fail, fail)
    leaves = program_ranges._RangeWriter(lambda _: None, fail)
    with caplog.at_level(logging.WARNING, "deepprof"), writing(good.writer, leaves, broken):
        for _ in range(2):
            with deepprof.range("a"):
                pass
    assert good.words == ["+a", "-a"] * 2
    assert [record.getMessage() for record in caplog.records] == [f"deepprof: {program_ranges.FAILED}broken"]


def test_generators_that_take_turns_leave_no_range_open(written: Written) -> None:
    def steps(name: str) -> Iterator[None]:
        with deepprof.range(name):
            yield
            yield

    one, other = steps("one"), steps("other")
    for generator in (one, other, one, other):
        next(generator)
    one.close()  # ends the range of the other one, which is in it
    other.close()
    assert written.words == ["+one", "+other", "-other", "-one"]
    assert not program_ranges.OPEN.ranges


OPERATIONS = st.lists(st.tuples(st.sampled_from(["enter", "exit", "start", "stop"]), st.integers(0, 2)), max_size=30)


@given(OPERATIONS)
def test_whatever_a_program_does_ranges_nest_and_each_ends_once(operations: list[tuple[str, int]]) -> None:
    written = Written()
    with writing(written.writer):
        shared = [deepprof.range(str(number)) for number in range(3)]
        expected: list[str] = []
        stack: list[str] = []  # of the oracle: owners, `s` for start
        for what, number in operations:
            if what == "enter":
                shared[number].__enter__()
                stack.append(str(number))
                expected.append(f"+{number}")
            elif what == "start":
                deepprof.start("s")
                stack.append("s")
                expected.append("+s")
            elif what == "stop":
                deepprof.stop()
                if stack and stack[-1] == "s":
                    expected.append(f"-{stack.pop()}")
            else:
                shared[number].__exit__(None, None, None)
                if str(number) in stack:
                    while (ended := stack.pop()) != str(number):
                        expected.append(f"-{ended}")
                    expected.append(f"-{number}")
        assert written.words == expected


def test_a_program_without_anything_that_records_loads_nothing() -> None:
    code = (
        "import sys, deepprof\n"
        "with deepprof.range('a'):\n    deepprof.start('b'); deepprof.stop()\n"
        "print(sorted({'torch', 'polars', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_a_shared_library_has_the_name_and_is_left_as_it_was(tmp_path: Path) -> None:
    source, library = tmp_path / "roctx.c", tmp_path / "libroctx.so"
    source.write_text(LIBRARY)
    subprocess.run([compiler(), "-shared", "-fPIC", str(source), "-o", str(library)], check=True)
    writer = program_ranges._load(("absent.so", str(library)), "roctxRangePushA", "roctxRangePop")
    assert program_ranges._load(("absent.so", str(library)), "nvtxRangePushA", "nvtxRangePop") is None
    loaded = program_ranges.ctypes.CDLL(str(library))
    loaded.last_of.restype = program_ranges.ctypes.c_char_p
    assert writer is not None
    with writing(writer), deepprof.range("räum\udc80"):
        assert (loaded.depth_of(), loaded.last_of()) == (1, "räum?".encode())
    assert loaded.depth_of() == 0


def test_a_torch_for_cuda_writes_both_its_own_ranges_and_nvtx(monkeypatch: pytest.MonkeyPatch) -> None:
    own, nvtx = Written(), Written()

    class Record:
        def __init__(self, name: str) -> None:
            self.name = name

        def __enter__(self) -> Record:
            own.push(self.name)
            return self

        def __exit__(self, *_: object) -> None:
            own.pop(self.name)

    torch: Any = ModuleType("torch")
    torch.version = SimpleNamespace(cuda="13.0")
    torch.cuda = SimpleNamespace(
        nvtx=SimpleNamespace(range_push=nvtx.push, range_pop=lambda: nvtx.pop(nvtx.lines[-1][1][1:]))
    )
    enabled = [False]
    profiler = SimpleNamespace(record_function=Record)
    torch.autograd = SimpleNamespace(profiler=profiler, _profiler_enabled=lambda: enabled[0])
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.delitem(sys.modules, "torch.autograd.profiler", raising=False)
    with deepprof.range("not imported yet"):
        pass
    monkeypatch.setitem(sys.modules, "torch.autograd.profiler", profiler)
    with deepprof.range("a"):
        enabled[0] = True  # a profiler that starts within
    with deepprof.range("b"):  # which torch's profiler has: NVTX would be the same range again
        pass
    assert own.words == ["+a", "-a", "+b", "-b"]
    assert nvtx.words == ["+a", "-a"]


@pytest.mark.parametrize("imported", [True, False])
def test_the_package_nvtx_is_used_where_it_is_imported_or_a_tool_takes_its_ranges(
    monkeypatch: pytest.MonkeyPatch, imported: bool
) -> None:
    found = Written()
    package: Any = ModuleType("nvtx")
    package.push_range, package.pop_range = found.push, lambda: found.pop("a")
    monkeypatch.setitem(sys.modules, "nvtx", package)
    monkeypatch.setenv(program_ranges.INJECTED, "tool.so")
    writer = program_ranges._find_nvtx(None, package if imported else None)
    assert writer is not None
    with writing(writer), deepprof.range("a"):
        pass
    assert found.words == ["+a", "-a"]
    monkeypatch.delenv(program_ranges.INJECTED)
    monkeypatch.setattr(program_ranges, "NVTX", ())
    assert program_ranges._find_nvtx(None, None) is None


def test_a_real_profile_has_the_ranges(tmp_path: Path) -> None:
    torch: Any = pytest.importorskip("torch", reason="torch is not installed (pip install torch==2.13.0)")

    @deepprof.range("decorated")
    def multiply(value: Any) -> Any:
        return value @ value

    value, path = torch.ones(8, 8), tmp_path / "trace.json"
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        with deepprof.range("outer"):
            multiply(value)
        deepprof.start("started")
        multiply(value)
        deepprof.stop()
    profiler.export_chrome_trace(str(path))
    assert json.loads(path.read_text())["traceEvents"]
    trace = deepprof.read(path)
    rows = trace.annotations.with_columns(name=trace.names.gather(trace.annotations["name_id"]))
    rows = rows.filter(pl.col("name").is_in(["outer", "decorated", "started"]))
    assert rows["name"].to_list() == ["outer", "decorated", "started", "decorated"]
    outer, first, started, second = rows.select("start_ns", "end_ns").rows()
    assert outer[0] <= first[0] <= first[1] <= outer[1] <= started[0] <= second[0] <= second[1] <= started[1]


@pytest.mark.parametrize("what", ["a class", "no function"])
def test_what_is_no_function_cannot_be_decorated(what: str) -> None:
    class Net:
        def forward(self) -> int:
            return 3

    given: Any = Net if what == "a class" else 3
    said = {
        "a class": "deepprof.range('net') decorates functions, and Net is a class: decorate its methods",
        "no function": "deepprof.range('net') decorates functions, and 3 is none",
    }
    with pytest.raises(TypeError) as refused:
        deepprof.range("net")(given)
    assert str(refused.value) == said[what]
    Net.forward = deepprof.range("net")(Net.forward)  # type: ignore[method-assign]
    assert Net().forward() == 3
