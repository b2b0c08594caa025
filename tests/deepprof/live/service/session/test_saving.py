"""A session's state: small, whole, and refused when anything in it is damaged."""

from __future__ import annotations

import zipfile
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepprof.live.service.session import RankSession, SessionLimits
from deepprof.live.service.session.saving import pack, unpack
from tests.deepprof.live.service.session.feeding import cut_at
from tests.deepprof.live.service.session.test_any_cutting import eventful


@cache
def saved() -> bytes:
    session = RankSession()
    for batch in cut_at(eventful(), range(0, 20_000, 3_000))[:6]:
        session.take(batch)
        session.advance()
    return session.save()


def test_a_saved_session_is_saved_as_the_same_bytes() -> None:
    assert RankSession.restore(saved()).save() == saved()
    assert len(saved()) < 3 << 20


def test_a_session_that_a_release_saved_is_restored() -> None:
    with zipfile.ZipFile(Path(__file__).with_name("saved-0.1.0.zip")) as file:
        data = file.read("session")
    session = RankSession.restore(data)
    assert [device.device for device in session.devices] == [0, 1]
    assert RankSession.restore(session.save()).devices == session.devices


def test_what_waits_to_be_handled_is_saved_too() -> None:
    first, *rest = cut_at(eventful(), [20_000])
    session = RankSession()
    session.take(first)
    session.gap(3)
    copy = RankSession.restore(session.save())
    assert copy.pending_records == session.pending_records > 0
    assert list(copy.names) == list(session.names)
    for one in (session, copy):
        for batch in rest:
            one.take(batch)
        one.end()
    ours, theirs = session.advance(), copy.advance()
    assert ours.iterations.equals(theirs.iterations)
    assert ours.events == theirs.events
    assert session.devices == copy.devices


@given(at=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_a_flipped_bit_is_refused(at: float, bit: int) -> None:
    damaged = bytearray(saved())
    damaged[int(at * len(damaged))] ^= 1 << bit
    with pytest.raises(ValueError, match="session"):
        RankSession.restore(bytes(damaged))


@given(length=st.floats(0, 1, exclude_max=True))
def test_truncated_bytes_are_refused(length: float) -> None:
    with pytest.raises(ValueError, match="session"):
        RankSession.restore(saved()[: int(length * len(saved()))])


@pytest.mark.parametrize(
    "other", [{}, {"names": [], "state": 3}, {"names": [b"x"], "state": None}, [1], {"array": np.arange(3)}]
)
def test_other_values_with_a_right_checksum_are_refused(other: object) -> None:
    with pytest.raises(ValueError, match="session"):
        RankSession.restore(pack(other))


def test_arrays_of_another_type_are_refused() -> None:
    with pytest.raises(ValueError, match="array"):
        unpack(pack(("|O", b"12345678")), np.ndarray)


def test_limits_below_one_are_refused() -> None:
    with pytest.raises(ValueError, match="devices must be at least 1"):
        SessionLimits(devices=0)
