"""The environment of a command: who is loaded into it, and what the user has set stays."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from deepprof.live.agent.injection import INJECTIONS, InjectionPlan, inject, strip

PLAN = InjectionPlan(Path("/l/_inject.so"), Path("/l/hook"), Path("/run/a/agent.sock"), "demo")
TOLD = {"DEEPPROF_SOCKET": "/run/a/agent.sock", "DEEPPROF_INJECT": "/l/_inject.so", "DEEPPROF_JOB": "demo"}
LOADED = {"CUDA_INJECTION64_PATH": "/l/_inject.so", "INTEL_LIBITTNOTIFY64": "/l/_inject.so", "PYTHONPATH": "/l/hook"}


def test_all_that_is_set():
    assert inject({}, PLAN) == (TOLD | LOADED, [])
    assert inject({"HOME": "/h", "DEEPPROF_JOB": "other"}, PLAN) == ({"HOME": "/h"} | TOLD | LOADED, [])


def test_wishes():
    plan = replace(PLAN, context=True, steps=True, memory=True, kineto=True, graphs="launches", quiet=True)
    more = {
        "NVTX_INJECTION64_PATH": "/l/_inject.so",
        "DEEPPROF_CONTEXT": "1",
        "DEEPPROF_HOOK": "steps",
        "DEEPPROF_MEMORY": "1",
    }
    more |= {"KINETO_USE_DAEMON": "1", "KINETO_IPC_SOCKET_DIR": "/run/a"}
    assert inject({}, plan)[0] == TOLD | LOADED | more | {"DEEPPROF_GRAPHS": "launches", "DEEPPROF_QUIET": "1"}
    assert inject({"KINETO_IPC_SOCKET_DIR": "/mine"}, plan)[0]["KINETO_IPC_SOCKET_DIR"] == "/mine"


def test_another_injection_is_left_alone_and_its_cost_said():
    environ, remarks = inject({"CUDA_INJECTION64_PATH": "/nsys.so", "NVTX_INJECTION64_PATH": "/nsys.so"}, PLAN)
    assert environ["CUDA_INJECTION64_PATH"] == "/nsys.so"
    line = "CUDA_INJECTION64_PATH is set to /nsys.so and left alone: kernels and copies on the GPU are not collected"
    assert remarks == [line]
    assert len(inject({"NVTX_INJECTION64_PATH": "/nsys.so"}, replace(PLAN, context=True))[1]) == 1


def test_a_run_within_a_run_is_as_one():
    once, _ = inject({"PYTHONPATH": "/mine"}, PLAN)
    assert inject(once, PLAN) == (once, [])


def test_the_search_path_keeps_its_rest():
    assert inject({"PYTHONPATH": "/a:/b"}, PLAN)[0]["PYTHONPATH"] == "/l/hook:/a:/b"
    assert inject({"PYTHONPATH": ""}, PLAN)[0]["PYTHONPATH"] == "/l/hook"  # "/l/hook:" would add the current folder
    assert inject({"PYTHONPATH": "/a:"}, PLAN)[0]["PYTHONPATH"] == "/l/hook:/a:"  # as the user had it


names = st.sampled_from([*INJECTIONS, "PYTHONPATH", "HOME", "DEEPPROF_JOB"])
paths = st.lists(st.sampled_from(["/a", "/b c", "/l/hook2"]), min_size=1).map(os.pathsep.join)


@given(st.dictionaries(names, paths))
def test_nobody_collects_from_the_agent(variables):
    environ, _ = inject(variables, replace(PLAN, context=True))
    left = strip(environ, PLAN.library, PLAN.hook)
    assert {name: left.get(name) for name in [*INJECTIONS, "PYTHONPATH", "HOME"]} == {
        name: variables.get(name) for name in [*INJECTIONS, "PYTHONPATH", "HOME"]
    }
