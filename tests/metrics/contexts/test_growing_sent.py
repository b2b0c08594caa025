"""Contexts that rise over windows, and those that only look like it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import polars as pl
import pytest

from deepprof.metrics.contexts.growing import MIN_WINDOWS, RisingContext, find_rising
from deepprof.metrics.contexts.sent import read_sent
from tests.metrics.contexts.test_sent import SUMS, nodes_of

MINUTE_NS = 60 * 10**9
SECOND_NS = 10**9
NODES = nodes_of(
    (1, 0, "python", "train.py(5): step", 7),
    (2, 1, "python", "train.py(30): forward", 31),
    (3, 2, "operator", "aten::linear"),
    (4, 1, "python", "train.py(40): log", 44),
    (5, 4, "operator", "aten::stack"),
    (6, 1, "operator", "aten::add_"),
)
STEP, FORWARD, LINEAR, LOG, STACK, ADD = range(1, 7)
Series = Callable[[int, int], float]
"""The time of a pass in seconds, by window and number of windows."""


def history(
    windows: int,
    log_s: Series,
    *,
    passes: Callable[[int], int] = lambda _: 10,
    device_s: Series = lambda *_: 0.0,
    noise: float = 0.02,
    seed: int = 0,
) -> pl.DataFrame:
    """Return the sums of a job that runs forward a second of every pass, and logs as long as `log_s` states."""
    random, rows = np.random.default_rng(seed), []
    for at in range(windows):
        many = passes(at)
        own = {LINEAR: 1.0, STACK: log_s(at, windows), ADD: 0.2}
        own = {each: int(many * s * SECOND_NS * random.normal(1, noise)) for each, s in own.items()}
        host = own | {FORWARD: own[LINEAR], LOG: own[STACK], STEP: sum(own.values())}
        device = int(many * device_s(at, windows) * SECOND_NS)
        rows += [(at * MINUTE_NS, MINUTE_NS, each, many, ns, 0, 0) for each, ns in host.items()]
        rows += [(at * MINUTE_NS, MINUTE_NS, LINEAR, 0, 0, many, device)]
    return pl.DataFrame(rows, schema=SUMS, orient="row")


def rising(sums: pl.DataFrame) -> RisingContext | None:
    return find_rising(read_sent(NODES), sums)


def grows(at: int, windows: int) -> float:
    return 0.1 + 0.4 * at / windows


def test_the_line_that_grows_is_named_and_not_what_is_around_it() -> None:
    found = rising(history(31, grows))
    assert found is not None
    frame = read_sent(NODES).contexts.row(found.context, named=True)
    assert frame["name"] == "aten::stack"
    assert (found.amount, found.windows) == ("host_ns", 30)
    assert found.before_ns == pytest.approx(10 * 0.17 * SECOND_NS, rel=0.1)
    assert found.after_ns == pytest.approx(10 * 0.43 * SECOND_NS, rel=0.1)
    assert found.share_ratio == pytest.approx(0.43 / 1.63, rel=0.1)
    assert (found.start_ns, found.end_ns) == (MINUTE_NS, 31 * MINUTE_NS)


def test_time_on_devices_grows_too() -> None:
    found = rising(history(20, lambda *_: 0.1, device_s=grows))
    assert found is not None
    assert (found.amount, read_sent(NODES).contexts["name"][found.context]) == ("device_ns", "aten::linear")


def test_fewer_passes_in_later_windows_hide_no_growth() -> None:
    """A job sends each second pass from the middle on, to cost less."""
    found = rising(history(30, grows, passes=lambda at: 20 if at < 15 else 10))
    assert found is not None
    assert read_sent(NODES).contexts["name"][found.context] == "aten::stack"


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(
    "sums",
    [
        pytest.param(lambda seed: history(40, lambda *_: 0.3, noise=0.2, seed=seed), id="noise"),
        pytest.param(lambda seed: history(40, lambda *_: 0.3, passes=lambda at: 5 + at, seed=seed), id="more passes"),
        pytest.param(lambda seed: history(40, lambda at, n: 0.1 if at < n / 2 else 0.4, seed=seed), id="a jump"),
        pytest.param(lambda seed: history(40, lambda at, n: 0.3 + 0.2 * (at % 10 == 9), seed=seed), id="now and then"),
        pytest.param(lambda seed: history(40, lambda at, n: 0.5 if at < 1 else 0.3, seed=seed), id="warm-up"),
        pytest.param(lambda seed: history(40, lambda at, n: 0.5 - 0.4 * at / n, seed=seed), id="shrinks"),
        pytest.param(lambda seed: history(40, lambda at, n: 0.01 + 0.02 * at / n, seed=seed), id="too small"),
        pytest.param(lambda seed: history(40, lambda at, n: 0.3 + 0.03 * at / n, seed=seed), id="too little"),
    ],
)
def test_what_does_not_grow_is_not_named(sums: Callable[[int], pl.DataFrame], seed: int) -> None:
    assert rising(sums(seed)) is None


@pytest.mark.parametrize("windows", [0, 1, 2, MIN_WINDOWS])
def test_few_windows_prove_nothing(windows: int) -> None:
    assert rising(history(windows, grows)) is None


def test_more_windows_than_are_needed_are_put_together() -> None:
    found = rising(history(500, grows))
    assert found is not None
    assert found.windows == 60


def test_no_passes_are_known_where_nothing_begins() -> None:
    sums = history(30, grows).with_columns(count=pl.lit(0, pl.UInt64))
    found = rising(sums)
    assert found is not None
    assert read_sent(NODES).contexts["name"][found.context] == "aten::stack"


def test_iterations_that_are_left_out_are_no_passes() -> None:
    """A program of one jitted function, of which more and more is collected: each call needs what it needed."""
    nodes = nodes_of((1, 0, "operator", "jit_train_step"), (2, 0, "operator", "(seconds left out)"))
    random, rows = np.random.default_rng(0), []
    for at in range(30):
        many = 100 + 20 * at
        host_ns = int(many * SECOND_NS * random.normal(1, 0.02))
        rows += [(at * MINUTE_NS, MINUTE_NS, 1, many, host_ns, 0, 0), (at * MINUTE_NS, MINUTE_NS, 2, 40 - at, 0, 0, 0)]
    assert find_rising(read_sent(nodes), pl.DataFrame(rows, schema=SUMS, orient="row")) is None
