/* Which forward operator a backward node belongs to: PyTorch numbers both, on the thread that runs forward. */
#ifndef DEEPPROF_FORWARD_NUMBERS_H
#define DEEPPROF_FORWARD_NUMBERS_H
#include <stdint.h>

/* Finds PyTorch's counters in this process. `node_offset`: where a node of autograd has its number, as was measured, and
 * `thread_offset` that of its thread; below 0: not known. Returns 0, or -1: backward nodes stay where they run. */
int forward_prepare(int node_offset, int thread_offset);

int64_t forward_number(void);   /* that an operator which begins now is given on this thread; -1: none */

void forward_keep(int64_t number, uint32_t context, const char *name); /* an operator in no other one of its number */
void forward_add(int64_t number, const char *name);                    /* one in it, of the same number */

/* The context of the forward operator of the node of autograd that runs on this thread; 0: it has none. `is_named`: it
 * or one in it of its number has the node's name, which is `name`. */
uint32_t forward_find(const char *name, int *is_named);
#endif
