"""Draws jobs and their mistakes: frameworks, sizes, what was recorded, and what costs time that could be avoided."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random

from benchmarks.unseen.building import Habit, Maker, Model, launch_cost, total
from benchmarks.unseen.names import FLAVOURS
from benchmarks.unseen.sketch import Recorder
from benchmarks.unseen.steps import Shown
from benchmarks.unseen.vocabulary import (
    ALLOCATION,
    BLOCKED_CALL,
    COPY_TO_DEVICE,
    COPY_TO_HOST,
    COPY_WITHIN,
    DATA_LOADING,
    HOST_WORK,
    LAUNCHING,
    LOOP,
    OTHER_THREAD,
    SYNCHRONIZATION,
    TRAINING_LOOP,
)

__all__ = ["MISTAKES", "Job", "disturb", "draw_job", "draw_recorder", "kind_of", "slow_host"]

RECORDERS = {
    "pytorch": ("kineto", "kineto", "kineto", "nsys"),
    "amd": ("kineto", "kineto", "rpd"),
    "compiled": ("kineto", "nsys"),
    "xla": ("xplane", "xplane", "nsys"),
    "tensorflow": ("xplane",),
    "native": ("nsys", "nsys", "nvprof", "rocprof"),
}
LOSSES = ("operators", "ranges", "calls", "host", "correlated", "sizes")
LOSS = 0.35  # how often something is not recorded
MISTAKES = (
    *(DATA_LOADING, HOST_WORK, LAUNCHING, SYNCHRONIZATION, BLOCKED_CALL, OTHER_THREAD),
    *(ALLOCATION, COPY_TO_DEVICE, COPY_TO_HOST, COPY_WITHIN),
)
SHORT = {LAUNCHING: (0.2, 0.65), SYNCHRONIZATION: (1.3, 2.5)}  # kernels, in times what a launch costs
SHOWN: tuple[Shown, ...] = ("nothing", "nothing", "range", "operator", "frame")
HOST_NAMES = {
    "nothing": "",
    "range": "postprocess",
    "operator": "aten::normal_",
    "frame": "metrics.py(88): update",
}


@dataclass(frozen=True)
class Job:
    """A program to be: its maker, its model and its habits."""

    maker: Maker
    model: Model
    habit: Habit


def draw_job(
    random: Random, kernels: tuple[int, int], *, training: bool | None = None, flavour: str | None = None
) -> Job:
    """Return a job whose device has enough to do: kernels last longer than their launches."""
    flavour = flavour or random.choice(FLAVOURS)
    maker = Maker(random, flavour, random.uniform(0.7, 1.4), random.choice((0.01, 0.03, 0.08, 0.2)))
    trains = random.random() < 0.6 if training is None else training
    trains = trains and flavour != "native"
    mean = launch_cost(maker) * random.uniform(1.7, 6)
    model = maker.draw_model(random.randint(*kernels), mean, training=trains)
    light = total(model) * random.uniform(0, 0.03)
    habit = Habit(loader_ns=light if random.random() < 0.6 else 0, host_ns=light if random.random() < 0.3 else 0)
    nbytes = min(random.choice((4_096, 602_112, 3_211_264)), int(0.02 * total(model) * 24))
    habit = replace(habit, aside=random.random() < 0.25, phased=random.random() < 0.2)
    return Job(maker, model, replace(habit, input_nbytes=max(64, nbytes)))


def draw_recorder(random: Random, flavour: str, losses: tuple[str, ...] = LOSSES) -> Recorder:
    """Return a recorder that fits a framework, which may miss something."""
    style = random.choice(RECORDERS[flavour])
    recorder = Recorder(
        style,
        host=style not in ("nvprof", "rocprof"),
        operators=style in ("kineto", "xplane", "rpd"),
        ranges=style != "rpd" and (style != "nsys" or random.random() < 0.7),
        frames=style == "kineto" and random.random() < 0.2,
        system=style == "nsys" and random.random() < 0.5,
        waits=style in ("kineto", "nsys") and random.random() < 0.4,
        whole=style in ("nvprof", "xplane", "kineto") and random.random() < 0.2,
        device_ranges=style == "kineto" and random.random() < 0.4,
        amd=flavour == "amd" or style == "rocprof",
    )
    lost = random.choice(LOSSES) if random.random() < LOSS else ""
    return replace(recorder, **{lost: False}) if lost in losses else recorder  # type: ignore[arg-type]


def kind_of(job: Job, recorder: Recorder) -> tuple[str, tuple[str, ...]]:
    """Return the kind of a loop, and what else it may be called: that it trains is not always recorded."""
    if not job.model.backward:
        return LOOP, ()
    plain = job.maker.flavour in ("compiled", "tensorflow", "xla")
    hidden = plain or not recorder.host or not (recorder.operators or recorder.ranges)
    return TRAINING_LOOP, (LOOP,) if hidden else ()


def disturb(random: Random, job: Job, name: str) -> Job:
    """Return the job with a mistake that costs much."""
    if name in SHORT:
        mean = total(job.model) / len(job.model.kernels)
        short = launch_cost(job.maker) * random.uniform(*SHORT[name])
        job = replace(job, model=job.model.scaled(short / mean), habit=replace(job.habit, input_nbytes=64))
    if name == LAUNCHING:
        return job
    changed = CHANGES[name](random, float(total(job.model)))
    return replace(job, habit=replace(job.habit, **changed))  # type: ignore[arg-type]


def slow_host(random: Random, ns: float) -> dict[str, object]:
    """Return work of the host next to the model, which recorders see or do not."""
    shown = random.choice(SHOWN)
    return {"host_ns": ns * random.uniform(1.1, 4), "host_shown": shown, "host_name": HOST_NAMES[shown]}


def load_slowly(random: Random, ns: float) -> dict[str, object]:
    """Return a loader that is too slow."""
    return {"loader_ns": ns * random.uniform(1.1, 4)}


def read_often(random: Random, ns: float) -> dict[str, object]:
    """Return reads of values all along."""
    return {"reads_each": random.randint(1, 3)}


def block(random: Random, ns: float) -> dict[str, object]:
    """Return a launch whose call needs far too long."""
    return {"slow_ns": ns * random.uniform(1.1, 3.5)}


def lock(random: Random, ns: float) -> dict[str, object]:
    """Return a lock that another thread holds."""
    return {"lock_ns": ns * random.uniform(1.1, 3.5)}


def allocate(random: Random, ns: float) -> dict[str, object]:
    """Return calls that allocate memory of the device."""
    count = random.randint(2, 8)
    return {"allocations": count, "allocation_ns": ns * random.uniform(1.1, 3.5) / count}


def send(random: Random, ns: float) -> dict[str, object]:
    """Return large input, from pinned memory or not."""
    pinned = random.random() < 0.4
    rate = 24.0 if pinned else 5.5
    return {"input_nbytes": int(ns * random.uniform(0.3, 2.5) * rate), "pinned": pinned}


def fetch(random: Random, ns: float) -> dict[str, object]:
    """Return large output."""
    pinned = random.random() < 0.5
    rate = 24.0 if pinned else 5.5
    return {"output_nbytes": int(ns * random.uniform(0.3, 2.5) * rate), "pinned": pinned}


def shuffle(random: Random, ns: float) -> dict[str, object]:
    """Return large copies within the device."""
    return {"within_nbytes": int(ns * random.uniform(0.25, 1.5) * 900)}


CHANGES: dict[str, Callable[[Random, float], dict[str, object]]] = {
    DATA_LOADING: load_slowly,
    HOST_WORK: slow_host,
    SYNCHRONIZATION: read_often,
    BLOCKED_CALL: block,
    OTHER_THREAD: lock,
    ALLOCATION: allocate,
    COPY_TO_DEVICE: send,
    COPY_TO_HOST: fetch,
    COPY_WITHIN: shuffle,
}
