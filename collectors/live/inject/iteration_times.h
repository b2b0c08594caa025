/* How much longer iterations take that are collected than those that are left out: what collecting costs the job. */
#ifndef DEEPPROF_ITERATION_TIMES_H
#define DEEPPROF_ITERATION_TIMES_H
#include <stdint.h>

void times_step(int64_t now_ns, int was_collected); /* the thread of the steps: one has ended, and the iteration with it */
double times_take_lost_ns(void);                    /* the worker: of those since the last answer; NAN while there are few */
void times_reset(void);                             /* what runs now has no beginning */
#endif
