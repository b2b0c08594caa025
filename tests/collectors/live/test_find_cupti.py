"""Which of several libraries of CUPTI is taken: made-up ones in made-up folders, found by the collector's own code."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from .building import FLAGS, HERE, INJECT, compiler, run
from .test_cupti_headers import functions_of_facts
from .test_real_cupti import build_driver

TORCH = "site-packages/torch/lib/libtorch_cuda.so"
BESIDE_TORCH = "site-packages/nvidia/cuda_cupti/lib/libcupti.so.12"
BESIDE_TORCH_13 = "site-packages/nvidia/cu13/lib/libcupti.so.13"
RUNTIME_11 = "site-packages/nvidia/cuda_runtime/lib/libcudart.so.11.0"
EXTRAS = "extras/CUPTI/lib64"
NEWER = "newer than the driver"


@dataclass(frozen=True, slots=True)
class MadeLibraries:
    """Where the program is, and a library of every kind to copy from."""

    folder: Path

    @property
    def program(self) -> Path:
        return self.folder / "find_cupti"

    def library(self, name: str) -> Path:
        """Return a library that calls itself `name`, with CUPTI's functions if that is a name of CUPTI's."""
        path = self.folder / name
        if not path.exists():
            source = self.folder / "source.c"
            functions = functions_of_facts() if name.startswith("libcupti") else {"OfNoInterest"}
            lines = [f"int cupti{each}(void);\nint cupti{each}(void) {{ return 0; }}\n" for each in functions]
            source.write_text("".join(lines))
            flags = [flag for flag in FLAGS if flag != "-fvisibility=hidden"]
            run([compiler(), *flags, "-shared", f"-Wl,-soname,{name}", str(source), "-o", str(path)])
        return path


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> MadeLibraries:
    made = MadeLibraries(tmp_path_factory.mktemp("libraries"))
    sources = [str(INJECT / "cupti_library.c"), str(HERE / "programs" / "find_cupti.c")]
    run([compiler(), *FLAGS, f"-I{INJECT}", *sources, "-Wl,--wrap=dlopen", "-o", str(made.program), "-ldl"])
    build_driver(made.folder / "libcuda.so.1")
    return made


@dataclass(slots=True)
class CuptiMachine:
    """A made-up machine: libraries in folders, a driver of a version, and what the process has loaded."""

    libraries: MadeLibraries
    root: Path

    def put(self, path: str, own_name: str = "") -> str:
        """Put a library at `path`, which calls itself by its file's name or `own_name`."""
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(self.libraries.library(own_name or target.name), target)
        return path

    def find(self, driver: int, *loaded: str, **variables: str) -> tuple[str, str]:
        """Return what is taken, below the root, and the notices."""
        libraries = [self.libraries.folder / "libcuda.so.1", *(self.root / path for path in loaded)]
        environment = {"PATH": os.environ["PATH"], "MOCK_VERSION": str(driver), "JOB_ROOT": str(self.root)}
        environment |= {name: str(self.root / path) for name, path in variables.items()}
        command = [str(part) for part in (self.libraries.program, *libraries)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        found = os.path.relpath(done.stdout, self.root) if done.stdout else ""
        return found, done.stderr.strip()


@pytest.fixture
def machine(libraries: MadeLibraries, tmp_path: Path) -> CuptiMachine:
    return CuptiMachine(libraries, tmp_path)


def test_what_the_framework_ships_goes_before_the_systems_newer_one(machine: CuptiMachine) -> None:
    machine.put("system/libcupti.so.13")
    loaded, expected = machine.put(TORCH), machine.put(BESIDE_TORCH)
    assert machine.find(13_000, loaded) == (expected, "")


def test_of_what_the_framework_ships_the_newest_that_the_driver_can_is_taken(machine: CuptiMachine) -> None:
    loaded, older, newer = machine.put(TORCH), machine.put(BESIDE_TORCH), machine.put(BESIDE_TORCH_13)
    assert machine.find(13_010, loaded) == (newer, "")
    assert machine.find(12_090, loaded) == (older, "")


def test_a_framework_beside_libraries_of_two_versions_uses_those_of_its_runtime(machine: CuptiMachine) -> None:
    machine.put(BESIDE_TORCH_13)
    torch, runtime = machine.put(TORCH), machine.put("site-packages/nvidia/cuda_runtime/lib/libcudart.so.12")
    expected = machine.put(BESIDE_TORCH)
    assert machine.find(13_010, torch, runtime) == (expected, "")


def test_what_the_process_has_loaded_goes_before_all(machine: CuptiMachine) -> None:
    machine.put(BESIDE_TORCH_13)
    machine.put("system/libcupti.so.13")
    torch, loaded = machine.put(TORCH), machine.put("elsewhere/libcupti.so.12")
    assert machine.find(13_000, torch, loaded) == (loaded, "")


@pytest.mark.parametrize("order", [1, -1])
def test_of_two_that_are_loaded_the_one_of_the_driver_is_taken(machine: CuptiMachine, order: int) -> None:
    older, newer = machine.put("a/libcupti.so.12"), machine.put("b/libcupti.so.13")
    assert machine.find(12_090, *(older, newer)[::order]) == (older, "")


def test_a_library_that_a_wheel_has_renamed_is_known(machine: CuptiMachine) -> None:
    loaded = machine.put("torch/lib/libcupti-0a1b2c3d.so.11.7")
    machine.put("system/libcupti.so.12")
    assert machine.find(12_090, loaded) == (loaded, "")


def test_the_systems_is_the_drivers_own(machine: CuptiMachine) -> None:
    machine.put("system/libcupti.so.13")
    machine.put("system/libcupti.so", "libcupti.so.13")
    expected = machine.put("system/libcupti.so.12")
    assert machine.find(12_090) == (expected, "")


def test_a_toolkit_for_another_driver_is_passed_over(machine: CuptiMachine) -> None:
    machine.put(f"toolkit/{EXTRAS}/libcupti.so.13")
    expected = machine.put("system/libcupti.so.12")
    assert machine.find(12_090, CUDA_HOME="toolkit") == (expected, "")


def test_the_users_toolkit_goes_before_others(machine: CuptiMachine) -> None:
    machine.put(f"usr/local/cuda-12.9/{EXTRAS}/libcupti.so.12")
    expected = machine.put(f"toolkit/{EXTRAS}/libcupti.so.12")
    assert machine.find(12_090, CUDA_HOME="toolkit") == (expected, "")


def test_the_newest_toolkit_of_the_drivers_version_is_taken(machine: CuptiMachine) -> None:
    for version in ("12.4", "12.8", "13.0"):
        machine.put(f"usr/local/cuda-{version}/{EXTRAS}/libcupti.so.{version[:2]}")
    machine.put("system/libcupti.so.12")  # no one has which
    assert machine.find(12_090) == (f"usr/local/cuda-12.8/{EXTRAS}/libcupti.so.12", "")


def test_an_older_one_serves_a_newer_driver(machine: CuptiMachine) -> None:
    expected = machine.put("system/libcupti.so.12")
    assert machine.find(14_000) == (expected, "")


@pytest.mark.parametrize("version", ["11.8", "11.7", "11.4"])
def test_cuda_11_names_its_libraries_by_both_numbers(machine: CuptiMachine, version: str) -> None:
    runtime = machine.put(RUNTIME_11)
    expected = machine.put(f"site-packages/nvidia/cuda_cupti/lib/libcupti.so.{version}")
    assert machine.find(12_090, runtime) == (expected, "")


def test_one_without_a_version_in_its_name_says_which_it_is(machine: CuptiMachine) -> None:
    machine.put("toolkit/extras/CUPTI/lib64/libcupti.so", "libcupti.so.13")
    expected = machine.put("system/libcupti.so", "libcupti.so.12")
    assert machine.find(12_090, CUDA_HOME="toolkit") == (expected, "")


@pytest.mark.parametrize("place", ["loaded", "beside torch", "system", "without a version"])
def test_a_newer_one_is_taken_where_nothing_else_is_and_that_is_said(machine: CuptiMachine, place: str) -> None:
    torch = machine.put(TORCH)
    expected = {
        "loaded": lambda: machine.put("elsewhere/libcupti.so.13"),
        "beside torch": lambda: machine.put(BESIDE_TORCH_13),
        "system": lambda: machine.put("system/libcupti.so.13"),
        "without a version": lambda: machine.put("system/libcupti.so", "libcupti.so.13"),
    }[place]()
    found, notice = machine.find(12_090, torch, *([expected] if place == "loaded" else []))
    assert found == expected
    assert NEWER in notice
    assert "13" in notice
    assert "12" in notice
    assert len(notice.splitlines()) == 1


def test_the_nearest_of_two_newer_ones_is_taken(machine: CuptiMachine) -> None:
    machine.put("system/libcupti.so.14")
    expected = machine.put("system/libcupti.so.13")
    assert machine.find(12_090)[0] == expected


def test_one_that_lacks_functions_is_passed_over(machine: CuptiMachine) -> None:
    machine.put("system/libcupti.so.13", "libother.so")
    expected = machine.put("system/libcupti.so.12")
    assert machine.find(13_000) == (expected, "")


def test_what_the_user_names_is_taken_whatever_it_is(machine: CuptiMachine) -> None:
    expected = machine.put("mine/libcupti.so.13")
    machine.put("system/libcupti.so.12")
    assert machine.find(12_090, DEEPPROF_CUPTI="mine/libcupti.so.13") == (expected, "")


def test_where_none_is_none_is_taken(machine: CuptiMachine) -> None:
    machine.put("system/libother.so")
    assert machine.find(12_090) == ("", "")


def test_without_a_drivers_version_nothing_is_too_new(machine: CuptiMachine) -> None:
    expected = machine.put("system/libcupti.so.14")
    assert machine.find(0) == (expected, "")
