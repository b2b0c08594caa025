"""Counts what kernels access in device memory, through NVIDIA's Compute Sanitizer; far slower than the program itself.

`patches.cu` runs before each access to global memory, `accesses.c` is the library that the driver loads into the job,
`recording.c` writes the file that `collectors.importers.accesses` reads, and `access_table.h` is what the device and
the host share. Both are compiled on the user's machine (`toolkit`), against the headers there: nothing of NVIDIA's is
part of DeepProf.
"""
