"""JAX, run apart: what records profiles, and the reader that proves ours right.

It starts threads, which a process that forks later must not have, so it runs in one of its own.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S

TRAIN = """
import sys, jax, jax.numpy as jnp
@jax.jit
def train_step(x):
    return jnp.tanh(x @ x) * 0.5
x = jnp.ones((32, 32))
train_step(x).block_until_ready()
with jax.profiler.trace(sys.argv[1]):
    for number in range(5):
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            with jax.profiler.TraceAnnotation("forward", size=3):
                x = train_step(x)
            x.block_until_ready()
"""

# One list per event: plane, line, name, start and duration in nanoseconds, stats as texts.
LIST = """
import json, sys, warnings, jax
warnings.simplefilter("ignore")
profile = jax.profiler.ProfileData.from_file(sys.argv[1])
print(json.dumps([
    [plane.name, line.name, event.name, event.start_ns, event.duration_ns, {k: str(v) for k, v in event.stats}]
    for plane in profile.planes for line in plane.lines for event in line.events
]))
"""


def run(program: str, path: Path) -> str:
    """Run `program` on `path` on the CPU; return what it prints."""
    if importlib.util.find_spec("jax") is None:
        pytest.skip("jax is not installed (it is in the extra `test`)")
    environment = os.environ | {"JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-c", program, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def list_events(path: Path) -> list[list[object]]:
    """Return every event in the XPlane profile `path`, as JAX reads it."""
    return list(json.loads(run(LIST, path)))
