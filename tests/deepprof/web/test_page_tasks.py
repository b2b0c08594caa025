"""Four questions about a training job, each answered by what the page shows after three clicks or keys at most.

They are the tasks of the user study of Hotline; the job is made up, so that the answers are known.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.browsing import Visit, browser
from tests.collectors.documents import event, kernel
from tests.deepprof.web.pages import analyze_file, open_page, write_page

if TYPE_CHECKING:
    from playwright.sync_api import Browser

__all__ = ["browser"]

STEPS, LAYERS, MOST = 6, 4, 3
PERIOD_US, BLOCK_US = 6_000, 480
# Operator, kernel, when the host begins with it in a block, how long host and device need, in µs.
OPERATORS = (("linear", "gemm", 5, 100, 150), ("softmax", "softmax", 115, 80, 60), ("add", "add", 370, 60, 30))
SLOW_SOFTMAX = ("softmax", "softmax", 115, 250, 400)  # of block 3
QUICK_ADD = ("add", "add", 370, 60, 5)  # of block 2
BACKWARD_US = 40  # on the device, for which the host needs 220
SLOWEST, FASTEST = "SGD.step", "add"


class Job:
    """The events of a net of four blocks of three operators, whose backward pass waits for the host."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.number, self.free = 0, 0
        for step in range(STEPS):
            self._play(step, PERIOD_US * step)

    def _play(self, step: int, start: int) -> None:
        """Add an iteration."""
        net = 100 * step + 1
        self._add("python_function", "nn.Module: Net_0", start, 2_000, 1, **{"Python id": net})
        calls = []
        for block in range(LAYERS):
            at = start + 10 + BLOCK_US * block
            ids = {"Python id": net + 1 + block, "Python parent id": net}
            self._add("python_function", f"nn.Module: Block_{block + 1}", at, 470, 1, **ids)
            for own in operators_of(block + 1):
                calls.append((own, self._run(f"aten::{own[0]}", own[1], at + own[2], own[3], own[4], 1)))
        for place, (own, sequence) in enumerate(reversed(calls)):
            name = f"autograd::engine::evaluate_function: {own[0].title()}Backward0"
            at = start + 2_200 + 240 * place
            self._run(name, f"{own[1]}_backward", at, 220, BACKWARD_US, 2, sequence, after=200)
        self._run("Optimizer.step#SGD.step", "multi_tensor_apply_SGD", start + 5_200, 300, 200, 1)

    def _run(  # noqa: PLR0917
        self, name: str, kernel_name: str, at: int, host: int, device: int, thread: int, of: int = 0, *, after: int = 5
    ) -> int:
        """Add an operator that launches a kernel; return its number."""
        self.number += 1
        linked = {"External id": self.number}
        sequence = {"Sequence number": of or self.number, "Fwd thread id": int(of > 0)}
        self._add("cpu_op", name, at, host, thread, **linked, **sequence)
        self._add("cuda_runtime", "cudaLaunchKernel", at + after, 5, thread, correlation=self.number, **linked)
        start = max(self.free, at + after + 7)
        self.free = start + device
        self.events.append(kernel(kernel_name, start, device, correlation=self.number, **linked))
        return self.number

    def _add(self, category: str, name: str, at: int, length: int, thread: int, **more: int) -> None:
        """Add an event of the host."""
        self.events.append(event(category, name, at, length, 1, thread, **more))


def operators_of(block: int) -> tuple[tuple[str, str, int, int, int], ...]:
    """Return the operators of a block."""
    linear, softmax, add = OPERATORS
    return linear, SLOW_SOFTMAX if block == 3 else softmax, QUICK_ADD if block == 2 else add


@dataclass
class CountedVisit:
    """A visit that counts what a user does."""

    seen: Visit
    actions: int = 0

    def open_view(self, title: str) -> None:
        """Click at the link of a view."""
        self._count()
        self.seen.page.get_by_role("navigation").get_by_role("link", name=title).click()
        self.seen.wait(title.lower())

    def open_box(self, side: str, name: str) -> None:
        """Click at the longest box of a name in a track of the timeline, and wait for the data on it."""
        self._count()
        boxes = self.seen.page.locator(f".track.{side} .box:not(.merged)[aria-label^='{name},'] rect:first-of-type")
        widths = boxes.evaluate_all("all => all.map(one => one.getBoundingClientRect().width)")
        boxes.nth(widths.index(max(widths))).click()
        self.seen.page.wait_for_selector(f".inspector h2:text-is('{name}')")

    def read_labels(self, side: str, row: int) -> dict[str, float]:
        """Return what is on the boxes of one row of a track, each with its width; -1 is the last row."""
        labels = """labels => labels.map(one => [one.textContent, one.y.baseVal[0].value,
            one.previousElementSibling.querySelector("rect").getBoundingClientRect().width])"""
        found = self.seen.page.locator(f".track.{side} .boxes text.label").evaluate_all(labels)
        heights = sorted({height for _, height, _ in found})
        return {text: width for text, height, width in found if height == heights[row]}

    def _count(self) -> None:
        """Count an action."""
        self.actions += 1
        assert self.actions <= MOST


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the page of the job."""
    folder = tmp_path_factory.mktemp("job")
    return write_page(analyze_file(Job().events, folder), folder)


@pytest.fixture
def counted(page: Path, browser: Browser) -> Iterator[CountedVisit]:
    """Open the page, and fail at the end where it stated or did what it must not."""
    seen = open_page(browser, page)
    yield CountedVisit(seen)
    seen.check()
    seen.page.context.close()


def test_the_slowest_operation_of_the_host(counted: CountedVisit) -> None:
    counted.open_view("Timeline")
    line = counted.seen.page.locator(".extremes > div", has_text="host").inner_text()
    assert f"slowest {SLOWEST} 300 µs" in " ".join(line.split())


def test_the_fastest_operation_of_the_device(counted: CountedVisit) -> None:
    counted.open_view("Timeline")
    line = counted.seen.page.locator(".extremes > div", has_text="device").inner_text()
    assert f"fastest {FASTEST} 5.00 µs" in " ".join(line.split())
    counted.seen.page.locator(".extremes > div", has_text="device").get_by_role("button", name=FASTEST).click()
    counted.seen.page.wait_for_selector(f".inspector h2:text-is('{FASTEST}')")
    assert counted.seen.page.locator(".track.device .box[aria-label^='Block_2,']").count() == 1


def test_what_bounds_the_backward_pass(counted: CountedVisit) -> None:
    counted.open_view("Timeline")
    counted.open_box("device", "backward")
    facts = " ".join(counted.seen.text(".inspector dl").split())
    busy = re.search(r"busy 480 µs \((\d+\.\d) %\)", facts)
    assert busy is not None
    assert float(busy[1]) < 20  # the rest of the time it waits for the host, and reports it
    counted.open_box("device", "Block_3")
    assert any("launch" in label or "host" in label for label in counted.read_labels("device", -1))


def test_what_takes_most_of_layer_3(counted: CountedVisit) -> None:
    counted.open_view("Timeline")
    counted.open_box("device", "forward")
    counted.open_box("device", "Block_3")
    parts = counted.read_labels("device", -1)
    assert max(parts, key=lambda label: parts[label]) == "softmax"
    assert set(parts) >= {"linear", "softmax"}
