"""Optimizer ranges of the hook, as on a device, and a collector that meets an ITT that it does not know."""

import ctypes
import os
import runpy
import sys

import torch

from deepprof.collectors.live.hook import find_hook


def offer_strange_tables(offer) -> None:
    """None is followed: no table, another magic number, an empty list of functions, a list without ours."""
    magic = bytes([0xED, 0xAB, 0xAB, 0xEC, 0x0D, 0xEE, 0xDA, 0x30])
    offer(None, 0)
    offer(ctypes.create_string_buffer(256), 0)
    offer(ctypes.create_string_buffer(magic, 256), 0)
    apis = ctypes.create_string_buffer(80)
    table = ctypes.create_string_buffer(magic, 256)
    ctypes.c_uint64.from_buffer(table, 120).value = ctypes.addressof(apis)
    offer(table, 0)


if __name__ == "__main__":
    shared = runpy.run_path(str(find_hook() / "process.py"))
    shared |= runpy.run_path(str(find_hook() / "optimizer_steps.py"))
    hook = runpy.run_path(str(find_hook() / "torch_hook.py"), init_globals=shared)
    library = hook["load"](os.environ["DEEPPROF_INJECT"])
    hook["_mark_optimizers"](library)
    library.deepprof_version.restype = ctypes.c_char_p
    getattr(library, "__itt_api_version").restype = ctypes.c_char_p
    assert library.deepprof_version() in getattr(library, "__itt_api_version")()
    offer = getattr(library, "__itt_api_init")
    offer.argtypes = [ctypes.c_void_p, ctypes.c_int]
    sys.stdin.readline()
    offer_strange_tables(offer)
    assert library.InitializeInjectionNvtx2(None) == 0
    layer = torch.nn.Linear(4, 4)
    for kind in (torch.optim.SGD, torch.optim.AdamW):
        optimizer = kind(layer.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            layer(torch.ones(2, 4)).sum().backward()
            optimizer.step()
