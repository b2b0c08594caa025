"""Writes NVTX ranges in every way that the package nvtx has, and a few that it has not, through its C functions."""

import ctypes
import os
import sys
import threading

import nvtx

if __name__ == "__main__":
    nvtx.push_range("loads the injection")
    nvtx.pop_range()
    library = ctypes.CDLL(os.environ["DEEPPROF_INJECT"])
    assert library.deepprof_operators(0) == 0
    sys.stdin.readline()
    domain = nvtx.get_domain("mine")
    for _ in range(10):
        with nvtx.annotate("iteration"), nvtx.annotate("forward", domain="mine"):
            nvtx.mark("here")
    crossing = nvtx.start_range("loading")
    thread = threading.Thread(target=nvtx.end_range, args=(crossing,))
    nvtx.push_range("outer")
    attributes = domain.get_event_attributes(message="inner")
    domain.push_range(attributes)
    nvtx.pop_range()  # of another domain: it ends the outer one
    domain.pop_range()
    nvtx.pop_range()  # of nothing
    thread.start()
    thread.join()
    library.deepprof_push(b"pushed")
    library.deepprof_pop()
    library.deepprof_finish()
