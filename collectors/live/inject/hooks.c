/* What the Python hook and tests call. All of it may be called at any time, on any thread, and does nothing where no
 * agent is wanted. */
#include <pthread.h>
#include <stdint.h>
#include "contexts.h"
#include "core.h"
#include "hooks.h"
#include "labels.h"
#include "memory.h"
#include "ranges.h"

/* Ranges of the hook nest among themselves, whatever else is open: their owner is this file. */
static const char owner;

/* Ranges are a source from the start, whoever starts the worker: CUPTI on a device, the hook without one. On their own
 * they start nothing: a launcher that imports torch is no training process. */
__attribute__((constructor)) static void add_ranges(void)
{
    dp_add_source(&dp_ranges);
    dp_add_source(&dp_memory);
    pthread_atfork(NULL, NULL, dp_labels_forget); /* ITT makes these whether or not anything was started */
    pthread_atfork(NULL, NULL, dp_domains_forget);
}

DP_API const char *deepprof_version(void) { return DP_LIBRARY_VERSION; }

/* Collect the ranges of this process; `stand_in`: operators stand for kernels, there is no device. 0, or -1: no agent. */
DP_API int deepprof_operators(int stand_in)
{
    if (stand_in)
        dp_describe("stand_in", "1");
    return dp_start("operators");
}

/* Sums by calling context: 1 of operators, 2 with functions of Python, 3 with native ones too. `only_sums`: operators
 * are not sent one by one. To be called where Python runs; before or after deepprof_operators. 0, -1: a notice says why
 * there is less, or 1: that has begun before, and only `only_sums` is new. */
DP_API int deepprof_contexts(int mode, const char *prefixes, int only_sums)
{
    return dp_contexts_start(mode, prefixes, only_sums);
}

DP_API void deepprof_numbers(int number_at, int thread_at) { dp_contexts_number(number_at, thread_at); }

/* A step of an optimizer has ended: whether what follows is to be collected. */
DP_API int deepprof_step(void) { return dp_contexts_step(); }

DP_API void deepprof_call_cost(int64_t call_ns) { dp_contexts_cost(call_ns); }

DP_API void deepprof_push(const char *text)
{
    if (dp_ranges_wanted())
        dp_range_begin((uintptr_t)&owner, dp_label_name(dp_label(text)), DP_ANNOTATION, DP_FROM_HOOK);
}

DP_API void deepprof_pop(void) { dp_range_end((uintptr_t)&owner); }

/* What is in use on a device now, and held by its allocator (DP_NO_TOTAL: not known), of how much in all. */
DP_API void deepprof_memory(int device, uint64_t allocated_nbytes, uint64_t reserved_nbytes, uint64_t device_nbytes)
{
    dp_memory_look(device, allocated_nbytes, reserved_nbytes, device_nbytes);
}

DP_API void deepprof_pause(void) { dp_pause(); }

DP_API void deepprof_resume(void) { dp_resume(); }

DP_API void deepprof_finish(void) { dp_finish(); }

DP_API void deepprof_notice(unsigned code, const char *text) { dp_notice(code, text); }
