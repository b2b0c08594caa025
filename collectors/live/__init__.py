"""Live collectors: the code that runs inside a training job, and the packets that it sends to the agent of its node.

`packets` defines the packets between a collector and the agent (`inject/packets.h` is the same in C). `torch_profiler`
is `deepprof.attach`, `cupti_python` collects through cupti-python; `writer`, `connection` and `payloads` write packets
from Python. `rocprofiler` is the AMD tool; it was run with a made-up SDK, never on a GPU. `accesses`
counts what kernels access, and writes a file; it talks to no agent.
"""
