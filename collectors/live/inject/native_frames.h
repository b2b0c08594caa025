/* Functions in native code between what is open on a thread and what begins, in the tree of contexts. */
#ifndef DEEPPROF_NATIVE_FRAMES_H
#define DEEPPROF_NATIVE_FRAMES_H
#include "context_threads.h"

int native_prepare(void);                /* 0, or -1 where stacks cannot be read, which a notice tells */
void native_forget(void);                /* in the child of a fork: stacks are not read there */

/* The node around what begins in `open`, below `around`, which is as Python and operators have it. */
uint32_t native_around(struct context_thread *, struct open_context *open, uint32_t around);
#endif
