"""The histories of calling contexts that an examination gets: of the first ranks, in bounded memory."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import polars as pl
import pytest

from deepprof.live.service.examination import END_OF_MESSAGES
from deepprof.live.service.examiner import examiner as module
from deepprof.live.service.examiner.examiner import Examiner
from deepprof.metrics.contexts.history import ContextsOfRank


@pytest.mark.parametrize(("most", "ranks"), [(1 << 20, [0, 1, 2]), (1, [])])
def test_histories_of_many_ranks_are_bounded(monkeypatch: pytest.MonkeyPatch, most: int, ranks: list[int]) -> None:
    async def read(_: object, job: str, rank: int, __: object) -> ContextsOfRank:
        return ContextsOfRank(job, rank, pl.DataFrame({"context": [1]}), pl.DataFrame({"count": [rank]}))

    monkeypatch.setattr(module, "read_rank", read)
    monkeypatch.setattr(module, "LOOK_BACK_NBYTES", most)
    examiner = SimpleNamespace(engine=SimpleNamespace(clock=SimpleNamespace(unix_ns=lambda: 0)))
    sending = [SimpleNamespace(view=SimpleNamespace(contexts=True), key=("train", rank)) for rank in range(3)]
    packed = asyncio.run(Examiner.look_back(cast(Any, examiner), cast(Any, sending)))
    assert packed.startswith(END_OF_MESSAGES)
    assert [each["rank"] for each in msgspec.msgpack.decode(packed.removeprefix(END_OF_MESSAGES))] == ranks
