"""The words in which truth and answers are compared: kinds of recordings, parts of time, causes of loss."""

from __future__ import annotations

__all__ = [
    "ALLOCATION",
    "BENCHMARK",
    "BLOCKED_CALL",
    "CAUSES",
    "COMMUNICATING",
    "COMMUNICATION",
    "COMPUTING",
    "COPYING",
    "COPY_TO_DEVICE",
    "COPY_TO_HOST",
    "COPY_WITHIN",
    "DATA_LOADING",
    "FIRST_USE",
    "HOST_ONLY",
    "HOST_SIDE",
    "HOST_WORK",
    "KINDS",
    "LATE_RANK",
    "LATE_SUBMISSION",
    "LAUNCHING",
    "LOOP",
    "MARKED_STEP",
    "NOTHING",
    "OTHER_THREAD",
    "PARTS",
    "SINGLE_PASS",
    "STALL",
    "START_UP",
    "SYNCHRONIZATION",
    "TRAINING_LOOP",
    "UNKNOWN",
    "WAITING",
]

TRAINING_LOOP, LOOP, MARKED_STEP, SINGLE_PASS = "training loop", "loop", "marked step", "single pass"
BENCHMARK, START_UP, HOST_ONLY = "benchmark", "start-up", "host only"
KINDS = (TRAINING_LOOP, LOOP, MARKED_STEP, SINGLE_PASS, BENCHMARK, START_UP, HOST_ONLY)

COMPUTING, COPYING, COMMUNICATING, WAITING = "computing", "copying", "communicating", "waiting"
PARTS = (COMPUTING, COPYING, COMMUNICATING, WAITING)

DATA_LOADING, HOST_WORK, LAUNCHING, LATE_SUBMISSION = "data loading", "host work", "launching", "late submission"
SYNCHRONIZATION, BLOCKED_CALL, OTHER_THREAD = "synchronization", "blocked call", "other thread"
FIRST_USE, ALLOCATION = "first use", "allocation"
COPY_TO_DEVICE, COPY_TO_HOST, COPY_WITHIN = "copy to device", "copy to host", "copy within device"
COMMUNICATION, LATE_RANK, STALL, UNKNOWN, NOTHING = "communication", "late rank", "stall", "unknown", ""

# What only records of the host can show.
HOST_SIDE = (
    *(DATA_LOADING, HOST_WORK, LAUNCHING, LATE_SUBMISSION, SYNCHRONIZATION),
    *(BLOCKED_CALL, OTHER_THREAD, FIRST_USE, ALLOCATION),
)
CAUSES = (
    *HOST_SIDE,
    *(COPY_TO_DEVICE, COPY_TO_HOST, COPY_WITHIN),
    *(COMMUNICATION, LATE_RANK, STALL, UNKNOWN, NOTHING),
)
