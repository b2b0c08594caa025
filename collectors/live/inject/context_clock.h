/* The time of contexts, in units of the processor's. */
#ifndef DEEPPROF_CONTEXT_CLOCK_H
#define DEEPPROF_CONTEXT_CLOCK_H
#include <stdint.h>
#include "core.h"

void context_clock_choose(void); /* before anything is timed */

/* The processor's own count, where the system trusts it as its clock: a third of what asking the system costs, and that
 * is most of what there is to pay. The worker measures how long one lasts. */
#if defined(__x86_64__)
#include <x86intrin.h>
extern int dp_counts_ticks;
static inline int64_t context_ticks(void) { return dp_counts_ticks ? (int64_t)__rdtsc() : dp_now_ns(); }
#else
static inline int64_t context_ticks(void) { return dp_now_ns(); }
#endif
#endif
