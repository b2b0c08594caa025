/* The source of device events: CUPTI's activity records.
 *
 * The driver loads this library for CUDA_INJECTION64_PATH and calls InitializeInjection inside the first cuInit. That
 * only starts the worker: nothing is asked of CUPTI before an agent wants records and the driver is ready.
 *
 * The user's own profiler goes first: cupti_session.c asks before each beginning whether one is there. One that comes
 * later and does not ask for us (torch.profiler) takes our place unsaid. Whoever knows that it starts calls dp_pause; else
 * its clock betrays it, or its subscription once nothing comes any more. Then we leave alone what is enabled, for it is its. */
#define _GNU_SOURCE
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "cupti_parts.h"
#include "parts.h"

enum { BATCH = 1024, BUFFERS_A_TURN = 32 /* some 80,000 kernels: the clocks are told in between, however fast they come */ };
/* A flush asks for buffers that are not full: those of a job that rests, and of threads beside a busy one. */
static const int64_t IDLE_NS = 100000000, FLUSH_NS = 200000000, BUSY_FLUSH_NS = 500000000;
static const int64_t FIRST_PAUSE_NS = 50000000, PATIENCE_NS = 1000000000;
/* Clocks disagree by microseconds, garbage by years: a minute tells them apart on any machine. */
static const int64_t CLOCK_SLACK_NS = 60000000000;
enum { STAYS_AWAY = 6 }; /* times the longest pause, when another client came after us */
/* CUDA 13.0 without its first update: in a job with graphs disabling a kind can hang, and a flush crash. Small buffers come
 * back soon by themselves. */
enum { FRAGILE_VERSION = 130000, REFUSING_VERSION = 27 /* from it on a request may get no buffer */ };
enum { BUFFER_NBYTES = 512 << 10, FRAGILE_NBYTES = 32 << 10 };

/* Written before driver_was_here, on the thread that the driver calls us on. */
static struct {
    unsigned most_buffers;
    int graphs_as_launches;   /* one record for a launched graph instead of one for each of its nodes */
    int is_beside;            /* whoever else has subscribed, we collect */
    int64_t longest_pause_ns; /* between two tries */
    atomic_int driver_was_here; /* in this process: a forked child has no driver before it starts its own */
} settings;

static struct {
    int wanted, active;
    int muted;     /* what comes is thrown away, as if nothing were enabled */
    int graphs;    /* records of replayed graphs have come */
    int was_busy;  /* records are missing for another's sake */
    int forced;    /* CUPTI gives what it has, finished or not */
    unsigned pool; /* how many buffers there can be */
    int64_t retry_ns, pause_ns, flush_ns, came_ns, asked_ns; /* the last but one: a buffer */
    int64_t since_ns;            /* CLOCK_MONOTONIC: when collecting began */
    int64_t until_ns;            /* our device clock: everything that was launched before has been given, or DP_NO_TIME */
    uint64_t driver_dropped, lost; /* all so far; those that no packet has told of yet */
    uint64_t unfinished[DP_RECORD_KINDS]; /* cut off at the end of a window: lost after its last record */
} s = {.until_ns = DP_NO_TIME};

static struct dp_event batch[BATCH];

static void take_settings(void)
{
    const char *graphs = getenv("DEEPPROF_GRAPHS");
    settings.graphs_as_launches = graphs && !strcmp(graphs, "launches");
    settings.is_beside = (int)setting("DEEPPROF_BESIDE", 0, 0, 1);
    settings.most_buffers = (unsigned)setting("DEEPPROF_BUFFERS", 128, 2, 4096);
    settings.longest_pause_ns = (int64_t)setting("DEEPPROF_RETRY_MS", 10000, 1, 1000000) * 1000000;
    cupti_library_prepare();
}

/* ---- records ---- */

static void put(uint32_t count)
{
    enum dp_reason reason = s.was_busy ? DP_BUSY : s.lost ? DP_DRIVER_DROPPED : DP_NO_GAP;
    if (!count && !s.lost)
        return;
    dp_put(DP_EVENTS, batch, count, s.lost, reason);
    s.was_busy = 0;
    s.lost = 0;
}

static void lose(uint64_t count, enum dp_notice_code code, const char *text)
{
    s.lost += count;
    dp_notice(code, text);
}

static void lose_in_driver(uint64_t count)
{
    if (!count)
        return;
    s.driver_dropped += count;
    lose(count, DP_DRIVER_LOST, "CUPTI had no buffer of ours to write to: its records are lost");
}

/* Records without a time that can be true are counted, and told as one gap of the buffer that they stood in; those that
 * the end of a window cut off, as one after its last record. */
static uint32_t take_record(struct buffer *buffer, void *record, struct window window, uint32_t count)
{
    size_t place = (size_t)((uint8_t *)record - buffer->bytes);
    int how = decode(record, buffer->valid_nbytes - place, window, &batch[count]);
    s.graphs |= batch[count].graph != 0;
    if (how == UNFINISHED && s.forced)
        s.unfinished[batch[count].activity]++;
    else if (how == BAD_TIMES || how == UNFINISHED) {
        dp_made(batch[count].activity, 1);
        lose(1, DP_BAD_TIMES, "CUPTI gave records without a time that can be true; they are left out");
    } else if (how == ODD_RECORD)
        lose(1, DP_ODD_RECORDS, "CUPTI gave records of a size that is not known; they are left out");
    return count + (how == DECODED);
}

static void walk(struct buffer *buffer)
{
    struct window window = clock_window(clock_from_mono(s.since_ns) - CLOCK_SLACK_NS,
                                        clock_from_mono(dp_now_ns()) + CLOCK_SLACK_NS);
    void *record = NULL;
    uint32_t count = 0;
    int result;
    lose_in_driver(buffer->dropped);
    while (!(result = session_next_record(buffer->bytes, buffer->valid_nbytes, &record))) {
        count = take_record(buffer, record, window, count);
        if (count == BATCH) {
            put(count);
            count = 0;
        }
    }
    put(count);
    if (result != CUPTI_END && buffer->valid_nbytes) {
        lose(1, DP_ODD_RECORDS, "CUPTI could not read one of its buffers to the end; the rest, one record or more, is lost");
        put(0);
    }
}

/* A record has its place in a buffer from its launch on. So whatever was launched before the oldest buffer that CUPTI
 * holds was requested is in one that has come back, or on its way from none. */
static void walk_up_to(unsigned most)
{
    int64_t now = dp_now_ns(), oldest = buffers_oldest_ns();
    struct buffer *buffer = NULL;
    for (unsigned i = 0; i < most && (buffer = buffers_take()); i++) {
        s.came_ns = now;
        if (!s.muted)
            walk(buffer);
        buffers_give_back(buffer);
    }
    uint64_t scrapped = buffers_scrapped();
    lose_in_driver(s.muted ? 0 : scrapped);
    if (buffer) {
        dp_wake(); /* there may be more */
        return;
    }
    int64_t until = clock_from_mono(oldest < now ? oldest : now);
    s.until_ns = until > s.until_ns ? until : s.until_ns;
}

/* There are no more at a time; what is filled again meanwhile is for the next turn, or this one would never end. */
static void walk_all(void) { walk_up_to(s.pool); }

static int is_fragile(void) { return session_version() == FRAGILE_VERSION; }

static void lose_unfinished(void)
{
    for (int kind = 0; kind < DP_RECORD_KINDS; kind++) {
        dp_made((enum dp_activity)kind, s.unfinished[kind]);
        s.lost += s.unfinished[kind];
        s.unfinished[kind] = 0;
    }
    put(0);
}

static void flush(uint32_t flag)
{
    s.forced = flag == CUPTI_FLUSH_FORCED;
    if (!is_fragile())
        session_flush(flag);
    walk_all();
    lose_unfinished();
    s.forced = 0;
    s.flush_ns = dp_now_ns();
}

/* ---- switching ---- */

static void tell_refusal(int result)
{
    char text[256];
    int busy = session_is_busy(result), denied = result == CUPTI_NO_PRIVILEGES || result == CUPTI_NO_PRIVILEGES_HERE;
    const char *why = busy ? cupti_sees_other_profiler() ? "Nsight has it" : "another profiler has it"
        : denied ? "the driver reserves it for administrators (NVreg_RestrictProfilingToAdminUsers)" : "it failed";
    snprintf(text, sizeof text, "CUPTI cannot be used now: %s (%d, %s); tried again every now and then", why, result,
             session_describe(result));
    dp_notice(busy ? DP_CUPTI_BUSY : denied ? DP_CUPTI_DENIED : DP_CUPTI_FAILED, text);
}

/* The first tries are close together: the driver may still be starting, which is also why they may fail unsaid. */
static void plan_next_try(void)
{
    s.pause_ns = s.pause_ns ? 2 * s.pause_ns : FIRST_PAUSE_NS;
    if (s.pause_ns > settings.longest_pause_ns)
        s.pause_ns = settings.longest_pause_ns;
    s.retry_ns = dp_now_ns() + s.pause_ns;
}

static int is_driver_ready(void)
{
    enum driver_state state = driver_state();
    if (state == DRIVER_WITHOUT_DEVICE) {
        dp_notice(DP_NO_DEVICE, "the CUDA driver shows this process no device (CUDA_VISIBLE_DEVICES?): nothing to collect");
        plan_next_try();
    }
    return state == DRIVER_READY;
}

static int find(void)
{
    if (session_find()) {
        dp_notice(DP_NO_CUPTI, "no libcupti that can be loaded was found; set CUDA_HOME, or pip install nvidia-cuda-cupti");
        return -1;
    }
    size_t nbytes = is_fragile() ? FRAGILE_NBYTES : BUFFER_NBYTES;
    s.pool = settings.most_buffers * (unsigned)(BUFFER_NBYTES / nbytes);
    buffers_prepare(s.pool, nbytes, session_version() >= REFUSING_VERSION);
    if (is_fragile())
        dp_notice(DP_FRAGILE, "this CUPTI (13.0 without Update 1) can hang or crash jobs with CUDA graphs: it is never switched "
                              "off nor flushed, so that the last records are lost; pip install -U \"nvidia-cuda-cupti>=13.0.85\"");
    return 0;
}

static void refuse(int result)
{
    s.was_busy |= session_is_busy(result);
    if (session_is_busy(result) || s.pause_ns > PATIENCE_NS || result == CUPTI_NO_PRIVILEGES
        || result == CUPTI_NO_PRIVILEGES_HERE)
        tell_refusal(result);
}

static struct torch_signs torch_signs(void)
{
    return (struct torch_signs){core_pauses(), clock_cycles(), settings.is_beside};
}

static void try_to_collect(void)
{
    if (!is_driver_ready())
        return;
    plan_next_try();
    if (find())
        return;
    buffers_begin();
    clock_look(); /* whatever clock there is by now, nobody has changed it under us */
    int result = session_begin(settings.graphs_as_launches, torch_signs());
    s.active = !result;
    s.since_ns = s.came_ns = s.asked_ns = dp_now_ns();
    if (result)
        refuse(result);
}

/* Another client took our place. What is enabled is its, and what we had not been given has gone to it. */
static void give_way(const char *how)
{
    char text[128];
    session_abandon();
    s.active = 0;
    s.was_busy = 1;
    s.retry_ns = dp_now_ns() + STAYS_AWAY * settings.longest_pause_ns;
    snprintf(text, sizeof text, "another profiler has taken CUPTI's records (%s); tried again every now and then", how);
    dp_notice(DP_CUPTI_TAKEN, text);
}

/* Beside torch.profiler nobody else can subscribe. Where nobody tells of its sessions but silence, and one has switched off
 * what we had enabled, we begin anew; a job that rests has lost nothing then. */
static void look_for_torch(int64_t silent_ns)
{
    int64_t patience_ns = STAYS_AWAY * settings.longest_pause_ns;
    if (core_pauses() || silent_ns < patience_ns || silent_ns < 2 * BUSY_FLUSH_NS)
        return;
    session_abandon();
    s.active = 0;
    s.was_busy = 1;
    s.retry_ns = 0;
}

static void look_for_others(void)
{
    int64_t now = dp_now_ns();
    int64_t silent_ns = settings.longest_pause_ns / 2; /* a job that launches is heard */
    if (session_is_beside_torch()) {
        look_for_torch(now - s.came_ns);
        return;
    }
    if (session_is_joined() || settings.is_beside || now - s.came_ns < silent_ns || now - s.asked_ns < settings.longest_pause_ns)
        return;
    s.asked_ns = now;
    if (session_is_taken(torch_signs()))
        give_way("it has subscribed");
}

/* Graphs that are captured while nothing is enabled may give no kernels when they are replayed later: so once there are
 * graphs, a window only ends for us. For another profiler, or where nobody listens any more, all ends. */
static int is_to_be_muted(void)
{
    return is_fragile() || (s.graphs && connection_state() == WELCOMED && !core_is_paused());
}

static void mute(void)
{
    flush(CUPTI_FLUSH_COMPLETED);
    s.muted = 1;
}

static void stop(void)
{
    session_disable();
    flush(CUPTI_FLUSH_FORCED);
    session_leave();
    s.active = s.muted = 0;
}

/* The process ends, and what CUPTI holds cannot be asked for. */
static void leave_rest(void)
{
    mute();
    s.lost += buffers_oldest_ns() != DP_NEVER; /* one or more */
    put(0);
}

/* Before any record: the agent keeps few that it cannot lay on a clock. */
static void tell_clock(void)
{
    for (int tries = 0; tries < 3 && s.active && !clock_is_told(); tries++)
        core_tick(); /* a reading fails where the machine is busy */
}

/* Records are worth nothing without a clock. */
static void settle(void)
{
    if (!s.active || !clock_settle()) {
        tell_clock();
        return;
    }
    s.muted = 1;
    lose(1, DP_CUPTI_FAILED, "CUPTI tells no time: its records, one or more, are lost");
}

static void set(int on)
{
    s.wanted = on;
    s.retry_ns = s.pause_ns = 0;
    if (on)
        clock_untell();
    settle();
    if (!s.active)
        return;
    if (on && s.muted) {
        flush(CUPTI_FLUSH_COMPLETED); /* what ran meanwhile */
        s.muted = 0;
    } else if (!on)
        (is_to_be_muted() ? mute : stop)();
}

static void flush_when_due(void)
{
    int64_t now = dp_now_ns();
    if (now - s.flush_ns > (now - s.came_ns > IDLE_NS ? FLUSH_NS : BUSY_FLUSH_NS))
        flush(CUPTI_FLUSH_COMPLETED);
}

/* Ranges may come all the time while CUPTI holds the few records that there are. */
static void drain(int idle)
{
    (void)idle;
    if (s.wanted && !s.active && atomic_load(&settings.driver_was_here) && dp_now_ns() >= s.retry_ns)
        try_to_collect();
    if (!s.active)
        return;
    if (clock_is_told())
        walk_up_to(BUFFERS_A_TURN);
    enum clock_news news = clock_look();
    if (news == CLOCK_CHANGED)
        give_way("its clock is another one");
    else if (news == CLOCK_SAME) {
        tell_clock();
        if (clock_is_told())
            flush_when_due();
        look_for_others();
    }
}

static void finish(void)
{
    if (s.wanted && !s.active && driver_state() == DRIVER_STARTING)
        dp_notice(DP_NO_DEVICE, "the CUDA driver did not come up in this process: nothing was collected");
    settle();
    if (s.active)
        (is_fragile() ? leave_rest : stop)();
}

/* While nothing is wanted nobody drains, and what CUPTI has no room for then would be told as lost. */
static void tick(struct dp_tick *tick)
{
    if (s.muted && clock_is_told())
        walk_all();
    tick->driver_dropped = s.driver_dropped;
    if (clock_read(tick))
        return;
    tick->events_until_ns = s.active ? s.until_ns : tick->device_ns;
}

static void forget(void)
{
    memset(&s, 0, sizeof s);
    settings.driver_was_here = 0;
    s.until_ns = DP_NO_TIME;
    session_forget();
    clock_forget();
    buffers_forget();
    decode_forget();
}

DP_EXPORT int InitializeInjection(void)
{
    static const struct dp_source source = {.drain = drain, .tick = tick, .set = set, .finish = finish, .forget = forget};
    if (!atomic_load(&settings.driver_was_here)) {
        take_settings();
        atomic_store(&settings.driver_was_here, 1);
        atexit(dp_finish); /* once more: what comes later runs first, and the driver's own end is already noted */
        dp_add_source(&source);
    }
    dp_start("cupti");
    return 1; /* whatever came of it, the job goes on */
}
