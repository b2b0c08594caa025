"""Who reads or watches a lot keeps no one else from it, and costs the daemon a bounded part of its time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepprof.live.service.access.caller import CALLER
from deepprof.live.service.latest_looks import AGE_NS, LatestLooks
from deepprof.live.service.query import WATCHERS, QueryServicer
from deepprof.live.service.refusal import RefusedError
from deepprof.live.service.stream_leases import StreamLeases
from deepprof.v1 import query_pb2
from deepprof.v1.query_pb2_grpc import QueryStub
from tests.deepprof.live.service.daemons import Daemon, running, wait_for
from tests.deepprof.live.service.engines import FakeClock
from tests.deepprof.live.service.inside import inside
from tests.patience import PATIENCE_S

TOKENS = {name: f"{name}-{'0' * 32}" for name in ("greedy", "modest")}


@given(st.lists(st.sampled_from("abcd")), st.integers(2, 40))
def test_a_caller_never_holds_more_than_are_left_for_others(callers: list[str], most: int) -> None:
    places, held = StreamLeases("readers", "read", most), 0
    with ExitStack() as stack:
        for caller in callers:
            own = places._held[caller]
            if own < most - held:
                stack.enter_context(places.hold(caller))
                held += 1
            else:
                with pytest.raises(RefusedError):
                    stack.enter_context(places.hold(caller))
            assert len(places) == held <= most
    assert not places._held


def test_a_refusal_names_the_limit_and_who_holds_it() -> None:
    places = StreamLeases("readers", "raw windows are read", 4)
    with ExitStack() as stack:
        for caller in ("a", "a", "b"):
            stack.enter_context(places.hold(caller))
        with pytest.raises(
            RefusedError, match=r"^readers: 4 raw windows are read at a time, .*; held by a 2, b 1; "
        ) as refused:
            stack.enter_context(places.hold("a"))
    assert (refused.value.code, refused.value.reason) == ("RESOURCE_EXHAUSTED", "readers")


def test_looks_are_made_once_for_all_and_take_a_tenth_of_the_time() -> None:
    clock, made = FakeClock(0), list[str]()

    def make(job: str) -> int:
        clock.now_ns += AGE_NS  # a look at very many ranks
        made.append(job)
        return len(made)

    looks = LatestLooks(make, clock)
    spent = 0
    for _ in range(200):
        before = clock.now_ns
        assert looks.look("train") == looks.look("train") == len(made)
        spent += clock.now_ns - before
        clock.now_ns += AGE_NS // 4
    assert len(made) > 1
    assert spent <= clock.now_ns / 8


def test_a_look_is_good_for_the_shortest_interval_and_gone_ones_are_forgotten() -> None:
    clock = FakeClock(0)
    looks = LatestLooks(lambda job: (job, clock.now_ns), clock)
    assert looks.look("a") == looks.look("a") == ("a", 0)
    clock.now_ns += AGE_NS
    assert looks.look("b") == ("b", AGE_NS)
    assert list(looks._made) == ["b"]
    assert looks.look("a") == ("a", AGE_NS)


def test_callers_take_turns_with_the_event_loop(tmp_path: Path) -> None:
    """However many questions one has brought, another's is answered after one of them; streams go on in between."""
    order = list[str]()

    async def ask(servicer: QueryServicer, caller: str) -> None:
        CALLER.set(caller)
        await servicer.take_turn(lambda: order.append(caller))

    async def main() -> None:
        async with inside(tmp_path) as daemon:
            servicer = QueryServicer(daemon.engine, daemon.examiner)
            asking = [asyncio.create_task(ask(servicer, caller)) for caller in ["greedy"] * 50 + ["modest"]]
            await asyncio.sleep(0)
            assert len(order) == 1  # the others know of each other before the next has its turn
            await asyncio.gather(*asking)

    asyncio.run(main())
    assert order.index("modest") <= 2


@contextmanager
def daemon_with_tokens(folder: Path) -> Iterator[Daemon]:
    """Give a daemon whose callers have tokens."""
    file = folder / "tokens"
    file.write_text("".join(f"{name} read {token}\n" for name, token in TOKENS.items()))
    file.chmod(0o600)
    with running(settings=[f"tokens.file={file}"]) as daemon:
        yield daemon


def test_one_who_watches_very_often_keeps_no_other_from_it(tmp_path: Path) -> None:
    with daemon_with_tokens(tmp_path) as daemon, grpc.insecure_channel(daemon.address) as channel, ExitStack() as stack:

        def watch(name: str) -> Any:
            headers = [("authorization", f"Bearer {TOKENS[name]}")]
            call = QueryStub(channel).Watch(query_pb2.WatchRequest(), metadata=headers, timeout=PATIENCE_S)  # type: ignore[no-untyped-call]
            stack.callback(call.cancel)
            return call

        for _ in range(WATCHERS // 2):
            next(watch("greedy"))
        with pytest.raises(grpc.RpcError, match=rf"{WATCHERS} watch at a time, .*held by greedy {WATCHERS // 2}"):
            next(watch("greedy"))
        assert next(watch("modest")).now_unix_ns
        line = wait_for(lambda: daemon.event("call-refused"), "it is logged")
        assert (line["token"], line["reason"]) == ("greedy", "watchers")
        assert 'deepprof_refusals_total{reason="watchers",token="greedy"} 1' in daemon.get("/metrics")[1]
