"""Without the libraries of the extra: one line with the command that installs them, whatever is missing."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.patience import PATIENCE_S

LINE = 'pip install "deepprof[service]"'
WITHOUT = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if any(name == gone or name.startswith(gone + ".") for gone in {gone!r}):
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Absent())
from deepprof.commands import main
sys.exit(main({argv!r}))
"""
COMMANDS = [["send", "x.json", "--job", "j"], ["watch"], ["watch", "--once"], ["diagnose", "--daemon", "unix:/x", "j"]]


def run_without(gone, argv):
    code = WITHOUT.format(gone=gone, argv=argv)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=PATIENCE_S)


@pytest.mark.parametrize("argv", COMMANDS, ids=" ".join)
def test_a_client_without_grpc(argv):
    done = run_without(["grpc"], argv)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == f"deepprof: talking to a daemon needs grpcio; {LINE}\n"


@pytest.mark.parametrize(
    ("module", "library"),
    [
        ("grpc", "grpcio"),
        ("grpc_health", "grpcio-health-checking"),
        ("google.protobuf", "protobuf"),
        ("prometheus_client", "prometheus_client"),
        ("starlette", "starlette"),
        ("uvicorn", "uvicorn"),
    ],
)
def test_a_daemon_without_one_of_them(module, library, tmp_path):
    done = run_without([module], ["serve", "--store", str(tmp_path / "s"), "--listen", f"unix:{tmp_path}/d/s"])
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert library in line
    assert line.endswith(LINE)


def test_an_import_that_fails_for_another_reason_keeps_its_traceback(tmp_path):
    done = run_without(["deepprof.live.service.engine"], ["serve", "--store", str(tmp_path / "s")])
    assert "Traceback" in done.stderr
    assert LINE not in done.stderr


def test_python_says_the_same():
    code = "import sys; sys.modules['grpc'] = None\nimport deepprof\ntry: deepprof.connect()\n"
    code += "except deepprof.UsageError as error: print(error)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=PATIENCE_S)
    assert done.stdout == f"talking to a daemon needs grpcio; {LINE}\n"
