"""Data-parallel over gloo, started by torchrun: 120 iterations on every rank."""

import pathlib
import threading
import time

import torch
import torch.distributed
from torch import nn


def wait_for_threads():
    """Wait until no other thread has had anything to do for a while.

    A thread of gloo that has not let go of the last tensor when Python ends aborts the process (PyTorch 2.13, with
    nothing of ours in it: 2 of 36 runs on a busy machine); threads stay after `destroy_process_group`.
    """
    calm = 0
    while calm < 10:
        time.sleep(0.01)
        calm = 0 if is_busy() else calm + 1


def is_busy():
    """Return whether another thread of this process runs or wants a core."""
    tasks = pathlib.Path("/proc/self/task").iterdir()
    others = [task / "stat" for task in tasks if task.name != str(threading.get_native_id())]
    return any(read_state(stat) == "R" for stat in others)


def read_state(stat):
    """Return the state of a thread in one letter, "" of one that has ended."""
    try:
        return stat.read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


torch.distributed.init_process_group("gloo")
torch.manual_seed(torch.distributed.get_rank())
torch.set_num_threads(1)
model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10)))
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for _ in range(120):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(torch.randn(32, 64)), torch.randint(0, 10, (32,))).backward()
    optimizer.step()
torch.distributed.destroy_process_group()
wait_for_threads()
