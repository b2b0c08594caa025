/* The source of device events: CUPTI's activity records.
 *
 * The driver loads this library for CUDA_INJECTION64_PATH and calls InitializeInjection inside the first cuInit. That
 * only starts the worker: nothing is asked of CUPTI before an agent wants records, and nothing while none does.
 *
 * One client can have CUPTI's activity records in a process (from CUDA 13.3 on, several, through other calls). Whom a
 * call refuses for another's sake tries again now and then. What cannot be seen from here: a client that registers its
 * callbacks over ours (torch.profiler does) is not refused, and the records go to it from then on; nothing tells us. So
 * whoever knows that a profiler starts calls dp_pause, and after dp_resume the callbacks are registered again. */
#define _GNU_SOURCE
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "cupti_parts.h"
#include "parts.h"

enum { BATCH = 1024 };
static const int64_t FLUSH_NS = 200000000, IDLE_NS = 100000000, FIRST_PAUSE_NS = 50000000, PATIENCE_NS = 1000000000;
/* Clocks disagree by microseconds, garbage by years: a minute tells them apart on any machine. */
static const uint64_t CLOCK_SLACK_NS = 60000000000u;

/* Written before driver_was_here, on the thread that the driver calls us on. */
static struct {
    unsigned most_buffers;
    int kinds; /* how many of COMMON_KINDS are wanted */
    int64_t longest_pause_ns; /* between two tries */
    atomic_int driver_was_here; /* in this process: a forked child has no driver before it starts its own */
} settings;

static struct {
    struct cupti api;
    int found, wanted, active, kinds_enabled;
    int was_busy; /* records are missing for another's sake */
    int forced;   /* CUPTI gives what it has, finished or not */
    int64_t retry_ns, pause_ns, flush_ns, came_ns; /* the last: a buffer */
    uint64_t since_ns;           /* device clock: when collecting began */
    int64_t until_ns;            /* device clock: everything that ended before has been given, or DP_NO_TIME */
    uint64_t driver_dropped, lost; /* all so far; those that no packet has told of yet */
    uint64_t unfinished;         /* cut off at the end of a window: lost after its last record */
} s = {.until_ns = DP_NO_TIME};

static struct dp_event batch[BATCH];

static const int COMMON_KINDS[] = {KIND_CONCURRENT_KERNEL, KIND_MEMCPY, KIND_MEMCPY_PTOP, KIND_MEMSET,
                                   KIND_SYNCHRONIZATION, KIND_GRAPH_TRACE};
enum { KINDS = sizeof COMMON_KINDS / sizeof *COMMON_KINDS };

/* With GRAPH_TRACE a launched graph is one record, without it one for each of its nodes. */
static void take_settings(void)
{
    const char *graphs = getenv("DEEPPROF_GRAPHS");
    settings.kinds = graphs && !strcmp(graphs, "launches") ? KINDS : KINDS - 1;
    settings.most_buffers = (unsigned)setting("DEEPPROF_BUFFERS", 128, 2, 4096);
    settings.longest_pause_ns = (int64_t)setting("DEEPPROF_RETRY_MS", 10000, 1, 1000000) * 1000000;
    cupti_library_prepare();
}

static uint64_t device_now(void)
{
    uint64_t now = 0;
    return s.found && !s.api.GetTimestamp(&now) ? now : 0;
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

/* Records without a time that can be true are counted, and told as one gap of the buffer that they stood in; those that
 * the end of a window cut off, as one after its last record. */
static uint32_t take_record(struct buffer *buffer, void *record, struct window window, uint32_t count)
{
    size_t place = (size_t)((uint8_t *)record - buffer->bytes);
    int how = decode(record, buffer->valid_nbytes - place, window, &batch[count]);
    if (how == UNFINISHED && s.forced)
        s.unfinished++;
    else if (how == BAD_TIMES || how == UNFINISHED)
        lose(1, DP_BAD_TIMES, "CUPTI gave records without a time that can be true; they are left out");
    else if (how == ODD_RECORD)
        lose(1, DP_ODD_RECORDS, "CUPTI gave records of a size that is not known; they are left out");
    return count + (how == DECODED);
}

static void walk(struct buffer *buffer)
{
    uint64_t now = device_now();
    struct window window = {s.since_ns > CLOCK_SLACK_NS ? s.since_ns - CLOCK_SLACK_NS : 1,
                            now ? now + CLOCK_SLACK_NS : INT64_MAX};
    void *record = NULL;
    uint32_t count = 0;
    int result;
    if (buffer->dropped) {
        s.driver_dropped += buffer->dropped;
        lose(buffer->dropped, DP_DRIVER_LOST, "CUPTI dropped records: it had no buffer to write them to");
    }
    while (!(result = s.api.ActivityGetNextRecord(buffer->bytes, buffer->valid_nbytes, &record))) {
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

static void walk_all(void)
{
    for (struct buffer *buffer; (buffer = buffers_take()); buffers_give_back(buffer)) {
        s.came_ns = dp_now_ns();
        walk(buffer);
    }
}

/* After a flush that left nothing with CUPTI, all that ended before it has been seen: there is no place for more. While
 * CUPTI holds a buffer - always, under load - nobody can say what is in it, and the promise stays where it was. */
static void flush(uint32_t flag)
{
    uint64_t before = device_now();
    s.forced = flag == CUPTI_FLUSH_FORCED;
    s.api.ActivityFlushAll(flag);
    walk_all();
    s.lost += s.unfinished;
    put(0);
    s.unfinished = s.forced = 0;
    s.flush_ns = dp_now_ns();
    if (before && buffers_are_idle())
        s.until_ns = (int64_t)before;
}

/* ---- switching ---- */

static void disable(void)
{
    while (s.kinds_enabled)
        s.api.ActivityDisable(COMMON_KINDS[--s.kinds_enabled]);
    s.active = 0;
}

static const char *name_result(int result)
{
    const char *text = NULL;
    if (s.api.GetResultString)
        s.api.GetResultString(result, &text);
    return text ? text : "an error";
}

static int is_busy(int result)
{
    return result == CUPTI_ONE_SUBSCRIBER || result == CUPTI_NOT_COMPATIBLE || result == CUPTI_HARDWARE_BUSY
        || result == CUPTI_OLD_PROFILER;
}

static int is_denied(int result) { return result == CUPTI_NO_PRIVILEGES || result == CUPTI_NO_PRIVILEGES_HERE; }

static void tell_refusal(int result)
{
    char text[256];
    int denied = is_denied(result);
    const char *why = is_busy(result) ? cupti_sees_other_profiler() ? "Nsight has it" : "another profiler has it"
        : denied ? "the driver reserves it for administrators (NVreg_RestrictProfilingToAdminUsers)" : "it failed";
    snprintf(text, sizeof text, "CUPTI cannot be used now: %s (%d, %s); tried again every now and then", why, result,
             name_result(result));
    dp_notice(is_busy(result) ? DP_CUPTI_BUSY : denied ? DP_CUPTI_DENIED : DP_CUPTI_FAILED, text);
}

/* Kinds that a driver does not know (MEMCPY_PTOP, GRAPH_TRACE in old ones) are no reason to do without the others. */
static int enable_kinds(void)
{
    int result = CUPTI_OK;
    while (!result && s.kinds_enabled < settings.kinds) {
        int kind = COMMON_KINDS[s.kinds_enabled];
        result = s.api.ActivityEnable(kind);
        if (result && !is_busy(result) && kind != KIND_CONCURRENT_KERNEL)
            result = CUPTI_OK;
        s.kinds_enabled += !result;
    }
    return result;
}

static void find(void)
{
    s.found = !cupti_find(&s.api);
    if (!s.found)
        dp_notice(DP_NO_CUPTI, "no libcupti that can be loaded was found; set CUDA_HOME, or pip install nvidia-cuda-cupti");
    else
        buffers_prepare(settings.most_buffers, s.api.ActivityGetNumDroppedRecords);
}

/* The first tries are close together: the driver may still be starting, which is also why they may fail unsaid. */
static void plan_next_try(void)
{
    s.pause_ns = s.pause_ns ? 2 * s.pause_ns : FIRST_PAUSE_NS;
    if (s.pause_ns > settings.longest_pause_ns)
        s.pause_ns = settings.longest_pause_ns;
    s.retry_ns = dp_now_ns() + s.pause_ns;
}

static void give_up_for_now(int result)
{
    disable();
    s.was_busy |= is_busy(result);
    if (is_busy(result) || is_denied(result) || s.pause_ns > PATIENCE_NS)
        tell_refusal(result);
}

static void try_to_collect(void)
{
    plan_next_try();
    if (!s.found)
        find();
    if (!s.found)
        return;
    s.since_ns = device_now();
    int result = s.api.ActivityRegisterCallbacks(buffers_request, buffers_complete);
    result = result ? result : enable_kinds();
    s.active = !result;
    if (result)
        give_up_for_now(result);
}

static void set(int on)
{
    s.wanted = on;
    s.retry_ns = s.pause_ns = 0;
    if (!on && s.active) {
        disable();
        flush(CUPTI_FLUSH_FORCED);
    }
}

/* Ranges may come all the time while CUPTI holds the few records that there are. */
static void drain(int idle)
{
    (void)idle;
    if (s.wanted && !s.active && atomic_load(&settings.driver_was_here) && dp_now_ns() >= s.retry_ns)
        try_to_collect();
    if (!s.active)
        return;
    walk_all();
    if (dp_now_ns() - s.came_ns > IDLE_NS && dp_now_ns() - s.flush_ns > FLUSH_NS)
        flush(CUPTI_FLUSH_COMPLETED);
}

static void finish(void)
{
    if (s.active)
        flush(CUPTI_FLUSH_FORCED);
}

/* The clocks are read between two readings of one of them, and the closest of three tries is taken. */
static void read_clocks(struct dp_tick *tick)
{
    int64_t closest = DP_NEVER;
    for (int i = 0; i < 3; i++) {
        struct timespec unix_time;
        int64_t before = dp_now_ns();
        uint64_t device = device_now();
        clock_gettime(CLOCK_REALTIME, &unix_time);
        int64_t took = dp_now_ns() - before;
        if (!device || took >= closest)
            continue;
        closest = took;
        tick->device_ns = (int64_t)device;
        tick->mono_ns = before + took / 2;
        tick->unix_ns = (int64_t)unix_time.tv_sec * 1000000000 + unix_time.tv_nsec;
    }
}

static void tick(struct dp_tick *tick)
{
    tick->driver_dropped = s.driver_dropped;
    if (!s.found)
        return;
    read_clocks(tick);
    tick->events_until_ns = s.until_ns;
}

static void forget(void)
{
    memset(&s, 0, sizeof s);
    settings.driver_was_here = 0;
    s.until_ns = DP_NO_TIME;
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
