"""Fixtures that every test may use, and the rule of CI that nothing but a `gpu` test is skipped."""

from __future__ import annotations

import os
import signal
import zlib
from collections import Counter
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

from tests.chance import EXPLORES, USUAL_EXAMPLES

# How long an example takes is the machine's business, and no test here is about it. The examples are the same in every
# run, so that none passes or fails by luck; `make fuzz` examines others.
for name, number in {"quick": USUAL_EXAMPLES // 4, "all": USUAL_EXAMPLES}.items():
    settings.register_profile(
        name,
        max_examples=number,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
        derandomize=not EXPLORES,  # which keeps no database of examples either
    )
settings.load_profile("all" if EXPLORES else "quick")
if not EXPLORES:
    # Constants of the project's modules become examples, of those that happen to be loaded by the tests before.
    providers.is_local_module_file = lambda _: False

# A shell that runs us in the background has us ignore Ctrl-C, and nohup a terminal that goes: what tests start would
# inherit that.
USUAL = {signal.SIGINT: signal.default_int_handler, signal.SIGQUIT: signal.SIG_DFL, signal.SIGHUP: signal.SIG_DFL}
for number, handler in USUAL.items():
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)

LONGEST = {"test_accuracy.py", "test_cases.py"}
ROOT = Path(__file__).resolve().parents[1]


def traces_directory() -> Path:
    """Return where the real traces are, whether or not they are there."""
    return Path(os.environ.get("DEEPPROF_TRACES", ROOT / "../shared/traces")).resolve()


@pytest.fixture(scope="session")
def traces() -> Path:
    """Return the directory of real traces, or skip the test where it is absent."""
    found = traces_directory()
    if not (found / "manifest.csv").is_file():
        pytest.skip(f"no real traces in {found} (set DEEPPROF_TRACES)")
    return found


@pytest.fixture(scope="session")
def more_traces() -> Path:
    """Return the directory of the real traces that were judged before anybody had seen them, or skip without it."""
    found = traces_directory().with_name("more_traces")
    if not (found / "manifest.csv").is_file():
        pytest.skip(f"no real traces in {found} (set DEEPPROF_TRACES)")
    return found


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--part", metavar="K/N", help="run the Kth of N parts of the tests, counted from 0")


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep one part if asked to, and put the longest tests first: no worker is left with one of them at the end."""
    mark_slow(items)
    if part := config.getoption("--part"):
        number, parts = map(int, part.split("/"))
        items[:] = [item for item in items if zlib.crc32(item.nodeid.encode()) % parts == number]
    items.sort(key=lambda item: item.path.name not in LONGEST)


def mark_slow(items: list[pytest.Item]) -> None:
    """Of a test that is marked `widens(each)`, mark all instances `slow` but the first and each this many after it."""
    seen = Counter[str]()
    for item in items:
        if widens := item.get_closest_marker("widens"):
            test = item.nodeid.partition("[")[0]
            if seen[test] % widens.args[0]:
                item.add_marker("slow")
            seen[test] += 1


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    allowed = hasattr(report, "wasxfail") or item.get_closest_marker("gpu") is not None
    if report.skipped and not allowed and "DEEPPROF_NO_SKIPS" in os.environ:
        report.outcome, report.longrepr = "failed", f"skipped where nothing may be: {report.longrepr}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    if report.skipped and "DEEPPROF_NO_SKIPS" in os.environ:
        report.outcome, report.longrepr = "failed", f"skipped where nothing may be: {report.longrepr}"
    return report
