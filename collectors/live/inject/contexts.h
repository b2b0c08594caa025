/* Calling contexts while the job runs: what each thread has open, and sums by context instead of events. */
#ifndef DEEPPROF_CONTEXTS_H
#define DEEPPROF_CONTEXTS_H
#include <stdint.h>
#include "core.h"
#include "labels.h"

enum dp_contexts { DP_CONTEXTS_OFF = 0, DP_OPERATORS_ONLY = 1, DP_WITH_PYTHON = 2, DP_WITH_NATIVE = 3 };

extern const struct dp_source dp_context_sums;

int dp_contexts_wanted(void);               /* one load */
void dp_context_begin(struct dp_label *label); /* PyTorch's operator, backward node or range */
void dp_context_end(void);                  /* of the thread's innermost one */
uint32_t dp_context_current(void);          /* the thread's innermost open context; 0: none */

int dp_contexts_asked(void);                 /* whether this process is to collect contexts at all */
int dp_operators_wanted(void);              /* whether operators are sent one by one, too */

/* From now on, in this process: `mode` of enum dp_contexts. 0; -1: not all of that can be had, which a notice tells; or 1:
 * it has begun before, and only `only_sums` is new. */
int dp_contexts_start(int mode, const char *prefixes, int only_sums);

/* The hook: an optimizer's step has ended; returns whether PyTorch is to call us until the next one. `call_ns`: what it
 * costs PyTorch to call us about one operator, which is saved where it is not. */
int dp_contexts_step(void);
void dp_contexts_cost(int64_t call_ns);
double dp_contexts_call_ns(void);            /* of each call; 0: it cannot be saved */

/* Where a node of autograd has its number and that of its thread, as was measured in this process; below 0: not known. */
void dp_contexts_number(int number_at, int thread_at);
#endif
