/* Many threads tell what is in use while a worker gathers it, against a core that checks every promise.
 *
 * memory_stress THREADS LOOKS [slow]: prints made, got, lost and broken promises. What is slow gathers only at the end. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#include "memory.h"

static uint64_t got, lost, broken;
static int64_t promised = INT64_MIN, latest = INT64_MIN;
static atomic_int is_over;
static int is_slow;
static pthread_barrier_t switched_on; /* nobody tells anything before: what is switched on gives what there is */

int64_t dp_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

uint32_t dp_thread(void) { return (uint32_t)gettid(); }
int dp_is_on(void) { return 1; }

/* All come in order, and not before a moment that was promised. */
void dp_put(enum dp_kind kind, const void *records, uint32_t count, uint64_t missing, enum dp_reason reason)
{
    const struct dp_memory_change *looks = records;
    broken += kind != DP_MEMORY_CHANGES || (missing > 0) != (reason == DP_BUFFER_FULL);
    for (uint32_t i = 0; i < count; i++) {
        broken += looks[i].time_ns < promised || looks[i].time_ns < latest || !looks[i].thread || looks[i].nbytes;
        latest = looks[i].time_ns;
    }
    got += count;
    lost += missing;
}

static void *gather(void *unused)
{
    dp_memory.set(1);
    pthread_barrier_wait(&switched_on);
    while (!atomic_load(&is_over)) {
        int64_t now = dp_now_ns();
        if (!is_slow)
            dp_memory.tick(NULL);
        promised = is_slow ? promised : now;
    }
    dp_memory.finish();
    return unused;
}

static void *work(void *count)
{
    for (uint64_t i = 0; i < *(uint64_t *)count; i++)
        dp_memory_look(0, i, i, 1);
    return NULL;
}

int main(int count, char **words)
{
    pthread_t gatherer, threads[64];
    int many = atoi(words[1]);
    uint64_t each = strtoull(words[2], NULL, 10);
    is_slow = count > 3;
    pthread_barrier_init(&switched_on, NULL, 2);
    pthread_create(&gatherer, NULL, gather, NULL);
    pthread_barrier_wait(&switched_on);
    for (int i = 0; i < many; i++)
        pthread_create(&threads[i], NULL, work, &each);
    for (int i = 0; i < many; i++)
        pthread_join(threads[i], NULL);
    atomic_store(&is_over, 1);
    pthread_join(gatherer, NULL);
    printf("%llu %llu %llu %llu\n", (unsigned long long)many * each, (unsigned long long)got, (unsigned long long)lost,
           (unsigned long long)broken);
    return 0;
}
