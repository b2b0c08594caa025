"""Uses torch's own profilers in many ways, and prints what each saw: counts, and every error and warning.

Under the hook it states where it has come to outside of them, and waits for a line: the library comes back on its own
thread."""

import ctypes
import os
import sys
import threading
import warnings

import torch
from torch.autograd import profiler as autograd_profiler
from torch.profiler import ProfilerActivity, profile, record_function, schedule

warnings.simplefilter("ignore", FutureWarning)


def work(times: int = 1) -> None:
    for _ in range(times):
        with record_function("mine"):
            torch.ones(4).add(1)


def tell(title: str, events) -> None:
    print(title, sorted({(event.key, event.count) for event in events if not event.key.startswith("[")}))


def scheduled() -> None:
    def ready(seen) -> None:
        tell("scheduled", seen.key_averages())

    plan = schedule(wait=1, warmup=1, active=2, repeat=2)
    with profile(activities=[ProfilerActivity.CPU], schedule=plan, on_trace_ready=ready) as running:
        for _ in range(8):
            work()
            running.step()


def nested() -> None:
    with profile() as outer:
        work()
        try:
            with autograd_profiler.profile():
                work()
        except RuntimeError as error:
            print("nested", str(error).splitlines()[0][:60])
        work()
    tell("outer", outer.key_averages())


def others() -> None:
    for kind in (autograd_profiler.emit_itt, autograd_profiler.emit_nvtx):
        try:
            with kind():
                work()
            print(kind.__name__, "ran")
        except Exception as error:
            print(kind.__name__, str(error).splitlines()[0])


def on_a_thread() -> None:
    with autograd_profiler.profile() as seen:
        work()
    tell("thread", seen.key_averages())


def in_a_child() -> None:
    sys.stdout.flush()
    if os.fork():
        os.wait()
        return
    with autograd_profiler.profile() as seen:
        work()
    tell("child", seen.key_averages())
    sys.stdout.flush()
    os._exit(0)  # torch itself hangs at the exit of a child that has profiled


def failing() -> None:
    try:
        with profile():
            work()
            raise ValueError("mine")
    except ValueError as error:
        print("failing", error)


def await_library(place: int) -> None:
    if "DEEPPROF_INJECT" in os.environ:
        ctypes.CDLL(os.environ["DEEPPROF_INJECT"]).deepprof_notice(90 + place, b"place %d" % place)
        sys.stdin.readline()


if __name__ == "__main__":
    sys.stdin.readline()
    torch.zeros(2).sin()
    scheduled()
    await_library(1)
    torch.zeros(2).cos()
    nested()
    others()
    thread = threading.Thread(target=on_a_thread)
    thread.start()
    thread.join()
    failing()
    in_a_child()
    await_library(2)
    torch.zeros(2).tan()
