/* Looks at the memory in use, as the hook takes them: a few in each iteration, kept until the worker comes.
 *
 * A time is read under the lock that the worker takes after it has read the clock for its promise (gathering.c; sources
 * tick in the order in which they were added): what is not there by then, is later. */
#define _GNU_SOURCE
#include <pthread.h>
#include <string.h>
#include "core.h"
#include "memory.h"

enum { MOST = 1024 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct dp_memory_change kept[MOST];
static uint32_t count;
static uint64_t lost;

void dp_memory_look(int32_t device, uint64_t allocated_nbytes, uint64_t reserved_nbytes, uint64_t device_nbytes)
{
    if (!dp_is_on())
        return;
    struct dp_memory_change look = {.device = device, .thread = dp_thread(), .allocated_nbytes = allocated_nbytes,
                                    .reserved_nbytes = reserved_nbytes, .device_nbytes = device_nbytes};
    pthread_mutex_lock(&lock);
    look.time_ns = dp_now_ns();
    if (count < MOST)
        kept[count++] = look;
    else
        lost++;
    pthread_mutex_unlock(&lock);
}

/* Worker thread. What was lost came after all that was kept. */
static void give(void)
{
    static struct dp_memory_change taken[MOST];
    pthread_mutex_lock(&lock);
    uint32_t many = count;
    uint64_t missing = lost;
    memcpy(taken, kept, many * sizeof *kept);
    count = 0, lost = 0;
    pthread_mutex_unlock(&lock);
    if (many)
        dp_put(DP_MEMORY_CHANGES, taken, many, 0, DP_NO_GAP);
    if (missing)
        dp_put(DP_MEMORY_CHANGES, NULL, 0, missing, DP_BUFFER_FULL);
}

static void drain(int idle)
{
    (void)idle;
    give();
}

static void tick(struct dp_tick *tick)
{
    (void)tick;
    give();
}

static void set(int on)
{
    (void)on;
    give();
}

static void forget(void)
{
    lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    count = 0, lost = 0;
}

const struct dp_source dp_memory = {.drain = drain, .tick = tick, .set = set, .finish = give, .early = 1,
                                    .forget = forget};
