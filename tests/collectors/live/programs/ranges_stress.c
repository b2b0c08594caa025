/* Many threads open and close ranges while a worker gathers them, against a core that checks every promise.
 *
 * ranges_stress THREADS RANGES ROUNDS [toggle|slow|crowd|keys]: each round starts THREADS threads that close RANGES ranges
 * each; a crowd is there all at once, its ranges are named after their threads, and each closes one of the main thread's.
 * With keys the program has used up all there are for values of threads.
 * Prints made, got, lost and broken promises. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "ranges.h"
#include "rings.h"

enum { KEPT = 100 }; /* ranges made before a gatherer that toggles switches off for the first time, and each time after */

static _Atomic uint64_t made, notices;
static uint64_t got, lost, broken;
static struct dp_tick promised = {.ranges_until_ns = INT64_MIN, .open_since_ns = INT64_MAX};
static atomic_int is_over;
static int is_toggling, is_slow, is_crowd, thread_count;
static pthread_barrier_t crowd;
static uint64_t opened[512];

int64_t dp_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

uint32_t dp_thread(void) { return (uint32_t)gettid(); }
uint32_t dp_intern(const char *text) { return (uint32_t)strlen(text); }
void dp_wake(void) {}
void dp_notice(uint32_t code, const char *text) { (void)code, (void)text, atomic_fetch_add(&notices, 1); }

/* What comes after a promise must have ended after it, and begun after it or after what was said to be open. */
void dp_put(enum dp_kind kind, const void *records, uint32_t count, uint64_t missing, enum dp_reason reason)
{
    const struct dp_range *ranges = records;
    int64_t since = promised.open_since_ns < promised.ranges_until_ns ? promised.open_since_ns : promised.ranges_until_ns;
    broken += kind != DP_RANGES || (missing > 0) != (reason == DP_BUFFER_FULL);
    for (uint32_t i = 0; i < count; i++) {
        broken += ranges[i].end_ns < promised.ranges_until_ns || ranges[i].start_ns < since;
        broken += ranges[i].end_ns < ranges[i].start_ns || ranges[i].correlation || ranges[i].zero || !ranges[i].thread;
        broken += is_crowd && ranges[i].name != ranges[i].thread;
    }
    got += count;
    lost += missing;
}

/* Returns how many ranges have been made, `more` than `before` unless it is over. */
static uint64_t sleep_until_made(uint64_t before, uint64_t more)
{
    while (!atomic_load(&is_over) && atomic_load(&made) < before + more)
        usleep(100);
    return atomic_load(&made);
}

/* What is slow sleeps until one of the rings at least is more than full. */
static void *gather(void *unused)
{
    uint64_t before = 0;
    dp_ranges.set(1);
    for (int round = 0; !atomic_load(&is_over); round++) {
        if (is_slow)
            before = sleep_until_made(before, (uint64_t)thread_count * SLOTS + 1);
        dp_ranges.drain(0);
        dp_ranges.tick(&promised);
        if (is_toggling && round % 14 == 7) {
            before = sleep_until_made(before, KEPT);
            dp_ranges.set(0);
        } else if (is_toggling && round % 14 == 0)
            dp_ranges.set(1);
    }
    dp_ranges.set(1);
    dp_ranges.tick(&promised);
    broken += is_crowd && promised.open_since_ns != DP_NEVER;
    dp_ranges.finish();
    return unused;
}

static void close_some(unsigned *seed, int depth, uint64_t *left)
{
    uintptr_t owner = 1 + rand_r(seed) % 2;
    dp_range_begin(owner, 1 + depth, depth ? DP_ANNOTATION : DP_BY_NAME, DP_FROM_ITT);
    while (*left && depth < 6 && rand_r(seed) % 3) {
        close_some(seed, depth + 1, left);
        if (rand_r(seed) % 8 == 0) {
            uint64_t id = dp_range_open(9, DP_ANNOTATION, DP_FROM_NVTX);
            dp_range_close(id);
            dp_range_close(id); /* the second finds nothing */
            atomic_fetch_add(&made, id != 0);
        }
    }
    int was_open = dp_range_end(owner) >= 0;
    atomic_fetch_add(&made, was_open);
    *left -= *left > 0;
}

static void *work(void *number)
{
    unsigned seed = (unsigned)(uintptr_t)number * 2654435761u;
    uint64_t left = *(uint64_t *)number;
    while (left)
        close_some(&seed, 0, &left);
    if (seed % 2)
        dp_range_begin(1, 1, DP_ANNOTATION, DP_FROM_ITT); /* some threads end with a range open */
    return NULL;
}

/* All have a ring, or none, before the first ends. */
static void *work_in_crowd(void *id)
{
    for (int i = 0; i < 50; i++) {
        dp_range_begin(1, dp_thread(), DP_ANNOTATION, DP_FROM_ITT);
        sched_yield();
        atomic_fetch_add(&made, dp_range_end(1) >= 0);
        if (!i)
            pthread_barrier_wait(&crowd);
    }
    dp_range_close(*(uint64_t *)id);
    pthread_barrier_wait(&crowd);
    return NULL;
}

/* Returns the first of the keys, with a value of this thread's. */
static pthread_key_t use_up_keys(void)
{
    pthread_key_t first, next;
    pthread_key_create(&first, NULL);
    pthread_setspecific(first, &made);
    while (!pthread_key_create(&next, NULL))
        ;
    return first;
}

int main(int count, char **words)
{
    pthread_t gatherer, threads[512];
    int rounds = atoi(words[3]);
    thread_count = atoi(words[1]);
    uint64_t each = strtoull(words[2], NULL, 10);
    is_toggling = count > 4 && !strcmp(words[4], "toggle");
    is_slow = count > 4 && !strcmp(words[4], "slow");
    is_crowd = count > 4 && !strcmp(words[4], "crowd");
    int has_no_keys = count > 4 && !strcmp(words[4], "keys");
    pthread_key_t key = has_no_keys ? use_up_keys() : 0;
    pthread_barrier_init(&crowd, NULL, (unsigned)thread_count);
    dp_range_close(5); /* nobody gave this one */
    pthread_create(&gatherer, NULL, gather, NULL);
    while (!dp_ranges_wanted())
        sched_yield();
    for (int round = 0; round < rounds; round++) {
        for (int i = 0; i < thread_count && is_crowd; i++)
            opened[i] = dp_range_open(dp_thread(), DP_ANNOTATION, DP_FROM_NVTX);
        for (int i = 0; i < thread_count; i++)
            pthread_create(&threads[i], NULL, is_crowd ? work_in_crowd : work, is_crowd ? &opened[i] : &each);
        for (int i = 0; i < thread_count; i++)
            pthread_join(threads[i], NULL);
    }
    if (has_no_keys) {
        dp_range_begin(1, 1, DP_ANNOTATION, DP_FROM_ITT);
        broken += pthread_getspecific(key) != &made;
    }
    atomic_store(&is_over, 1);
    pthread_join(gatherer, NULL);
    printf("%llu %llu %llu %llu %llu\n", (unsigned long long)made, (unsigned long long)got, (unsigned long long)lost,
           (unsigned long long)broken, (unsigned long long)notices);
    return 0;
}
