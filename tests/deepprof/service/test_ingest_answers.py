"""The answers of one stream: the last of them is never left out."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from deepprof.service.ingest import Stream


@dataclass
class Told:
    """A rank with what an answer tells of it."""

    durable: int = 0
    ended: bool = False
    durable_names: int = 0
    submitted: int = 1


@dataclass
class Slow:
    """A connection on which the end becomes durable while an earlier answer is being written."""

    rank: Told
    stream: Any = None
    answers: list[tuple[int, bool]] = field(default_factory=list)

    async def write(self, answer: Any) -> None:
        self.answers.append((answer.durable, answer.ended))
        if len(self.answers) == 1:
            self.rank.durable, self.rank.ended, self.rank.submitted = 7, True, 0
            self.stream.done = True


def test_the_end_is_told_though_it_came_while_an_answer_went_out() -> None:
    context = Slow(Told())
    stream: Any = Stream(None, context.rank, context)  # type: ignore[arg-type]
    context.stream, stream.changed = stream, asyncio.Event()
    asyncio.run(asyncio.wait_for(stream.answer(), 10))
    assert context.answers == [(0, False), (7, True)]
