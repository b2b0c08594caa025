"""The events of a Kineto file, as dictionaries in Kineto's key order; nanoseconds in, microseconds out."""

from __future__ import annotations

from typing import Any

from deepprof.simulation.steps import COMMUNICATION_STREAM, MAIN_STREAM, Copy, Fill, Launch, Reduce

Event = dict[str, Any]

PROCESS = 41_207
DEVICE = 0
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
CALLS = {  # CUPTI's number of every call; 0 for others
    "cudaDeviceSynchronize": 165,
    "cudaEventRecord": 135,
    "cudaFree": 22,
    "cudaGraphInstantiate": 310,
    "cudaGraphLaunch": 311,
    "cudaLaunchKernel": 211,
    "cudaLaunchKernelExC": 430,
    "cudaMalloc": 20,
    "cudaMemcpyAsync": 41,
    "cudaMemsetAsync": 51,
    "cudaStreamBeginCapture": 315,
    "cudaStreamEndCapture": 319,
    "cudaStreamSynchronize": 131,
    "cudaStreamWaitEvent": 147,
    "cuLaunchKernel": 307,
    "cuModuleLoadData": 19,
}


def name_call(step: Launch) -> str:
    """Return the call that launches a kernel of this kind."""
    if step.kernel.startswith("triton_"):
        return "cuLaunchKernel"
    return "cudaLaunchKernelExC" if "gemm" in step.kernel else "cudaLaunchKernel"


def slice_event(category: str, name: str, row: tuple[int, int], span: tuple[int, int], args: Event) -> Event:
    """Return a complete event; `row` is process and thread, `span` start and end in nanoseconds."""
    start, end = span
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": row[0],
        "tid": row[1],
        "ts": start / 1000,
        "dur": (end - start) / 1000,
        "args": args,
    }


def _place(ids: tuple[int, int], stream: int) -> Event:
    """Return the arguments that every device event has; `ids` are those of the operator and of the launch."""
    return {"External id": ids[0], "device": DEVICE, "context": 1, "stream": stream, "correlation": ids[1]}


def describe_kernel(name: str, span: tuple[int, int], ids: tuple[int, int], node: Event | None = None) -> Event:
    """Return a kernel's event on the main stream; `node` is its place in a graph."""
    begin, end = span
    blocks = max(1, (end - begin) // 150)
    shape = {"registers per thread": 32 if blocks < 200 else 128, "shared memory": 0, "grid": [blocks, 1, 1]}
    args = {"queued": 0, **_place(ids, MAIN_STREAM), **shape, "block": [256, 1, 1], **(node or {})}
    return slice_event("kernel", name, (DEVICE, MAIN_STREAM), span, args)


def describe_collective(
    step: Reduce, span: tuple[int, int], ids: tuple[int, int], sequence: int, group_size: int
) -> Event:
    """Return the event of an all-reduce on the communication stream."""
    shape = {"registers per thread": 96, "shared memory": 82_240, "grid": [24, 1, 1], "block": [512, 1, 1]}
    args = {
        "queued": 0,
        **_place(ids, COMMUNICATION_STREAM),
        **shape,
        "Collective name": "allreduce",
        "In msg nelems": step.elements,
        "Out msg nelems": step.elements,
        "Group size": group_size,
        "dtype": "BFloat16",
        "Process Group Name": "0",
        "Process Group Description": "default_pg",
        "Seq": sequence,
    }
    return slice_event("kernel", ALL_REDUCE, (DEVICE, COMMUNICATION_STREAM), span, args)


def describe_copy(step: Copy, span: tuple[int, int], ids: tuple[int, int]) -> Event:
    """Return a copy's event."""
    host = "Pinned" if step.pinned else "Pageable"
    ways = {"HtoD": f"{host} -> Device", "DtoH": f"Device -> {host}", "DtoD": "Device -> Device"}
    args = {**_place(ids, step.stream), **_measure(step.nbytes, span)}
    name = f"Memcpy {step.direction} ({ways[step.direction]})"
    return slice_event("gpu_memcpy", name, (DEVICE, step.stream), span, args)


def describe_fill(step: Fill, span: tuple[int, int], ids: tuple[int, int]) -> Event:
    """Return a memset's event."""
    args = {**_place(ids, MAIN_STREAM), **_measure(step.nbytes, span)}
    return slice_event("gpu_memset", "Memset (Device)", (DEVICE, MAIN_STREAM), span, args)


def _measure(nbytes: int, span: tuple[int, int]) -> Event:
    """Return the size and the rate of a copy or a memset."""
    return {"bytes": nbytes, "memory bandwidth (GB/s)": nbytes / (span[1] - span[0])}


def describe_memory(at_ns: int, nbytes: int, address: int, totals: tuple[int, int]) -> Event:
    """Return the mark of an allocation (a release where `nbytes` is negative); `totals` are the totals after it."""
    allocated, reserved = totals
    args = {
        "Total Reserved": reserved,
        "Total Allocated": allocated,
        "Bytes": nbytes,
        "Addr": address,
        "Device Id": DEVICE,
        "Device Type": 1,
    }
    mark = {"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": PROCESS, "tid": PROCESS}
    return {**mark, "ts": at_ns / 1000, "args": args}
