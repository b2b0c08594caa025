/* Rings of closed ranges, one per thread, and the promises that the worker makes about them.
 *
 * What the agent needs is "no range that you have not got began or ended before T". A thread reads the clock and then
 * writes, so the worker may come in between; that is what `writing` is for. Thread: writing = 1, read the clock, write,
 * writing = 0. Worker: read the clock (T), then look at `writing`. Both first stores and the look are sequentially
 * consistent, so either the worker sees 1 and waits for the 0, with which it sees what was written, or the thread's 1
 * comes after the look, and its clock is read after T. A processor may read its clock a little out of order, so the
 * promise is a microsecond earlier than T. A thread that does nothing is not writing and holds nothing up; one that was
 * put to sleep while writing keeps the promise where it was. The same pair closes the gate: a thread looks at it after
 * writing = 1, the worker looks at `writing` after closing.
 */
#define _GNU_SOURCE
#include <sched.h>
#include "ranges.h"
#include "rings.h"

enum { MARGIN_NS = 1000, PATIENCE = 2000 };

static int64_t promise_ns, open_since_ns = DP_NEVER;

static uint32_t gate_now(void) { return atomic_load_explicit(&dp_gate, memory_order_relaxed); }

/* Whether the ring's thread is between clock and record no longer; a thread that sleeps there is not waited for. */
static int wait_for(struct ring *ring)
{
    for (int i = 0; i < PATIENCE; i++) {
        if (!atomic_fetch_or(&ring->writing, 0))
            return 1;
        if (i > PATIENCE / 2)
            sched_yield();
    }
    return 0;
}

static int wait_for_all(void)
{
    int is_quiet = 1;
    struct ring *ring;
    for (int i = 0; i < THREADS && (ring = atomic_load(&dp_rings[i])); i++)
        is_quiet &= wait_for(ring);
    return is_quiet;
}

static int64_t earliest_open(void)
{
    int64_t since = DP_NEVER, ns;
    uint32_t now = gate_now();
    struct ring *ring;
    for (int i = 0; i < THREADS && (ring = atomic_load(&dp_rings[i])); i++) {
        if (atomic_load_explicit(&ring->open_gate, memory_order_acquire) != now)
            continue; /* what is open there began before the gate's last change, and is not kept */
        ns = atomic_load_explicit(&ring->open_since_ns, memory_order_acquire);
        since = ns < since ? ns : since;
    }
    for (struct open_range *range = dp_open_ranges; range < dp_open_ranges + OPEN; range++) {
        if (!(atomic_load_explicit(&range->use, memory_order_acquire) & 1) || atomic_load(&range->gate) != now)
            continue;
        ns = atomic_load_explicit(&range->start_ns, memory_order_relaxed);
        since = ns && ns < since ? ns : since;
    }
    return since;
}

/* Gives records that lie one after the other, without a loss among them. */
static void give(struct ring *ring, uint64_t from, uint64_t to, uint64_t lost)
{
    if (from == to && !lost)
        return;
    for (uint64_t i = from; i < to; i++)
        ring->slots[i % SLOTS].correlation = 0;
    dp_put(DP_RANGES, &ring->slots[from % SLOTS], (uint32_t)(to - from), lost, lost ? DP_BUFFER_FULL : DP_NO_GAP);
    ring->lost_told += lost;
    atomic_store_explicit(&ring->tail, to, memory_order_release);
}

static void empty(struct ring *ring)
{
    uint64_t at = atomic_load_explicit(&ring->tail, memory_order_relaxed);
    uint64_t head = atomic_load_explicit(&ring->head, memory_order_acquire), from = at, lost = 0;
    for (; at < head; at++) {
        uint64_t missing = ring->slots[at % SLOTS].correlation - ring->lost_told - lost;
        if (at > from && (missing || at % SLOTS == 0)) {
            give(ring, from, at, lost);
            from = at, lost = 0;
        }
        lost += missing;
    }
    give(ring, from, head, lost);
    /* What was lost after the last record: only if there is none since, or it would be told in the wrong place. */
    lost = atomic_load_explicit(&ring->lost, memory_order_acquire) - ring->lost_told;
    if (lost && atomic_load_explicit(&ring->head, memory_order_acquire) == head)
        give(ring, head, head, lost);
}

static void empty_all(void)
{
    struct ring *ring;
    for (int i = 0; i < THREADS && (ring = atomic_load(&dp_rings[i])); i++) {
        int state = atomic_load_explicit(&ring->state, memory_order_acquire);
        empty(ring);
        if (state == LEFT) /* unless another thread has taken it over */
            atomic_compare_exchange_strong(&ring->state, &state, FREE);
    }
}

static void drain(int idle)
{
    (void)idle;
    int64_t now = dp_now_ns() - MARGIN_NS;
    int is_quiet = wait_for_all();
    int64_t since = earliest_open(); /* before the records: a range that is open no longer is among them */
    empty_all();
    if (!is_quiet)
        return; /* the earlier promise still holds */
    promise_ns = now;
    open_since_ns = since;
}

static void tick(struct dp_tick *tick)
{
    drain(0);
    tick->ranges_until_ns = promise_ns;
    tick->open_since_ns = open_since_ns;
}

static void set(int on)
{
    if (on != (int)(gate_now() & 1))
        atomic_fetch_add(&dp_gate, 1);
    drain(0);
}

static void finish(void) { set(0); }

const struct dp_source dp_ranges = {.drain = drain, .tick = tick, .set = set, .finish = finish, .early = 1,
                                    .forget = dp_rings_forget};
