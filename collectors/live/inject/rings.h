/* What the threads' side of ranges and the worker's side share: a ring for each thread. */
#ifndef DEEPPROF_RINGS_H
#define DEEPPROF_RINGS_H
#include <stdatomic.h>
#include <stdint.h>
#include "core.h"

enum { SLOTS = 1 << 14, STACK = 512, THREADS = 256, OPEN = 1024 };
enum { FREE, USED, LEFT }; /* LEFT: its thread has ended, the worker has not emptied it yet */

struct frame {
    uintptr_t owner;
    int64_t start_ns;
    uint32_t name, gate;
    uint16_t depth, level; /* ranges around it when it began: of all owners, and of its own */
    uint8_t category, source, is_operator, is_kept;
};

/* A closed range in a ring is a dp_range with, in `correlation`, how many its thread had lost before it. */
struct ring {
    _Atomic uint64_t head, tail;      /* written, read: they only grow */
    _Atomic uint64_t lost;
    _Atomic int64_t open_since_ns;    /* of the ranges that began since the gate was opened for the `open_gate`-th time */
    _Atomic uint32_t writing, open_gate;
    atomic_int state;
    uint64_t lost_told;               /* the worker's; from here on the thread's */
    uint32_t thread, depth, stale, operators;  /* stale: frames from before the gate's last change */
    uint32_t too_deep;                /* open ranges of `deep_owner` that found no frame */
    uintptr_t deep_owner;
    int is_dropping;
    struct frame stack[STACK];
    struct dp_range slots[SLOTS];
};

/* A range that any thread may close. */
struct open_range {
    _Atomic uint64_t use;             /* odd: open */
    atomic_int is_closing;
    _Atomic int64_t start_ns;
    _Atomic uint32_t gate;
    uint32_t name, thread;
    uint8_t category, source;
};

extern struct ring *_Atomic dp_rings[THREADS];       /* filled from the front, never emptied */
extern struct open_range dp_open_ranges[OPEN];
extern _Atomic uint32_t dp_gate;                      /* odd: open; grows with each change */

void dp_rings_forget(void);                           /* in the child of a fork */
#endif
