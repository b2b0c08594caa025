"""Memory: who holds it, from when to when, and what of it grows, is fragmented, or is requested again and again.

`block_lifetimes` pairs allocations with releases, `owners` states for whom a block was allocated, `composition` what it
contains and what was in use at a moment; `use` has the memory in use over time, `floors` and `leaks` what iterations
leave in use, `segments` what the allocator holds beyond that, `churn` its calls of the driver, `failures` why an
allocation failed. `device_memory` has all of one device.

What programs need and move: `operand_footprints` has the working set, `address_bands` how long sections of memory hold
something, `prefetch_plan` what to prefetch of managed memory, `transfers` copies that come again, `parallelism` what
ranks exchange and how they share the work.
"""
