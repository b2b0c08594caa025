"""Pickles taken apart as data: both readers agree, nothing is run, and nothing uses more than it may."""

from __future__ import annotations

import io
import os
import pickle
import random
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deepprof.collectors.importers.torch_snapshot import unpickling
from deepprof.collectors.importers.torch_snapshot.pickle_items import (
    NO_CONTAINER,
    PickledItems,
    PickleStatus,
    ValueKind,
)
from deepprof.collectors.importers.torch_snapshot.pickle_machine import MIXER, SLOT_BITS, run_pickle
from tests.chance import examples

KEYS = ("segments", "device_traces", "size", "name", "a")
MOST = 5_000
DONE, TRUNCATED, FORBIDDEN, MALFORMED, TOO_MANY, _ = PickleStatus


def run_both(content: bytes, most: int = MOST) -> PickledItems:
    """Return what is read of a pickle, by the compiled reader too where there is one."""
    found = run_pickle(content, KEYS, most)
    if (library := unpickling.library()) is not None:
        other = unpickling.run_native(library, content, KEYS, most)
        assert (other.status, other.at, other.root) == (found.status, found.at, found.root)
        for one, two in ((found.items, other.items), (found.fills, other.fills)):
            assert all(np.array_equal(one[name], two[name]) for name in one)
        for name in ("run_ends", "members", "kinds"):
            assert np.array_equal(getattr(found, name), getattr(other, name))
    return found


class Evil:
    """Calls something when it is unpickled."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.reduced = (function, arguments)

    def __reduce__(self) -> Any:
        return self.reduced


class WithPersistentId(pickle.Pickler):
    """Writes persistent ids."""

    def persistent_id(self, obj: Any) -> Any:
        """Return an id for every list."""
        return "7" if isinstance(obj, list) else None


def persistent(protocol: int) -> bytes:
    """Return a pickle with a persistent id."""
    buffer = io.BytesIO()
    WithPersistentId(buffer, protocol).dump({"segments": []})
    return buffer.getvalue()


def out_of_band() -> bytes:
    """Return a pickle whose content is next to it."""
    return pickle.dumps({"a": pickle.PickleBuffer(b"x")}, 5, buffer_callback=lambda _: None)


RUNS_CODE = {
    "os.system": pickle.dumps({"segments": Evil(os.system, "true")}),
    "builtins.eval": b"cbuiltins\neval\n(S'1'\ntR.",
    "os.system, protocol 0": b"cos\nsystem\n(S'true'\ntR.",
    "getattr chain": b"cbuiltins\ngetattr\n(cos\npath\nS'join'\ntR.",
    "stack global": b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x04true\x85R.",
    "inst": b"(S'true'\nios\nsystem\n.",
    "obj": b"(cos\nsystem\nS'true'\no.",
    "newobj": b"\x80\x02cbuiltins\nobject\n)\x81.",
    "newobj_ex": b"\x80\x04\x8c\x08builtins\x8c\x06object\x93)}\x92.",
    "build": b"\x80\x02}}b.",
    "reduce of a text": b"\x80\x04\x8c\x02os)R.",
    "ext1": b"\x80\x02\x82\x01.",
    "ext2": b"\x80\x02\x83\x01\x00.",
    "ext4": b"\x80\x02\x84\x01\x00\x00\x00.",
    "persid": persistent(0),
    "binpersid": persistent(4),
    "out-of-band buffer": out_of_band(),
    "read-only buffer": b"\x80\x05\x97\x98.",
    "set": pickle.dumps({"a": {1, 2}}),
    "frozen set": pickle.dumps({"a": frozenset({1})}),
    "class instance": pickle.dumps(Evil(len, "x")),
}


@pytest.mark.parametrize("content", RUNS_CODE.values(), ids=RUNS_CODE)
def test_whatever_would_run_or_build_something_is_refused(content: bytes) -> None:
    assert run_both(content).status is FORBIDDEN


def laughs(depth: int) -> bytes:
    """Return a list of two lists, each of which is the same list of two lists, and so on."""
    doubled = (b"]q%c(h%ch%ce" % (place, place - 1, place - 1) for place in range(1, depth))
    return b"\x80\x02]q\x00" + b"".join(doubled) + b"."


BOMBS = {
    "a long integer": (b"\x80\x02\x8b\xff\xff\xff\x7f", TRUNCATED),
    "a negative length": (b"\x80\x02\x8b\xff\xff\xff\xff", TRUNCATED),
    "a text of 16 EiB": (b"\x80\x04\x8d" + b"\xff" * 8, TRUNCATED),
    "a text of 4 GiB": (b"\x80\x02X\xff\xff\xff\xff", TRUNCATED),
    "bytes of 8 EiB": (b"\x80\x04\x8e" + struct.pack("<q", 2**62), TRUNCATED),
    "a bytearray of 8 EiB": (b"\x80\x05\x96" + struct.pack("<q", 2**62), TRUNCATED),
    "a frame of 8 EiB": (b"\x80\x04\x95" + struct.pack("<q", 2**62), TRUNCATED),
    "a far place in the memo": (b"\x80\x02]r\xff\xff\xff\x7f.", MALFORMED),
    "a far place in the memo, protocol 0": (b"(lp99999999999999999999\n.", MALFORMED),
    "a place before the memo": (b"(lp-1\n.", MALFORMED),
    "what the memo has not": (b"\x80\x02h\x05.", MALFORMED),
    "empty tuples": (b"\x80\x02" + b")" * (1 << 22) + b").", TOO_MANY),
    "copies": (b"\x80\x02N" + b"2" * (1 << 22) + b".", TOO_MANY),
    "marks": (b"(" * ((1 << 22) + 1), TOO_MANY),
    "empty lists": (b"\x80\x02" + b"]0" * (MOST + 1) + b".", TOO_MANY),
    "empty dictionaries": (b"\x80\x02" + b"}0" * (MOST + 1) + b".", TOO_MANY),
    "members": (b"\x80\x02](" + b"N" * (MOST + 1) + b"e.", TOO_MANY),
    "items": (b"\x80\x02}" + b"X\x01\x00\x00\x00aNs" * (MOST + 1) + b".", TOO_MANY),
    "remembered values": (b"\x80\x04N" + b"\x94" * (MOST + 1) + b".", TOO_MANY),
    "digits": (b"I" + b"9" * 100_000 + b"\n.", DONE),
    "no digits": (b"I-\n.", MALFORMED),
    "a line without end": (b"I1", TRUNCATED),
    "nothing left": (b"\x80\x02.", MALFORMED),
    "no end": (b"\x80\x02N", TRUNCATED),
    "nothing": (b"", TRUNCATED),
    "a later protocol": (b"\x80\x06N.", MALFORMED),
    "half a pair": (b"\x80\x02}(Nu.", MALFORMED),
    "an item of a list": (b"\x80\x02]NNs.", MALFORMED),
    "a member of a dictionary": (b"\x80\x02}Na.", MALFORMED),
    "below the mark": (b"\x80\x02](0.", MALFORMED),
    "a pair below the mark": (b"\x80\x02}(NNs.", MALFORMED),
    "no mark": (b"\x80\x02]e.", MALFORMED),
    "an unknown instruction": (b"\x80\x02\xff.", MALFORMED),
}


@pytest.mark.parametrize(("content", "status"), BOMBS.values(), ids=BOMBS)
def test_bombs_and_damage_are_refused_where_they_begin(content: bytes, status: PickleStatus) -> None:
    assert run_both(content).status is status


def test_lists_of_lists_take_no_more_than_the_file() -> None:
    found = run_both(laughs(60))
    assert found.status is DONE
    assert (len(found.kinds), len(found.members)) == (60, 118)


def test_lists_of_equal_members_are_stored_once() -> None:
    held = [{"a": number} for number in range(20)]
    found = run_both(pickle.dumps([held, [*held], [*held], held[:3], [*held[:3], 5], [], [*held]]))
    assert found.fills["owner"].tolist() == [1, 22, 23, 24, 25, 27, 0]  # 26 is empty, and the outer one is filled last
    assert found.fills["run"].tolist() == [0, 0, 0, 1, 2, 0, 3]
    assert np.diff(found.run_ends, prepend=0).tolist() == [20, 3, 4, 7]


def test_lists_that_meet_in_a_slot_are_told_apart() -> None:
    rng, held = random.Random(1), [{"a": number} for number in range(300)]
    lists = [[rng.choice(held) for _ in range(rng.randrange(1, 5))] for _ in range(4000)]
    content = pickle.dumps([held, lists, [[*each] for each in lists]])
    found = run_both(content, most=40_000)
    distinct = len({tuple(map(id, each)) for each in [held, *lists]})
    outer = 9  # runs of up to a thousand lists
    assert len(found.run_ends) > distinct + outer  # some were forgotten, and stored again
    assert rebuild(found, content, *found.root) == [expected(held), *[expected(lists)] * 2]


def test_a_list_and_its_beginning_in_one_slot_are_told_apart() -> None:
    most = 1500
    one, other = np.arange(2, most, dtype=np.uint64)[:, None], np.arange(2, most, dtype=np.uint64)[None, :]
    mixer, bits = np.uint64(MIXER), np.uint64(64 - SLOT_BITS)
    meet = ((one ^ np.uint64(1)) * mixer >> bits) == (((one ^ np.uint64(2)) * mixer ^ other) * mixer >> bits)
    first, second = np.argwhere(meet)[0].tolist()
    held: list[dict[str, int]] = [{} for _ in range(most)]  # their numbers begin at 2
    for lists in ([[held[first], held[second]], [held[first]]], [[held[first]], [held[first], held[second]]]):
        content = pickle.dumps([held, *lists])
        assert rebuild(run_both(content), content, 3, 0) == expected([held, *lists])


def test_nesting_is_no_recursion() -> None:
    deep = 200_000
    nested = run_both(b"\x80\x02" + b"](" * deep + b"e" * deep + b".", most=deep)
    assert (nested.status, len(nested.members)) == (DONE, deep - 1)
    tuples = run_both(b"\x80\x02})" + b"\x85" * deep + b"Ns.", most=deep)  # CPython crashes over this key
    assert (tuples.status, len(tuples.items["key"])) == (DONE, 0)


def test_a_list_that_holds_itself_is_a_list() -> None:
    cyclic: list[Any] = []
    cyclic += [cyclic, {"a": cyclic}]
    found = run_both(pickle.dumps(cyclic))
    assert found.members.tolist() == [0, 1]
    assert found.items["number"].tolist() == [0]


INTEGERS = st.integers(-(10**18) + 1, 10**18 - 1)
PLAIN = st.recursive(
    st.none() | st.booleans() | INTEGERS | st.floats(allow_nan=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from([*KEYS, "other"]), inner, max_size=5),
    max_leaves=20,
)


@pytest.mark.parametrize(("number", "kept"), [(2**64 - 1, -1), (2**63, -(2**63)), (-(2**63), -(2**63)), (2**64, None)])
def test_an_address_of_64_bits_keeps_its_bits(number: int, kept: int | None) -> None:
    assert expected_root(run_both(pickle.dumps(number))) == kept


def expected_root(found: PickledItems) -> int | None:
    """Return the integer that a pickle is; None for none."""
    return found.root[1] if found.root[0] == ValueKind.INTEGER else None


@settings(max_examples=examples(150))
@given(PLAIN, st.integers(0, 5))
def test_what_was_written_is_read(value: Any, protocol: int) -> None:
    content = pickle.dumps(value, protocol)
    found = run_both(content)
    assert found.status is DONE
    assert rebuild(found, content, *found.root) == expected(value)


def rebuild(found: PickledItems, content: bytes, kind: int, number: int) -> Any:
    """Return a value as `expected` does."""
    if kind == ValueKind.LIST:
        _, of = found.expand(found.fills["run"][found.fills["owner"] == number])
        return [None if each == NO_CONTAINER else rebuild(found, content, found.kinds[each], each) for each in of]
    if kind == ValueKind.DICT:
        rows = np.flatnonzero(found.items["owner"] == number).tolist()
        return {KEYS[found.items["key"][row]]: rebuild_item(found, content, row) for row in rows}
    return number if kind == ValueKind.INTEGER else None


def rebuild_item(found: PickledItems, content: bytes, row: int) -> Any:
    """Return the value of an item as `expected` does."""
    kind, number = int(found.items["kind"][row]), int(found.items["number"][row])
    text = content[number : number + int(found.items["length"][row])]
    if kind == ValueKind.TEXT:
        return text.decode("utf-8", "surrogatepass")
    return text.decode("raw-unicode-escape") if kind == ValueKind.ESCAPED else rebuild(found, content, kind, number)


def expected(value: Any, *, in_list: bool = False) -> Any:
    """Return what is kept of a value: lists, dictionaries with wanted keys, and in these integers and texts."""
    if isinstance(value, list):
        return [expected(each, in_list=True) for each in value]
    if isinstance(value, dict):
        return {key: expected_item(each) for key, each in value.items() if key in KEYS}
    return None if in_list else number_of(value)


def expected_item(value: Any) -> Any:
    """Return what is kept of the value of an item."""
    return value if isinstance(value, str) else expected(value)


def number_of(value: Any) -> int | None:
    """Return the integer that is kept of a value; None for others."""
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value


@settings(max_examples=examples(300))
@given(PLAIN, st.integers(0, 5), st.data())
def test_both_readers_agree_on_damage(value: Any, protocol: int, data: st.DataObject) -> None:
    content = bytearray(pickle.dumps(value, protocol))
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    run_both(bytes(content), most=data.draw(st.sampled_from([0, 1, 3, MOST])))


@settings(max_examples=examples(300))
@given(st.binary(max_size=60))
def test_both_readers_agree_on_anything(content: bytes) -> None:
    run_both(content)
