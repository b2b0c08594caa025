"""Native functions around operators, exactly as they call each other, in jobs that are unharmed."""

from __future__ import annotations

import ctypes
import platform
import shutil
import subprocess
import sys
import sysconfig
from collections import Counter
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from tests.collectors.live.building import FLAGS, INJECT, build, compiler, run
from tests.collectors.live.hooked import PROGRAMS, Done, is_on, plain_environment
from tests.collectors.live.listener import Heard, Listener
from tests.collectors.live.test_contexts_python import PYTHONS, count_paths, run_made
from tests.patience import PATIENCE_S, UNHURRIED

COUNT = 400
CXX = ["-std=c++17", "-g", "-O1", "-Wall", "-Wextra", "-Werror", "-fPIC", "-fvisibility=hidden", "-pthread"]
MADE = ("shop::Layer::forward", "made_begin", "aten::made")
INNER = (*MADE, "shop::helper", "made_begin", "aten::inner")


def has_libunwind() -> bool:
    try:
        ctypes.CDLL("libunwind.so.8")
    except OSError:
        return False
    return platform.machine() == "x86_64"


pytestmark = [
    pytest.mark.skipif(not has_libunwind(), reason="no libunwind.so.8 for x86-64 (apt install libunwind8)"),
    pytest.mark.skipif(shutil.which("g++") is None, reason="no compiler of C++"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the made-up operators are compiled, and a library and a program in C++ around them."""
    folder = tmp_path_factory.mktemp("native")
    calls, made = str(PROGRAMS / "native_calls.cpp"), str(folder / "made.o")
    run([compiler(), *FLAGS, "-O1", "-c", str(PROGRAMS / "made_operators.c"), "-o", made])
    run(["g++", *CXX, "-shared", calls, made, "-o", str(folder / "native.so"), "-ldl"])
    run(["g++", *CXX, "-DPROGRAM", calls, made, "-o", str(folder / "program"), "-ldl"])
    return folder


@pytest.fixture(scope="module")
def source(folder: Path) -> Path:
    return folder / "native.so"


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[Listener]:
    started = Listener(tmp_path / "s").start()
    yield started
    started.stop()


def run_native(listener: Listener, source: Path, scenario: str, count: int = COUNT, **more: Any) -> Heard:
    """Run a scenario, which must end well, with native frames."""
    code, err, heard = run_made(sys.executable, listener, source, scenario, count, mode="3", **more)
    assert (code, err) == (0, "")
    assert heard.ended
    return heard


def within(*outer: str, count: int = COUNT) -> Counter[tuple[str, ...]]:
    """Return how often operators begin that `shop::Layer::forward` makes within `outer`."""
    return Counter({(*outer, *MADE): count, (*outer, *INNER): count})


# -- paths --


@pytest.mark.parametrize("python", PYTHONS)
def test_native_functions_stand_between_python_and_operators(listener: Listener, source: Path, python: str) -> None:
    code, err, heard = run_made(python, listener, source, "native", COUNT, mode="3")
    assert (code, err) == (0, "")
    assert count_paths(heard) == within("<module>", "native", "native_nested")


def test_they_are_nodes_of_their_own_kind_without_lines(listener: Listener, source: Path) -> None:
    heard = run_native(listener, source, "native", 10)
    kinds = {heard.names[name].split("): ")[-1]: (kind, line > 0) for _, _, name, line, kind in heard.contexts.tolist()}
    assert (kinds["native"], kinds["native_nested"], kinds["aten::made"]) == ((0, True), (2, False), (1, False))


def test_an_operator_that_runs_python_has_native_functions_again(listener: Listener, source: Path) -> None:
    heard = run_native(listener, source, "native_callback")
    outer = ("<module>", "native_callback", "made_call", "made_begin", "Outer")
    assert count_paths(heard) == within(*outer, "native_nested") + Counter({outer: COUNT})


def test_threads_of_python(listener: Listener, source: Path) -> None:
    heard = run_native(listener, source, "native_threads")
    assert count_paths(heard) == within("_bootstrap", "_bootstrap_inner", "run", "native", "native_nested")


def test_a_thread_without_python_begins_where_it_was_started(listener: Listener, source: Path) -> None:
    assert count_paths(run_native(listener, source, "native_thread")) == within()


def test_recursion_is_as_deep_as_it_was(listener: Listener, source: Path) -> None:
    heard = run_native(listener, source, "native_recursion")
    expected = Counter[tuple[str, ...]]()
    for levels in range(4):
        calls = ["shop::descend"] * (levels + 1)
        expected += within("<module>", "native_recursion", "native_descend", *calls, count=COUNT // 4)
    assert count_paths(heard) == expected


def test_of_deep_recursion_the_outer_part_is_kept(listener: Listener, source: Path) -> None:
    """600 levels are more than are kept of a stack, 3,000 more than are read."""
    heard = run_native(listener, source, "native_deep", 20)
    above = ("<module>", "native_deep")
    (cut,) = {path[:-1] for path in count_paths(heard) if path[-1] == "aten::made" and len(path) > len(above) + 1}
    assert set(cut[len(above) + 1 :]) == {"shop::descend"}
    assert 240 <= len(cut) - len(above) <= 256  # with those that lead from the interpreter to the library
    short = {(*above, "aten::made"): 20, (*above, "aten::made", "aten::inner"): 20}
    assert count_paths(heard) == {(*cut, "aten::made"): 20, (*cut, "aten::made", "aten::inner"): 20} | short
    assert any("more than 1,024 calls" in notice for notice in heard.notices)


def test_an_exception_ends_operators_and_functions(listener: Listener, source: Path) -> None:
    heard = run_native(listener, source, "native_thrown")
    caller = ("<module>", "native_thrown", "native_thrown")
    made = (*caller, "made_begin", "aten::made")
    failed = (*made, "shop::fail", "made_begin", "aten::inner")
    assert count_paths(heard) == {made: COUNT, failed: COUNT, (*caller, *INNER[3:]): COUNT}


def test_a_stack_of_its_own_ends_where_it_begins(listener: Listener, source: Path) -> None:
    heard = run_native(listener, source, "native_switched")
    assert count_paths(heard) == within("<module>", "native_switched", "shop::switched")


def test_a_program_without_python_begins_at_main(listener: Listener, folder: Path) -> None:
    own = {"DEEPPROF_SOCKET": str(listener.path), "DEEPPROF_INJECT": str(build("plain").library)}
    environment = plain_environment() | UNHURRIED | own
    with subprocess.Popen([folder / "program", "50"], env=environment, stdin=subprocess.PIPE) as process:
        listener.wait(lambda _: (listener.connections and is_on(listener.last)) or process.poll() is not None)
        process.communicate(b"\n", timeout=PATIENCE_S)
    heard = listener.connections[0]
    listener.wait(lambda _: heard.gone)
    assert process.returncode == 0
    assert count_paths(heard) == within("main", "native_nested", count=50)


@pytest.mark.parametrize("scenario", ["plain", "nested", "ranges", "generators", "coroutines", "finalizers", "forks"])
def test_without_them_the_tree_is_that_of_python(tmp_path: Path, source: Path, scenario: str) -> None:
    found = []
    for number, mode in enumerate("23"):
        listener = Listener(tmp_path / f"s{number}").start()
        code, err, heard = run_made(sys.executable, listener, source, scenario, COUNT, mode=mode)
        assert (code, err) == (0, "")
        found.append(leave_out_native(heard))
        listener.stop()
    assert found[0] == found[1]


def leave_out_native(heard: Heard) -> Counter[tuple[str, ...]]:
    """Return how often operators began, by path without native functions."""
    paths: dict[int, tuple[str, ...]] = {0: ()}
    counts = Counter[tuple[str, ...]]()
    for number, parent, name, line, kind in heard.contexts.tolist():
        own = () if kind == 2 else (f"{heard.names[name]}:{line}",)
        paths[number] = (*paths[parent], *own)
    for row in heard.sums:
        counts[paths[int(row["context"])]] += int(row["count"])
    return +counts


# -- names --


def test_a_function_without_a_symbol_is_named_by_its_place(listener: Listener, source: Path, tmp_path: Path) -> None:
    stripped = tmp_path / "stripped.so"
    run(["strip", "-o", str(stripped), str(source)])
    where = subprocess.run(["nm", "--demangle", str(source)], check=True, capture_output=True, text=True).stdout
    place = {line.split(maxsplit=2)[-1]: int(line.split()[0], 16) for line in where.splitlines() if line[0] == "0"}
    hidden, helper = place["shop::(anonymous namespace)::hidden()"], place["shop::helper(int)"]
    (layer,) = [at for name, at in place.items() if "shop::Layer<double>::forward" in name]
    heard = run_native(listener, stripped, "native_hidden")
    above = ("<module>", "native_hidden", "native_hidden", f"[stripped.so+0x{hidden:x}]")
    made = (*above, f"[stripped.so+0x{layer:x}]", "made_begin", "aten::made")
    inner = (*made, f"[stripped.so+0x{helper:x}]", "made_begin", "aten::inner")
    assert count_paths(heard) == {made: COUNT, inner: COUNT}


def test_a_function_that_no_other_library_sees_has_its_name(listener: Listener, source: Path) -> None:
    heard = run_native(listener, source, "native_hidden")
    above = ("<module>", "native_hidden", "native_hidden")
    assert count_paths(heard) == within(*above, "shop::(anonymous namespace)::hidden")


def test_where_another_library_takes_a_place_native_frames_end(
    listener: Listener, source: Path, tmp_path: Path
) -> None:
    libraries = [tmp_path / f"{name}.so" for name in ("first", "second")]
    for library in libraries:
        text = [str(PROGRAMS / "native_reloaded.c"), f"-DNAME={library.stem}", "-o", str(library)]
        run([compiler(), *FLAGS, "-O1", "-shared", *text])
    heard = run_native(listener, source, "native_reloaded", 50, NATIVE_LIBRARIES=":".join(map(str, libraries)))
    counts = count_paths(heard)
    before = {path for path in counts if "native_run" in path}
    assert {path[3] for path in before} == {"first"}
    after = ("<module>", "native_reloaded", "aten::made")
    assert (counts[after], counts[(*after, "aten::inner")]) == (50, 50)
    assert any("in the place of another" in notice for notice in heard.notices)


def test_from_more_libraries_than_are_watched_native_frames_end(
    listener: Listener, source: Path, tmp_path: Path
) -> None:
    library = tmp_path / "library.so"
    run([compiler(), *FLAGS, "-O1", "-shared", str(PROGRAMS / "native_reloaded.c"), "-DNAME=one", "-o", str(library)])
    for number in range(1100):
        shutil.copy(library, tmp_path / f"library{number:04}.so")
    where = str(tmp_path / "library????.so")
    heard = run_native(listener, source, "native_libraries", 1100, NATIVE_LIBRARIES=where)
    counts = count_paths(heard)
    made = sum(count for path, count in counts.items() if path[-1] == "aten::made")
    shown = sum(count for path, count in counts.items() if path[-1] == "aten::made" and "native_run" in path)
    assert made == 1100
    assert 1000 < shown < 1024
    assert any("more than 1,024 libraries" in notice for notice in heard.notices)


def test_code_of_no_library_is_looked_for_once_until_libraries_change(tmp_path: Path) -> None:
    program, library = tmp_path / "modules", tmp_path / "library.so"
    run([compiler(), *FLAGS, "-O1", "-shared", str(PROGRAMS / "native_reloaded.c"), "-DNAME=one", "-o", str(library)])
    run([compiler(), *FLAGS, str(PROGRAMS / "native_modules.c"), "-o", str(program), "-ldl"])
    said = subprocess.run([program, library], check=True, capture_output=True, text=True).stdout
    assert said == "1 0 1 0\n"


def test_a_constructor_may_wait_for_a_thread_that_begins_operators(
    listener: Listener, source: Path, tmp_path: Path
) -> None:
    library = tmp_path / "loading.so"
    text = [str(PROGRAMS / "native_loading.c"), "-o", str(library)]
    run([compiler(), *FLAGS, "-O1", "-shared", *text])
    heard = run_native(listener, source, "native_loading", NATIVE_LIBRARIES=str(library))
    in_constructor = within("run", "native_nested", count=1)
    assert count_paths(heard) == in_constructor + within(
        "<module>", "native_loading", "native", "native_nested", count=COUNT - 1
    )


SYMBOLS = {
    "_ZN4shop7forwardERKN2at6TensorE": "shop::forward",
    "_ZN4shop4makeIiEESt6vectorIT_SaIS2_EES2_": "shop::make",
    "_ZN4shop12_GLOBAL__N_16helperEi": "shop::(anonymous namespace)::helper",
    "_ZNK4shop1VltERKS0_": "shop::V::operator<",
    "_ZNK4shop1VlsIiEES0_T_": "shop::V::operator<<",
    "_ZN4shop1VptEv": "shop::V::operator->",
    "_ZNK4shop1VclEi": "shop::V::operator()",
    "_ZNK4shop1VcvbEv": "shop::V::operator bool",
    "_ZN4shop1VnwEm": "shop::V::operator new",
    "_ZN4shop2opIiEEDTplfp_Li1EET_": "shop::op",
    "_ZZN4shop3runEvENKUliE_clEi": "shop::run::{lambda#1}::operator()",
    "_ZN4shop7forwardEi.cold": "shop::forward",
    "_Z10constant_fIiERKiT_": "constant_f",
    "_ZNKR4shop1V3getEv": "shop::V::get",
    "_ZZNK4shop1V3getEvENKUlvE0_clEv": "shop::V::get::{lambda#2}::operator()",
    "plain": "plain",
    "plain.constprop.0": "plain",
    "_ZN4shop": "_ZN4shop",
    "_": "_",
}
HIDDEN = [
    "_ZNSt6thread11_State_implIiE6_M_runEv",
    "_ZN8pybind1112cpp_function10dispatcherEv",
    "_ZN3c104callEv",
    "_start",
]


def test_names_are_what_people_call_functions(tmp_path: Path) -> None:
    program = tmp_path / "names"
    sources = [str(INJECT / "native_names.c"), str(PROGRAMS / "native_names.c")]
    flags = ["-fsanitize=address,undefined", f"-I{INJECT}", "-Wl,--no-as-needed", "-lstdc++", "-ldl"]
    run([compiler(), *FLAGS, *sources, *flags, "-o", str(program)])
    done = subprocess.run([program, *SYMBOLS, *HIDDEN], check=True, capture_output=True, text=True)
    lines = done.stdout.splitlines()
    assert lines[: len(SYMBOLS)] == [f"1 {name}" for name in SYMBOLS.values()]
    assert [line[0] for line in lines[len(SYMBOLS) :]] == ["0"] * len(HIDDEN)


# -- what may go wrong --


def test_without_libunwind_it_goes_on_as_with_python_and_says_what_to_install(listener: Listener, source: Path) -> None:
    heard = run_native(listener, source, "native", DEEPPROF_LIBUNWIND="/nowhere/libunwind.so.8")
    made = ("<module>", "native", "aten::made")
    assert count_paths(heard) == {made: COUNT, (*made, "aten::inner"): COUNT}
    (notice,) = heard.notices
    assert "libunwind8" in notice
    assert "/nowhere/libunwind.so.8" in notice


def preload(flavour: str) -> str:
    """Return what has to be loaded first: the sanitizer's library, and that of C++, whose exceptions it looks for."""
    names = [f"lib{'asan' if flavour == 'address' else 'tsan'}.so", "libstdc++.so.6"]
    commands = [[compiler(), f"-print-file-name={name}"] for name in names]
    found = [subprocess.run(each, check=True, capture_output=True, text=True).stdout for each in commands]
    return " ".join(path.strip() for path in found)


# Under ThreadSanitizer libunwind is not used, unless it is named: it would crash where a thread ends.
SANITIZED = ["native_lasting", "native_callback", "native_thrown", "native_deep", "forks"]
WITH_ENDS = [("address", "native_threads"), ("address", "native_thread"), ("address", "shutdown")]


@pytest.mark.parametrize(("flavour", "scenario"), [*product(("address", "thread"), SANITIZED), *WITH_ENDS])
def test_scenarios_are_clean(listener: Listener, source: Path, flavour: str, scenario: str) -> None:
    more: dict[str, Any] = {"LD_PRELOAD": preload(flavour), "ASAN_OPTIONS": "detect_leaks=0", "PYTHONMALLOC": "malloc"}
    run_native(listener, source, scenario, 200, flavour=flavour, DEEPPROF_LIBUNWIND="libunwind.so.8", **more)


def test_under_thread_sanitizer_they_are_refused_with_a_line(listener: Listener, source: Path) -> None:
    more: dict[str, Any] = {"LD_PRELOAD": preload("thread"), "PYTHONMALLOC": "malloc"}
    heard = run_native(listener, source, "native_threads", flavour="thread", **more)
    assert ["ThreadSanitizer" in notice for notice in heard.notices] == [True]


# -- real operators --


@pytest.fixture(scope="module")
def extension(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An extension of PyTorch, compiled as torch.utils.cpp_extension does, but quicker; half a minute."""
    import torch

    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        pytest.skip("no Python.h, which extensions include (Debian and Ubuntu: python3-dev)")
    home = Path(torch.__file__).parent
    target = tmp_path_factory.mktemp("extension") / "native_extension.so"
    places = [home / "include", home / "include/torch/csrc/api/include", Path(sysconfig.get_path("include"))]
    flags = ["-std=c++20", "-O1", "-fPIC", "-shared", "-DTORCH_EXTENSION_NAME=native_extension", f"-L{home / 'lib'}"]
    libraries = ["-ltorch", "-ltorch_cpu", "-lc10", "-ltorch_python"]
    included = [word for place in places for word in ("-isystem", str(place))]
    run(["g++", *flags, *included, str(PROGRAMS / "native_extension.cpp"), *libraries, "-o", str(target)])
    return target


NATIVE = {"DEEPPROF_CONTEXTS": "native", "DEEPPROF_CONTEXTS_BUDGET": "100"}
NEEDS_TORCH = pytest.mark.skipif(
    find_spec("torch") is None, reason="torch is not installed (pip install torch==2.13.0)"
)


@pytest.mark.slow  # half a minute to compile: libraries without PyTorch show the same
@NEEDS_TORCH
def test_an_extension_of_pytorch(hooked: Callable[..., Done], extension: Path) -> None:
    """Its functions are above its operators, PyTorch's own do not, and what goes backward has none."""
    live = hooked(
        "native_extension.py", str(extension), "7", DEEPPROF_CONTEXTS="native", DEEPPROF_CONTEXTS_BUDGET="100"
    )
    assert live.process.returncode == 0, live.process.stderr
    heard = live.heard[0]
    assert heard.notices == []
    names = {heard.names[row["name"]] for row in heard.contexts if row["kind"] == 2}
    assert names == {"shop::forward", "shop::scale", "shop::double_up", "shop::twice"}
    counts = {path: count for path, count in count_paths(heard).items() if "run" in path}
    below = {path[path.index("run") + 1 :]: count for path, count in counts.items()}
    forward, operator, twice = ("shop::forward",), ("__call__", "shop::double_up", "shop::double_up"), ("shop::twice",)
    for outer in (forward, operator, twice):
        assert below[(*outer, "shop::scale", "aten::mul")] == 7
        assert below[(*outer, "shop::scale", "aten::add")] == 7
    assert below[(*forward, "aten::relu")] == 7
    nodes = [path for path in below if path[-1].startswith("autograd::engine")]
    assert nodes
    assert not any(path[at].startswith("shop::") for path in nodes for at in range(-2, -1))


@NEEDS_TORCH
def test_a_program_of_python_alone_has_the_tree_that_it_has_without(hooked: Callable[..., Done]) -> None:
    """PyTorch's own frames, some ten for every operator, are left out."""
    found = []
    for mode in ("python", "native"):
        live = hooked("contexts.py", "lstm", "3", **(NATIVE | {"DEEPPROF_CONTEXTS": mode}))
        assert live.process.returncode == 0, live.process.stderr
        assert live.heard[0].notices == []
        found.append(leave_out_native(live.heard[0]))
        assert set(live.heard[0].contexts["kind"].tolist()) == {0, 1}
    assert found[0] == found[1]
