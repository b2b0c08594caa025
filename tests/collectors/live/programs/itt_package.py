"""Writes ranges with the package ittapi, which has a static part of ITT of its own."""

import ctypes
import os

import ittapi

if __name__ == "__main__":
    library = ctypes.CDLL(os.environ["INTEL_LIBITTNOTIFY64"])
    assert library.deepprof_operators(0) == 0
    for _ in range(10):
        with ittapi.task("iteration", domain="mine"), ittapi.task("forward", domain="other"):
            pass
    outer, inner = ittapi.task("outer", domain="mine"), ittapi.task("inner", domain="other")
    outer.begin()
    inner.begin()
    outer.end()
    inner.end()
    with ittapi.task("ä€😀"):
        pass
