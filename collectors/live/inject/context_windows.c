/* The worker: sums of contexts by window, told with the nodes that they name. */
#define _GNU_SOURCE
#include "context_budget.h"
#include "context_clock.h"
#include "context_threads.h"
#include "context_tree.h"
#include "contexts.h"
#include "native_frames.h"
#include "parts.h"

static const int64_t WINDOW_NS = 1000000000;
enum { NODES_AT_ONCE = 4096, SUMS_AT_ONCE = 1024 };
static uint32_t told, told_on;          /* nodes that the connection has been told, and which connection that is */
static int64_t window_start_ns, measured_ns, measured_ticks; /* the latter two at one moment, when collecting began */

static int tell_some(void)
{
    static struct dp_context rows[NODES_AT_ONCE];
    uint32_t count = context_count() - told;
    count = count < NODES_AT_ONCE ? count : NODES_AT_ONCE;
    for (uint32_t i = 0; i < count; i++) {
        const struct context_node *node = context_node(told + 1 + i);
        rows[i] = (struct dp_context){told + 1 + i, node->parent, node->name, node->line, node->kind};
    }
    if (queue_put(DP_CONTEXTS, rows, (uint32_t)(count * sizeof *rows)))
        return -1;
    told += count;
    return 0;
}

/* Returns 0 where all are told up to `count`. */
static int tell_nodes(uint32_t count)
{
    if (told_on != connection_times())
        told = 0, told_on = connection_times();
    while (told < count)
        if (tell_some())
            return -1;
    return 0;
}

/* Own times become those of all that lies under a context: children have larger ids than their parents. Where the time
 * of an operator is not over its children's is in it, which then makes up for it. */
static void add_up(uint32_t count, double ns_per_tick)
{
    for (uint32_t id = 1; id <= count; id++) {
        struct context_node *node = context_node(id);
        int64_t own_ticks = atomic_load_explicit(&node->own_ticks, memory_order_relaxed);
        node->window_ns = (int64_t)((double)(own_ticks - node->told_ticks) * ns_per_tick);
        node->told_ticks = own_ticks;
    }
    for (uint32_t id = count; id; id--) {
        const struct context_node *node = context_node(id);
        if (node->parent)
            context_node(node->parent)->window_ns += node->window_ns;
    }
}

static void put_sums(uint32_t count, int64_t end_ns)
{
    static struct dp_context_sum rows[SUMS_AT_ONCE];
    uint32_t filled = 0;
    for (uint32_t id = 1; id <= count; id++) {
        struct context_node *node = context_node(id);
        uint64_t times = atomic_load_explicit(&node->count, memory_order_relaxed);
        if (times != node->told_count || node->window_ns)
            rows[filled++] = (struct dp_context_sum){window_start_ns, end_ns, node->window_ns,
                                                     times - node->told_count, id, 0};
        node->told_count = times;
        if (filled == SUMS_AT_ONCE || (id == count && filled)) {
            dp_put(DP_CONTEXT_SUMS, rows, filled, 0, DP_NO_GAP);
            filled = 0;
        }
    }
}

/* Since collecting began, so that it gets better with time. */
static double measure_tick(int64_t now_ns)
{
    int64_t passed = context_ticks() - measured_ticks;
    return passed > 0 && now_ns > measured_ns ? (double)(now_ns - measured_ns) / (double)passed : 1;
}

/* As a context of its own, so that whoever reads sums knows that they are not of everything. */
static void count_left_out(void)
{
    const char *what;
    uint32_t number = budget_take_left_out(&what);
    uint32_t id = number ? context_child(0, dp_intern(what), 0, DP_OPERATOR, 1) : 0;
    if (id)
        atomic_fetch_add_explicit(&context_node(id)->count, number, memory_order_relaxed);
}

/* Sums that cannot be told with their nodes yet stay, and are part of the next window. */
static void close_window(void)
{
    int64_t now = dp_now_ns();
    count_left_out();
    uint32_t count = context_count();
    if (tell_nodes(count) && queue_is_open())
        return;
    double ns_per_tick = measure_tick(now);
    add_up(count, ns_per_tick);
    put_sums(count, now);
    if (now - window_start_ns > WINDOW_NS / 2)
        budget_look(context_threads_cost(ns_per_tick, dp_contexts_call_ns()), (double)(now - window_start_ns));
    window_start_ns = now;
}

/* The nodes that launches name go before them. */
static void tell_launches(void)
{
    static uint64_t last;
    uint64_t heard = launches_heard ? launches_heard() : 0;
    if (heard == last || (tell_nodes(context_count()) && queue_is_open()))
        return;
    launches_put(heard);
    last = heard;
}

static void drain(int idle)
{
    (void)idle;
    tell_launches();
    if (dp_contexts_mode && dp_now_ns() / WINDOW_NS != window_start_ns / WINDOW_NS)
        close_window();
}

static void set(int on)
{
    int was_on = atomic_exchange(&dp_contexts_on, on && dp_contexts_mode);
    if (on && !was_on) {
        budget_reset();
        context_threads_cost(0, 0); /* of before */
        window_start_ns = measured_ns = dp_now_ns();
        measured_ticks = context_ticks();
    }
    if (was_on && !on) {
        atomic_fetch_add(&dp_contexts_epoch, 1);
        context_threads_wait();
        tell_launches();
        close_window();
    }
}

static void finish(void) { set(0); }

static void forget(void)
{
    atomic_fetch_add(&dp_contexts_epoch, 1);
    dp_contexts_on = 0;
    told = told_on = 0;
    context_threads_forget();
    native_forget();
    context_tree_forget();
}

const struct dp_source dp_context_sums = {.drain = drain, .set = set, .finish = finish, .early = 1, .forget = forget};
