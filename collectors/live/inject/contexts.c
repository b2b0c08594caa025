/* What begins and ends on a thread, as places in the tree.
 *
 * A thread finds its place in the tree and adds to its nodes without a lock. Whatever has no node yet costs once. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include "context_budget.h"
#include "context_clock.h"
#include "context_threads.h"
#include "context_tree.h"
#include "contexts.h"
#include "forward_numbers.h"
#include "hooks.h"
#include "native_frames.h"
#include "parts.h"

enum { MEASURED_ONE_IN = 31, MOST_TICKS = 200000 };
enum { NOT_OPEN = 43 }; /* notice */

_Atomic int dp_contexts_mode, dp_contexts_on;
_Atomic uint32_t dp_contexts_epoch;
static _Atomic int only_sums;

int dp_contexts_wanted(void) { return atomic_load_explicit(&dp_contexts_on, memory_order_relaxed); }

/* While the job's first thread loads the library: a GPU's session may begin before Python asks for contexts. Values are
 * those that the hook takes: for others nobody ever asks, and no subscription of CUPTI's is to be held. */
static int is_asked;

__attribute__((constructor)) static void read_environment(void)
{
    const char *text = getenv("DEEPPROF_CONTEXTS");
    is_asked = text && (!strcmp(text, "operators") || !strcmp(text, "python") || !strcmp(text, "native"));
}

/* ---- begin and end ---- */

/* Whether a function of autograd begins, written in Python: it is called as a range might be, from one place alone. */
static int is_function(uint32_t around)
{
    const struct context_node *node = around ? context_node(around) : NULL;
    return node && node->kind == DP_PYTHON_FRAME && node->name && strstr(names_text(node->name), "torch/autograd/function.py(")
        && strstr(names_text(node->name), "): apply");
}

/* Out of operators, and of native code in them, to the function or range which they are in. */
static uint32_t leave_operators(uint32_t id)
{
    uint32_t left = id;
    for (const struct context_node *node = context_node(id);
         node->kind != DP_PYTHON_FRAME && !node->is_range && node->parent; node = context_node(node->parent))
        if (node->kind == DP_OPERATOR)
            left = node->parent;
    return left;
}

/* Where a node of autograd belongs: to its forward operator. One that adds a gradient up belongs where the one before
 * it does, which has made the gradient. */
static uint32_t find_forward(struct context_thread *thread, const struct dp_label *label, uint32_t around)
{
    int is_named;
    if (label->role == DP_ENGINE) {
        thread->engine = forward_find(label->plain, &is_named);
        if (thread->engine && !is_named)
            thread->engine = leave_operators(thread->engine);
    }
    return thread->engine ? thread->engine : around;
}

/* Keeps which operator the next number is of, unless one around it has it already. */
static void keep_number(struct context_thread *thread, struct open_context *open, const char *name)
{
    int place = thread->depth - 1;
    open->sequence = forward_number();
    while (place >= 0 && thread->open[place].sequence < 0)
        place--;
    if (open->sequence >= 0 && place >= 0 && thread->open[place].sequence == open->sequence)
        forward_add(open->sequence, name);
    else if (open->sequence >= 0)
        forward_keep(open->sequence, open->node, name);
}

static void begin(struct context_thread *thread, struct dp_label *label)
{
    struct open_context *open = &thread->open[thread->depth];
    memset(open, 0, sizeof *open);
    open->sequence = -1;
    open->may_outlast = label->role == DP_MARKED;
    uint32_t around = context_around(thread, open);
    int is_range = label->role == DP_MARKED && !is_function(around);
    if (label->role >= DP_ENGINE)
        around = find_forward(thread, label, around);
    open->node = context_child(around, dp_label_group(label), 0, DP_OPERATOR, is_range);
    if (!is_range && label->role < DP_ENGINE && open->node)
        keep_number(thread, open, label->plain);
    thread->depth++;
    open->start = context_ticks();
}

static void end(struct context_thread *thread)
{
    struct open_context *open = &thread->open[--thread->depth];
    int64_t spent = open->is_gone ? open->inner : context_ticks() - open->start; /* the rest is Python's */
    if (thread->depth)
        open[-1].inner += spent;
    if (!dp_contexts_wanted() || !open->node)
        return;
    struct context_node *node = context_node(open->node);
    atomic_fetch_add_explicit(&node->count, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&node->own_ticks, spent - open->inner, memory_order_relaxed);
}

/* To what only this thread writes. */
static void add_alone(_Atomic int64_t *sum, int64_t value)
{
    atomic_store_explicit(sum, atomic_load_explicit(sum, memory_order_relaxed) + value, memory_order_relaxed);
}

/* One in MEASURED_ONE_IN is measured, for all of them. */
static int is_measured(struct context_thread *thread)
{
    if (thread->unmeasured--)
        return 0;
    thread->unmeasured = MEASURED_ONE_IN - 1;
    return 1;
}

static void add_cost(struct context_thread *thread, int64_t since)
{
    int64_t own = context_ticks() - since;
    own = own < MOST_TICKS ? own : MOST_TICKS; /* more is another thread's time on this processor */
    add_alone(&thread->cost, own * MEASURED_ONE_IN);
}

/* Whether it is left out: with what is around it, as a part of an iteration that is not collected, or as too deep. */
static int is_left_out(struct context_thread *thread, const struct dp_label *label)
{
    if (label->is_step)
        budget_mark(label);
    if (thread->left_out)
        return 1;
    if (!thread->depth)
        return !budget_collects();
    if (thread->depth == MOST_OPEN)
        dp_notice(NOT_OPEN, "contexts of operators nested more than 512 deep are those around them");
    return thread->depth == MOST_OPEN;
}

void dp_context_begin(struct dp_label *label)
{
    struct context_thread *thread = context_thread();
    if (!thread)
        return;
    if (is_left_out(thread, label)) {
        thread->left_out++;
        return;
    }
    int64_t since = is_measured(thread) ? context_ticks() : 0;
    begin(thread, label);
    if (since) {
        add_cost(thread, since);
        add_alone(&thread->begun, MEASURED_ONE_IN);
    }
}

void dp_context_end(void)
{
    struct context_thread *thread = context_thread_here();
    if (!thread)
        return;
    context_thread_notice(thread);
    if (thread->left_out) {
        thread->left_out--;
    } else if (thread->depth) {
        int64_t since = is_measured(thread) ? context_ticks() : 0;
        end(thread);
        if (since)
            add_cost(thread, since);
    }
}

uint32_t dp_context_current(void)
{
    const struct context_thread *thread = context_thread_here();
    return thread && thread->depth ? thread->open[thread->depth - 1].node : 0;
}

/* ---- the beginning ---- */

int dp_contexts_asked(void) { return atomic_load(&dp_contexts_mode) != DP_CONTEXTS_OFF || is_asked; }

int dp_operators_wanted(void) { return !atomic_load_explicit(&only_sums, memory_order_relaxed); }

enum { NO_NUMBERS = 44 }; /* notice */

void dp_contexts_number(int number_at, int thread_at)
{
    if (forward_prepare(number_at, thread_at))
        dp_notice(NO_NUMBERS, "this PyTorch does not tell the numbers of its backward nodes: they stay under backward()");
}

static _Atomic int64_t call_cost_ns;

int dp_contexts_step(void) { return budget_step(dp_contexts_wanted()); }

void dp_contexts_cost(int64_t call_ns) { atomic_store(&call_cost_ns, call_ns); }

double dp_contexts_call_ns(void) { return budget_is_told() ? (double)atomic_load(&call_cost_ns) : 0; }

int dp_contexts_start(int wanted, const char *prefixes, int without_events)
{
    atomic_store(&only_sums, without_events);
    if (atomic_load(&dp_contexts_mode)) /* the hook of another library was first */
        return 1;
    context_tree_prepare();
    budget_prepare();
    int failed = wanted >= DP_WITH_PYTHON && python_prepare(prefixes);
    int no_stacks = wanted >= DP_WITH_NATIVE && native_prepare();
    atomic_store(&dp_contexts_mode, failed ? DP_OPERATORS_ONLY : wanted < DP_WITH_PYTHON ? wanted : DP_WITH_PYTHON);
    context_clock_choose();
    if (wanted)
        dp_add_source(&dp_context_sums);
    return failed || no_stacks ? -1 : 0;
}
