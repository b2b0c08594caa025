/* What each thread has open, as places in the tree; and the worker's sums of it, by window.
 *
 * A thread finds its place in the tree and adds to its nodes without a lock. Paths of Python are compared with the
 * thread's last one from the outermost function on; the step from a function to one in it is looked up in a table of
 * the thread's own, so that a steady loop never asks the interpreter. Whatever has no node yet costs once. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "context_budget.h"
#include "context_tree.h"
#include "contexts.h"
#include "forward_numbers.h"
#include "hooks.h"
#include "parts.h"
#include "python_frames.h"

enum { MOST_OPEN = 512, MOST_FRAMES = 512, FIRST_STEPS = 1 << 10, MOST_STEPS = 1 << 17, PATIENCE = 2000, MEASURED_ONE_IN = 31, MOST_TICKS = 200000 };
enum { NOT_OPEN = 43 }; /* notice */
static const int64_t WINDOW_NS = 1000000000;

struct open_context {
    uint32_t node;
    int frames;                         /* how many functions of Python were running when it began */
    int is_gone;                        /* the function that began it has returned */
    int is_opaque;                      /* may run functions of Python: no operator of PyTorch's own */
    int64_t start, inner, sequence;     /* the first two in ticks */
    const void *frame, *code;           /* the innermost function then, one of both, and where in it */
    uintptr_t at;
};

struct step { uint32_t from, to; const void *code; uintptr_t at; }; /* to 0: free */

struct context_thread {
    struct context_thread *next;        /* under `listing` */
    atomic_int is_reading;              /* the interpreter's memory: who ends it waits for that */
    _Atomic int64_t cost;               /* of ours, in ticks */
    int64_t told_cost;                  /* the worker's */
    int depth, left_out, step_count, last_count;
    unsigned unmeasured;
    uint32_t epoch, engine;             /* the latter: where the last node of autograd belongs; 0: nowhere else */
    unsigned step_mask;
    struct step *steps;
    struct open_context open[MOST_OPEN];
    struct python_place places[MOST_FRAMES]; /* being read, the innermost first */
    struct { const void *code; uintptr_t at; uint32_t node; } last[MOST_FRAMES]; /* the outermost first */
};

static _Atomic int mode, is_on, only_sums;
static _Atomic uint32_t epoch;          /* grows when collecting ends, and with a fork: what was open is not ours */
static pthread_key_t at_thread_end;
static pthread_once_t prepared = PTHREAD_ONCE_INIT;
static int has_key;
static struct context_thread *all;
static pthread_mutex_t listing = PTHREAD_MUTEX_INITIALIZER;
static __thread struct context_thread *mine;
static __thread int is_refused;

int dp_contexts_wanted(void) { return atomic_load_explicit(&is_on, memory_order_relaxed); }

/* While the job's first thread loads the library: a GPU's session may begin before Python asks for contexts. Values are
 * those that the hook takes: for others nobody ever asks, and no subscription of CUPTI's is to be held. */
static int is_asked;

__attribute__((constructor)) static void read_environment(void)
{
    const char *text = getenv("DEEPPROF_CONTEXTS");
    is_asked = text && (!strcmp(text, "operators") || !strcmp(text, "python"));
}

/* ---- time ---- */

/* The processor's own count, where the system trusts it as its clock: a third of what asking the system costs, and that
 * is most of what there is to pay. The worker measures how long one lasts. */
#if defined(__x86_64__)
#include <x86intrin.h>
static int counts_ticks;
static int64_t ticks(void) { return counts_ticks ? (int64_t)__rdtsc() : dp_now_ns(); }

static void choose_clock(void)
{
    char name[16] = "";
    FILE *file = fopen("/sys/devices/system/clocksource/clocksource0/current_clocksource", "re");
    counts_ticks = file && fgets(name, sizeof name, file) && (!strcmp(name, "tsc\n") || !strcmp(name, "kvm-clock\n"));
    if (file)
        fclose(file);
}
#else
static int64_t ticks(void) { return dp_now_ns(); }
static void choose_clock(void) {}
#endif

/* ---- a thread ---- */

static void leave(void *value)
{
    struct context_thread *thread = value, **place = &all;
    mine = NULL;
    is_refused = 1;
    pthread_mutex_lock(&listing);
    while (*place && *place != thread)
        place = &(*place)->next;
    if (*place)
        *place = thread->next;
    pthread_mutex_unlock(&listing);
    free(thread->steps);
    free(thread);
}

static void prepare(void) { has_key = !pthread_key_create(&at_thread_end, leave); }

static struct context_thread *make_thread(void)
{
    pthread_once(&prepared, prepare);
    struct context_thread *thread = has_key ? calloc(1, sizeof *thread) : NULL;
    is_refused = !thread;
    if (!thread)
        return NULL;
    thread->epoch = epoch;
    pthread_mutex_lock(&listing);
    thread->next = all;
    all = thread;
    pthread_mutex_unlock(&listing);
    pthread_setspecific(at_thread_end, mine = thread);
    return thread;
}

/* Until no thread looks at the interpreter's memory: it may be given back after that. One that waits for the interpreter
 * is not waited for. */
static void wait_for_readers(void)
{
    pthread_mutex_lock(&listing);
    for (struct context_thread *thread = all; thread; thread = thread->next)
        for (int i = 0; i < PATIENCE && atomic_load(&thread->is_reading); i++)
            sched_yield();
    pthread_mutex_unlock(&listing);
}

static void notice_epoch(struct context_thread *thread)
{
    uint32_t now = atomic_load_explicit(&epoch, memory_order_relaxed);
    if (thread->epoch == now)
        return;
    thread->epoch = now;
    thread->depth = thread->left_out = 0;
}

static struct context_thread *my_thread(void)
{
    if (!mine)
        return is_refused ? NULL : make_thread();
    notice_epoch(mine);
    return mine;
}

/* ---- steps that are known ---- */

static unsigned place_of(const struct context_thread *thread, uint32_t from, const struct python_place *place)
{
    uint64_t hash = ((uintptr_t)place->code ^ (uint64_t)from << 40) * UINT64_C(0x9E3779B97F4A7C15);
    hash = (hash ^ hash >> 32 ^ place->at) * UINT64_C(0xD6E8FEB86659FD93);
    return (unsigned)(hash >> 40) & thread->step_mask;
}

static struct step *find_step(const struct context_thread *thread, uint32_t from, const struct python_place *place)
{
    unsigned at = place_of(thread, from, place);
    struct step *step = &thread->steps[at];
    while (step->to && !(step->from == from && step->code == place->code && step->at == place->at))
        step = &thread->steps[at = (at + 1) & thread->step_mask];
    return step;
}

/* Twice the room; a program with more steps than fit begins again, and pays for it. */
static int grow_steps(struct context_thread *thread)
{
    unsigned size = thread->steps ? 2 * (thread->step_mask + 1) : FIRST_STEPS, before = thread->step_mask;
    struct step *old = thread->steps, *grown = size <= MOST_STEPS ? calloc(size, sizeof *grown) : NULL;
    if (!grown) {
        if (old)
            memset(old, 0, ((size_t)before + 1) * sizeof *old);
        thread->step_count = 0;
        return old ? 0 : -1;
    }
    thread->steps = grown, thread->step_mask = size - 1;
    for (unsigned i = 0; old && i <= before; i++)
        if (old[i].to)
            *find_step(thread, old[i].from, &(struct python_place){old[i].code, old[i].at}) = old[i];
    free(old);
    return 0;
}

static int has_room_for_step(struct context_thread *thread)
{
    return (thread->steps && 2u * (unsigned)thread->step_count <= thread->step_mask) || !grow_steps(thread);
}

/* With the interpreter's lock. */
static uint32_t make_step(struct context_thread *thread, uint32_t from, const struct python_place *place, int *is_kept)
{
    uint32_t name, line;
    *is_kept = python_name(place, &name, &line);
    uint32_t to = context_child(from, name, line, DP_PYTHON_FRAME, 0);
    if (to && *is_kept && has_room_for_step(thread)) {
        *find_step(thread, from, place) = (struct step){from, to, place->code, place->at};
        thread->step_count++;
    }
    return to;
}

/* ---- paths of Python ---- */

/* Returns the context of the step, 0 where the interpreter has to be asked and cannot be. Where the code is not kept, its
 * address may be another's soon: it is not to be remembered. */
static uint32_t take_step(struct context_thread *thread, uint32_t from, const struct python_place *place, int *entered,
                          int *is_kept)
{
    const struct step *step = thread->steps ? find_step(thread, from, place) : NULL;
    *is_kept = 1;
    if (step && step->to)
        return step->to;
    if (!*entered && python_reads_freely() && !(*entered = python_enter()))
        return 0;
    return make_step(thread, from, place, is_kept);
}

/* How much of the path is as it was the last time. */
static int count_equal(const struct context_thread *thread, int count)
{
    int equal = 0;
    for (; equal < count && equal < thread->last_count; equal++) {
        const struct python_place *place = &thread->places[count - 1 - equal];
        if (thread->last[equal].code != place->code || thread->last[equal].at != place->at)
            break;
    }
    return equal;
}

/* From the root; the path is kept for the next time. */
static uint32_t follow_path(struct context_thread *thread, int count, int *entered)
{
    int at = thread->last_count = count_equal(thread, count), is_kept;
    uint32_t node = at ? thread->last[at - 1].node : 0, next;
    for (; at < count; at++, node = next) {
        const struct python_place *place = &thread->places[count - 1 - at];
        if (!(next = take_step(thread, node, place, entered, &is_kept)))
            break;
        if (!is_kept || at != thread->last_count)
            continue;
        thread->last[at].code = place->code, thread->last[at].at = place->at;
        thread->last[at].node = next;
        thread->last_count++;
    }
    return node;
}

static uint32_t follow_inside(struct context_thread *thread, uint32_t node, int count, int *entered)
{
    int is_kept;
    uint32_t next;
    while (count-- && (next = take_step(thread, node, &thread->places[count], entered, &is_kept)))
        node = next;
    return node;
}

/* Whether the function that began `open` is still running there: one that is not, as of a range that a function of its own
 * has opened, holds nothing. Reads what has come to run since. */
static int holds(struct context_thread *thread, struct open_context *open, int *count)
{
    if (python_reads_freely()) {
        *count = python_read(open->frame, open->at, thread->places, MOST_FRAMES);
        open->is_gone = *count < 0;
        return !open->is_gone;
    }
    const struct python_place *then = *count < open->frames ? NULL : &thread->places[*count - open->frames];
    open->is_gone = !then || (open->frames && (then->code != open->code || then->at != open->at));
    *count -= open->is_gone ? 0 : open->frames;
    return !open->is_gone;
}

/* The innermost open context that holds what begins now, NULL for none; in places, the functions from there on. */
static struct open_context *find_holder(struct context_thread *thread, int *count)
{
    *count = python_reads_freely() ? 0 : python_read(NULL, 0, thread->places, MOST_FRAMES);
    for (int k = thread->depth - 1; k >= 0; k--)
        if (!thread->open[k].is_gone && holds(thread, &thread->open[k], count))
            return &thread->open[k];
    if (python_reads_freely())
        *count = python_read(NULL, 0, thread->places, MOST_FRAMES);
    return NULL;
}

static uint32_t find_path(struct context_thread *thread, struct open_context *open)
{
    int count, entered = 0;
    if (!python_reads_freely() && !(entered = python_enter()))
        return thread->depth ? thread->open[thread->depth - 1].node : 0;
    struct open_context *holder = find_holder(thread, &count);
    open->frames = count + (holder ? holder->frames : 0);
    if (!python_reads_freely() && open->frames)
        open->code = thread->places[0].code, open->at = thread->places[0].at;
    uint32_t node = holder ? follow_inside(thread, holder->node, count, &entered) : follow_path(thread, count, &entered);
    if (entered)
        python_leave();
    return node;
}

/* Whether functions of Python have come to run since `around` began. Without looking, where they are not read freely:
 * PyTorch's own operators run none. */
static int may_run_python(const struct open_context *around, const struct open_context *open)
{
    if (around->is_gone)
        return 1;
    if (python_reads_freely())
        return open->frame != around->frame || open->at != around->at;
    return around->is_opaque;
}

/* While collecting goes on: whoever ends it has waited for those that read. */
static uint32_t read_around(struct context_thread *thread, struct open_context *open)
{
    const struct open_context *around = thread->depth ? &thread->open[thread->depth - 1] : NULL;
    if (!atomic_load(&is_on))
        return around ? around->node : 0;
    open->frame = python_top(&open->at);
    if (!around || may_run_python(around, open))
        return find_path(thread, open);
    open->frames = around->frames, open->code = around->code, open->at = around->at;
    return around->node;
}

static uint32_t find_around(struct context_thread *thread, struct open_context *open)
{
    if (mode < DP_WITH_PYTHON)
        return thread->depth ? thread->open[thread->depth - 1].node : 0;
    atomic_exchange(&thread->is_reading, 1); /* what the interpreter runs meanwhile is no part of the program */
    uint32_t node = read_around(thread, open);
    atomic_store_explicit(&thread->is_reading, 0, memory_order_release);
    return node;
}

/* ---- begin and end ---- */

/* Whether a function of autograd begins, written in Python: it is called as a range might be, from one place alone. */
static int is_function(uint32_t around)
{
    const struct context_node *node = around ? context_node(around) : NULL;
    return node && node->kind == DP_PYTHON_FRAME && node->name && strstr(names_text(node->name), "torch/autograd/function.py(")
        && strstr(names_text(node->name), "): apply");
}

/* Out of operators, to the function or range which they are in. */
static uint32_t leave_operators(uint32_t id)
{
    const struct context_node *node = context_node(id);
    while (node->kind == DP_OPERATOR && !node->is_range && node->parent)
        node = context_node(id = node->parent);
    return id;
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

static int is_reading(struct context_thread *thread)
{
    return atomic_load_explicit(&thread->is_reading, memory_order_relaxed);
}

static void begin(struct context_thread *thread, struct dp_label *label)
{
    struct open_context *open = &thread->open[thread->depth];
    memset(open, 0, sizeof *open);
    open->is_opaque = label->role != DP_OWN_OPERATOR;
    open->sequence = -1;
    uint32_t around = find_around(thread, open);
    int is_range = label->role == DP_MARKED && !is_function(around);
    if (label->role >= DP_ENGINE)
        around = find_forward(thread, label, around);
    open->node = context_child(around, dp_label_group(label), 0, DP_OPERATOR, is_range);
    if (!is_range && label->role < DP_ENGINE && open->node)
        keep_number(thread, open, label->plain);
    thread->depth++;
    open->start = ticks();
}

static void end(struct context_thread *thread)
{
    struct open_context *open = &thread->open[--thread->depth];
    int64_t spent = open->is_gone ? open->inner : ticks() - open->start; /* the rest is Python's */
    if (thread->depth)
        open[-1].inner += spent;
    if (!dp_contexts_wanted() || !open->node)
        return;
    struct context_node *node = context_node(open->node);
    atomic_fetch_add_explicit(&node->count, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&node->own_ticks, spent - open->inner, memory_order_relaxed);
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
    int64_t cost = atomic_load_explicit(&thread->cost, memory_order_relaxed), own = ticks() - since;
    own = own < MOST_TICKS ? own : MOST_TICKS; /* more is another thread's time on this processor */
    atomic_store_explicit(&thread->cost, cost + own * MEASURED_ONE_IN, memory_order_relaxed);
}

/* Whether it is left out: with what is around it, as a part of an iteration that is not collected, or as too deep. */
static int is_left_out(struct context_thread *thread, const struct dp_label *label)
{
    if (label->is_step)
        budget_mark(label);
    if (thread->left_out || is_reading(thread))
        return 1;
    if (!thread->depth)
        return !budget_collects();
    if (thread->depth == MOST_OPEN)
        dp_notice(NOT_OPEN, "contexts of operators nested more than 512 deep are those around them");
    return thread->depth == MOST_OPEN;
}

void dp_context_begin(struct dp_label *label)
{
    struct context_thread *thread = my_thread();
    if (!thread)
        return;
    if (is_left_out(thread, label)) {
        thread->left_out++;
        return;
    }
    int64_t since = is_measured(thread) ? ticks() : 0;
    begin(thread, label);
    if (since)
        add_cost(thread, since);
}

void dp_context_end(void)
{
    struct context_thread *thread = mine;
    if (!thread)
        return;
    notice_epoch(thread);
    if (thread->left_out) {
        thread->left_out--;
    } else if (thread->depth) {
        int64_t since = is_measured(thread) ? ticks() : 0;
        end(thread);
        if (since)
            add_cost(thread, since);
    }
}

uint32_t dp_context_current(void)
{
    const struct context_thread *thread = mine;
    return thread && thread->depth ? thread->open[thread->depth - 1].node : 0;
}

/* ---- the worker ---- */

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
    int64_t passed = ticks() - measured_ticks;
    return passed > 0 && now_ns > measured_ns ? (double)(now_ns - measured_ns) / (double)passed : 1;
}

/* Of the thread that paid most since the last time, in ticks. */
static double find_cost(void)
{
    int64_t most = 0;
    pthread_mutex_lock(&listing);
    for (struct context_thread *thread = all; thread; thread = thread->next) {
        int64_t cost = atomic_load_explicit(&thread->cost, memory_order_relaxed);
        most = cost - thread->told_cost > most ? cost - thread->told_cost : most;
        thread->told_cost = cost;
    }
    pthread_mutex_unlock(&listing);
    return (double)most;
}

/* Sums that cannot be told with their nodes yet stay, and are part of the next window. */
static void close_window(void)
{
    int64_t now = dp_now_ns();
    uint32_t count = context_count();
    if (tell_nodes(count) && queue_is_open())
        return;
    double ns_per_tick = measure_tick(now);
    add_up(count, ns_per_tick);
    put_sums(count, now);
    if (now - window_start_ns > WINDOW_NS / 2)
        budget_look(find_cost() * ns_per_tick / (double)(now - window_start_ns));
    window_start_ns = now;
}

/* The nodes that launches name go before them. */
static void tell_launches(void)
{
    static uint64_t last;
    uint64_t heard = launches_heard();
    if (heard == last || (tell_nodes(context_count()) && queue_is_open()))
        return;
    launches_put(heard);
    last = heard;
}

static void drain(int idle)
{
    (void)idle;
    tell_launches();
    if (mode && dp_now_ns() / WINDOW_NS != window_start_ns / WINDOW_NS)
        close_window();
}

static void set(int on)
{
    int was_on = atomic_exchange(&is_on, on && mode);
    if (on && !was_on) {
        budget_reset();
        window_start_ns = measured_ns = dp_now_ns();
        measured_ticks = ticks();
    }
    if (was_on && !on) {
        atomic_fetch_add(&epoch, 1);
        wait_for_readers();
        tell_launches();
        close_window();
    }
}

static void finish(void) { set(0); }

static void forget(void)
{
    atomic_fetch_add(&epoch, 1);
    is_on = 0;
    told = told_on = 0;
    pthread_mutex_init(&listing, NULL); /* another thread of the parent may have held it */
    if ((all = mine)) {
        mine->next = NULL;
        atomic_store(&mine->is_reading, 0);
    }
    context_tree_forget();
}

const struct dp_source dp_context_sums = {.drain = drain, .set = set, .finish = finish, .early = 1, .forget = forget};

int dp_contexts_asked(void) { return atomic_load(&mode) != DP_CONTEXTS_OFF || is_asked; }

int dp_operators_wanted(void) { return !atomic_load_explicit(&only_sums, memory_order_relaxed); }

enum { NO_NUMBERS = 44 }; /* notice */

void dp_contexts_number(int number_at, int thread_at)
{
    if (forward_prepare(number_at, thread_at))
        dp_notice(NO_NUMBERS, "this PyTorch does not tell the numbers of its backward nodes: they stay under backward()");
}

int dp_contexts_start(int wanted, const char *prefixes, int without_events)
{
    atomic_store(&only_sums, without_events);
    context_tree_prepare();
    budget_prepare();
    int failed = wanted >= DP_WITH_PYTHON && python_prepare(prefixes);
    atomic_store(&mode, failed ? DP_OPERATORS_ONLY : wanted);
    choose_clock();
    if (wanted)
        dp_add_source(&dp_context_sums);
    return failed ? -1 : 0;
}
