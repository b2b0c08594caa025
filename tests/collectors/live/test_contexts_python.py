"""Contexts in every Python that is here, with made-up operators: all are counted, and the job is unharmed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.collectors.live.building import FLAGS, build, compiler, run
from tests.collectors.live.hooked import PROGRAMS, is_on, plain_environment
from tests.collectors.live.listener import Heard, Listener
from tests.patience import PATIENCE_S, UNHURRIED

OLDEST, NEWEST = 9, 14


def find_pythons() -> list[str]:
    """Return this Python, and one of each other version from 3.9 on that pyenv or the path has here."""
    home = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = {sys.version_info[1]: sys.executable}
    for minor in range(OLDEST, NEWEST + 1):
        path = shutil.which(f"python3.{minor}")
        if path and not subprocess.run([path, "-c", "import ctypes"], check=False, capture_output=True).returncode:
            found.setdefault(minor, path)
    for path in sorted(home.glob("3.*/bin/python3")):
        minor = int(path.parts[-3].split(".")[1])
        if minor >= OLDEST:
            found.setdefault(minor, str(path))
    return [found[minor] for minor in sorted(found)]


PYTHONS = find_pythons()
SCENARIOS = {  # with its exit code
    "plain": 0,
    "held": 0,
    "threads": 0,
    "exceptions": 0,
    "generators": 0,
    "coroutines": 0,
    "finalizers": 0,
    "traced": 0,
    "recursion": 0,
    "nested": 0,
    "ranges": 0,
    "made_code": 0,
    "large_code": 0,
    "other_code": 0,
    "interpreters": 0,
    "locked": 0,
    "late_settings": 0,
    "forks": 0,
    "leaves": 3,
    "dies": -9,
    "shutdown": 0,
}
WITHOUT_END = {"leaves", "dies"}
COUNT = 4000


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("source") / "made.so"
    run([compiler(), *FLAGS, "-O1", "-shared", str(PROGRAMS / "made_operators.c"), "-o", str(target), "-ldl"])
    return target


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[Listener]:
    started = Listener(tmp_path / "s").start()
    yield started
    started.stop()


def run_made(
    python: str,
    listener: Listener,
    source: Path,
    scenario: str,
    count: int = COUNT,
    *,
    flavour: str = "plain",
    until: Callable[[Heard], object] | None = None,
    mode: str = "2",
    program: str = "made_contexts.py",
    **more: str,
) -> tuple[int, str, Heard]:
    """Run a scenario and return its exit code, what it wrote to standard error, and what was heard."""
    library = build(flavour).library
    own = {"DEEPPROF_SOCKET": str(listener.path), "DEEPPROF_INJECT": str(library), "DEEPPROF_CONTEXTS_BUDGET": "100"}
    command = [python, str(PROGRAMS / program), scenario, str(count), str(source), mode]
    environment = plain_environment() | UNHURRIED | own | more
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            listener.wait(lambda _: (listener.connections and is_on(listener.last)) or process.poll() is not None)
            if until is not None and process.stdin:
                process.stdin.write("\n")
                process.stdin.flush()
                listener.wait(lambda _: until(listener.last))
            _, err = process.communicate("\n", timeout=PATIENCE_S)
        finally:
            process.kill()
    heard = listener.connections[0]
    listener.wait(lambda _: heard.gone)
    return process.returncode, err, heard


def count_paths(heard: Heard) -> Counter[tuple[str, ...]]:
    """Return how often each operator began, by its path: plain names of functions, and operators."""
    paths: dict[int, tuple[str, ...]] = {0: ()}
    kinds = {}
    for number, parent, name, _, kind in heard.contexts.tolist():
        paths[number] = (*paths[parent], heard.names[name].split("): ")[-1])
        kinds[number] = kind
    counts = Counter[tuple[str, ...]]()
    for row in heard.sums:
        if kinds[int(row["context"])] == 1:
            counts[paths[int(row["context"])]] += int(row["count"])
    return counts


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("python", PYTHONS)
def test_every_operator_is_counted_and_the_job_unharmed(
    listener: Listener, source: Path, python: str, scenario: str
) -> None:
    code, err, heard = run_made(python, listener, source, scenario)
    assert (code, err, heard.notices) == (SCENARIOS[scenario], "", [])
    assert heard.ended == (scenario not in WITHOUT_END)
    counts = count_paths(heard)
    made = sum(count for path, count in counts.items() if path[-1] == "aten::made")
    inner = sum(count for path, count in counts.items() if path[-2:] == ("aten::made", "aten::inner"))
    if scenario == "shutdown":
        assert made >= COUNT
        assert abs(made - inner) <= 5  # of every thread one is open when collecting ends
    elif scenario not in WITHOUT_END:  # what is not told when a process is killed is lost
        assert (made, inner) == (COUNT, COUNT)


def test_paths_are_those_of_the_calls(listener: Listener, source: Path) -> None:
    _, _, heard = run_made(sys.executable, listener, source, "nested")
    outer = ("<module>", "nested", "Outer")
    inner = (*outer, "operate", "aten::made")
    assert count_paths(heard) == {outer: COUNT, inner: COUNT, (*inner, "aten::inner"): COUNT}


def test_a_range_does_not_hold_what_runs_after_its_function_has_returned(listener: Listener, source: Path) -> None:
    _, _, heard = run_made(sys.executable, listener, source, "ranges")
    made = ("<module>", "ranges", "operate", "aten::made")
    opened = ("<module>", "ranges", "opened", "a range")
    assert count_paths(heard) == {opened: COUNT, made: COUNT, (*made, "aten::inner"): COUNT}


@pytest.mark.parametrize("python", PYTHONS)
def test_a_range_does_not_hold_one_that_the_same_function_opens(listener: Listener, source: Path, python: str) -> None:
    """It runs in the same memory, at the same instruction; the function that called it has gone on."""
    _, _, heard = run_made(python, listener, source, "ranges_in_ranges")
    made = ("<module>", "ranges_in_ranges", "operate", "aten::made")
    opened = ("<module>", "ranges_in_ranges", "opened", "a range")
    assert count_paths(heard) == {opened: 2 * COUNT, made: COUNT, (*made, "aten::inner"): COUNT}


def test_code_that_takes_the_place_of_other_code_has_its_own_name(listener: Listener, source: Path) -> None:
    _, _, heard = run_made(sys.executable, listener, source, "other_code")
    counts = Counter(path[2] for path in count_paths(heard).elements() if path[-1] == "aten::made")
    assert counts == Counter({f"made_{number % 7}": len(range(number, COUNT, 7)) for number in range(7)})
    files = {text.split("(")[0] for text in heard.names.values() if "): made_" in text}
    assert len(files) == COUNT


@pytest.mark.parametrize("python", PYTHONS)
def test_a_file_may_have_a_name_that_is_no_text(listener: Listener, source: Path, tmp_path: Path, python: str) -> None:
    """Of a byte that is not UTF-8 CPython makes half of a surrogate pair."""
    program, text = tmp_path / "program.py", (PROGRAMS / "made_contexts.py").read_text()
    program.write_text(f"exec(compile({text!r}, '/caf\\udce9/made_contexts.py', 'exec'))")
    code, err, heard = run_made(python, listener, source, "plain", program=str(program))
    assert (code, err, heard.notices) == (0, "", [])
    made = ("<module>", "<module>", "plain", "operate", "aten::made")
    assert count_paths(heard) == {made: COUNT, (*made, "aten::inner"): COUNT}
    assert any("/caf?/made_contexts.py(" in name for name in heard.names.values())


READ_WHOLE = [pytest.param(each, marks=[pytest.mark.slow] if each != sys.executable else []) for each in PYTHONS]


@pytest.mark.parametrize("python", READ_WHOLE)
def test_parts_of_code_are_as_python_says(tmp_path: Path, python: str) -> None:
    """For all code of its standard library: names, and the line of every instruction."""
    reader = tmp_path / "reader.so"
    run([compiler(), *FLAGS, "-O1", "-shared", str(PROGRAMS / "code_parts.c"), "-o", str(reader)])
    command = [python, str(PROGRAMS / "code_parts.py"), str(reader)]
    done = subprocess.run(command, env=plain_environment(), check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    count, marks, named = map(int, done.stdout.split())
    assert count > 10_000
    assert marks == named  # all of them are alive, and none looks like another


def test_operators_alone_have_no_functions(listener: Listener, source: Path) -> None:
    _, _, heard = run_made(sys.executable, listener, source, "plain", mode="1")
    assert count_paths(heard) == {("aten::made",): COUNT, ("aten::made", "aten::inner"): COUNT}


def test_a_full_tree_counts_for_what_is_around(listener: Listener, source: Path) -> None:
    _, _, heard = run_made(sys.executable, listener, source, "recursion", DEEPPROF_CONTEXTS_MOST="100")
    assert len(heard.contexts) == 100
    assert any("more than 100 calling contexts" in notice for notice in heard.notices)


def test_functions_without_a_name_hold_ranges(listener: Listener, source: Path) -> None:
    """The longest names that there may be, until there is no room for any."""
    code, err, heard = run_made(sys.executable, listener, source, "full_names", 10)
    assert (code, err) == (0, "")
    assert any("different names" in notice for notice in heard.notices)


def test_times_include_what_lies_below(listener: Listener, source: Path) -> None:
    _, _, heard = run_made(sys.executable, listener, source, "nested")
    total = Counter[int]()
    for row in heard.sums:
        total[int(row["context"])] += int(row["host_ns"])
    for number, parent, *_ in heard.contexts.tolist():
        assert total[number] >= 0
        assert not parent or total[number] <= total[parent] + 1000 * len(heard.sums)


def test_only_whole_iterations_are_left_out_above_the_budget(listener: Listener, source: Path) -> None:
    """With a budget of 1 % operators that do nothing are far above it."""

    def is_told(heard: Heard) -> bool:
        return any("iteration is collected" in notice and "every 1. " not in notice for notice in heard.notices)

    code, err, heard = run_made(
        sys.executable, listener, source, "steps", 10, until=is_told, DEEPPROF_CONTEXTS_BUDGET="1"
    )
    assert (code, err) == (0, "")
    counts = count_paths(heard)
    steps = sum(count for path, count in counts.items() if path[-1] == "Optimizer.step#SGD.step")
    made = sum(count for path, count in counts.items() if path[-1] == "aten::made")
    assert steps > 0
    assert made == 10 * steps


def test_what_threads_cost_that_end_is_part_of_the_budget(listener: Listener, source: Path) -> None:
    def is_told(heard: Heard) -> bool:
        return any("iteration is collected" in notice for notice in heard.notices)

    code, err, _ = run_made(
        sys.executable, listener, source, "short_threads", 1000, until=is_told, DEEPPROF_CONTEXTS_BUDGET="1"
    )
    assert (code, err) == (0, "")


SANITIZED = ["threads", "finalizers", "recursion", "nested", "ranges", "forks", "shutdown"]


def preloaded(flavour: str) -> dict[str, str]:
    """Return the variables with which an interpreter loads a library of this flavour."""
    name = f"lib{'asan' if flavour == 'address' else 'tsan'}.so"
    command = [compiler(), f"-print-file-name={name}"]
    found = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    return {"LD_PRELOAD": found, "ASAN_OPTIONS": "detect_leaks=0", "PYTHONMALLOC": "malloc"}


@pytest.mark.parametrize("flavour", ["address", "thread"])
@pytest.mark.parametrize("scenario", SANITIZED)
def test_scenarios_are_clean(listener: Listener, source: Path, flavour: str, scenario: str) -> None:
    code, err, heard = run_made(sys.executable, listener, source, scenario, 800, flavour=flavour, **preloaded(flavour))
    assert (code, err) == (0, "")
    assert heard.ended
