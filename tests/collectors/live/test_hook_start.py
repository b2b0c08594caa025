"""The hook's first module in interpreters that it must not disturb."""

from __future__ import annotations

import ast
import importlib.util
import subprocess
import sys
from importlib.machinery import FrozenImporter
from pathlib import Path
from types import SimpleNamespace
from zipfile import ZipFile

import pytest

from deepprof.collectors.live.hook import find_hook, watch
from tests.collectors.live.hooked import plain_environment

HOOK = find_hook()
WANTED = {"DEEPPROF_SOCKET": "/nowhere/s", "DEEPPROF_INJECT": "/nowhere/inject.so"}
FAKE_TORCH = "import sys\nassert type(sys.meta_path[0]).__name__ == 'HookImportFinder'\nready = True\n"
OLDEST = (3, 8)


def python(code: str, *paths: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run `code` with the hook first on PYTHONPATH, and `paths` behind it."""
    environment = plain_environment() | {"PYTHONPATH": ":".join(map(str, (HOOK, *paths)))} | variables
    return subprocess.run([sys.executable, "-c", code], env=environment, check=False, capture_output=True, text=True)


def test_the_hook_is_written_for_old_interpreters_and_loads_nothing_heavy() -> None:
    for path in HOOK.glob("[a-z]*.py"):
        tree = ast.parse(path.read_text(), feature_version=OLDEST)
        imported = {alias.name for node in tree.body if isinstance(node, ast.Import) for alias in node.names}
        assert imported <= {"os", "sys", "atexit", "contextlib", "ctypes", "threading", "time", "weakref"}


def test_the_first_file_has_the_syntax_of_every_python() -> None:
    tree = ast.parse((HOOK / "sitecustomize.py").read_text())
    newer = (ast.FunctionDef, ast.ClassDef, ast.AnnAssign, ast.JoinedStr, ast.ImportFrom, ast.NamedExpr)
    assert not [node for node in ast.walk(tree) if isinstance(node, newer)]


def test_it_adds_no_module_and_no_path() -> None:
    """Where DeepProf is installed otherwise than for development, no one else has imported `__future__`."""
    code = "import sys; print(sorted(sys.modules.keys() - {'__future__'}), sys.path)"
    alone = subprocess.run(
        [sys.executable, "-c", code], env=plain_environment(), check=True, capture_output=True, text=True
    )
    before = alone.stdout.replace("'sitecustomize', ", "")
    hooked = python(code, **WANTED)
    assert hooked.stderr == ""
    assert hooked.stdout.replace("'sitecustomize', ", "") == before


@pytest.mark.parametrize("version", ["watch", "old"])
def test_a_folder_that_is_gone_does_not_matter(tmp_path: Path, version: str) -> None:
    """An empty path represents it, and cannot be made absolute."""
    code = f"import sys; sys.path.append(''); exec(open({str(HOOK / 'sitecustomize.py')!r}).read(), SPACE)"
    space = {"__name__": "sitecustomize", "__file__": str(HOOK / "sitecustomize.py")}
    old = "sys.version_info = (3, 7); sys.modules['sitecustomize'] = sys; " if version == "old" else ""
    code = f"import sys; {old}SPACE = {space!r}; {code}; print('' in sys.path)"
    command = 'mkdir gone; cd gone; rmdir ../gone; exec "$@"'
    words = ["sh", "-c", command, "sh", sys.executable, "-S", "-c", code]
    done = subprocess.run(words, cwd=tmp_path, env=plain_environment(), check=False, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("True\n", "")


def test_without_an_agent_nothing_waits_for_torch() -> None:
    assert "HookImportFinder" not in python("import sys; print(sys.meta_path)").stdout
    assert "HookImportFinder" in python("import sys; print(sys.meta_path)", **WANTED).stdout


def test_the_sitecustomize_behind_it_runs_as_itself(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys; MARK = 1; print(__name__, __file__)")
    done = python("import sitecustomize; print(sitecustomize.MARK)", tmp_path, **WANTED)
    assert done.stdout == f"sitecustomize {tmp_path / 'sitecustomize.py'}\n1\n"


def test_an_error_of_the_one_behind_it_is_shown_as_without_us(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("raise ValueError('theirs')")
    done = python("print('goes on')", tmp_path, **WANTED)
    environment = plain_environment() | {"PYTHONPATH": str(tmp_path)}
    alone = subprocess.run(
        [sys.executable, "-c", "print('goes on')"], env=environment, check=False, capture_output=True, text=True
    )
    assert (done.stdout, done.stderr, done.returncode) == (alone.stdout, alone.stderr, alone.returncode)
    assert "theirs" in alone.stderr


def test_a_torch_that_is_only_looked_for_stays_watched(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text(FAKE_TORCH)
    code = (
        "import importlib.util, sys; assert importlib.util.find_spec('torch')\n"
        "import torch; print(torch.ready, torch.__spec__.loader.__class__.__name__, vars(torch.__loader__))\n"
        "print([f for f in sys.meta_path if type(f).__name__ == 'HookImportFinder'])"
    )
    done = python(code, tmp_path, **WANTED)
    path = str(tmp_path / "torch.py")
    assert done.stdout.splitlines() == [f"True SourceFileLoader {{'name': 'torch', 'path': {path!r}}}", "[]"]
    assert done.stderr == ""


def test_a_loader_of_many_modules_is_followed_for_torch_only(tmp_path: Path) -> None:
    """A zip has one loader for all of its modules, and keeps it from the first look to the import."""
    with ZipFile(tmp_path / "all.zip", "w") as archive:
        archive.writestr("torch.py", FAKE_TORCH)
        archive.writestr("other.py", "import sys; print(type(sys.meta_path[0]).__name__)")
    code = (
        "import importlib.util, sys\nfor _ in range(2): assert importlib.util.find_spec('torch')\n"
        "import other, torch; print(torch.ready, 'exec_module' in vars(torch.__loader__))\n"
        "print([f for f in sys.meta_path if type(f).__name__ == 'HookImportFinder'])"
    )
    done = python(code, tmp_path / "all.zip", **WANTED)
    assert (done.stdout.splitlines(), done.stderr) == (["HookImportFinder", "True False", "[]"], "")


def test_a_class_that_loads_all_frozen_modules_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    class Frozen(FrozenImporter): ...

    Frozen.exec_module = staticmethod(FrozenImporter.exec_module)  # type: ignore[assignment,method-assign]
    monkeypatch.setattr(watch, "find", lambda *_: SimpleNamespace(loader=Frozen))
    before = dict(vars(Frozen))
    watch.HookImportFinder(watch.TORCH).find_spec("torch")
    assert dict(vars(Frozen)) == before


def test_a_torch_that_fails_to_load_fails_as_ever_and_stays_watched(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('no libcudart')")
    code = (
        "import sys\ntry:\n    import torch\nexcept ImportError as e:\n    print(e, 'torch' in sys.modules)\n"
        "print(type(sys.meta_path[0]).__name__)"
    )
    assert python(code, tmp_path, **WANTED).stdout == "no libcudart False\nHookImportFinder\n"


def test_no_torch_is_no_torch() -> None:
    done = python("import torch", **WANTED, PYTHONNOUSERSITE="1", PYTHONSAFEPATH="1")
    if importlib.util.find_spec("torch") is None:
        assert "No module named 'torch'" in done.stderr
    else:
        assert done.returncode == 0  # the library is not there, and that harms no one


def test_a_loader_that_takes_no_attribute_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    class Loader:
        __slots__ = ()

        def exec_module(self, module: object) -> None: ...

    class Finder:
        @staticmethod
        def find_spec(name: str, path: object, target: object) -> object:
            return importlib.util.spec_from_loader(name, Loader())  # type: ignore[arg-type]

    watching = watch.HookImportFinder(watch.TORCH)
    monkeypatch.setattr(sys, "meta_path", [watching, Finder])
    found = watching.find_spec("torch")
    assert found is not None
    assert isinstance(found.loader, Loader)
    assert watching.find_spec("numpy") is None


@pytest.mark.parametrize(
    "command", ["import subprocess, sys; subprocess.run([sys.executable, '-c', 'print(1)'])", "print(1)"]
)
def test_subprocesses_and_commands_run(command: str) -> None:
    done = python(command, **WANTED)
    assert (done.stdout, done.stderr, done.returncode) == ("1\n", "", 0)


def test_the_child_of_another_interpreter_runs(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text(FAKE_TORCH)
    code = (
        "import multiprocessing as m; p = m.get_context('spawn').Process(target=print, args=(1,)); p.start(); p.join()"
    )
    done = python(f"if __name__ == '__main__':\n    {code}\n    print(p.exitcode)", tmp_path, **WANTED)
    assert done.stdout == "1\n0\n"
