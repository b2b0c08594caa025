/* Sampling of iterations, so that contexts cost no more than DEEPPROF_CONTEXTS_BUDGET percent of a thread's time (100:
 * however much it is, all are collected).
 *
 * An iteration is what lies between two steps of the first optimizer: forward and backward pass are in one. Whoever tells
 * of them (the hook, of their ends) may have PyTorch not call us at all in those that are left out. Where nobody does, an
 * optimizer's range marks its beginning; where there is none, whole windows are sampled instead.
 *
 * Judged by whole cycles, as many iterations as there are to one that is collected: a part of one says nothing. A job
 * loses more than the library measures of itself: how many times as much, iterations of both kinds tell. */
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include "context_budget.h"
#include "core.h"
#include "iteration_times.h"
#include "parts.h"

enum { ALL = 100, ASSUMED_TIMES = 2, MOST_TIMES = 4 };
enum { MOST_STRIDE = 64, LEAST_WINDOWS = 2, CALM_WINDOWS = 10, QUIET_WINDOWS = 60, STRIDE_CHANGED = 47 /* notice */ };

static atomic_int collects = 1, is_told;        /* whether the hook tells of steps */
static atomic_int is_silent;                    /* it has PyTorch not call us until the next one */
static _Atomic uint32_t stride = 1, iteration, chosen, left_out;
static const struct dp_label *_Atomic first;
static uint64_t percent = 5;

static struct {                         /* the worker's: a cycle so far */
    double cost_ns, passed_ns;
    uint32_t windows, calm, quiet, begun_at, chosen_at, number;
    int by_windows;
} cycle;
static double lost_times = ASSUMED_TIMES; /* the worker's: as much as is measured, until it is known better */
static uint32_t window;                 /* the worker's */

uint32_t budget_take_left_out(const char **what)
{
    *what = cycle.by_windows ? "(seconds left out)" : "(iterations left out)";
    return atomic_exchange(&left_out, 0);
}

/* For what begins from now on. */
static void choose(int wanted)
{
    atomic_store_explicit(&collects, wanted, memory_order_relaxed);
    atomic_fetch_add_explicit(wanted ? &chosen : &left_out, 1, memory_order_relaxed);
}

/* Which half of twice so many iterations is gone on with: another one each time, and the same in each process. */
static uint32_t choose_half(uint32_t pair, uint32_t size)
{
    uint32_t mark = (pair ^ size * 3266489917u) * 2654435769u;
    mark = (mark ^ mark >> 15) * 2246822519u;
    return (mark ^ mark >> 13) >> 31;
}

/* One of each `stride` in a row, and not always the same one: what a program does in each 8th iteration is in its share of
 * those that are collected. What is chosen of a longer row is of a shorter one, too: ranks wait for each other, and lose
 * less where they collect the same iterations. */
static int is_chosen(uint32_t number)
{
    uint32_t row = atomic_load_explicit(&stride, memory_order_relaxed), size = 1;
    while (size < row && (number / size & 1) == choose_half(number / size / 2, size))
        size *= 2;
    return size >= row;
}

int budget_collects(void) { return atomic_load_explicit(&collects, memory_order_relaxed); }

static int next_iteration(void)
{
    uint32_t number = atomic_fetch_add_explicit(&iteration, 1, memory_order_relaxed) + 1;
    int wanted = is_chosen(number);
    choose(wanted);
    return wanted;
}

void budget_mark(const struct dp_label *label)
{
    const struct dp_label *none = NULL;
    if (atomic_load(&is_told) || (label != first && !atomic_compare_exchange_strong(&first, &none, label)))
        return;
    next_iteration();
}

int budget_step(int is_on)
{
    atomic_store(&is_told, 1);
    times_step(dp_now_ns(), budget_collects());
    int wanted = next_iteration() || !is_on;
    atomic_store(&is_silent, !wanted);
    return wanted;
}

int budget_is_told(void) { return atomic_load_explicit(&is_told, memory_order_relaxed); }

/* Each change is a line of its own, with its time. */
static void tell(double share)
{
    char text[256], at[32];
    time_t now = time(NULL);
    struct tm parts;
    strftime(at, sizeof at, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &parts));
    snprintf(text, sizeof text, "%s: contexts take %.1f %% of a thread's time (%llu %% are allowed): every %u. %s is collected",
             at, 100 * share, (unsigned long long)percent, stride, cycle.by_windows ? "second" : "iteration");
    dp_notice_again(STRIDE_CHANGED, text);
}

/* How many iterations to one that is collected, as powers of two. */
static uint32_t choose_stride(double share)
{
    uint32_t wanted = stride;
    for (; 100 * share > (double)percent && wanted < MOST_STRIDE; share /= 2)
        wanted *= 2;
    int is_calm = wanted > 1 && 100 * share * 2.5 <= (double)percent;
    cycle.calm = is_calm ? cycle.calm + cycle.windows : 0;
    return cycle.calm >= CALM_WINDOWS ? wanted / 2 : wanted;
}

/* A single comparison has noise: it counts for a quarter. No less is lost than is measured. */
static void compare_times(uint32_t taken)
{
    double times = times_take_lost_ns() / (cycle.cost_ns / taken);
    if (!isfinite(times))
        return;
    times = times < 1 ? 1 : times < MOST_TIMES ? times : MOST_TIMES;
    lost_times += (times - lost_times) / 4;
}

static void begin_cycle(void)
{
    cycle.cost_ns = cycle.passed_ns = 0;
    cycle.windows = 0;
    cycle.begun_at = atomic_load(&iteration), cycle.chosen_at = atomic_load(&chosen);
}

/* Of as many iterations as passed: in a row of `stride` one is collected, in those of a cycle perhaps two, or none. */
static void judge(uint32_t passed, uint32_t taken)
{
    compare_times(taken);
    double share = lost_times * cycle.cost_ns / cycle.passed_ns * passed / ((double)taken * stride);
    uint32_t wanted = choose_stride(share);
    begin_cycle();
    if (wanted == stride)
        return;
    cycle.calm = 0;
    atomic_store(&stride, wanted);
    tell(share);
}

/* Whether this window is one without iterations, as is the rule from now on. While nobody calls us there is nothing that
 * windows could be of, however long it lasts. */
static int finds_windows(uint32_t now)
{
    int was_by_windows = cycle.by_windows;
    cycle.quiet = now == cycle.number ? cycle.quiet + 1 : 0;
    cycle.number = now;
    cycle.by_windows = cycle.quiet >= (now ? QUIET_WINDOWS : 1) && !atomic_load(&is_silent);
    return cycle.by_windows != was_by_windows;
}

/* What was counted by the other rule is no part of a cycle. */
static void change_rule(void)
{
    if (stride > 1)
        tell(lost_times * cycle.cost_ns / cycle.passed_ns);
    begin_cycle();
}

/* Of all that there is nothing is left out, whatever was measured: threads that wait for a processor, or that end side by
 * side, seem to take more than that. */
void budget_look(double cost_ns, double passed_ns)
{
    uint32_t now = atomic_load(&iteration);
    if (percent == ALL)
        return;
    cycle.cost_ns += cost_ns, cycle.passed_ns += passed_ns;
    cycle.windows++;
    if (finds_windows(now))
        change_rule();
    uint32_t passed = cycle.by_windows ? cycle.windows : now - cycle.begun_at, taken = atomic_load(&chosen) - cycle.chosen_at;
    if (cycle.windows >= LEAST_WINDOWS && passed >= stride && taken)
        judge(passed, taken);
    if (cycle.by_windows)
        choose(is_chosen(++window));
}

void budget_prepare(void) { percent = setting("DEEPPROF_CONTEXTS_BUDGET", 5, 1, ALL); }

void budget_reset(void)
{
    atomic_store(&collects, 1);
    atomic_store(&stride, 1);
    atomic_store(&chosen, 0);
    atomic_store(&left_out, (uint32_t)atomic_load(&is_silent)); /* what runs, and not those while nothing was collected */
    atomic_store(&first, NULL);
    memset(&cycle, 0, sizeof cycle);
    cycle.begun_at = cycle.number = atomic_load(&iteration); /* of all steps, as in other ranks, which are reset elsewhere */
    lost_times = ASSUMED_TIMES;
    times_reset();
}
