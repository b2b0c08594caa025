/* The tree of calling contexts in the job: equal paths are one node, however often they are taken. */
#ifndef DEEPPROF_CONTEXT_TREE_H
#define DEEPPROF_CONTEXT_TREE_H
#include <stdatomic.h>
#include <stdint.h>
#include "packets.h"

/* Nodes never move, and all but the counts never changes. `own_ticks` is without the time of what was called. */
struct context_node {
    uint32_t parent, name, line, next;   /* the last: of those in one bucket */
    uint8_t kind, is_range, zero[6];     /* a range that a program marks is no operator of PyTorch's */
    _Atomic uint64_t count;
    _Atomic int64_t own_ticks;
    uint64_t told_count;                 /* these and the next are the worker's */
    int64_t told_ticks, window_ns;
};
_Static_assert(sizeof(struct context_node) == 64, "what the limit of memory is made of");

void context_tree_prepare(void);                  /* where the environment may be read; before the others */

/* Any thread. The child of `parent` (0: the root), made where there is none; the parent itself where the tree is full:
 * what lies deeper then belongs to it, and is counted. No lock where the node is known. */
uint32_t context_child(uint32_t parent, uint32_t name, uint32_t line, enum dp_context_kind kind, int is_range);
struct context_node *context_node(uint32_t id);   /* ids from 1 to context_count() */
uint32_t context_count(void);
uint64_t contexts_folded(void);                   /* how often the tree had no room */
void context_tree_forget(void);                   /* in the child of a fork: nothing of before is told */
#endif
