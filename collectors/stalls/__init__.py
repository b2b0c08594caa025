"""Why the warps of a kernel waited: read from an export of Nsight Compute, for the kernels of a trace."""
