/* How much contexts may cost the job: above it, only every n-th iteration is collected, whole. */
#ifndef DEEPPROF_CONTEXT_BUDGET_H
#define DEEPPROF_CONTEXT_BUDGET_H
#include <stdint.h>
#include "labels.h"

int budget_collects(void);                          /* one load: whether what begins outside of all others is collected */
void budget_mark(const struct dp_label *label);     /* an optimizer's step begins: one of each iteration's */
int budget_step(int is_on);                         /* the hook: one has ended; whether PyTorch is to call us about the next */
int budget_is_told(void);                           /* whether the hook does that, and leaves PyTorch's calls out, too */
void budget_look(double cost_ns, double passed_ns); /* the worker, after each window: the thread that paid most */
uint32_t budget_take_left_out(const char **what);   /* the worker: how many iterations, or seconds, since the last time */
void budget_prepare(void);                          /* where the environment may be read */
void budget_reset(void);                            /* from now on all iterations, with the numbers that they have */
#endif
