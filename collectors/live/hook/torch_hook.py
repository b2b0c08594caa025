"""What happens in a job once torch is imported: its operators become ranges, and its own profilers find us gone.

Where there is no device, PyTorch is told to write an ITT range around each operator of the main thread, and the
library takes them. torch has one profiler a thread and that counts as one, so whoever starts another is let through:
ours is left before, and entered again afterwards.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import sys
import threading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any

__all__ = ["Operators", "attach"]

NO_ITT, OTHER_THREAD, FAILED = 64, 65, 66  # codes of notices
NO_ITT_TEXT = "this build of torch has no ITT: its operators cannot be collected"
OTHER_THREAD_TEXT = "torch was first imported outside of the main thread: operators are not collected"
DEVICES = ("/dev/nvidiactl", "/dev/nvidia0", "/dev/nvmap", "/dev/dxg", "/dev/kfd")  # the last but one is WSL's
HIDING = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
AT_END: list[Callable[[], None]] = []
LAST = -1000  # of multiprocessing's finalizers, which go from large to small


class Operators:
    """The library in this process, and the state of torch's profilers on the main thread."""

    def __init__(self, torch: ModuleType, library: Any, has_device: bool) -> None:
        self.torch, self.library, self.has_device = torch, library, has_device
        self.wants_operators = not has_device or os.environ.get("DEEPPROF_CONTEXT") == "1"
        self.thread = threading.get_ident()
        self.is_entered = self.is_aside = self.is_over = False
        self.preparing: set[int] = set()  # threads with a profiler that is about to start
        self.profiling: set[int] = set()  # threads with one that runs
        profiler = torch.autograd.profiler
        self.enable, self.disable = profiler._enable_profiler, profiler._disable_profiler

    def enter(self) -> None:
        """Have torch write ranges from now on, on this thread. Its Python flag stays: it would change what compiles."""
        if not self.wants_operators or self.is_entered or self.is_over or not self.is_here():
            return
        profiler = self.torch.autograd.profiler
        options = (False, False, False, False, False, profiler._ExperimentalConfig())
        self.enable(profiler.ProfilerConfig(profiler.ProfilerState.ITT, *options), set())
        self.is_entered = True

    def leave(self) -> None:
        """Stop that; torch complains at exit where nobody does."""
        if self.is_entered and self.is_here():
            self.is_entered = False
            self.disable()

    def step_aside(self) -> None:
        """Make room for another profiler: torch's, on this thread, or the driver's."""
        is_first, self.is_aside = not self.is_aside, True
        self.leave()
        if is_first:
            self.library.deepprof_pause()

    def come_back(self) -> None:
        """Collect again, unless another profiler runs or is about to; torch's are one a thread, and end with it."""
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
        """Whether a profiler that starts here meets ours: on our thread, and on any where both want the driver."""
        return not self.is_over and (self.has_device or self.is_here())

    def finish(self) -> None:
        """Leave, and send everything: the process ends."""
        if not self.is_over:
            self.is_over = True
            self.leave()
            self.library.deepprof_finish()

    def forget(self) -> None:
        """Leave in the child of a fork, where nobody collects and the user's profilers are as without us."""
        if not self.is_over:
            self.is_over = True
            quietly(self.leave)


def quietly(call: Callable[[], None]) -> None:
    """Call, whatever comes of it."""
    with contextlib.suppress(Exception):
        call()


def around(operators: Operators, real: Callable[..., Any], note: Callable[[bool], None]) -> Callable[..., Any]:
    """Return `real`, called while we are aside; `note` is told whether it went well, and we may come back after it."""

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
    """Put ourselves around what every profiler of torch calls to start and to end."""

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
        if is_well:  # who had none of its own has ended one of all threads
            operators.profiling -= here & operators.profiling or set(operators.profiling)

    notes = {"_prepare": prepared, "_enable": enabled, "_disable": disabled}
    for module, ending in (("profiler", "_profiler"), ("profiler_legacy", "_profiler_legacy")):
        space = vars(sys.modules.get("torch.autograd." + module, torch.version))
        for beginning, note in notes.items():
            name = beginning + ending
            if name in space:
                space[name] = around(operators, space[name], note)


def has_device(torch: ModuleType) -> bool:
    """Whether this torch can use a GPU whose driver has a profiler; asking the driver itself would start it."""
    if not (getattr(torch.version, "cuda", None) or getattr(torch.version, "hip", None)):
        return False
    if any(os.environ.get(name, "0").strip() in ("", "-1") for name in HIDING):
        return False
    return any(os.path.exists(device) for device in DEVICES)


def mark_optimizers(library: Any) -> None:
    """Write a range around each call of an optimizer, with the name that torch gives it itself."""
    from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

    def push(optimizer: Any, *_: Any) -> None:
        library.deepprof_push(f"Optimizer.step#{type(optimizer).__name__}.step".encode())

    def pop(*_: Any) -> None:
        library.deepprof_pop()

    register_optimizer_step_pre_hook(push)
    register_optimizer_step_post_hook(pop)


def load(path: str) -> Any:
    """Load the library; it is the one that ITT and the driver have loaded, if they have."""
    library = ctypes.CDLL(path)
    library.deepprof_notice.argtypes = [ctypes.c_uint, ctypes.c_char_p]
    library.deepprof_push.argtypes = [ctypes.c_char_p]
    return library


def finish_at_exit(operators: Operators) -> None:
    """Finish when the process ends, also where multiprocessing ends it without asking atexit."""
    from multiprocessing import util

    def finish() -> None:
        with contextlib.suppress(BaseException):  # an interrupt while it waits: Python would print it and go on
            operators.finish()

    AT_END.append(operators.finish)
    atexit.register(finish)
    util.Finalize(None, operators.finish, exitpriority=LAST)
    os.register_at_fork(after_in_child=operators.forget)


def start_operators(torch: ModuleType, operators: Operators) -> None:
    """Collect the operators of this thread, or say why not."""
    library = operators.library
    operators.wants_operators = False
    if library.deepprof_operators(int(not operators.has_device)):
        return
    if not hasattr(torch._C, "_itt"):
        library.deepprof_notice(NO_ITT, NO_ITT_TEXT.encode())
    elif threading.current_thread() is not threading.main_thread():
        library.deepprof_notice(OTHER_THREAD, OTHER_THREAD_TEXT.encode())
    else:
        operators.wants_operators = True
        operators.enter()


def start(torch: ModuleType) -> None:
    """Begin, in a process that is to be collected from; what fails is told, and the process goes on."""
    library = load(os.environ["DEEPPROF_INJECT"])
    try:
        begin(torch, library)
    except Exception as error:  # a torch that differs from all that we know
        library.deepprof_notice(FAILED, f"the hook does not know this torch ({torch.__version__}): {error!r}".encode())


def begin(torch: ModuleType, library: Any) -> None:
    """Collect operators where they are wanted, and make way for other profilers everywhere."""
    operators = Operators(torch, library, has_device(torch))
    finish_at_exit(operators)
    wrap_profilers(torch, operators)
    if operators.wants_operators:
        start_operators(torch, operators)
    elif os.environ.get("DEEPPROF_HOOK") == "steps":
        mark_optimizers(library)


def attach(torch: ModuleType) -> None:
    """Begin, unless this is a daemon of multiprocessing; one that is being spawned does not know yet what it is."""
    process: Any = sys.modules["multiprocessing.process"]
    current = process.current_process()
    if getattr(current, "_inheriting", False):
        wait_for_role(process.BaseProcess, torch)
    elif not current.daemon:
        start(torch)


def wait_for_role(kind: Any, torch: ModuleType) -> None:
    """Begin when the spawned process begins its work, unless it is a daemon: DataLoader's workers are."""
    bootstrap = kind._bootstrap

    def begin_child(self: Any, *values: Any, **named: Any) -> Any:
        kind._bootstrap = bootstrap
        if not self.daemon:
            quietly(lambda: start(torch))
        try:
            return bootstrap(self, *values, **named)
        finally:
            for finish in AT_END:  # a fork server ends its children without asking anybody
                quietly(finish)

    kind._bootstrap = begin_child
