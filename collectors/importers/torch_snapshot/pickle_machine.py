"""The machine that reads a pickle as data, in Python: what `unpickle.c` does, rule for rule.

It makes no object of what it reads: a pickle that names a class or a function, calls one or builds anything is refused
at that instruction. `pickle.Unpickler` cannot be made safe by refusing names: a key of nested tuples alone makes it
crash, and one number of the memo allocates gigabytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from deepprof.collectors.importers.torch_snapshot.pickle_items import (
    FILL,
    ITEM,
    NO_CONTAINER,
    NO_KEY,
    PickledItems,
    PickleStatus,
    ValueKind,
    split_columns,
)

LAST_PROTOCOL, MOST_DIGITS, STACK, LONGEST_TEXT = 5, 18, 1 << 22, 2**31 - 1
SLOT_BITS, MIXER, BITS = 20, 0x9E3779B97F4A7C15, 2**64 - 1
FORBIDDEN = frozenset(b"cRbioPQ\x81\x82\x83\x84\x8f\x90\x91\x92\x93\x97\x98")
STOP = ord(".")


class _RefusedError(Exception):
    """The reading ends here."""

    def __init__(self, status: PickleStatus) -> None:
        self.status = status


class _Value(NamedTuple):
    """A value on the stack; the fields are those of `ITEM`."""

    kind: int = ValueKind.OTHER
    number: int = 0
    length: int = 0
    key: int = NO_KEY


NOTHING = _Value()


def run_pickle(content: bytes | bytearray, keys: Sequence[str], most: int) -> PickledItems:
    """Return the items of the pickle in `content`, of dictionaries those with one of the `keys`; at most `most`."""
    machine = _PickleMachine(bytes(content), keys, most)
    try:
        root = machine.run()
        status = PickleStatus.DONE
    except _RefusedError as refused:
        root, status = NOTHING, refused.status
    items, fills = (split_columns(np.array(*each)) for each in ((machine.items, ITEM), (machine.fills, FILL)))
    run_ends, members = (np.array(each, np.uint32) for each in (machine.run_ends, machine.members))
    return PickledItems(
        status, machine.began, items, fills, run_ends, members, machine.kinds_found(), (root.kind, root.number)
    )


class _PickleMachine:
    """The stack, its marks and the memo."""

    def __init__(self, content: bytes, keys: Sequence[str], most: int) -> None:
        self.content, self.most, self.at, self.began = content, most, 0, 0
        self.keys = {key.encode(): place for place, key in enumerate(keys)}
        self.stack: list[_Value] = []
        self.marks: list[int] = []
        self.memo: list[_Value] = []
        self.items: list[tuple[int, int, int, int, int]] = []
        self.fills: list[tuple[int, int]] = []
        self.run_ends: list[int] = []
        self.members: list[int] = []
        self.slots: dict[int, int] = {}
        self.listed = 0
        self.kinds = bytearray()
        self.instructions = self.list_instructions()

    def list_instructions(self) -> dict[int, Callable[[], None]]:
        """Return what each instruction does."""
        other, memo = lambda: self.push(NOTHING), self.memo
        return {
            0x80: self.check_protocol,
            0x95: self.check_frame,
            ord("("): self.put_mark,
            ord("0"): lambda: self.drop(1),
            ord("1"): self.drop_marked,
            ord("2"): lambda: self.push(self.top()),
            **dict.fromkeys(b"N\x88\x89)", other),
            ord("I"): self.load_int,
            ord("L"): self.load_long_line,
            ord("J"): lambda: self.push_number(self.read_number(4, signed=True)),
            ord("K"): lambda: self.push_number(self.read_number(1)),
            ord("M"): lambda: self.push_number(self.read_number(2)),
            0x8A: lambda: self.load_long(1),
            0x8B: lambda: self.load_long(4),
            **dict.fromkeys(b"FS", lambda: self.push(NOTHING, self.read_line())),
            ord("G"): lambda: self.push(NOTHING, self.take(8)),
            0x8C: lambda: self.load_text(1),
            ord("X"): lambda: self.load_text(4),
            0x8D: lambda: self.load_text(8),
            ord("V"): self.load_line_text,
            **dict.fromkeys(b"CU", lambda: self.skip_bytes(1)),
            **dict.fromkeys(b"BT", lambda: self.skip_bytes(4)),
            **dict.fromkeys(b"\x8e\x96", lambda: self.skip_bytes(8)),
            ord("]"): lambda: self.push_container(ValueKind.LIST),
            ord("}"): lambda: self.push_container(ValueKind.DICT),
            ord("l"): lambda: self.gather(ValueKind.LIST),
            ord("d"): lambda: self.gather(ValueKind.DICT),
            ord("a"): lambda: self.fill_last(1, ValueKind.LIST),
            ord("s"): lambda: self.fill_last(2, ValueKind.DICT),
            ord("e"): lambda: self.fill(self.pop_mark(), ValueKind.LIST),
            ord("u"): lambda: self.fill(self.pop_mark(), ValueKind.DICT),
            ord("t"): self.make_marked_tuple,
            0x85: lambda: self.make_tuple(1),
            0x86: lambda: self.make_tuple(2),
            0x87: lambda: self.make_tuple(3),
            ord("p"): lambda: self.put(self.read_place()),
            ord("q"): lambda: self.put(self.read_number(1)),
            ord("r"): lambda: self.put(self.read_number(4)),
            0x94: lambda: self.put(len(memo)),
            ord("g"): lambda: self.get(self.read_place()),
            ord("h"): lambda: self.get(self.read_number(1)),
            ord("j"): lambda: self.get(self.read_number(4)),
        }

    def run(self) -> _Value:
        """Run all instructions and return the value that is left; raises `_RefusedError`."""
        content, instructions = self.content, self.instructions
        while self.at < len(content):
            self.began, code = self.at, content[self.at]
            self.at += 1
            if code == STOP:
                return self.top()
            if (instruction := instructions.get(code)) is None:
                raise _RefusedError(PickleStatus.FORBIDDEN if code in FORBIDDEN else PickleStatus.MALFORMED)
            instruction()
        self.began = self.at
        raise _RefusedError(PickleStatus.TRUNCATED)

    def kinds_found(self) -> npt.NDArray[np.uint8]:
        """Return the kinds of the containers by number."""
        return np.frombuffer(bytes(self.kinds), np.uint8)

    def push(self, value: _Value, read: object = None) -> None:
        """Put a value on the stack, after what had to be `read` before."""
        if len(self.stack) >= STACK:
            raise _RefusedError(PickleStatus.TOO_MANY)
        self.stack.append(value)

    def push_number(self, number: int) -> None:
        """Put an integer on the stack."""
        self.push(_Value(ValueKind.INTEGER, number))

    def push_container(self, kind: ValueKind) -> None:
        """Put a new list or dictionary on the stack."""
        if len(self.kinds) >= self.most:
            raise _RefusedError(PickleStatus.TOO_MANY)
        self.kinds.append(kind)
        self.push(_Value(kind, len(self.kinds) - 1))

    def floor(self) -> int:
        """Return the first place of the stack that an instruction may take."""
        return self.marks[-1] if self.marks else 0

    def need(self, values: int) -> None:
        """Raise `_RefusedError` unless this many values are above the last mark."""
        if len(self.stack) - self.floor() < values:
            raise _RefusedError(PickleStatus.MALFORMED)

    def top(self) -> _Value:
        """Return the last value."""
        self.need(1)
        return self.stack[-1]

    def put_mark(self) -> None:
        """Mark where the stack is now."""
        if len(self.marks) >= STACK:
            raise _RefusedError(PickleStatus.TOO_MANY)
        self.marks.append(len(self.stack))

    def pop_mark(self) -> int:
        """Return the place of the last mark, and take it away."""
        if not self.marks:
            raise _RefusedError(PickleStatus.MALFORMED)
        return self.marks.pop()

    def drop_marked(self) -> None:
        """Take the values after the last mark."""
        del self.stack[self.pop_mark() :]

    def drop(self, values: int) -> None:
        """Take this many values."""
        self.need(values)
        del self.stack[len(self.stack) - values :]

    def make_tuple(self, values: int) -> None:
        """Put a tuple of this many values in their place: it is nothing that anybody requests."""
        self.drop(values)
        self.push(NOTHING)

    def make_marked_tuple(self) -> None:
        """Put a tuple of the values after the last mark in their place."""
        self.drop_marked()
        self.push(NOTHING)

    def take(self, nbytes: int) -> bytes:
        """Return the next bytes."""
        if len(self.content) - self.at < nbytes:
            raise _RefusedError(PickleStatus.TRUNCATED)
        self.at += nbytes
        return self.content[self.at - nbytes : self.at]

    def read_number(self, nbytes: int, *, signed: bool = False) -> int:
        """Return the number in the next bytes, the lowest first."""
        return int.from_bytes(self.take(nbytes), "little", signed=signed)

    def read_length(self, nbytes: int) -> int:
        """Return the length of what follows, all of which must be there."""
        length = self.read_number(nbytes)
        if length > len(self.content) - self.at:
            raise _RefusedError(PickleStatus.TRUNCATED)
        return length

    def read_line(self) -> bytes:
        """Return the rest of the line without its end."""
        stop = self.content.find(b"\n", self.at)
        if stop < 0:
            raise _RefusedError(PickleStatus.TRUNCATED)
        line, self.at = self.content[self.at : stop], stop + 1
        return line

    def read_decimal(self, line: bytes) -> int | None:
        """Return the number in decimal digits; None for more than `MOST_DIGITS` of them."""
        digits = line[1:] if line.startswith(b"-") else line
        if not digits or digits.strip(b"0123456789"):
            raise _RefusedError(PickleStatus.MALFORMED)
        return int(line) if len(digits) <= MOST_DIGITS else None

    def read_place(self) -> int:
        """Return a place in the memo that is written as a line; -1 for none that can be."""
        place = self.read_decimal(self.read_line())
        return -1 if place is None else place

    def check_protocol(self) -> None:
        """Refuse the protocols of later Pythons."""
        if self.read_number(1) > LAST_PROTOCOL:
            raise _RefusedError(PickleStatus.MALFORMED)

    def check_frame(self) -> None:
        """Refuse a frame that breaks off."""
        self.read_length(8)

    def load_int(self) -> None:
        """Put the number of a line on the stack; 00 and 01 are False and True."""
        line = self.read_line()
        self.push_decimal(self.read_decimal(line), is_number=not (len(line) == 2 and line.startswith(b"0")))

    def load_long_line(self) -> None:
        """Put the number of a line that may end in L on the stack."""
        self.push_decimal(self.read_decimal(self.read_line().removesuffix(b"L")), is_number=True)

    def push_decimal(self, number: int | None, *, is_number: bool) -> None:
        """Put a number on the stack."""
        self.push(NOTHING if number is None or not is_number else _Value(ValueKind.INTEGER, number))

    def load_long(self, nbytes: int) -> None:
        """Put a number of any length on the stack; one of 64 bits without sign keeps its bits."""
        data = self.take(self.read_length(nbytes))
        if len(data) > 9 or (len(data) == 9 and data[8]):
            self.push(NOTHING)
        else:
            self.push_number(int.from_bytes(data[:8], "little", signed=True))

    def load_text(self, nbytes: int) -> None:
        """Put a text on the stack."""
        text = self.take(self.read_length(nbytes))
        self.push_text(self.at - len(text), text, ValueKind.TEXT)

    def load_line_text(self) -> None:
        """Put the text of a line on the stack, with its escapes."""
        start = self.at
        self.push_text(start, self.read_line(), ValueKind.ESCAPED)

    def push_text(self, start: int, text: bytes, kind: ValueKind) -> None:
        """Put a text on the stack."""
        if len(text) > LONGEST_TEXT:
            raise _RefusedError(PickleStatus.TOO_MANY)
        self.push(_Value(kind, start, len(text), self.keys.get(text, NO_KEY)))

    def skip_bytes(self, nbytes: int) -> None:
        """Pass bytes, whose length comes first."""
        self.push(NOTHING, self.take(self.read_length(nbytes)))

    def put(self, place: int) -> None:
        """Remember the last value; numbers of the memo follow each other, as every writer of pickles gives them."""
        memo = self.memo
        if not self.stack or not 0 <= place <= len(memo):
            raise _RefusedError(PickleStatus.MALFORMED)
        if place == len(memo):
            if place >= self.most:
                raise _RefusedError(PickleStatus.TOO_MANY)
            memo.append(NOTHING)
        memo[place] = self.stack[-1]

    def get(self, place: int) -> None:
        """Put a remembered value on the stack."""
        if not 0 <= place < len(self.memo):
            raise _RefusedError(PickleStatus.MALFORMED)
        self.push(self.memo[place])

    def fill_last(self, values: int, kind: ValueKind) -> None:
        """Store the last values in the container below them."""
        self.need(values + 1)
        self.fill(len(self.stack) - values, kind)

    def fill(self, first: int, kind: ValueKind) -> None:
        """Store the values from `first` on in the list, or as pairs in the dictionary, below them, and take them."""
        if first <= self.floor() or self.stack[first - 1].kind != kind:
            raise _RefusedError(PickleStatus.MALFORMED)
        owner, values = self.stack[first - 1].number, self.stack[first:]
        if kind == ValueKind.LIST:
            self.store_members(owner, values)
        elif len(values) % 2:
            raise _RefusedError(PickleStatus.MALFORMED)
        else:
            self.store_items(owner, values)
        del self.stack[first:]

    def store_items(self, owner: int, pairs: list[_Value]) -> None:
        """Add the items of a dictionary whose keys are wanted."""
        for key, value in zip(pairs[::2], pairs[1::2], strict=True):
            if key.key == NO_KEY:
                continue
            if len(self.items) >= self.most:
                raise _RefusedError(PickleStatus.TOO_MANY)
            self.items.append((value.number, owner, value.length, key.key, value.kind))

    def store_members(self, owner: int, values: list[_Value]) -> None:
        """Add what is in a list."""
        if not values:
            return
        self.listed += len(values)
        if self.listed > self.most:
            raise _RefusedError(PickleStatus.TOO_MANY)
        holds = {ValueKind.LIST, ValueKind.DICT}
        members = [value.number if value.kind in holds else NO_CONTAINER for value in values]
        self.fills.append((owner, self.find_run(members)))

    def find_run(self, members: list[int]) -> int:
        """Return the run of these members, which is added unless the last one in its slot is it."""
        mixed = len(members)
        for member in members:
            mixed = (mixed ^ member) * MIXER & BITS
        slot = mixed >> (64 - SLOT_BITS)
        if (run := self.slots.get(slot)) is None or self.members_of(run) != members:
            run = self.slots[slot] = len(self.run_ends)
            self.members += members
            self.run_ends.append(len(self.members))
        return run

    def members_of(self, run: int) -> list[int]:
        """Return the members of a run."""
        return self.members[self.run_ends[run - 1] if run else 0 : self.run_ends[run]]

    def gather(self, kind: ValueKind) -> None:
        """Make a list or a dictionary of the values after the last mark."""
        first = self.pop_mark()
        self.push_container(kind)
        self.stack.insert(first, self.stack.pop())
        self.fill(first + 1, kind)
