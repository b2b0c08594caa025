"""C programs that call NVTX and ITT through the headers of NVIDIA and of Intel, and what of it arrives."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from deepprof.collectors.live.packets import ANNOTATION, BY_NAME
from tests.patience import PATIENCE_S, UNHURRIED

from .building import HERE, build, compiler, run
from .listener import Heard, Listener
from .vendor_wheels import NVTX, include_folder

PROGRAMS = HERE / "programs"
# Position-independent: the pointers of the static part are to be those of the library that has it, not copies.
FLAGS = ["-std=gnu11", "-g", "-Wall", "-Wextra", "-Werror", "-fPIC", "-pthread"]
FROM_ITT, FROM_NVTX = 0, 1
Range = tuple[str, int]  # its text and its depth


@pytest.fixture(scope="module")
def listener(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Listener]:
    listening = Listener(tmp_path_factory.mktemp("agent") / "s").start()
    yield listening
    listening.stop()


def run_collected(listener: Listener, command: list[str], variables: Mapping[str, str]) -> tuple[str, Heard]:
    """Run a program that starts the collector itself; return what it printed and what was heard of it."""
    before = len(listener.connections)
    own = {"PATH": os.environ["PATH"], "DEEPPROF_SOCKET": str(listener.path), **UNHURRIED}
    done = subprocess.run(command, env=own | variables, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    listener.wait(lambda _: listener.connections[before:] and listener.connections[before].gone)
    (heard,) = listener.connections[before:]
    assert heard.ended
    return done.stdout, heard


def ranges(heard: Heard) -> list[Range]:
    """Return the ranges of one thread by their beginnings, the outer one first."""
    rows = heard.ranges
    order = sorted(range(len(rows)), key=lambda i: (rows["start_ns"][i], rows["depth"][i], i))
    return [(heard.names.get(int(rows["name"][i]), ""), int(rows["depth"][i])) for i in order]


@pytest.fixture(scope="module", params=NVTX)
def annotated(
    request: pytest.FixtureRequest, listener: Listener, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Heard]:
    """What a program with NVTX of one version printed, and what was heard of it."""
    include = include_folder(NVTX[request.param])
    program = tmp_path_factory.mktemp("nvtx") / "nvtx_calls"
    run([compiler(), *FLAGS, f"-isystem{include}", str(PROGRAMS / "nvtx_calls.c"), "-o", str(program), "-ldl"])
    return run_collected(listener, [str(program)], {"NVTX_INJECTION64_PATH": str(build("plain").library)})


CORE = [("mark ex", 0), ("mark ascii", 0), ("mark wide", 0), ("start ex", 0), ("start ascii", 0), ("start wide", 0)]
CORE += [("push ex", 0), ("push ascii", 1), ("push wide", 2)]
CROSSED = [("outer", 0), ("first of mine", 1), ("inner", 2), ("second of mine", 3), ("after", 1)]


def in_domain(name: str) -> list[Range]:
    pushed = [(f"push in {name}", 0), ("registered", 1), ("registered wide", 2)]
    return [(f"mark in {name}", 0), (f"start in {name}", 0), *pushed]


def test_every_nvtx_call_arrives_under_its_name(annotated: tuple[str, Heard]) -> None:
    expected = [*CORE, *in_domain("mine"), *in_domain("wide"), *CROSSED]
    assert ranges(annotated[1])[: len(expected)] == expected
    assert set(annotated[1].ranges["source"].tolist()) == {FROM_NVTX}
    assert set(annotated[1].ranges["category"].tolist()) == {ANNOTATION}


def test_wide_texts_are_spelled_as_they_are(annotated: tuple[str, Heard]) -> None:
    everything = [text for text, _ in ranges(annotated[1])]
    spelled = everything[everything.index("after") + 1 :][:6]
    assert spelled[:2] == ["aä€😀z", "<���>"]
    assert spelled[2:5] == ["", "(NVTX)", "(NVTX)"]
    assert spelled[5] == "€" * (1023 // len("€".encode()))  # as much as a label contains, and no half character


def test_payloads_change_nothing(annotated: tuple[str, Heard]) -> None:
    assert [each for each in ranges(annotated[1]) if each[0] == "paid"] == [("paid", 0)] * 6


def test_levels_are_each_domains_own(annotated: tuple[str, Heard]) -> None:
    """NVTX's header states of what a push returns: the level of the range, from 0, within its domain."""
    told = {}
    for line in annotated[0].splitlines():
        word, *levels = line.split()
        told.setdefault(word, []).append([int(level) for level in levels])
    assert told["core"] == [[0, 1, 2, 2, 1, 0, 1]]
    assert told["domain"] == [[0, 1, 2, 2, 1, 0, 1]] * 2
    pushes, ends = [0, 0, 1, 1], [1, 0, 1]
    assert told["deep"] == [[0, 1, 0, 1]]
    assert told["cross"] == [[*pushes, *ends, 0, 0, 0]]


def test_ranges_that_are_nested_too_deep_are_left_out_and_disturb_no_other_domain(annotated: tuple[str, Heard]) -> None:
    deep = [each for each in ranges(annotated[1]) if each[0] in ("under", "deep")]
    assert deep == [("under", 0), *(("deep", depth) for depth in range(1, 512))]
    assert [notice for notice in annotated[1].notices if "512 deep" in notice] == annotated[1].notices
    assert len(annotated[1].notices) == 1


ITT = [("made before", 0), ("inner", 1), ("first of mine", 0), ("aten::add", 1)]
ITT_REST = [("Optimizer.step", 0), ("by two names", 0), ("after", 0)]


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_itt_calls_arrive_through_the_part_that_pytorch_has(depth: int, listener: Listener, tmp_path: Path) -> None:
    """Operators, and what has no sign of one within them, are kept to a depth; other domains' ranges always are."""
    torch = importlib.util.find_spec("torch")
    if torch is None or torch.origin is None:
        pytest.skip("PyTorch is not installed (pip install torch)")
    home, program = Path(torch.origin).parent, tmp_path / "itt_calls"
    flags = [*FLAGS, f"-isystem{home}/include", f"-L{home}/lib", f"-Wl,-rpath,{home}/lib,--allow-shlib-undefined"]
    run([compiler(), *flags, str(PROGRAMS / "itt_calls.c"), "-o", str(program), "-ltorch_cpu", "-ldl"])
    variables = {"INTEL_LIBITTNOTIFY64": str(build("plain").library), "DEEPPROF_DEPTH": str(depth)}
    _, heard = run_collected(listener, [str(program)], variables)
    inside = [("aten::inside", 2), ("no operator", 2)]
    assert ranges(heard) == [*ITT, *inside[:depth], *ITT_REST]
    told = {heard.names[int(row["name"])]: int(row["category"]) for row in heard.ranges}
    assert {told["made before"], told["first of mine"]} == {ANNOTATION}
    assert (told["aten::add"], told["Optimizer.step"]) == (0, BY_NAME)
    assert set(heard.ranges["source"].tolist()) == {FROM_ITT}


def test_itt_calls_arrive_through_the_part_that_the_package_has(listener: Listener) -> None:
    pytest.importorskip("ittapi", reason="ittapi is not installed (pip install ittapi)")
    command = [sys.executable, str(PROGRAMS / "itt_package.py")]
    _, heard = run_collected(listener, command, {"INTEL_LIBITTNOTIFY64": str(build("plain").library)})
    twice = [("iteration", 0), ("forward", 1)] * 10
    assert ranges(heard) == [*twice, ("outer", 0), ("inner", 1), ("ä€😀", 0)]
