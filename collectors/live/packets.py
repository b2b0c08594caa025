"""Packets that a collector inside a job and the agent of its node exchange over a unix stream socket.

A packet is a head and a payload, little endian. The C side is `inject/packets.h`; a test compares both.
Device events are on the collector's device clock, ranges and changes of memory on CLOCK_MONOTONIC; a TICK ties both to
the Unix clock. Records are numbered from 0 over a process's life, all of them in one count. A jump in the numbers means
lost records, and `reason` gives the cause; `made` gives how many records of every kind there were.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np

VERSION = 3
MAGIC = 0x31505044  # "DPP1"
PAYLOAD_NBYTES = 4 << 20  # the largest payload that an agent takes
NO_TIME = -(2**63)
NO_COPY = 255
NO_TOTAL = 2**64 - 1
HAS_CORRELATION = 1  # a flag of an EVENT
ANNOTATION, BY_NAME = 254, 255  # categories of a range next to those of host events
# What is counted: activities, ranges, changes of memory, sums of contexts.
RECORD_KINDS = ("kernel", "memcpy", "memset", "graph", "sync", "range", "memory", "context")


class Kind(IntEnum):
    """What a packet is: below 16 the job sends it, from 16 on the agent; from 32 on for clients that ask its state."""

    HELLO = 1  # text, lines of key=value: the collector and its place
    NAMES = 2  # NAME_HEAD and UTF-8, repeated; ids from 1 without missing ones, all of them again on every connection
    EVENTS = 3  # RECORDS_HEAD, then `count` EVENT
    RANGES = 4  # RECORDS_HEAD, then `count` RANGE
    TICK = 5  # one TICK, a few times a second
    NOTICE = 6  # NOTICE_HEAD, then a line of text for people
    END = 7  # RECORDS_HEAD without records: the job ends here
    CONTEXTS = 8  # CONTEXT, repeated; ids from 1 without missing ones, all of them again on every connection
    CONTEXT_SUMS = 9  # RECORDS_HEAD, then `count` CONTEXT_SUM
    LAUNCHES = 10  # LAUNCH, repeated
    MEMORY_CHANGES = 11  # RECORDS_HEAD, then `count` MEMORY_CHANGE
    WELCOME = 16  # two uint32: version, level
    LEVEL = 17  # one uint32: the level from now on
    ASK = 32  # empty
    ANSWER = 33  # JSON


class CollectionLevel(IntEnum):
    """Whether a collector collects. Switching it makes windows, each of them complete."""

    OFF = 0
    ON = 1


class Reason(IntEnum):
    """Why records before a packet's first are missing; anything but NONE is a gap, even if no number jumps."""

    NONE = 0
    BUFFER_FULL = 1  # the agent did not read in time
    DISCONNECTED = 2  # no agent was there
    DUTY_CYCLE = 3  # collecting was switched off for a while
    DRIVER_DROPPED = 4  # CUPTI reported it
    BUSY = 5  # another profiler had the driver, or torch.profiler ran


HEAD = np.dtype([("magic", "<u4"), ("kind", "<u2"), ("zero", "<u2"), ("nbytes", "<u4"), ("more", "<u4")])
NAME_HEAD = np.dtype([("id", "<u4"), ("nbytes", "<u4")])
NOTICE_HEAD = np.dtype([("code", "<u4"), ("nbytes", "<u4")])
RECORDS_HEAD = np.dtype(
    [
        ("first", "<u8"),
        ("count", "<u4"),
        ("reason", "<u4"),
        # By kind, the records numbered before `first`, including those that were dropped on the way; the rest of
        # `first` are records of unknown kind.
        ("made", "<u8", len(RECORD_KINDS)),
    ]
)

EVENT = np.dtype(
    [
        ("start_ns", "<i8"),
        ("end_ns", "<i8"),
        ("nbytes", "<u8"),
        ("graph_node", "<u8"),  # 0: none
        ("correlation", "<u4"),
        ("name", "<u4"),  # 0: none
        ("device", "<u4"),
        ("context", "<u4"),
        ("stream", "<u4"),
        ("graph", "<u4"),
        ("activity", "u1"),  # place in collectors.trace.ACTIVITIES
        ("copy_kind", "u1"),  # place in COPY_KINDS, 255: no copy
        ("flags", "<u2"),  # 1: has a correlation
        ("zero", "<u4"),
    ]
)
RANGE = np.dtype(
    [
        ("start_ns", "<i8"),
        ("end_ns", "<i8"),
        ("name", "<u4"),
        ("thread", "<u4"),
        ("depth", "<u2"),  # number of open ranges around it on its thread
        ("category", "u1"),  # place in HOST_CATEGORIES, 254: an annotation, 255: follows from its name
        ("source", "u1"),  # 0 ITT, 1 NVTX, 2 the hook, 3 torch.profiler, 4 ROCTX
        ("zero", "<u4"),
        ("correlation", "<u8"),  # 0: none
    ]
)
MEMORY_CHANGE = np.dtype(  # an allocation or a release; `nbytes` 0: a look at what is in use
    [
        ("time_ns", "<i8"),  # CLOCK_MONOTONIC
        ("nbytes", "<i8"),  # negative for a release
        ("address", "<u8"),  # 0: unknown
        ("allocated_nbytes", "<u8"),  # in use on the device after it, NO_TOTAL: unknown
        ("reserved_nbytes", "<u8"),  # held by the allocator after it, NO_TOTAL: unknown
        ("device_nbytes", "<u8"),  # all of the device's memory, 0: unknown
        ("device", "<i4"),  # -1: memory of the host
        ("thread", "<u4"),  # 0: unknown
    ]
)
CONTEXT = np.dtype(  # a parent comes before its children
    [
        ("id", "<u4"),
        ("parent", "<u4"),  # 0: the root
        ("name", "<u4"),
        ("line", "<u4"),  # that is running in a frame of Python; 0: unknown
        ("kind", "<u4"),  # 0 a frame of Python, 1 an operator, 2 a native frame
    ]
)
CONTEXT_SUM = np.dtype(  # what a context did in a window of time
    [
        ("start_ns", "<i8"),  # of the window, CLOCK_MONOTONIC
        ("end_ns", "<i8"),
        ("host_ns", "<i8"),  # on the host, including what it called
        ("count", "<u8"),  # how often it began; 0 of a function of Python, whose calls are not seen
        ("context", "<u4"),
        ("zero", "<u4"),
    ]
)
LAUNCH = np.dtype([("correlation", "<u4"), ("context", "<u4")])
TICK = np.dtype(
    [
        ("device_ns", "<i8"),  # NO_TIME: there is no device clock
        ("mono_ns", "<i8"),
        ("unix_ns", "<i8"),  # the three were read together
        ("events_until_ns", "<i8"),  # device clock: all events that ended before were sent; NO_TIME: unknown
        ("ranges_until_ns", "<i8"),  # CLOCK_MONOTONIC: all ranges that ended, and changes, before were sent
        ("open_since_ns", "<i8"),  # start of the earliest range that is still open; 2**63 - 1: none
        ("next", "<u8"),  # number of the next record
        ("driver_dropped", "<u8"),  # records that CUPTI dropped so far
        ("collector_cpu_ns", "<u8"),  # CPU time of collecting in the process so far
        ("process_cpu_ns", "<u8"),  # CPU time of the process so far
        ("level", "<u4"),
        ("reason", "<u4"),  # why records before `next` are missing that no packet has reported
        ("made", "<u8", len(RECORD_KINDS)),  # before `next`
    ]
)
