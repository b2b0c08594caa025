"""Kineto on demand with PyTorch itself: an unmodified script under KINETO_USE_DAEMON=1 gives its true iterations."""

from __future__ import annotations

import asyncio
import os
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import deepprof
from deepprof.collectors.trace import Trace
from deepprof.live.agent.kineto import kineto_source as module
from deepprof.live.agent.kineto.datagrams import find_address
from deepprof.live.agent.kineto.kineto_source import KinetoSource
from deepprof.live.agent.kineto.schedule import WindowSchedule
from deepprof.live.agent.kineto.window_folder import WindowFolder
from deepprof.live.agent.notices import NoticeLog
from tests.deepprof.live.client.fake_daemon import short_folder
from tests.patience import PATIENCE_S

from .receiving import Opening

WINDOWS = 2
RECORDS = 1500  # of a window that has iterations enough, some 150 each: a busy machine leaves time for few
TRAINING = """
import sys, time, torch
model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
begins = open(sys.argv[1], "w")
while True:
    print(time.time_ns(), file=begins, flush=True)
    optimizer.zero_grad()
    loss = model(torch.randn(32, 64)).pow(2).mean()
    loss.backward()
    optimizer.step()
    time.sleep(0.02)
"""


@pytest.mark.skipif(find_spec("torch") is None, reason="needs torch")
def test_an_unmodified_script_gives_its_iterations(tmp_path, monkeypatch):
    read, found = module.read_window, []
    monkeypatch.setattr(module, "read_window", lambda path: found.append(read(path)) or found[-1])
    (tmp_path / "train.py").write_text(TRAINING)
    (tmp_path / "kineto.conf").write_text("ON_DEMAND_CONFIG_UPDATE_INTERVAL_SECS=1\n")
    (rank,) = asyncio.run(collect(tmp_path, found))
    begins = np.loadtxt(tmp_path / "begins", dtype=np.int64, ndmin=1)
    sent = [trace for trace in found if trace.accounting.kept]  # one before the first iteration is empty
    assert rank.log[0::2] == [trace.accounting.kept for trace in sent]
    assert rank.log[1::2] == ["duty-cycle"] * (len(sent) - 1) + [{"late": 0}]
    assert (rank.identity.job, rank.identity.rank, rank.identity.world_size) == ("job", 1, 2)
    for trace in filter(has_enough, sent):
        events = trace.device_events
        inside = (begins > events["start_ns"][0]) & (begins < events["start_ns"][-1])
        (loop,) = deepprof.analyze(trace).loops
        # One is under way where the window begins; where it ends one may have begun that no kernel shows yet.
        assert abs(loop.iterations.height - 1 - int(inside.sum())) <= 1
        assert inside.sum() > 5


def has_enough(trace: Trace) -> bool:
    """Whether the machine gave the script time for a loop in this window."""
    return trace.accounting.kept >= RECORDS


async def collect(tmp_path: Path, found: list[Trace]) -> Opening:
    """Run the script until enough windows were `found` and sent, and return the ranks."""
    ranks = Opening()
    with short_folder() as folder:
        windows, lines = WindowFolder(Path(folder) / "windows"), NoticeLog(print)
        source = KinetoSource(find_address(folder), windows, ranks, lines, WindowSchedule(6.0, 5000), job="job")
        task = asyncio.create_task(source.run())
        process = await start(tmp_path, folder)
        try:
            async with asyncio.timeout(PATIENCE_S):
                while sum(map(has_enough, found)) < WINDOWS or has_more(source, found):
                    assert process.returncode is None
                    assert not task.done()
                    await asyncio.sleep(0.1)
        finally:
            process.kill()  # PyTorch may crash when it exits during a window
            await process.wait()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
    return ranks


def has_more(source: KinetoSource, found: list[Trace]) -> bool:
    """Whether a window was read and is not sent yet."""
    return len(found) > source.counts["windows"] + source.counts["empty"]


async def start(tmp_path: Path, folder: str) -> asyncio.subprocess.Process:
    """Start the script as rank 1 of 2."""
    own = {"KINETO_USE_DAEMON": "1", "KINETO_IPC_SOCKET_DIR": folder, "KINETO_CONFIG": str(tmp_path / "kineto.conf")}
    place = {"RANK": "1", "WORLD_SIZE": "2"}
    arguments = [str(tmp_path / name) for name in ("train.py", "begins")]
    return await asyncio.create_subprocess_exec(sys.executable, *arguments, env={**os.environ, **own, **place})
