/* Sampling of iterations, so that contexts cost no more than DEEPPROF_CONTEXTS_BUDGET percent of a thread's time.
 *
 * An iteration is what lies between two beginnings of the first optimizer's step: forward and backward pass are in one.
 * Where a window passes without a step, whole windows are sampled instead. What is measured is our own part; that PyTorch
 * calls us at all costs about as much again, and does not get less. */
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>
#include "context_budget.h"
#include "core.h"
#include "parts.h"

enum { MOST_STRIDE = 64, BUSY_WINDOWS = 2, CALM_WINDOWS = 10, STRIDE_CHANGED = 47 /* notice */ };

static atomic_int collects = 1;
static _Atomic uint32_t stride = 1, iteration, marks;
static const struct dp_label *_Atomic first;
static uint32_t window, busy, calm, marks_before; /* the worker's, as the next */
static int by_windows;
static uint64_t percent = 5;

int budget_collects(void) { return atomic_load_explicit(&collects, memory_order_relaxed); }

void budget_mark(const struct dp_label *label)
{
    const struct dp_label *none = NULL;
    if (label != first && !atomic_compare_exchange_strong(&first, &none, label))
        return;
    atomic_fetch_add_explicit(&marks, 1, memory_order_relaxed);
    uint32_t number = atomic_fetch_add_explicit(&iteration, 1, memory_order_relaxed) + 1;
    atomic_store_explicit(&collects, number % atomic_load_explicit(&stride, memory_order_relaxed) == 0, memory_order_relaxed);
}

/* Each change is a line of its own, with its time. */
static void tell(double share)
{
    char text[256], at[32];
    time_t now = time(NULL);
    struct tm parts;
    strftime(at, sizeof at, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &parts));
    snprintf(text, sizeof text, "%s: contexts take %.1f %% of a thread's time (%llu %% are allowed): every %u. %s is collected",
             at, 100 * share, (unsigned long long)percent, stride, by_windows ? "second" : "iteration");
    dp_notice_again(STRIDE_CHANGED, text);
}

static void change(uint32_t wanted, double share)
{
    busy = calm = 0;
    if (wanted == stride)
        return;
    atomic_store(&stride, wanted);
    tell(share);
    if (by_windows)
        atomic_store(&collects, wanted == 1);
}

void budget_look(double share)
{
    uint32_t now = atomic_load(&marks);
    int was_by_windows = by_windows;
    by_windows = now == marks_before;
    marks_before = now;
    busy = 100 * share > (double)percent ? busy + 1 : 0;
    if (busy == BUSY_WINDOWS)
        change(stride < MOST_STRIDE ? 2 * stride : MOST_STRIDE, share);
    else if (100 * share * 2.5 > (double)percent || stride == 1)
        calm = 0;
    else if (++calm >= CALM_WINDOWS)
        change(stride / 2, share);
    if (stride > 1 && was_by_windows != by_windows)
        tell(share);
    if (by_windows)
        atomic_store(&collects, ++window % stride == 0);
}

void budget_prepare(void) { percent = setting("DEEPPROF_CONTEXTS_BUDGET", 5, 1, 100); }

void budget_reset(void)
{
    atomic_store(&collects, 1);
    atomic_store(&stride, 1);
    atomic_store(&iteration, 0);
    atomic_store(&first, NULL);
    busy = calm = window = 0;
}
