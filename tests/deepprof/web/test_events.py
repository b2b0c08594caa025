"""The stream of events: silence is broken by comments, and what cannot be observed harms no page."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from deepprof.web.events import PING, EventFeed
from tests.patience import PATIENCE_S


class Observed:
    """What pages are shown; the looks are counted."""

    def __init__(self, *looks: Mapping[str, bytes] | Exception) -> None:
        self.looks, self.count = looks, 0

    async def look(self) -> Mapping[str, bytes]:
        self.count += 1
        await asyncio.sleep(0)
        found = self.looks[min(self.count, len(self.looks)) - 1]
        if isinstance(found, Exception):
            raise found
        return found


async def hear(feed: EventFeed, last_id: str, wanted: int) -> list[bytes]:
    """Return the first blocks of a stream."""
    blocks: list[bytes] = []
    async with asyncio.timeout(PATIENCE_S):
        with feed.hold():
            async for block in feed.tell(last_id):
                blocks.append(block)
                if len(blocks) == wanted:
                    break
    return blocks


def test_silence_is_broken_by_a_comment() -> None:
    feed = EventFeed(Observed({"live": b"1"}).look, ping_s=0.01)
    retry, event, ping, again = asyncio.run(hear(feed, "", 4))
    assert (retry, ping, again) == (b"retry: 2000\n\n", PING, PING)
    assert event.endswith(b"event: live\ndata: 1\n\n")


def test_only_what_has_changed_is_told() -> None:
    looks = Observed(
        {"live": b"1", "findings": b"[]"}, {"live": b"1", "findings": b"[]"}, {"live": b"2", "findings": b"[]"}
    )
    feed = EventFeed(looks.look, interval_s=0.01)
    told = asyncio.run(hear(feed, "", 4))
    assert [block.split(b"data: ")[-1] for block in told[1:]] == [b"1\n\n", b"[]\n\n", b"2\n\n"]
    assert looks.count == 3


def test_one_look_is_for_all_pages() -> None:
    looks = Observed({"live": b"1"})
    feed = EventFeed(looks.look, interval_s=PATIENCE_S)

    async def several() -> None:
        with feed.hold():
            await hear(feed, "", 1)
        await asyncio.gather(*(hear(feed, "", 2) for _ in range(5)))

    asyncio.run(several())
    assert looks.count == 1


def test_a_look_that_fails_is_in_the_log_and_the_next_one_is_told(caplog: pytest.LogCaptureFixture) -> None:
    feed = EventFeed(Observed({"live": b"1"}, ValueError("odd"), {"live": b"3"}).look, interval_s=0.01)
    told = asyncio.run(hear(feed, "", 3))
    assert told[-1].endswith(b"data: 3\n\n")
    assert "odd" in caplog.text


@pytest.mark.parametrize("last_id", ["", "x", "-1", "a-b", "1" * 5000, "\u0661-\u0661"])
def test_an_id_of_another_life_counts_for_nothing(last_id: str) -> None:
    assert len(asyncio.run(hear(EventFeed(Observed({"live": b"1"}).look), last_id, 2))) == 2
