/* The worker: follows the agent, switches sources, gathers from them, tells the time, and writes what waits.
 *
 * All state but the few words under `lock` belongs to the worker. It waits on a condition and not on a descriptor of
 * its own: a job that closes all descriptors must not make us write into one of its files. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>
#include "parts.h"

enum { MOST_SOURCES = 8 };
/* A LEVEL is heard and sources are looked at within the first; without an agent there is nothing to hear. */
enum { REST_MS = 20, BLOCKED_MS = 5, ALONE_MS = 100 };
static const uint64_t TICK_RECORDS = 1 << 17; /* the agent puts in order what lies between two: small pieces, no stalls */
static const int64_t TICK_NS = 250000000, IDLE_NS = 100000000;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t woken, changed; /* on CLOCK_MONOTONIC; the second tells of `stopped` and `finished` */
static const struct dp_source *_Atomic sources[MOST_SOURCES];
static atomic_uint source_count;
static atomic_int on, wake_wanted, finishing;
static int running, finished, paused; /* these and the next two under the lock */
static unsigned pauses;                /* so many have been asked for */
static int stopped = 1;                /* no source collects */
static uint64_t queue_limit, early_ms, finish_ms; /* the second: for the agent's first answer; the third: at the end */
static int64_t finish_until_ns;                   /* under the lock, once it is finishing */

/* The worker's own. */
static struct {
    unsigned known; /* sources that were told whether they are on */
    int collecting, was_on, had_agent, early;
    int64_t tick_ns, early_until_ns;
    uint64_t tick_next;
} w;

/* So many tenths of what may be waited for at an end. */
static int64_t finish_by_ns(int tenths) { return dp_now_ns() + (int64_t)finish_ms * 100000 * tenths; }

int dp_is_on(void) { return atomic_load_explicit(&on, memory_order_relaxed); }

void dp_wake(void)
{
    if (atomic_exchange(&wake_wanted, 1))
        return; /* it has been told and has not looked yet */
    pthread_mutex_lock(&lock);
    if (running)
        pthread_cond_signal(&woken);
    pthread_mutex_unlock(&lock);
}

/* ---- sources ---- */

#define FOR_SOURCES(source, from, function) \
    for (unsigned at = (from); at < w.known; at++) \
        for (const struct dp_source *source = sources[at]; source && source->function; source = NULL)

void dp_add_source(const struct dp_source *source)
{
    pthread_mutex_lock(&lock);
    unsigned count = source_count, place = 0;
    while (place < count && sources[place] != source)
        place++;
    if (place == count && count < MOST_SOURCES) {
        sources[count] = source;
        source_count = count + 1;
    }
    pthread_mutex_unlock(&lock);
    dp_wake();
}

/* Sources that came since the last time hear that the others are on. */
static void meet_sources(void)
{
    unsigned first = w.known;
    w.known = source_count;
    if (w.collecting)
        FOR_SOURCES(source, first, set) source->set(1);
}

static void drain(int idle)
{
    FOR_SOURCES(source, 0, drain) source->drain(idle);
}

void core_tick(void)
{
    struct dp_tick now = {.device_ns = DP_NO_TIME, .events_until_ns = DP_NO_TIME, .open_since_ns = DP_NEVER};
    clock_pair(&now.mono_ns, &now.unix_ns);
    now.ranges_until_ns = now.mono_ns; /* without a source of ranges there are none to come */
    now.collector_cpu_ns = (uint64_t)clock_ns(CLOCK_THREAD_CPUTIME_ID);
    FOR_SOURCES(source, 0, tick) source->tick(&now);
    now.process_cpu_ns = (uint64_t)clock_ns(CLOCK_PROCESS_CPUTIME_ID);
    queue_count(&now);
    now.level = w.collecting ? DP_ON : DP_OFF;
    queue_put(DP_TICK, &now, sizeof now);
    w.tick_ns = now.mono_ns;
    w.tick_next = now.next;
}

/* ---- switching ---- */

int core_is_paused(void)
{
    pthread_mutex_lock(&lock);
    int is = paused > 0;
    pthread_mutex_unlock(&lock);
    return is;
}

unsigned core_pauses(void)
{
    pthread_mutex_lock(&lock);
    unsigned count = pauses;
    pthread_mutex_unlock(&lock);
    return count;
}

/* Under the lock together with `paused`: whoever pauses sees that something runs, or it does not begin. What began
 * early runs until it is ended, also where nothing else may begin. */
static int may_begin(void)
{
    pthread_mutex_lock(&lock);
    int may = !paused;
    stopped &= !may;
    pthread_mutex_unlock(&lock);
    return may;
}

static void tell_stopped(void)
{
    pthread_mutex_lock(&lock);
    stopped = 1;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static void set_early(int early)
{
    w.early = early;
    atomic_store(&on, early);
    FOR_SOURCES(source, 0, set)
        if (source->early)
            source->set(early);
}

/* Until the agent has answered nobody knows whether it wants anything; sources that can, keep what comes meanwhile.
 * Under the lock, before the worker runs: a thread may take longer to begin than a short job takes in all. */
static void begin_early(void)
{
    meet_sources();
    if (paused || !early_ms)
        return;
    stopped = 0;
    w.early_until_ns = dp_now_ns() + (int64_t)early_ms * 1000000;
    set_early(1);
}

/* Nobody wants it, or nobody came: what was kept is lost, and counted. */
static void end_early(enum dp_reason reason)
{
    uint64_t before = queue_next();
    set_early(0);
    if (queue_next() != before)
        queue_gap(reason);
    tell_stopped();
}

static void switch_on(void)
{
    if (!may_begin())
        return;
    w.early = 0;
    w.collecting = w.was_on = 1;
    FOR_SOURCES(source, 0, set) source->set(1);
    atomic_store(&on, 1);
    w.tick_ns = 0; /* as soon as they have been looked at */
}

/* What sources still had belongs before the gap, so the reason is noted after it. */
static void switch_off(enum dp_reason reason)
{
    atomic_store(&on, 0);
    FOR_SOURCES(source, 0, set) source->set(0);
    w.collecting = 0;
    core_tick();
    queue_gap(reason);
    tell_stopped();
}

static void follow_agent(void)
{
    connection_follow(!w.had_agent);
    int has_agent = connection_state() == WELCOMED, is_busy = core_is_paused();
    int wanted = has_agent && connection_level() == DP_ON && !is_busy;
    if (w.early && !wanted && (has_agent || is_busy || dp_now_ns() > w.early_until_ns))
        end_early(is_busy ? DP_BUSY : has_agent ? DP_DUTY_CYCLE : DP_DISCONNECTED);
    if (has_agent && !w.had_agent)
        queue_open(queue_limit);
    if (w.collecting && !wanted)
        switch_off(!has_agent ? DP_DISCONNECTED : is_busy ? DP_BUSY : DP_DUTY_CYCLE);
    if (w.had_agent && !has_agent && w.was_on)
        queue_gap(DP_DISCONNECTED); /* also where the level was OFF when it went */
    w.had_agent = has_agent;
    if (!w.collecting && wanted)
        switch_on();
}

/* ---- the thread ---- */

static void tell_notices(void)
{
    struct { struct dp_notice_head head; char text[256]; } notice;
    while (connection_state() == WELCOMED && notices_next(&notice.head.code, notice.text, sizeof notice.text)) {
        notice.head.nbytes = (uint32_t)strlen(notice.text);
        queue_put(DP_NOTICE, &notice, (uint32_t)sizeof notice.head + notice.head.nbytes);
    }
}

static void gather(void)
{
    if (w.collecting)
        drain(dp_now_ns() - queue_put_ns() > IDLE_NS);
    if (w.had_agent && (dp_now_ns() - w.tick_ns >= TICK_NS || queue_next() - w.tick_next >= TICK_RECORDS))
        core_tick();
    tell_notices();
}

static void rest(void)
{
    if (connection_is_blocked()) {
        connection_wait(BLOCKED_MS);
        return;
    }
    int is_near = w.early && connection_state() == GREETED; /* one that does not answer is not asked for ever */
    int for_ms = w.had_agent ? REST_MS : is_near ? BLOCKED_MS : ALONE_MS;
    int64_t until_ns = dp_now_ns() + for_ms * (int64_t)1000000;
    pthread_mutex_lock(&lock);
    while (!atomic_load(&wake_wanted) && !atomic_load(&finishing))
        if (condition_wait(&woken, &lock, until_ns))
            break;
    pthread_mutex_unlock(&lock);
}

/* A job that is over sooner than the agent has answered, or even than this thread has begun. */
static void await_first_answer(int64_t until_ns)
{
    while (w.early && dp_now_ns() < until_ns) {
        follow_agent();
        connection_push();
        if (connection_state() != GREETED)
            return;
        connection_wait_to_hear(BLOCKED_MS);
    }
}

static void say_last_words(void)
{
    int64_t until_ns = finish_by_ns(8); /* so that it can close its connection before nobody waits for it any more */
    await_first_answer(until_ns);
    atomic_store(&on, 0);
    FOR_SOURCES(source, 0, finish) source->finish();
    tell_notices();
    core_tick(); /* the last word before the end: how many records of each kind there were */
    queue_end();
    connection_push();
    while (connection_is_blocked() && dp_now_ns() < until_ns) {
        connection_wait(BLOCKED_MS);
        connection_push();
    }
    connection_close();
}

static void *work(void *unused)
{
    prctl(PR_SET_NAME, "deepprof", 0, 0, 0);
    while (!atomic_load(&finishing)) {
        atomic_store(&wake_wanted, 0);
        meet_sources();
        follow_agent();
        gather();
        connection_push();
        rest();
    }
    say_last_words();
    pthread_mutex_lock(&lock);
    finished = stopped = 1;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    return unused;
}

/* ---- beginning, end, and fork ---- */

static void make_conditions(void)
{
    condition_make(&woken);
    condition_make(&changed);
}

/* The parent's locks are held over a fork, so that the child finds whole what it keeps. */
static void before_fork(void)
{
    pthread_mutex_lock(&lock);
    notices_lock();
    names_lock();
}

static void after_fork(void)
{
    names_unlock();
    notices_unlock();
    pthread_mutex_unlock(&lock);
}

/* The child has no worker, and perhaps half a queue: everything is forgotten, and nothing runs until it is started. */
static void in_child(void)
{
    thread_forget();
    for (unsigned i = 0; i < source_count; i++)
        if (sources[i]->forget)
            sources[i]->forget();
    connection_forget();
    queue_forget();
    identity_forget();
    notices_forget();
    memset(&w, 0, sizeof w);
    on = wake_wanted = finishing = 0;
    running = finished = paused = 0;
    pauses = 0;
    stopped = 1;
    make_conditions(); /* the parent's worker may wait on the old ones */
    after_fork();
}

static void prepare_once(void)
{
    make_conditions();
    pthread_atfork(before_fork, after_fork, in_child);
    atexit(dp_finish);
}

/* Under the lock. Returns 0, or -1 where no thread can be made: then nothing may go on filling memory. */
static int begin(void)
{
    begin_early();
    running = !thread_start(work);
    if (!running) {
        set_early(0);
        stopped = 1;
    }
    return running ? 0 : -1;
}

int dp_start(const char *collector)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, prepare_once);
    pthread_mutex_lock(&lock);
    int failed = finishing ? -1 : 0;
    if (!running && !failed) {
        queue_limit = setting("DEEPPROF_QUEUE_NBYTES", 64 << 20, 1 << 17, 1 << 30);
        early_ms = setting("DEEPPROF_EARLY_MS", 2000, 0, 60000);
        finish_ms = setting("DEEPPROF_FINISH_MS", 1000, 0, 60000);
        failed = identity_take(collector) ? -1 : begin();
    }
    pthread_mutex_unlock(&lock);
    return failed;
}

/* Whoever asks again waits no longer than the first one. */
void dp_finish(void)
{
    pthread_mutex_lock(&lock);
    if (running && !atomic_exchange(&finishing, 1)) {
        finish_until_ns = finish_by_ns(10);
        pthread_cond_signal(&woken);
    }
    while (running && !finished)
        if (condition_wait(&changed, &lock, finish_until_ns))
            break;
    pthread_mutex_unlock(&lock);
}

void dp_pause(void)
{
    int64_t until_ns = finish_by_ns(10);
    pthread_mutex_lock(&lock);
    paused++;
    pauses++;
    atomic_store(&wake_wanted, 1);
    if (running)
        pthread_cond_signal(&woken);
    while (running && !stopped)
        if (condition_wait(&changed, &lock, until_ns))
            break;
    pthread_mutex_unlock(&lock);
}

void dp_resume(void)
{
    pthread_mutex_lock(&lock);
    paused -= paused > 0;
    pthread_mutex_unlock(&lock);
    dp_wake();
}
