"""Traces as a collector on a running job makes them: kernels and copies, nothing of the host."""

from benchmarks.kernels import kernels_and_copies as gpu_only_trace

__all__ = ["gpu_only_trace"]
