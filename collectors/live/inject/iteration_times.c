/* How much longer iterations take that are collected than those that are left out: what collecting costs the job.
 *
 * The library's own clock sees a part of that: not what PyTorch does before it calls, nor caches that are the library's
 * then. Medians, as some iterations evaluate or save. Numbers are apart from each other: one that comes while the worker
 * takes them may be lost. */
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include "iteration_times.h"

enum { KEPT = 64, FEWEST = 8 };

static _Atomic int64_t begun_ns; /* 0: there is no beginning */
static struct { _Atomic uint32_t count; _Atomic int64_t took_ns[KEPT]; } kept[2]; /* left out, collected */

void times_step(int64_t now_ns, int was_collected)
{
    int64_t since_ns = atomic_exchange(&begun_ns, now_ns);
    if (!since_ns)
        return;
    uint32_t number = atomic_fetch_add(&kept[was_collected].count, 1);
    atomic_store(&kept[was_collected].took_ns[number % KEPT], now_ns - since_ns);
}

static int compare(const void *one, const void *other)
{
    int64_t left = *(const int64_t *)one, right = *(const int64_t *)other;
    return (left > right) - (left < right);
}

static double take_median_ns(int collected)
{
    int64_t sorted[KEPT];
    uint32_t count = atomic_exchange(&kept[collected].count, 0);
    count = count < KEPT ? count : KEPT;
    for (uint32_t i = 0; i < count; i++)
        sorted[i] = atomic_load(&kept[collected].took_ns[i]);
    qsort(sorted, count, sizeof *sorted, compare);
    return (double)(sorted[count / 2] + sorted[(count - 1) / 2]) / 2;
}

double times_take_lost_ns(void)
{
    if (atomic_load(&kept[0].count) < FEWEST || atomic_load(&kept[1].count) < FEWEST)
        return NAN;
    return take_median_ns(1) - take_median_ns(0);
}

void times_reset(void)
{
    atomic_store(&begun_ns, 0);
    atomic_store(&kept[0].count, 0);
    atomic_store(&kept[1].count, 0);
}
