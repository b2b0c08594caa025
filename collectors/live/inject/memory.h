/* Looks at the memory in use, from any thread. */
#ifndef DEEPPROF_MEMORY_H
#define DEEPPROF_MEMORY_H
#include <stdint.h>
#include "core.h"

extern const struct dp_source dp_memory; /* added after the ranges, with whose promise its records go */

void dp_memory_look(int32_t device, uint64_t allocated_nbytes, uint64_t reserved_nbytes, uint64_t device_nbytes);
#endif
