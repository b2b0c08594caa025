"""Flame graphs of running jobs on the daemon's page: their documents, and how they are examined."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import polars as pl
import pytest

from deepprof.live.service.exporter import Exporter, ExporterSettings
from deepprof.live.service.exporter.live_flame import (
    LATEST_NS,
    MOST_FLAMES,
    NONE_SENT,
    FlameKey,
    draw_live_flame,
    list_flames,
)
from deepprof.live.wire.figures import LeadingFigures
from deepprof.metrics.contexts.history import ContextsOfRank
from tests.browsing import Visit, browser, visit
from tests.deepprof.live.service.exporter.jobs import START_NS, make_device, make_rank, make_snapshot
from tests.deepprof.web.asking import ask
from tests.metrics.contexts.test_sent import nodes_of, sums_of

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from deepprof.live.service.views import RankView

__all__ = ["browser"]

ODD = "team/a </script> 100%"
HEARD_NS = START_NS - 5_000
NODES = nodes_of(
    (1, 0, "python", "train.py(5): step", 7),
    (2, 1, "operator", "aten::linear"),
    (3, 2, "operator", "autograd::engine::evaluate_function: LinearBackward0"),
    (4, 0, "python", "train.py(20): <lambda>", 22),
)
SUMS = sums_of((1, 4, 700, 0, 0), (2, 4, 500, 8, 90), (3, 4, 200, 4, 60), (4, 4, 300, 0, 0))


def rank(job: str, number: int = 0, *, sends: bool = True, seen_ns: int = START_NS) -> RankView:
    made = make_rank(job, number, HEARD_NS, make_device(1), first_seen_unix_ns=seen_ns)
    return replace(made, contexts=LeadingFigures() if sends else None)


class Sent:
    """What ranks sent: more of it by the number of times that it was requested."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int | None, int, int]] = []

    def __call__(self, job: str, rank: int | None, start_ns: int, end_ns: int) -> Sequence[ContextsOfRank]:
        self.asked.append((job, rank, start_ns, end_ns))
        if job == "quiet":
            return [ContextsOfRank(job, rank or 0, NODES, SUMS.clear())]
        return [ContextsOfRank(job, rank or 0, NODES, SUMS.with_columns(pl.col("host_ns") * len(self.asked)))]


SNAPSHOT = make_snapshot(
    rank(ODD), rank("train"), rank("train", 1), rank("old", sends=False), rank("quiet", seen_ns=START_NS - 1)
)


def test_a_key_is_read_as_it_was_written() -> None:
    key = FlameKey(ODD, 3, "up")
    assert key.write().count("/") == 3
    assert FlameKey.read(key.write()) == key
    for odd in ("flame", "flame/a/0", "flame/a/0/left", "flame/a/-1/up", "flame/a/x/up", "live", "flame/a/1/up/"):
        assert FlameKey.read(odd) is None


def test_documents_are_those_of_ranks_that_send_contexts() -> None:
    view = list_flames(SNAPSHOT.ranks)
    assert [entry.title for entry in view.documents[:2]] == [f"{ODD}, rank 0, top-down", f"{ODD}, rank 0, bottom-up"]
    assert {FlameKey.read(entry.key).job for entry in view.documents} == {ODD, "train", "quiet"}  # type: ignore[union-attr]
    many = [rank("a", number) for number in range(2 * MOST_FLAMES)]
    assert len(list_flames(many).documents) == 2 * MOST_FLAMES
    assert list_flames([rank("old", sends=False)]).problem == NONE_SENT


@pytest.mark.parametrize("direction", ["down", "up"])
def test_a_document_is_of_the_last_hour(direction: str) -> None:
    sent, key = Sent(), FlameKey.read(f"flame/train/1/{direction}")
    assert key is not None
    document = json.loads(draw_live_flame(key, SNAPSHOT, sent) or b"")
    assert sent.asked == [("train", 1, HEARD_NS - LATEST_NS, HEARD_NS)]
    assert (document["schema"], document["rank"], document["direction"]) == ("deepprof.view.flame/1", 1, direction)
    assert [each["name"] for each in document["measures"]] == ["device", "host", "launches"]
    assert [values[0] for values in document["value"]] == [150, 1000, 12]
    names = [document["strings"][name] for name in document["name"]]
    assert {"step", "aten::linear", "LinearBackward0"} <= set(names)


def test_there_is_none_of_others() -> None:
    for job, number in (("nobody", 0), ("train", 7), ("old", 0), ("quiet", 0)):
        assert draw_live_flame(FlameKey(job, number, "down"), SNAPSHOT, Sent()) is None


@pytest.fixture(scope="module")
def exporter() -> Iterator[Exporter]:
    running = Exporter(("127.0.0.1", 0), lambda: SNAPSHOT, settings=ExporterSettings(contexts=Sent()))
    yield running
    running.close()


def test_documents_are_served(exporter: Exporter) -> None:
    for key in (FlameKey(ODD, 0, "down"), FlameKey("train", 1, "up")):
        status, text, _ = ask(exporter.address, f"/api/documents/{key.write()}")
        assert (status, json.loads(text)["direction"]) == (200, key.direction)
    assert ask(exporter.address, "/api/documents/flame/nobody/0/down")[0] == 404
    assert ask(exporter.address, "/api/documents/flame/%2e%2e/0/down")[0] == 404


@pytest.fixture
def seen(exporter: Exporter, browser: Browser) -> Iterator[Visit]:
    """Open the daemon's page, and fail at the end where it stated or did what it must not."""
    visited = visit(browser, f"http://{exporter.address[0]}:{exporter.address[1]}/")
    visited.wait("live")
    yield visited
    visited.check()
    visited.page.context.close()


def test_the_page_draws_the_flame_of_a_job(seen: Visit) -> None:
    seen.page.get_by_role("navigation").get_by_role("link", name="Flame").click()
    seen.wait("flame")
    chooser = seen.page.get_by_label("of")
    assert chooser.locator("option").count() == 4
    chooser.select_option(label="train, rank 1")
    seen.page.wait_for_selector("[aria-busy=true]", state="detached")
    assert "aten::linear" in seen.text()
    assert "rank 1" in seen.text()
    seen.page.get_by_role("button", name="bottom-up").click()
    seen.page.wait_for_selector("[aria-busy=true]", state="detached")
    assert seen.page.get_by_role("button", name="bottom-up").get_attribute("aria-pressed") == "true"
    assert chooser.locator("option").count() == 4
    assert chooser.input_value().startswith("flame/train/1/up")


def test_a_flame_is_drawn_anew_as_more_is_heard(exporter: Exporter, browser: Browser) -> None:
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    page = context.new_page()
    page.clock.install()
    page.goto(f"http://{exporter.address[0]}:{exporter.address[1]}/#flame?document=flame/train/0/down&measure=host")
    page.wait_for_selector("svg title:has-text('step')", state="attached")
    text = page.inner_text("main")
    with page.expect_response(lambda answer: "flame/train/0/down" in answer.url):
        page.clock.run_for(31_000)
    page.wait_for_function("text => document.querySelector('main').innerText !== text", arg=text)
    context.close()
