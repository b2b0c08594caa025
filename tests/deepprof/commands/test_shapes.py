"""`--no-shapes`: whether the report compares products with the device's peaks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.cases.contexts import write
from benchmarks.cases.peaks import PEAK_CASES
from deepprof.commands import main
from tests.deepprof.commands.test_roofline_trace import write_store


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    trace = write(PEAK_CASES["a product far from its roof"][0], iterations=6)[0]
    return write_store(trace, tmp_path_factory.mktemp("shapes") / "store")


@pytest.mark.parametrize(("options", "known"), [((), True), (("--shapes",), True), (("--no-shapes",), False)])
def test_products_are_compared_with_peaks_unless_shapes_are_left_out(
    stored: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], known: bool
) -> None:
    assert main(["diagnose", str(stored), "--format", "json", *options]) == 0
    report = json.loads(capsys.readouterr().out)
    assert ("low-efficiency" in {finding["rule"] for finding in report["findings"]}) is known
    (loop,) = report["loops"]
    assert (loop["roofline"] is not None) is known
    if known:
        assert loop["roofline"]["peaks"] == "NVIDIA H100 SXM5 80 GB"


def test_help_names_the_option_that_changes_something(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("diagnose", "report", "view"):
        assert main([command, "--help"]) == 0
        out = capsys.readouterr().out
        assert "--no-shapes" in out
        assert "--shapes" not in out.replace("--no-shapes", "")
