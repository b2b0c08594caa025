"""XPlane profiles by hand, byte by byte: no protobuf, so that a wrong schema cannot hide."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from deepprof.collectors.importers.xla.xplane import XPlane


def varint(value):
    """Return `value`, of at most 64 bits, as protobuf writes it."""
    value, out = value & (2**64 - 1), bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def number(at, value):
    return varint(at << 3) + varint(value)


def data(at, value):
    value = value.encode() if isinstance(value, str) else value
    return varint(at << 3 | 2) + varint(len(value)) + value


@dataclass
class Event:
    name: str
    start_ps: int = 0
    duration_ps: int = 1000
    stats: dict = field(default_factory=dict)
    count: int = 0  # an event that represents many


def event(name, start_ns=0, duration_ns=1, **stats):
    return Event(name, start_ns * 1000, duration_ns * 1000, stats)


class Metadata(dict):
    """Texts under numbers from 1 on."""

    def __missing__(self, key):
        self[key] = len(self) + 1
        return self[key]


def stat(kinds, name, value, *, refer):
    """Return one named value; texts go by reference where `refer`, as profilers write them."""
    body = number(1, kinds[name])
    if isinstance(value, float):
        body += varint(2 << 3 | 1) + struct.pack("<d", value)
    elif isinstance(value, int):
        body += number(4 if value < 2**63 else 3, value)
    else:
        body += number(7, kinds[value]) if refer else data(5, value)
    return body


def encode_event(one, names, kinds, refer):
    body = number(1, names[one.name])
    body += number(5, one.count) if one.count else number(2, one.start_ps)
    body += number(3, one.duration_ps)
    return body + b"".join(data(4, stat(kinds, name, value, refer=refer)) for name, value in one.stats.items())


def plane(name, lines=None, stats=None, *, base_ns=0, refer=True, display=False):
    """Return one plane; `lines` are lists of events by label, their ids are 1, 2 …"""
    names, kinds, body = Metadata(), Metadata(), number(1, 5) + data(2, name)
    for at, (label, events) in enumerate((lines or {}).items(), start=1):
        line = number(1, at) + data(2, label) + number(3, base_ns)
        line += b"".join(data(4, encode_event(one, names, kinds, refer)) for one in events)
        body += data(3, line)
    body += b"".join(data(6, stat(kinds, key, value, refer=False)) for key, value in (stats or {}).items())
    shown = 4 if display else 2
    for text, key in names.items():
        kind = number(1, key) + data(shown, text) + (data(2, f"%{text} = f32[] fusion()") if display else b"")
        body += data(4, number(1, key) + data(2, kind))
    return body + b"".join(data(5, number(1, k) + data(2, number(1, k) + data(2, t))) for t, k in kinds.items())


def space(*planes, hostnames=(), errors=(), warnings=()):
    said = [data(2, text) for text in errors] + [data(3, text) for text in warnings]
    return b"".join([*(data(1, one) for one in planes), *said, *(data(4, host) for host in hostnames)])


GPU = "/device:GPU:0"
HOST = "/host:CPU"


def read(tmp_path, *planes, **said):
    """Return the trace of a profile of `planes`."""
    path = tmp_path / "host.xplane.pb"
    path.write_bytes(space(*planes, **said))
    return XPlane().read(path)


def named(trace, table, *columns):
    """Return the rows of `columns` of a table, `name` among them."""
    rows = getattr(trace, table)
    return rows.with_columns(name=trace.names.gather(rows["name_id"])).select(columns).rows()
