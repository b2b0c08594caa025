/* What each thread has open, and what it keeps to find its place in the tree. */
#ifndef DEEPPROF_CONTEXT_THREADS_H
#define DEEPPROF_CONTEXT_THREADS_H
#include <stdatomic.h>
#include <stdint.h>
#include "python_frames.h"

enum { MOST_OPEN = 512, MOST_FRAMES = 512 };
enum { MOST_WALKED = 1024, MOST_KEPT = 256, MOST_STACKS = 1 << 14 }; /* native frames: of a stack, of one context, of all */

struct open_context {
    uint32_t node;
    int is_gone, may_outlast;           /* the function that began it has returned; whether it could */
    int64_t start, inner, sequence;     /* the first two in ticks */
    const void *frame;                  /* the innermost function then, and where in it */
    uintptr_t at;
    uint64_t around;                    /* of what may outlast: the mark of the functions around that */
    int stack_at, stack_count;          /* in `stacks`: the native frames then, inside the interpreter; below 0: not known */
};

struct step { uint32_t from, to; struct python_place place; }; /* to 0: free */

struct context_thread {
    struct context_thread *next;        /* in the list of context_threads.c */
    atomic_int is_reading;              /* the interpreter's memory: who ends it waits for that */
    _Atomic int64_t cost, begun;        /* of ours, in ticks; how many operators have called us */
    int64_t told_cost, told_begun;      /* the worker's */
    int depth, left_out, step_count, last_count;
    unsigned unmeasured;
    uint32_t epoch, engine;             /* the latter: where the last node of autograd belongs; 0: nowhere else */
    unsigned step_mask;
    struct step *steps;
    struct open_context open[MOST_OPEN];
    struct python_place places[MOST_FRAMES]; /* being read, the innermost first */
    struct { struct python_place place; uint32_t node; } last[MOST_FRAMES]; /* the outermost first */
    int walked;                         /* how many native frames were needed the last time */
    uintptr_t walk[MOST_WALKED];        /* being read, the innermost frame first */
    uintptr_t stacks[MOST_STACKS];      /* of the open contexts, the outermost frame first */
};

extern _Atomic int dp_contexts_mode, dp_contexts_on; /* of enum dp_contexts; whether collecting goes on */
extern _Atomic uint32_t dp_contexts_epoch; /* grows when collecting ends, and with a fork: what was open is not ours */

/* context_threads.c */
struct context_thread *context_thread(void);        /* the caller's; NULL: it can have none */
struct context_thread *context_thread_here(void);   /* the same, where it has been made */
void context_thread_notice(struct context_thread *); /* forgets what was open in another epoch */
void context_threads_wait(void);
double context_threads_cost(double ns_per_tick, double ns_per_call); /* the worker's, in nanoseconds */
void context_threads_forget(void);                  /* in the child of a fork */

/* context_steps.c: from a function to one in it. */
uint32_t context_step(struct context_thread *, uint32_t from, const struct python_place *);

/* context_paths.c: the context in which the thread is now; in `open`, where Python is. */
uint32_t context_around(struct context_thread *, struct open_context *open);
#endif
