/* Taking part in CUPTI beside others, and leaving. Worker thread only.
 *
 * Through the functions that every version has, all clients of a process share one set of kinds and one pair of callbacks:
 * who registers last gets all records, and who disables a kind disables it for all. So before anything is registered we
 * ask, as NVIDIA wants every client to: who collects has subscribed, and where one has, another cannot. We do not stay
 * subscribed: that would refuse Proton, JAX and whoever asks after us, and the user's own profiler goes first.
 *
 * One who has subscribed need not collect: until August 2026 torch.profiler subscribes at its first session, for callbacks
 * that do not matter here, and stays subscribed until the process ends. Its subscription is told from others by what came
 * since nobody had one: a session of it, as the hook in Python says, or its clock, which counts cycles.
 *
 * From 13.3 on clients may have kinds and buffers of their own, if each of them allows it. We join one that does; where
 * nobody is, we do not begin such a session either, because clients that know nothing of it would be refused. */
#include <stdatomic.h>
#include <stddef.h>
#include <sys/prctl.h>
#include "cupti_parts.h"
#include "parts.h"

enum { PER_THREAD_BUFFERS = 9, DEVICE_BUFFER_POOL_LIMIT = 2 }; /* attributes */
enum { JOINING = 130300, NAME_NBYTES = 16, OLD_NAME_NBYTES = 128 };
/* Of 3.2 MB on the device each, for what the device has not told yet: CUPTI's own limit, 250, takes 800 MB of a job that
 * replays graphs for long. */
static const size_t DEVICE_BUFFERS = 64;

static const int KINDS[] = {KIND_CONCURRENT_KERNEL, KIND_MEMCPY, KIND_MEMCPY_PTOP, KIND_MEMSET, KIND_SYNCHRONIZATION,
                            KIND_GRAPH_TRACE};
enum { ALL_KINDS = sizeof KINDS / sizeof *KINDS };

static struct {
    struct cupti api;
    int found;
    uint32_t version;
    void *_Atomic subscriber; /* of a session that we have joined, else NULL */
    int enabled, left; /* how many of KINDS; how many were when another client took our place */
    enum { NOBODY, TORCH, ANOTHER } holder; /* of the subscription */
    struct torch_signs free; /* when nobody had it */
} s;

/* Threads that CUPTI makes inherit the name of the one that calls it first; they are the driver's, not ours. */
static void leave_name(char *ours)
{
    char job[NAME_NBYTES] = "";
    prctl(PR_GET_NAME, ours, 0, 0, 0);
    if (process_name(job, sizeof job))
        prctl(PR_SET_NAME, job, 0, 0, 0);
}

static void take_name(const char *ours) { prctl(PR_SET_NAME, ours, 0, 0, 0); }

int session_find(void)
{
    if (!s.found && !cupti_find(&s.api)) {
        s.found = 1;
        if (s.api.GetVersion(&s.version))
            s.version = 0;
    }
    return s.found ? 0 : -1;
}

uint32_t session_version(void) { return s.version; }
int session_is_joined(void) { return s.subscriber != NULL; }

int session_is_busy(int result)
{
    return result == CUPTI_ONE_SUBSCRIBER || result == CUPTI_NOT_COMPATIBLE || result == CUPTI_HARDWARE_BUSY
        || result == CUPTI_OLD_PROFILER;
}

static void hear_nothing(void *unused, int domain, uint32_t number, const void *data)
{
    (void)unused, (void)domain, (void)number, (void)data;
}

/* A client that took our place has let the kinds stay enabled that it has no use for; kernels every client has. */
static int is_left_by_us(int kind)
{
    for (int i = 1; i < s.left; i++)
        if (KINDS[i] == kind)
            return 1;
    return 0;
}

/* From 13.2 on CUPTI tells what is enabled: torch.profiler does not subscribe. Its header does not say whether the room is
 * counted in bytes or in kinds; there is enough for either. */
static int is_enabled_by_another(void)
{
    enum { ROOM = 256 };
    int kinds[ROOM] = {0};
    uint32_t room = ROOM, count = 0;
    if (!s.api.ActivityGetEnabledKinds || s.api.ActivityGetEnabledKinds(NULL, kinds, &room, &count))
        return 0;
    for (uint32_t i = 0; i < count && i < ROOM; i++)
        if (kinds[i] && !is_left_by_us(kinds[i]))
            return 1;
    return 0;
}

/* Whether somebody has subscribed. */
static int ask(void)
{
    void *subscriber = NULL;
    int result = s.api.Subscribe(&subscriber, hear_nothing, NULL);
    if (!result)
        s.api.Unsubscribe(subscriber);
    return session_is_busy(result) ? result : CUPTI_OK;
}

/* Takes down whose the subscription is. A clock of torch.profiler's is sure: where it finds another subscribed, it leaves
 * the device alone. A session is a hint, which holds unless another was there before. */
static int is_refused(int result, struct torch_signs signs)
{
    if (result && result != CUPTI_ONE_SUBSCRIBER)
        return 1;
    if (!result) {
        s.holder = NOBODY;
        s.free = signs;
    } else if (signs.clocks != s.free.clocks)
        s.holder = TORCH;
    else if (s.holder == NOBODY)
        s.holder = signs.sessions != s.free.sessions && !cupti_sees_other_profiler() ? TORCH : ANOTHER;
    return s.holder == ANOTHER && !signs.is_all_one;
}

int session_is_taken(struct torch_signs signs) { return !launches_subscribed() && is_refused(ask(), signs); }

int session_is_beside_torch(void) { return s.holder == TORCH; }

/* Returns CUPTI_OK where who is there allows others. */
static int join(void)
{
    char old_name[OLD_NAME_NBYTES] = "";
    struct cupti_subscriber about = {.nbytes = offsetof(struct cupti_subscriber, padding) + sizeof about.padding,
                                     .name = "DeepProf", .old_name = old_name, .old_nbytes = sizeof old_name, .many = 1};
    if (s.version < JOINING || !s.api.Subscribe_v2 || !s.api.ActivityRegisterCallbacks_v2 || !s.api.ActivityEnable_v2
        || !s.api.ActivityDisable_v2 || !s.api.ActivityGetNextRecord_v2 || !s.api.ActivityGetNumDroppedRecords_v2
        || !s.api.GetTimestamp_v2)
        return CUPTI_ONE_SUBSCRIBER;
    void *subscriber = NULL;
    int result = s.api.Subscribe_v2(&subscriber, launches_callback(), NULL, &about);
    s.subscriber = result ? NULL : subscriber;
    return result;
}

static int enable(int kind)
{
    return s.subscriber ? s.api.ActivityEnable_v2(s.subscriber, kind, NULL) : s.api.ActivityEnable(kind);
}

/* Kinds that a driver does not know (MEMCPY_PTOP, GRAPH_TRACE in old ones) are no reason to do without the others. */
static int enable_kinds(int count)
{
    int result = CUPTI_OK;
    while (!result && s.enabled < count) {
        result = enable(KINDS[s.enabled]);
        if (result && !session_is_busy(result) && KINDS[s.enabled] != KIND_CONCURRENT_KERNEL)
            result = CUPTI_OK;
        s.enabled += !result;
    }
    return result;
}

/* A buffer for each thread, as 13.0 and later have it unless told, keeps what a slow thread launched until a flush. */
static void set_attributes(void)
{
    uint8_t per_thread = 0;
    size_t limit = DEVICE_BUFFERS, nbytes = sizeof per_thread;
    s.api.ActivitySetAttribute(PER_THREAD_BUFFERS, &nbytes, &per_thread); /* refused up to 12.2, where there are none */
    nbytes = sizeof limit;
    s.api.ActivitySetAttribute(DEVICE_BUFFER_POOL_LIMIT, &nbytes, &limit);
}

static int register_buffers(void)
{
    if (s.subscriber)
        return s.api.ActivityRegisterCallbacks_v2(s.subscriber, buffers_request_v2, buffers_complete_v2);
    set_attributes();
    return s.api.ActivityRegisterCallbacks(buffers_request, buffers_complete);
}

static int begin(int graphs_as_launches, struct torch_signs signs)
{
    int result = ask(), is_joined = result && !join();
    if (is_refused(result, signs) && !is_joined)
        return result;
    if (!is_joined && is_enabled_by_another())
        return CUPTI_ONE_SUBSCRIBER;
    result = register_buffers();
    return result ? result : enable_kinds(graphs_as_launches ? ALL_KINDS : ALL_KINDS - 1);
}

int session_begin(int graphs_as_launches, struct torch_signs signs)
{
    char ours[NAME_NBYTES] = "";
    leave_name(ours);
    int result = begin(graphs_as_launches, signs);
    take_name(ours);
    if (result) {
        session_disable();
        session_leave();
    } else {
        s.left = 0; /* ours again */
        launches_begin(&s.api, s.subscriber);
    }
    return result;
}

void session_disable(void)
{
    while (s.enabled) {
        int kind = KINDS[--s.enabled];
        if (s.subscriber)
            s.api.ActivityDisable_v2(s.subscriber, kind, NULL);
        else
            s.api.ActivityDisable(kind);
    }
}

void session_leave(void)
{
    launches_end(&s.api);
    if (s.subscriber)
        s.api.Unsubscribe(s.subscriber);
    s.subscriber = NULL;
    s.enabled = 0;
}

void session_flush(uint32_t flag) { s.api.ActivityFlushAll(s.subscriber ? CUPTI_FLUSH_COMPLETED : flag); }

int session_next_record(uint8_t *buffer, size_t valid_nbytes, void **record)
{
    return s.subscriber ? s.api.ActivityGetNextRecord_v2(s.subscriber, buffer, valid_nbytes, record)
                        : s.api.ActivityGetNextRecord(buffer, valid_nbytes, record);
}

size_t session_dropped(void *context, uint32_t stream)
{
    size_t dropped = 0;
    int result = s.subscriber ? s.api.ActivityGetNumDroppedRecords_v2(s.subscriber, context, stream, &dropped)
                              : s.api.ActivityGetNumDroppedRecords(context, stream, &dropped);
    return result ? 0 : dropped;
}

uint64_t session_timestamp(void)
{
    uint64_t now = 0;
    int result = !s.found ? -1 : s.subscriber ? s.api.GetTimestamp_v2(s.subscriber, &now) : s.api.GetTimestamp(&now);
    return result ? 0 : now;
}

const char *session_describe(int result)
{
    const char *text = NULL;
    if (s.api.GetResultString)
        s.api.GetResultString(result, &text);
    return text ? text : "an error";
}

void session_abandon(void)
{
    launches_end(&s.api);
    s.left = s.enabled;
    s.enabled = 0;
}

/* The child's driver is its own, and the library is found again: what is known of it stays. */
void session_forget(void)
{
    s.subscriber = NULL;
    s.enabled = s.left = 0;
    s.holder = NOBODY;
    s.free = (struct torch_signs){0};
    launches_forget();
}
