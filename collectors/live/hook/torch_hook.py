"""The hook that runs once a job has imported torch: operators become ranges, and other profilers find ours stopped.

Without a device, PyTorch is set to write an ITT range around each operator of the main thread, and the library takes
these ranges. torch allows one profiler per thread, and ITT counts as one. So ours is left before another one starts,
and entered again afterwards.

torch calls at every operator, whether or not the library does anything then; that costs as much as collecting it. So it
calls the library only in those iterations that are collected. An iteration is what is between the ends of two steps
of the first optimizer.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import threading
import time
import weakref

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any

if __name__.startswith("deepprof."):  # else watch.py has run these in this space
    from deepprof.collectors.live.hook.optimizer_steps import call_at_steps
    from deepprof.collectors.live.hook.process import (
        CONTEXTS,
        begin_in_process,
        find_prefixes,
        finds_device,
        finish_at_exit,
        load,
        quietly,
    )

NO_ITT, OTHER_THREAD, FAILED, OUT_OF_MEMORY, NO_MEMORY = 64, 65, 66, 67, 68  # codes of notices
NO_ITT_TEXT = "this build of torch has no ITT: its operators cannot be collected"
OTHER_THREAD_TEXT = "torch was first imported outside of the main thread: operators are not collected"
NO_MEMORY_TEXT = "no GPU that this torch can use: its allocations are not collected; --memory is for GPUs"
NO_TOTAL = 2**64 - 1  # what the allocator holds is unknown
ROUNDS, CALLS = 5, 200
MOST_OTHERS = 100  # steps of other optimizers between two of the first
NODE_WORDS = 8  # of a node of autograd, as far as it is examined


class Operators:
    """The library in this process, and the state of torch's profilers on the main thread."""

    def __init__(self, torch: ModuleType, library: Any, has_device: bool) -> None:
        self.torch, self.library, self.has_device = torch, library, has_device
        self.contexts = CONTEXTS.get(os.environ.get("DEEPPROF_CONTEXTS", ""), 0)
        stand_in = not has_device and os.environ.get("DEEPPROF_STAND_IN") != "0"
        self.wants_events = stand_in or os.environ.get("DEEPPROF_CONTEXT") == "1"
        self.wants_operators = self.wants_events or self.contexts > 0
        self.thread = threading.get_ident()
        self.is_entered = self.is_aside = self.is_over = self.is_left_out = False
        self.preparing: set[int] = set()  # threads with a profiler that is about to start
        self.profiling: set[int] = set()  # threads with a profiler that runs
        profiler = torch.autograd.profiler
        self.enable, self.disable = profiler._enable_profiler, profiler._disable_profiler

    def enter(self) -> None:
        """Have torch write ranges on this thread from now on. Its Python flag stays: it would change what compiles."""
        if not self.wants_operators or self.is_entered or self.is_over or self.is_left_out or not self.is_here():
            return
        profiler = self.torch.autograd.profiler
        options = (False, False, False, False, False, profiler._ExperimentalConfig())
        self.enable(profiler.ProfilerConfig(profiler.ProfilerState.ITT, *options), set())
        self.is_entered = True

    def leave(self) -> None:
        """Have torch stop writing ranges; it complains at exit if this was not done."""
        if self.is_entered and self.is_here():
            self.is_entered = False
            self.disable()

    def choose(self, is_collected: bool) -> None:
        """Have torch write ranges in the iteration that begins, or not."""
        self.is_left_out = not is_collected
        if self.is_left_out:
            self.leave()
        elif not self.is_aside and self.thread not in self.preparing | self.profiling:
            self.enter()

    def step_aside(self) -> None:
        """Stop collecting for another profiler: one of torch on this thread, or one that uses the driver."""
        is_first, self.is_aside = not self.is_aside, True
        self.leave()
        if is_first:
            self.library.deepprof_pause()

    def come_back(self) -> None:
        """Collect again, unless another profiler runs or is about to; one of torch ends with its thread."""
        busy = (self.preparing | self.profiling) & sys._current_frames().keys()
        if self.is_aside and not busy:
            self.is_aside = False
            self.library.deepprof_resume()
        if self.thread not in busy:
            self.enter()

    def is_here(self) -> bool:
        """Whether this is our thread."""
        return threading.get_ident() == self.thread

    def is_concerned(self) -> bool:
        """Whether a profiler started here conflicts with ours: on our thread, or anywhere if both use the driver."""
        return not self.is_over and (self.has_device or self.is_here())

    def finish(self) -> None:
        """Leave and send everything, because the process ends."""
        if not self.is_over:
            self.is_over = True
            self.leave()
            self.library.deepprof_finish()

    def forget(self) -> None:
        """Leave in a forked child, where nothing is collected and the user's profilers work as without the hook."""
        if not self.is_over:
            self.is_over = True
            quietly(self.leave)


def _around(operators: Operators, real: Callable[..., Any], note: Callable[[bool], None]) -> Callable[..., Any]:
    """Return `real` wrapped: step aside, call it, pass `note` whether it succeeded, and come back if possible."""

    def call(*values: Any, **named: Any) -> Any:
        if not operators.is_concerned():
            return real(*values, **named)
        is_well = False
        quietly(operators.step_aside)
        try:
            result = real(*values, **named)
            is_well = True
        finally:
            note(is_well)
            quietly(operators.come_back)
        return result

    return call


def wrap_profilers(torch: ModuleType, operators: Operators) -> None:
    """Wrap the functions that every profiler of torch calls to start and to end."""

    def prepared(is_well: bool) -> None:
        if is_well:
            operators.preparing.add(threading.get_ident())

    def enabled(is_well: bool) -> None:
        operators.preparing.discard(threading.get_ident())
        if is_well:
            operators.profiling.add(threading.get_ident())

    def disabled(is_well: bool) -> None:
        here = {threading.get_ident()}
        operators.preparing -= here
        if is_well:  # a thread with no profiler of its own has ended one for all threads
            operators.profiling -= here & operators.profiling or set(operators.profiling)

    notes = {"_prepare": prepared, "_enable": enabled, "_disable": disabled}
    for module, ending in (("profiler", "_profiler"), ("profiler_legacy", "_profiler_legacy")):
        space = vars(sys.modules.get("torch.autograd." + module, torch.version))
        for beginning, note in notes.items():
            name = beginning + ending
            if name in space:
                space[name] = _around(operators, space[name], note)


def has_device(torch: ModuleType) -> bool:
    """Return whether this torch can use a GPU whose driver has a profiler. The driver is not asked: that starts it."""
    return bool(getattr(torch.version, "cuda", None) or getattr(torch.version, "hip", None)) and finds_device()


def _mark_optimizers(library: Any) -> None:
    """Write a range around each call of an optimizer, with the name that torch itself uses."""

    def push(optimizer: Any) -> None:
        library.deepprof_push(f"Optimizer.step#{type(optimizer).__name__}.step".encode())

    def pop(_: Any) -> None:
        library.deepprof_pop()

    call_at_steps(push, pop)


class MemoryLooks:
    """Tells the library what tensors have in use on the devices of an optimizer, before and after each of its steps.

    A peak in between is told with the next look, where torch counts a higher one than before. The device's work is not
    waited for: torch's allocator runs ahead of it, on the host. What was requested is told, as snapshots have it: the
    blocks that the allocator gave may be 1 MiB longer each, by what its cache contains just then, and hide a small
    leak."""

    def __init__(self, torch: ModuleType, library: Any) -> None:
        from weakref import WeakKeyDictionary

        self.cuda, self.library = torch.cuda, library
        library.deepprof_memory.argtypes = [ctypes.c_int, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint64]
        self.peaks: dict[int, int] = {}
        self.sizes: dict[int, int] = {}
        self.devices: WeakKeyDictionary[Any, frozenset[int]] = WeakKeyDictionary()  # of an optimizer

    def look(self, optimizer: Any, *_: Any) -> None:
        """Look at the devices of an optimizer; whatever fails, its step goes on."""
        with contextlib.suppress(Exception):
            for device in self.find_devices(optimizer):
                self.look_at(device)

    def find_devices(self, optimizer: Any) -> frozenset[int]:
        """Return the devices on which an optimizer has parameters."""
        found = self.devices.get(optimizer)
        if found is None:
            places = {each.device for group in optimizer.param_groups for each in group["params"]}
            found = self.devices[optimizer] = frozenset(place.index for place in places if place.type == "cuda")
        return found

    def look_at(self, device: int) -> None:
        """Tell what is in use on a device now, after its peak if that was higher than the one before."""
        stats = self.cuda.memory_stats_as_nested_dict(device)
        in_use, reserved = _choose_in_use(stats), stats["reserved_bytes"]["all"]
        if in_use["peak"] > self.peaks.get(device, in_use["current"]):
            self.library.deepprof_memory(device, in_use["peak"], NO_TOTAL, self.find_size(device))
        self.peaks[device] = max(self.peaks.get(device, 0), in_use["peak"])
        self.library.deepprof_memory(device, in_use["current"], reserved["current"], self.find_size(device))

    def find_size(self, device: int) -> int:
        """Return how much memory a device has."""
        if device not in self.sizes:
            self.sizes[device] = self.cuda.get_device_properties(device).total_memory
        return self.sizes[device]

    def note_failure(self, device: int, asked: int, size: int, free: int) -> None:
        """Tell of an allocation for which there was no room, as torch's allocator calls it."""
        sizes = f"{_gibibytes(asked)} asked for, {_gibibytes(free)} of {_gibibytes(size)} free at the driver"
        text = f"out of memory on device {device}: {sizes}"
        quietly(lambda: self.library.deepprof_notice(OUT_OF_MEMORY, text.encode()))
        quietly(lambda: self.look_at(device))


def _choose_in_use(stats: Any) -> Any:
    """Return torch's counters of what was requested, or of blocks where it counts none, as before 2.0."""
    requested = stats.get("requested_bytes", {}).get("all", {"peak": 0})
    return requested if requested["peak"] > 0 else stats["allocated_bytes"]["all"]


def _gibibytes(nbytes: int) -> str:
    return f"{nbytes / 2**30:,.2f} GiB"


def _watch_memory(torch: ModuleType, library: Any) -> None:
    """Look at the memory in use around each step of an optimizer, and hear of failed allocations."""
    looks = MemoryLooks(torch, library)
    call_at_steps(looks.look, looks.look)

    def observe() -> None:
        quietly(lambda: torch._C._cuda_attach_out_of_memory_observer(looks.note_failure))

    torch.cuda._lazy_call(observe)  # when the job begins to use CUDA: to attach would begin it


def _start_contexts(torch: ModuleType, operators: Operators) -> None:
    """Have the library add up by calling context; file names begin where torch's own profiler has them begin."""
    if not operators.contexts:
        return
    text = find_prefixes(torch)
    operators.library.deepprof_contexts(operators.contexts, text, int(not operators.wants_events))
    operators.library.deepprof_numbers(*_quietly_measured(torch))


def _quietly_measured(torch: ModuleType) -> tuple[int, int]:
    """Return the offsets of `_measure_node`, below 0 where they are not certain."""
    try:
        return _measure_node(torch)
    except Exception:  # a torch that has none of these functions
        return -1, -1


def _measure_node(torch: ModuleType) -> tuple[int, int]:
    """Return where in a node of autograd its number is, and its thread's, by nodes whose numbers Python shows.

    Three nodes are made and none is run: no thread of the engine begins.
    """
    kept = torch.is_grad_enabled()
    torch._C._set_grad_enabled(True)
    try:
        once = torch.zeros(1, requires_grad=True, device="cpu") * 2
        twice = once + 1  # a chain: what else is counted in a node differs from one to the next
        nodes = [values.grad_fn for values in (once, twice, -twice)]
    finally:
        torch._C._set_grad_enabled(kept)
    numbers = [node._sequence_nr() for node in nodes]
    if len(set(numbers)) < len(nodes):
        return -1, -1
    held = [_read_words(id(node) + object.__basicsize__, 1)[0] for node in nodes]
    words = [_read_words(at, NODE_WORDS) for at in held]
    (place,) = [place for place in range(NODE_WORDS) if [word[place] for word in words] == numbers]
    thread = _call_thread(torch)
    (other,) = [at for at in range(place + 1, NODE_WORDS) if all(word[at] == thread for word in words)]
    return 8 * place, 8 * other


def _read_words(address: int, count: int) -> tuple[int, ...]:
    """Return words of this process's memory; OSError where there is none, which would end it were it read in place."""
    with open("/proc/self/mem", "rb", buffering=0) as memory:
        return tuple(memoryview(os.pread(memory.fileno(), 8 * count, address)).cast("Q"))


def _call_thread(torch: ModuleType) -> int:
    path = os.path.join(os.path.dirname(str(torch.__file__)), "lib", "libtorch_cpu.so")
    function = ctypes.CDLL(path)["_ZN2at14RecordFunction15currentThreadIdEv"]
    function.restype = ctypes.c_uint64
    return int(function())


def _find_obstacle(torch: ModuleType) -> tuple[int, str] | None:
    """Return the notice that states why torch cannot call the library here; None where it can."""
    if not hasattr(torch._C, "_itt"):
        return NO_ITT, NO_ITT_TEXT
    if threading.current_thread() is not threading.main_thread():
        return OTHER_THREAD, OTHER_THREAD_TEXT
    return None


def start_operators(torch: ModuleType, operators: Operators) -> None:
    """Collect the operators of this thread, or send a notice with the reason why not."""
    library = operators.library
    obstacle = _find_obstacle(torch)
    if operators.contexts and not operators.wants_events and not obstacle:  # else all iterations are wanted
        is_first = library.deepprof_contexts(0, b"", 1) == 0  # what is measured now is no part of the job
        quietly(lambda: _sample_iterations(torch, operators, is_first))
    operators.wants_operators = False
    _start_contexts(torch, operators)
    if library.deepprof_operators(int(not operators.has_device)):
        return
    if obstacle:
        library.deepprof_notice(obstacle[0], obstacle[1].encode())
    else:
        operators.wants_operators = True
        operators.enter()


def start_memory(torch: ModuleType, operators: Operators) -> None:
    """Look at the memory of GPUs from now on, or send a notice that there are none."""
    if operators.has_device:
        _watch_memory(torch, operators.library)
    else:
        operators.library.deepprof_notice(NO_MEMORY, NO_MEMORY_TEXT.encode())


def start(torch: ModuleType) -> None:
    """Begin in a process to collect from; a failure becomes a notice, and the process goes on."""
    library = load(os.environ["DEEPPROF_INJECT"])
    try:
        begin(torch, library)
    except Exception as error:  # an unknown version of torch
        library.deepprof_notice(FAILED, f"the hook does not know this torch ({torch.__version__}): {error!r}".encode())


def begin(torch: ModuleType, library: Any) -> None:
    """Collect operators if they are wanted, and step aside for other profilers in any case."""
    operators = Operators(torch, library, has_device(torch))
    finish_at_exit(operators)
    wrap_profilers(torch, operators)
    if not operators.wants_events and os.environ.get("DEEPPROF_HOOK") == "steps":
        _mark_optimizers(library)
    if operators.wants_operators:
        start_operators(torch, operators)
    if os.environ.get("DEEPPROF_MEMORY") == "1":
        start_memory(torch, operators)


def attach(torch: ModuleType) -> None:
    """Begin, unless this process only helps others."""
    begin_in_process(lambda: start(torch))


def _measure_call(torch: ModuleType, operators: Operators) -> int:
    """Return the nanoseconds that torch takes to call the library about one operator, while that does nothing yet."""
    value = torch.zeros(1, device="cpu")  # a child that is spawned may have a GPU as its default by now
    least_ns: dict[bool, int] = {}
    for number in range(2 * ROUNDS):
        is_called = number % 2 == 1
        if is_called:
            operators.enter()
        spent_ns = _time_calls(torch.neg, value)
        operators.leave()
        least_ns[is_called] = min(spent_ns, least_ns.get(is_called, spent_ns))
    return max(least_ns[True] - least_ns[False], 0) // CALLS


def _time_calls(call: Callable[[Any], Any], value: Any) -> int:
    start_ns = time.perf_counter_ns()
    for _ in range(CALLS):
        call(value)
    return time.perf_counter_ns() - start_ns


class _OptimizerSteps:
    """Tells the library of the steps of one optimizer: the first that takes one, as long as it needs any."""

    def __init__(self, torch: ModuleType, operators: Operators) -> None:
        self.operators = operators
        self.find_pass = getattr(torch._C, "_current_graph_task_id", None) or _find_no_pass
        self.first: Callable[[], Any] = type(None)  # a weak reference, once there is one
        self.others = MOST_OTHERS

    def note(self, optimizer: Any) -> None:
        """Note the end of a step. In a backward pass torch calls on, as it gives its profilers back after each node."""
        if not self.operators.is_here():
            return
        if self.first() is not optimizer:
            self.others += 1
            if self.first() is not None and self.others <= MOST_OTHERS:
                return
            self.first = weakref.ref(optimizer)
        self.others = 0
        is_collected = bool(self.operators.library.deepprof_step())
        if self.find_pass() < 0:
            self.operators.choose(is_collected)


def _find_no_pass() -> int:
    """Return that of a torch before 2.1 which does not show."""
    return -1


def _sample_iterations(torch: ModuleType, operators: Operators, is_first: bool) -> None:
    """Begin to leave out, as the library decides. A torch without hooks of optimizers goes on to call always.

    What calls cost is measured where nothing is collected yet, else the budget is for what the library does in them.
    """
    if is_first:
        operators.library.deepprof_call_cost(_measure_call(torch, operators))
    call_at_steps(None, _OptimizerSteps(torch, operators).note)
