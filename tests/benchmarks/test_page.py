"""The benchmark of the page: what it shows to whom, and what it states of the goals. No browser is needed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from benchmarks import chromium, flame_peers, page
from benchmarks.flame_peers import PeerMissingError, install, nest_frames, write_speedscope_page
from benchmarks.live_page import CHANGES_PER_S, RANKS, ChangingRanks
from benchmarks.nested_boxes import WIDEST, nest_boxes, write_flame_page, write_timeline_page
from benchmarks.page_timing import PageWait


@pytest.mark.parametrize("count", [1, 2, 100, 5000])
def test_boxes_lie_within_each_other(count: int) -> None:
    boxes = nest_boxes(count)
    parent, within = boxes.parent[1:], np.arange(1, count)
    assert boxes.count == count
    assert boxes.parent[0] == -1
    assert (parent < within).all()
    assert np.bincount(parent, minlength=1).max() <= WIDEST
    end = boxes.start_ns + boxes.duration_ns
    assert (boxes.start_ns[1:] >= boxes.start_ns[parent]).all()
    assert (end[1:] <= end[parent]).all()


def test_all_get_the_same_boxes(tmp_path: Path) -> None:
    boxes = nest_boxes(300)
    frames = [nest_frames(boxes)]
    for frame in frames:  # grows while it is read
        frames += frame["children"]
    assert len(frames) == boxes.count
    assert sorted(frame["value"] for frame in frames) == sorted(boxes.duration_ns.tolist())
    release = tmp_path / "speedscope/dist/release"
    release.mkdir(parents=True)
    address, nbytes = write_speedscope_page(tmp_path, tmp_path, boxes)
    assert address.endswith(f"index.html#localProfilePath={tmp_path / 'profile.js'}")
    assert nbytes == (tmp_path / "profile.js").stat().st_size


def test_pages_are_written(tmp_path: Path) -> None:
    write_timeline_page(tmp_path / "timeline.html", 50)
    write_flame_page(tmp_path / "flame.html", nest_boxes(50))
    for view, columns in (("timeline", "start_ns"), ("flame", "value")):
        text = (tmp_path / f"{view}.html").read_text()
        data = text.split('id="deepprof-data" type="application/json">')[1].split("</script>")[0]
        document = json.loads(data)["documents"][view]
        assert len(document["parent"]) == 50
        assert columns in document


def test_ranks_change_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    ranks = ChangingRanks(started=now)
    before = ranks.look()
    assert len(before.ranks) == RANKS
    assert ranks.look().ranks == before.ranks
    now += 1
    after = ranks.look()
    changed = [one is not other for one, other in zip(before.ranks, after.ranks, strict=True)]
    assert changed == [True] * CHANGES_PER_S + [False] * (RANKS - CHANGES_PER_S)
    now += 3600
    assert ranks.look().ranks[0].devices[0].iterations > 3000


def test_goals_are_judged() -> None:
    counts = (1_000, 10_000, 100_000)
    wait = PageWait(load_ms=900, click_ms=20, letter_ms=30, elements=9, nbytes=9)
    slow = PageWait(load_ms=1100, click_ms=20, letter_ms=130, elements=9, nbytes=9)
    waits = {("timeline", count): wait for count in counts} | {("flame graph", count): slow for count in counts}
    said = [line.split(", which is ")[1] for line in page.judge_boxes(waits)]
    assert said == ["met.", "met.", "met.", "met.", "not met.", "not met."]


def test_what_is_missing_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(chromium, "PROGRAMS", ("no-such-program",))
    console = Console(record=True, width=110)
    page.run(console)
    assert console.export_text().count("\n") == 1
    monkeypatch.setattr(flame_peers.shutil, "which", lambda _: None)
    with pytest.raises(PeerMissingError, match="no npm"):
        install(tmp_path / "peer", "d3")
