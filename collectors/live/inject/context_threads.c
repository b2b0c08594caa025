/* The threads that have run operators, in a list: the worker looks at them, and whoever ends collecting. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include "context_threads.h"
#include "core.h"

static const int64_t MOST_WAITING_NS = 1000000000;

static pthread_key_t at_thread_end;
static pthread_once_t prepared = PTHREAD_ONCE_INIT;
static int has_key;
static struct context_thread *all;
static struct { int64_t cost, begun; } ended; /* of threads that have ended since the worker looked, together */
static pthread_mutex_t listing = PTHREAD_MUTEX_INITIALIZER;
static __thread struct context_thread *mine;
static __thread int is_refused;

/* Under the lock. */
static void keep_cost(const struct context_thread *thread)
{
    ended.cost += atomic_load_explicit(&thread->cost, memory_order_relaxed) - thread->told_cost;
    ended.begun += atomic_load_explicit(&thread->begun, memory_order_relaxed) - thread->told_begun;
}

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
    keep_cost(thread);
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
    thread->epoch = dp_contexts_epoch;
    pthread_mutex_lock(&listing);
    thread->next = all;
    all = thread;
    pthread_mutex_unlock(&listing);
    pthread_setspecific(at_thread_end, mine = thread);
    return thread;
}

/* Until no thread looks at the interpreter's memory: it may be given back after that. Reading waits for nothing, so that
 * a thread that does not come to an end in a second has been stopped. */
void context_threads_wait(void)
{
    const struct timespec pause = {.tv_nsec = 50000};
    int64_t until = dp_now_ns() + MOST_WAITING_NS;
    pthread_mutex_lock(&listing);
    for (struct context_thread *thread = all; thread; thread = thread->next)
        while (atomic_load(&thread->is_reading) && dp_now_ns() < until)
            nanosleep(&pause, NULL);
    pthread_mutex_unlock(&listing);
}

void context_thread_notice(struct context_thread *thread)
{
    uint32_t now = atomic_load_explicit(&dp_contexts_epoch, memory_order_relaxed);
    if (thread->epoch == now)
        return;
    thread->epoch = now;
    thread->depth = thread->left_out = 0;
}

struct context_thread *context_thread(void)
{
    if (!mine)
        return is_refused ? NULL : make_thread();
    context_thread_notice(mine);
    return mine;
}

struct context_thread *context_thread_here(void) { return mine; }

/* Of ours and, by the number of calls, of PyTorch's, since the last time. */
static double count_cost(struct context_thread *thread, double ns_per_tick, double ns_per_call)
{
    int64_t cost = atomic_load_explicit(&thread->cost, memory_order_relaxed);
    int64_t begun = atomic_load_explicit(&thread->begun, memory_order_relaxed);
    double spent_ns = (double)(cost - thread->told_cost) * ns_per_tick + (double)(begun - thread->told_begun) * ns_per_call;
    thread->told_cost = cost, thread->told_begun = begun;
    return spent_ns;
}

/* Of the thread that paid most; a program that begins threads for each iteration pays what they do one after the other. */
double context_threads_cost(double ns_per_tick, double ns_per_call)
{
    pthread_mutex_lock(&listing);
    double most_ns = (double)ended.cost * ns_per_tick + (double)ended.begun * ns_per_call;
    ended.cost = ended.begun = 0;
    for (struct context_thread *thread = all; thread; thread = thread->next) {
        double spent_ns = count_cost(thread, ns_per_tick, ns_per_call);
        most_ns = spent_ns > most_ns ? spent_ns : most_ns;
    }
    pthread_mutex_unlock(&listing);
    return most_ns;
}

void context_threads_forget(void)
{
    pthread_mutex_init(&listing, NULL); /* another thread of the parent may have held it */
    ended.cost = ended.begun = 0;
    if ((all = mine)) {
        mine->next = NULL;
        atomic_store(&mine->is_reading, 0);
    }
}
