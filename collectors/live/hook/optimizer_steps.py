"""Calls of ours before and after the steps of optimizers, which neither harm a step nor are compiled into one."""

from __future__ import annotations

import contextlib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def call_at_steps(before: Callable[[Any], None] | None, after: Callable[[Any], None]) -> None:
    """Have these called with every optimizer that steps. ImportError where torch has no such hooks, as before 2.0."""
    from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

    if before:
        register_optimizer_step_pre_hook(_guard(before))
    register_optimizer_step_post_hook(_guard(after))


def _guard(call: Callable[[Any], None]) -> Callable[..., None]:
    """Return `call` with its exceptions suppressed, and never called where a step is compiled.

    What compiles looks up the names that it comes to in a module, and ours are in none.
    """
    import torch

    is_compiling = getattr(getattr(torch, "compiler", None), "is_compiling", None) or bool

    def call_guarded(optimizer: Any, *_: Any) -> None:
        if is_compiling():
            return
        with contextlib.suppress(Exception):
            call(optimizer)

    return call_guarded
