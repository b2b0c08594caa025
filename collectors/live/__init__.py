"""Live collectors: what runs inside a training job, and the packets in which it tells the agent of its node.

`packets` is what a collector and the agent say to each other (`inject/packets.h` is the same in C). `torch_profiler` is
`deepprof.attach`, `cupti_python` the same from cupti-python; `writer`, `connection` and `payloads` write packets from
Python. `rocprofiler` is the AMD tool, run with a made-up SDK and never on a GPU.
"""
