"""Addresses that are refused before anybody is called, and workers that would not give the same results."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepprof.cluster import connection
from deepprof.cluster.connection import check_address, check_workers, connect
from deepprof.cluster.tasks import ErrorValue, ReadOptions, attempt, tell_versions
from deepprof.collectors.errors import TraceError, UsageError
from deepprof.commands import main


class Workers:
    """What `check_workers` asks of a client."""

    def __init__(self, told: Any) -> None:
        self.told = told

    def wait_for_workers(self, number: int, timeout: float) -> None:
        assert (number, timeout) == (1, connection.WAIT_S)

    def run(self, _: Any, on_error: str) -> dict[str, Any]:
        assert on_error == "return"
        return {"tcp://10.0.0.2:4000": tell_versions(), "tcp://10.0.0.3:4000": self.told}


def test_workers_with_our_versions_are_welcome() -> None:
    check_workers(Workers(tell_versions()), "local")  # type: ignore[arg-type]


def test_a_worker_with_another_version_is_refused() -> None:
    text = (
        r"--cluster: worker tcp://10\.0\.0\.3:4000 has deepprof 0\.0\.1, .*, this command deepprof .*; install the same"
    )
    with pytest.raises(UsageError, match=text):
        check_workers(Workers(tell_versions() | {"deepprof": "0.0.1"}), "local")  # type: ignore[arg-type]


def test_a_worker_without_deepprof_is_refused_in_one_line() -> None:
    with pytest.raises(UsageError, match=r"has no DeepProf \(No module named 'deepprof'\), this") as caught:
        check_workers(Workers(ModuleNotFoundError("No module named 'deepprof'\nmore")), "local")  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("address", ["local", "tcp://host:8786", "tls://10.1.2.3:1", "tcp://[::1]:8786"])
def test_addresses(address: str) -> None:
    check_address(address)


@pytest.mark.parametrize(
    "address",
    ["", "Local", "host:8786", "http://h:1", "tcp://h", "tcp://h:x", "tcp://h:1/x", "tcp://a b:1", "inproc://x"],
)
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(UsageError, match="give local, or a scheduler's address"), connect(address):
        pass


@given(st.text())
def test_any_text_is_an_address_or_refused_in_one_printable_line(address: str) -> None:
    if connection.ADDRESS.fullmatch(address) is None and address != "local":
        with pytest.raises(UsageError) as caught:
            check_address(address)
        assert str(caught.value).isprintable()


def test_nobody_answers(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    monkeypatch.setattr(connection, "WAIT_S", 1)
    (tmp_path / "a.json").write_text("{}")
    assert main(["diagnose", str(tmp_path / "a.json"), "--cluster", "tcp://127.0.0.1:1"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("deepprof: --cluster tcp://127.0.0.1:1: no scheduler answers (")
    assert line.endswith("; check the address, and that `dask scheduler` runs there")


def test_jobs_are_for_workers_of_our_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", "x", "--cluster", "tcp://h:1", "--jobs", "2"]) == 2
    assert "--jobs with --cluster tcp://h:1" in capsys.readouterr().err


def test_without_dask_the_line_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    (tmp_path / "a.json").write_text("{}")
    assert main(["diagnose", str(tmp_path / "a.json"), "--cluster", "local"]) == 2
    assert capsys.readouterr().err == "deepprof: --cluster needs Dask distributed: pip install 'deepprof[cluster]'\n"


def fail(error: Exception) -> Any:
    raise error


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (TraceError("/data/a.json", "is torn", "mend it"), "a.json: is torn; mend it"),
        (TraceError("/data/a.json/names.parquet", "is torn", "mend it"), "a.json/names.parquet: is torn; mend it"),
        (UsageError("no such column"), "no such column"),
        (MemoryError(), "a.json: needs more memory than a worker has; give workers more"),
        (OSError(28, "No space left on device", "/disk/x"), "[Errno 28] No space left on device: '/disk/x'"),
        (OSError("odd"), "odd"),
    ],
)
def test_errors_survive_as_values_under_the_name_that_was_given(error: Exception, text: str) -> None:
    found = attempt(ReadOptions("a.json", "/data/a.json"), lambda: fail(error))
    assert isinstance(found, ErrorValue)
    assert str(found.error()).endswith(text)


def test_bugs_are_no_problems_of_the_input() -> None:
    with pytest.raises(ZeroDivisionError):
        attempt(None, lambda: fail(ZeroDivisionError()))
