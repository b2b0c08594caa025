"""The saved state: whatever bytes come back, they are a miner that works, or a `ValueError` of one line."""

from __future__ import annotations

import copy
import struct
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deepprof.mining import Evidence, Family
from deepprof.mining.online.miner import OnlineMiner
from tests.chance import examples
from tests.mining.jobs import Job
from tests.mining.online_runs import one_after_the_other
from tests.mining.states import pack, released, unpack

WINDOW = 1 << 11
STREAM, _ = one_after_the_other(
    Job(iterations=20, layers=5, growth=1, seed=1), Job(iterations=3, layers=4, seed=2, prologue=1500), apart=(0, 90)
)


def saved(length: int, gap: int = -1, finish: bool = False) -> bytes:
    """The state after this many symbols, in chunks of 100."""
    miner = OnlineMiner(WINDOW)
    marks = np.zeros(len(STREAM), np.bool_)
    marks[::7] = True
    for first in range(0, length, 100):
        end = min(length, first + 100)
        if first <= gap < end:
            miner.gap(5)
        family = Family("step #", "loop", np.array([0, 5]), 0.5, np.array([10, 60]))
        known = Evidence(
            gaps=marks[first:end] * 2.5, copies=marks[first:end], optimizer=np.arange(100) >= 70, families=(family,)
        )
        miner.feed(STREAM[first:end], known)
    if finish:
        miner.finish()
    return miner.save()


STATES = {
    "new": saved(0),
    "learning": saved(300),
    "locked": saved(2500, gap=1700),
    "drifted": saved(3000),
    "lost": saved(5300),
    "ended": saved(2500, finish=True),
}


def survives(data: bytes) -> None:
    """Restore, and if that works, go on; what is refused is refused in one line."""
    said = ""
    try:
        miner = OnlineMiner.restore(data)
        miner.feed(STREAM[2000:3000])
        miner.gap(1)
        miner.feed(STREAM[:200])
        miner.save()
        miner.finish()
    except ValueError as error:
        said = str(error)
    assert "\n" not in said


def test_the_states_are_what_their_names_say() -> None:
    restored = {name: OnlineMiner.restore(data) for name, data in STATES.items()}
    states = {name: miner.state for name, miner in restored.items()}
    assert states == {
        "new": "learning",
        "learning": "learning",
        "locked": "locked",
        "drifted": "locked",
        "lost": "lost",
        "ended": "locked",
    }
    assert restored["drifted"].loop is not None
    assert restored["drifted"].loop.has_drifted


@pytest.mark.parametrize("name", STATES)
def test_what_is_restored_is_what_was_saved(name: str) -> None:
    assert OnlineMiner.restore(STATES[name]).save() == STATES[name]


@pytest.mark.parametrize("name", released("online"))
def test_a_state_that_a_release_saved_is_restored_and_saved_as_the_same_bytes(name: str) -> None:
    data = released("online")[name]
    assert OnlineMiner.restore(data).save() == data


@pytest.mark.parametrize("name", STATES)
def test_truncated_and_damaged_bytes_are_a_value_error(name: str) -> None:
    data = STATES[name]
    random = np.random.default_rng(0)
    for size in {0, 1, 8, 15, 16, 24, len(data) // 2, len(data) - 1}:
        with pytest.raises(ValueError, match="saved state"):
            OnlineMiner.restore(data[:size])
    for place in random.integers(0, len(data), 40).tolist():
        damaged = bytearray(data)
        damaged[place] ^= 1 << int(random.integers(0, 8))
        with pytest.raises(ValueError, match="saved state"):
            OnlineMiner.restore(bytes(damaged))


@settings(max_examples=examples(200))
@given(st.binary(max_size=400))
def test_any_bytes_are_a_value_error(data: bytes) -> None:
    body = struct.pack("<Q", len(data)) + data
    for one in (data, b"DPONLINE" + data, struct.pack("<8sII", b"DPONLINE", 1, zlib.crc32(body)) + body):
        with pytest.raises(ValueError, match="saved state"):
            OnlineMiner.restore(one)


def test_another_version_is_named() -> None:
    with pytest.raises(ValueError, match=r"version 2; this program reads 1"):
        OnlineMiner.restore(b"DPONLINE" + struct.pack("<II", 2, 0) + b"x" * 50)


@pytest.mark.parametrize(
    "text", [b"[1]", b"{}", b"null", b'{"a":' * 5000, b'{"position": 1e999}', b'{"array":["u2",-1]}']
)
def test_other_fields_are_a_value_error(text: bytes) -> None:
    body = struct.pack("<Q", len(text)) + text
    with pytest.raises(ValueError, match="truncated or damaged"):
        OnlineMiner.restore(struct.pack("<8sII", b"DPONLINE", 1, zlib.crc32(body)) + body)


HOSTILE = [
    *(None, True, False, "", "locked", "x" * 9, [], {}, [{}], -1, 0, 1, 5, 1000, 2**31, 2**62, 2**63, 2**80, 1.5),
    *(np.empty(0, np.int64), np.array([2**62, -(2**63)]), np.arange(12), np.zeros(5), np.full(4, np.nan)),
    *(np.zeros(3, np.uint16), np.full(9, 2**32 - 1, np.uint32), np.zeros(64, np.uint8), np.zeros(2, np.bool_)),
]


def places(fields: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of what can be replaced, of lists their first entries."""
    inner = fields.items() if isinstance(fields, dict) else enumerate(fields[:1]) if isinstance(fields, list) else ()
    for key, value in inner:
        yield (*path, key)
        yield from places(value, (*path, key))


def replaced(fields: Any, path: tuple[Any, ...], value: object) -> bytes:
    changed = copy.deepcopy(fields)
    at = changed
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    return pack(changed)


@pytest.mark.parametrize("name", ["learning", "locked", "drifted", "lost"])
def test_every_field_may_be_hostile(name: str) -> None:
    fields = unpack(STATES[name])
    random = np.random.default_rng(len(name))
    for path in places(fields):
        for choice in random.choice(len(HOSTILE), 4, replace=False).tolist():
            survives(replaced(fields, path, HOSTILE[choice]))


@settings(max_examples=examples(60), deadline=None)
@given(st.sampled_from(["locked", "drifted", "lost"]), st.integers(0, 10**6), st.integers(-3, 3))
def test_every_number_may_be_a_little_wrong(name: str, place: int, by: int) -> None:
    fields = unpack(STATES[name])
    numbers = [path for path in places(fields) if is_number(value_at(fields, path))]
    path = numbers[place % len(numbers)]
    value = value_at(fields, path)
    if isinstance(value, np.ndarray):
        value = value.copy()
        value[place % len(value)] += np.array(by).astype(value.dtype)
        survives(replaced(fields, path, value))
    else:
        survives(replaced(fields, path, value + by))


def is_number(value: object) -> bool:
    if isinstance(value, np.ndarray):
        return value.size > 0 and value.dtype != np.bool_
    return isinstance(value, int | float) and not isinstance(value, bool)


def value_at(fields: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        fields = fields[key]
    return fields
