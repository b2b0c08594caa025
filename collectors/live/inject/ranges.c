/* Ranges as the job's threads see them: each opens and closes its own, and writes them to its own ring when they close. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "ranges.h"
#include "rings.h"

enum { TOO_DEEP = 32, TOO_MANY_THREADS = 33, TOO_MANY_OPEN = 34, NO_KEY = 36 }; /* notices */

struct ring *_Atomic dp_rings[THREADS];
struct open_range dp_open_ranges[OPEN];
_Atomic uint32_t dp_gate;
static uint32_t depth_limit;
static pthread_key_t at_thread_end;
static int has_key;
static pthread_once_t prepared = PTHREAD_ONCE_INIT;
static __thread struct ring *mine;
static __thread int is_refused;       /* the thread ends, or there were too many */

static uint32_t gate_now(void) { return atomic_load_explicit(&dp_gate, memory_order_relaxed); }

int dp_ranges_wanted(void) { return gate_now() & 1; }

/* ---- a thread and its ring ---- */

static void leave(void *value)
{
    struct ring *ring = value;
    mine = NULL;
    is_refused = 1;
    atomic_store_explicit(&ring->open_since_ns, DP_NEVER, memory_order_release);
    atomic_store_explicit(&ring->state, LEFT, memory_order_release);
}

static void prepare(void)
{
    const char *text = getenv("DEEPPROF_DEPTH");
    long depth = text ? strtol(text, NULL, 10) : 0;
    depth_limit = depth < 0 ? 0 : depth > STACK ? STACK : (uint32_t)depth;
    has_key = !pthread_key_create(&at_thread_end, leave);
}

static void take(struct ring *ring)
{
    ring->depth = ring->stale = ring->operators = ring->too_deep = 0;
    ring->is_dropping = 0;
    ring->thread = dp_thread();
    atomic_store(&ring->open_since_ns, DP_NEVER);
    pthread_setspecific(at_thread_end, mine = ring);
}

static struct ring *make_ring(void)
{
    struct ring *ring = calloc(1, sizeof *ring); /* pages that are not used yet cost nothing */
    if (ring)
        atomic_init(&ring->state, USED);
    return ring;
}

/* One that is not empty yet: every record has its thread, so that another may go on where the last one ended. */
static struct ring *take_over(void)
{
    for (int i = 0; i < THREADS; i++) {
        int is_left = LEFT;
        struct ring *ring = atomic_load(&dp_rings[i]);
        if (ring && atomic_compare_exchange_strong(&ring->state, &is_left, USED))
            return ring;
    }
    return NULL;
}

/* A ring that a thread has left and the worker has emptied, or a new one in a place that has none; NULL: no more. */
static struct ring *find_ring(void)
{
    struct ring *fresh = NULL, *ring;
    for (int i = 0; i < THREADS; i++) {
        int is_free = FREE;
        if ((ring = atomic_load(&dp_rings[i]))) {
            if (!atomic_compare_exchange_strong(&ring->state, &is_free, USED))
                continue;
            free(fresh);
            return ring;
        }
        if (!fresh && !(fresh = make_ring()))
            return NULL;
        if (atomic_compare_exchange_strong(&dp_rings[i], &ring, fresh))
            return fresh;
        i--; /* another thread was first, and may have left already */
    }
    free(fresh);
    return take_over();
}

static struct ring *my_ring(void)
{
    if (mine || is_refused)
        return mine;
    pthread_once(&prepared, prepare);
    struct ring *ring = has_key ? find_ring() : NULL;
    is_refused = !ring;
    if (ring)
        take(ring);
    else if (!has_key)
        dp_notice(NO_KEY, "this program has used up all keys for data of threads: its ranges are left out");
    else
        dp_notice(TOO_MANY_THREADS, "ranges of more than 256 threads at once: those of the others are left out");
    return ring;
}

/* Returns whether ranges are still wanted; in any case finish_writing must follow. */
static int begin_writing(struct ring *ring, uint32_t wanted)
{
    atomic_exchange(&ring->writing, 1);
    return atomic_load(&dp_gate) == wanted;
}

static void finish_writing(struct ring *ring)
{
    atomic_store_explicit(&ring->writing, 0, memory_order_release);
}

/* A full ring loses a whole stretch, until it is half empty: single holes would look like another program. */
static int has_room(struct ring *ring, uint64_t head)
{
    uint64_t used = head - atomic_load_explicit(&ring->tail, memory_order_acquire);
    ring->is_dropping = used >= (ring->is_dropping ? SLOTS / 2 : SLOTS);
    return !ring->is_dropping;
}

static void write_range(struct ring *ring, const struct dp_range *range)
{
    uint64_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
    if (!has_room(ring, head)) {
        uint64_t lost = atomic_load_explicit(&ring->lost, memory_order_relaxed);
        atomic_store_explicit(&ring->lost, lost + 1, memory_order_release);
        return;
    }
    struct dp_range *slot = &ring->slots[head % SLOTS];
    *slot = *range;
    slot->correlation = atomic_load_explicit(&ring->lost, memory_order_relaxed);
    atomic_store_explicit(&ring->head, head + 1, memory_order_release);
    if ((head + 1) % (SLOTS / 2) == 0)
        dp_wake();
}

/* ---- nested ranges ---- */

/* Frames from before the gate's last change stay, so that ends find their beginnings, but are not kept. */
static void notice_gate(struct ring *ring, uint32_t now)
{
    if (atomic_load_explicit(&ring->open_gate, memory_order_relaxed) == now)
        return;
    ring->stale = ring->depth;
    atomic_store_explicit(&ring->open_since_ns, DP_NEVER, memory_order_relaxed);
    atomic_store_explicit(&ring->open_gate, now, memory_order_release);
}

/* Whether a range around the next one keeps the promise below both already. */
static int is_held(const struct ring *ring, uint32_t now)
{
    return atomic_load_explicit(&ring->open_gate, memory_order_relaxed) == now &&
           atomic_load_explicit(&ring->open_since_ns, memory_order_relaxed) != DP_NEVER;
}

static void start_frame(struct ring *ring, struct frame *frame)
{
    if (is_held(ring, frame->gate)) {
        frame->start_ns = dp_now_ns();
        return;
    }
    begin_writing(ring, frame->gate);
    notice_gate(ring, frame->gate);
    frame->start_ns = dp_now_ns();
    atomic_store_explicit(&ring->open_since_ns, frame->start_ns, memory_order_release);
    finish_writing(ring);
}

/* The place of the owner's innermost range, usually the last; -1: it has none. */
static int find_frame(const struct ring *ring, uintptr_t owner)
{
    int place = (int)ring->depth - 1;
    while (place >= 0 && ring->stack[place].owner != owner)
        place--;
    return place;
}

/* Of an owner whose ranges found no frame the next ones get none either, until all of them have ended. */
static int is_too_deep(const struct ring *ring, uintptr_t owner)
{
    return ring->depth == STACK || (ring->too_deep && ring->deep_owner == owner);
}

static int begin_too_deep(struct ring *ring, uintptr_t owner)
{
    if (!ring->too_deep)
        ring->deep_owner = owner;
    ring->too_deep += ring->deep_owner == owner;
    dp_notice(TOO_DEEP, "ranges nested more than 512 deep are left out");
    return STACK;
}

int dp_range_begin(uintptr_t owner, uint32_t name, uint8_t category, uint8_t source)
{
    uint32_t now = gate_now();
    struct ring *ring = now & 1 ? my_ring() : NULL;
    if (!ring)
        return 0;
    if (is_too_deep(ring, owner))
        return begin_too_deep(ring, owner);
    struct frame *frame = &ring->stack[ring->depth];
    int around = find_frame(ring, owner);
    *frame = (struct frame){.owner = owner, .name = name, .gate = now, .category = category, .source = source};
    frame->depth = (uint16_t)ring->depth;
    frame->level = around < 0 ? 0 : (uint16_t)(ring->stack[around].level + 1);
    frame->is_operator = category == 0 || (category == DP_BY_NAME && ring->operators);
    frame->is_kept = !frame->is_operator || ring->operators <= depth_limit;
    if (frame->is_kept)
        start_frame(ring, frame);
    ring->operators += frame->is_operator;
    ring->depth++;
    return frame->level;
}

static void remove_frame(struct ring *ring, uint32_t place)
{
    ring->operators -= ring->stack[place].is_operator;
    ring->depth--;
    ring->stale -= place < ring->stale;
    memmove(&ring->stack[place], &ring->stack[place + 1], (ring->depth - place) * sizeof *ring->stack);
}

/* After the range itself is written: who sees that nothing is open must see the range. */
static void update_open(struct ring *ring)
{
    int64_t since = DP_NEVER;
    for (uint32_t i = ring->stale; i < ring->depth && since == DP_NEVER; i++)
        if (ring->stack[i].is_kept)
            since = ring->stack[i].start_ns;
    if (since != atomic_load_explicit(&ring->open_since_ns, memory_order_relaxed))
        atomic_store_explicit(&ring->open_since_ns, since, memory_order_release);
}

static void write_frame(struct ring *ring, const struct frame *frame)
{
    struct dp_range range = {.start_ns = frame->start_ns, .name = frame->name, .thread = ring->thread,
                             .depth = frame->depth, .category = frame->category, .source = frame->source};
    if (begin_writing(ring, frame->gate)) {
        range.end_ns = dp_now_ns();
        write_range(ring, &range);
    }
    update_open(ring);
    finish_writing(ring);
}

int dp_range_end(uintptr_t owner)
{
    struct ring *ring = mine;
    if (!ring || !(ring->depth | ring->too_deep))
        return -1;
    if (ring->too_deep && ring->deep_owner == owner)
        return STACK + (int)ring->too_deep--;
    int place = find_frame(ring, owner);
    if (place < 0)
        return -1;
    struct frame frame = ring->stack[place];
    remove_frame(ring, (uint32_t)place);
    if (frame.is_kept && frame.gate == gate_now())
        write_frame(ring, &frame);
    else if (frame.is_kept)
        update_open(ring);
    return frame.level;
}

void dp_range_mark(uint32_t name, uint8_t category, uint8_t source)
{
    uint32_t now = gate_now();
    struct ring *ring = now & 1 ? my_ring() : NULL;
    if (!ring)
        return;
    struct dp_range range = {.name = name, .thread = ring->thread, .depth = (uint16_t)ring->depth,
                             .category = category, .source = source};
    if (begin_writing(ring, now)) {
        range.start_ns = range.end_ns = dp_now_ns();
        write_range(ring, &range);
    }
    finish_writing(ring);
}

/* ---- ranges that any thread may close ---- */

static struct open_range *claim(uint64_t *use)
{
    for (struct open_range *range = dp_open_ranges; range < dp_open_ranges + OPEN; range++) {
        *use = atomic_load_explicit(&range->use, memory_order_relaxed);
        if (!(*use & 1) && atomic_compare_exchange_strong(&range->use, use, *use + 1))
            return range;
    }
    dp_notice(TOO_MANY_OPEN, "more than 1,024 ranges are open that any thread may close: the others are left out");
    return NULL;
}

uint64_t dp_range_open(uint32_t name, uint8_t category, uint8_t source)
{
    uint64_t use;
    uint32_t now = gate_now();
    struct ring *ring = now & 1 ? my_ring() : NULL;
    if (!ring)
        return 0;
    begin_writing(ring, now);
    int64_t start_ns = dp_now_ns();
    struct open_range *range = claim(&use);
    if (range) {
        atomic_store_explicit(&range->start_ns, start_ns, memory_order_relaxed); /* the one before it was earlier */
        atomic_store(&range->is_closing, 0);
        range->name = name, range->thread = ring->thread;
        atomic_store(&range->gate, now);
        range->category = category, range->source = source;
    }
    finish_writing(ring);
    return range ? (use + 1) * OPEN + (uint64_t)(range - dp_open_ranges) : 0;
}

/* With finish_writing to follow. */
static void write_open(struct ring *ring, struct open_range *open)
{
    struct dp_range range = {.start_ns = atomic_load(&open->start_ns), .name = open->name, .thread = open->thread,
                             .category = open->category, .source = open->source};
    if (begin_writing(ring, open->gate)) {
        range.end_ns = dp_now_ns();
        write_range(ring, &range);
    }
}

void dp_range_close(uint64_t id)
{
    struct open_range *open = &dp_open_ranges[id % OPEN];
    uint64_t use = id / OPEN;
    if (!(use & 1) || atomic_load(&open->use) != use || atomic_exchange(&open->is_closing, 1))
        return;
    struct ring *ring = my_ring(); /* NULL: left out, as all of this thread, but open no longer */
    if (ring)
        write_open(ring, open);
    atomic_store_explicit(&open->use, use + 1, memory_order_release); /* seen free, its record is seen too */
    if (ring)
        finish_writing(ring);
}

/* The child has one thread, and nobody collects in it until the library is started again. */
void dp_rings_forget(void)
{
    atomic_store(&dp_gate, (gate_now() + 1) & ~1u);
    for (int i = 0; i < THREADS; i++) {
        struct ring *ring = atomic_load(&dp_rings[i]);
        if (!ring)
            continue;
        ring->depth = ring->stale = ring->operators = ring->too_deep = 0;
        atomic_store(&ring->tail, atomic_load(&ring->head));
        ring->lost_told = atomic_load(&ring->lost);
        ring->thread = dp_thread(); /* which has a new number; a ring that is taken again gets its own */
        atomic_store(&ring->writing, 0);
        atomic_store(&ring->state, ring == mine ? USED : FREE);
    }
    for (int i = 0; i < OPEN; i++)
        atomic_store(&dp_open_ranges[i].use, (atomic_load(&dp_open_ranges[i].use) + 1) & ~UINT64_C(1));
}
