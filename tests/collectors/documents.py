"""Kineto documents by hand: one line per event."""


def event(cat, name, ts, dur, pid=0, tid=7, **args):  # noqa: PLR0917
    """Return a complete event."""
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}


def kernel(name="k", ts=1.0, dur=2.0, **args):
    """Return a kernel on device 0, stream 7."""
    return event("kernel", name, ts, dur, **{"device": 0, "context": 1, "stream": 7, **args})


def rows(table, *columns):
    """Return the rows of some columns."""
    return table.select(columns).rows()
