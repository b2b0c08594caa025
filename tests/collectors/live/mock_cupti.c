/* A driver and its libcupti for machines without a GPU: the functions that the collector calls, and a device that a test
 * drives. The library is both (its name is the driver's), as one process sees both.
 *
 * It differs as versions do, by the environment:
 *   MOCK_CUDA=13         records have the sizes of CUDA 13.5, else of 12.9
 *   MOCK_API=n           what cuptiGetVersion says (28). Below 27 a request that gets no buffer crashes the process; from
 *                        130000 on each thread has a buffer of its own unless told otherwise; 130000 itself may hang or crash,
 *                        and here does, where a kind is disabled or buffers are flushed; from 130300 on there
 *                        are subscribers with buffers of their own
 *   MOCK_DRIVER=ms       the driver is ready so long after it was loaded; -1: it shows no device. Until then calls crash
 *   MOCK_BUSY=n          the first n registrations are refused
 *   MOCK_PATIENT=1       waits for a buffer in place of dropping records
 *   MOCK_KEEPS_THREADS=1 each thread has a buffer of its own, whatever it is told
 *   MOCK_THREAD=1        the first registration makes a thread, as CUPTI's first calls do
 *   MOCK_TORCH_LEAVES=1  torch.profiler does not subscribe, as its versions of August 2026 and later; those before do at
 *                        their first session, and stay subscribed until the process ends; refused, they record no device
 *   MOCK_LEFT=1          kinds that are enabled when the process ends make its exit code 9 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "mock_cupti.h"

enum { SLOTS = 64, KINDS = 64, BUFFERS = 4096, GRAPHS = 1024, ATTRIBUTES = 32 };
enum { OK = 0, INVALID_PARAMETER = 1, END = 12, INVALID_KIND = 21, ONE_SUBSCRIBER = 39 };
enum { REFUSING = 27, FRAGILE = 130000, PER_THREAD = 9, PER_THREAD_FROM = 130000, TELLS_FROM = 130200, MANY_FROM = 130300 };
enum { NOT_READY = 3, NO_DEVICE = 100 };

typedef void (*request_function)(uint8_t **, size_t *, size_t *);
typedef void (*complete_function)(void *, uint32_t, uint8_t *, size_t, size_t);
typedef void (*request_function_v2)(uint8_t **, size_t *, size_t *, void *);
typedef void (*complete_function_v2)(uint8_t *, size_t, size_t, void *);

/* A buffer that a client gave: what is reserved in it and has not ended yet keeps it from being given back. */
struct filled {
    uint8_t *bytes;
    size_t nbytes, used;
    int unfinished, is_full;
    struct client *client;
};

/* Those that share what every version has are one client; a subscriber of its own is another. */
static struct client {
    int is_there, is_ours; /* ours: of the collector that is tested */
    request_function request;
    complete_function complete;
    request_function_v2 request_v2;
    complete_function_v2 complete_v2;
    int enabled[KINDS];
    unsigned long dropped;
    struct filled *slots[SLOTS];
} shared = {.is_there = 1}, joined[2];

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of everything; callbacks are called without it */
static struct filled *late[BUFFERS];
static unsigned late_count, slot_count;
static _Thread_local unsigned my_slot; /* from 1 */
static int newest, patient, busy, refusing, delaying, shows_left, per_thread, keeps_threads, makes_thread, torch_leaves;
static long version = 28, ready_ms;
static uint64_t loaded_ns;
static unsigned long dropped_so_far, other_count, refused_count;
static atomic_ulong walked;
static atomic_int foreign_clock;
static int wrong_heads, wrong_left, subscribed;
static unsigned char untraceable[GRAPHS];
static int other_profiles, begins_other; /* it has the shared callbacks; it is subscribing */

static void crash(const char *why)
{
    fprintf(stderr, "mock CUPTI: %s\n", why);
    abort();
}

static int read_int(int *value)
{
    pthread_mutex_lock(&lock);
    int found = *value;
    pthread_mutex_unlock(&lock);
    return found;
}

static void write_int(int *value, int wanted)
{
    pthread_mutex_lock(&lock);
    *value = wanted;
    pthread_mutex_unlock(&lock);
}

static uint64_t now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return MOCK_CLOCK_NS + (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static long number(const char *name, long otherwise)
{
    const char *text = getenv(name);
    return text ? atol(text) : otherwise;
}

__attribute__((constructor)) static void prepare(void)
{
    newest = number("MOCK_CUDA", 12) == 13;
    version = number("MOCK_API", 28);
    ready_ms = number("MOCK_DRIVER", 0);
    patient = getenv("MOCK_PATIENT") != NULL;
    shows_left = (int)number("MOCK_LEFT", 0);
    busy = (int)number("MOCK_BUSY", 0);
    keeps_threads = (int)number("MOCK_KEEPS_THREADS", 0);
    makes_thread = (int)number("MOCK_THREAD", 0);
    torch_leaves = (int)number("MOCK_TORCH_LEAVES", 0);
    per_thread = keeps_threads || version >= PER_THREAD_FROM;
    loaded_ns = now_ns();
}

__attribute__((destructor)) static void look_back(void)
{
    int left = 0;
    for (int kind = 0; kind < KINDS; kind++)
        left += shared.enabled[kind] + joined[0].enabled[kind];
    if (shows_left && left)
        _exit(9);
}

/* ---- the driver ---- */

static int is_ready(void) { return ready_ms >= 0 && now_ns() - loaded_ns >= (uint64_t)ready_ms * 1000000; }
int cuDriverGetVersion(int *found) { return *found = newest ? 13050 : 12090, 0; }

int cuDeviceGetCount(int *count)
{
    *count = is_ready();
    return ready_ms < 0 ? NO_DEVICE : *count ? OK : NOT_READY;
}

static void call(void)
{
    if (!is_ready())
        crash("called before the driver was ready");
}

/* ---- what the collector calls ---- */

int cuptiGetVersion(uint32_t *found) { return call(), *found = (uint32_t)version, OK; }

static void forget_slots(struct client *client) { memset(client->slots, 0, sizeof client->slots); }

static void *rest(void *unused)
{
    for (;;)
        pause();
    return unused;
}

int cuptiActivityRegisterCallbacks(request_function requested, complete_function completed)
{
    pthread_t thread;
    call();
    if (makes_thread && !pthread_create(&thread, NULL, rest, NULL))
        makes_thread = 0;
    pthread_mutex_lock(&lock);
    int refused = busy > 0 && busy-- > 0;
    if (!refused) {
        if (shared.request != requested)
            forget_slots(&shared); /* what the former client's buffers held is lost to it */
        shared.request = requested;
        shared.complete = completed;
        shared.is_ours = 1;
    }
    pthread_mutex_unlock(&lock);
    return refused ? ONE_SUBSCRIBER : OK;
}

static int set_kind(struct client *client, int kind, int is)
{
    call();
    pthread_mutex_lock(&lock);
    client->enabled[kind] = is;
    pthread_mutex_unlock(&lock);
    return OK;
}

int cuptiActivityEnable(int kind) { return set_kind(&shared, kind, 1); }

static void check_fragile(const char *what)
{
    if (version == FRAGILE)
        crash(what);
}

int cuptiActivityDisable(int kind)
{
    call();
    check_fragile("a kind was disabled");
    return set_kind(&shared, kind, 0);
}

/* What is enabled by anybody, where the version can tell. */
int cuptiActivityGetEnabledKinds(void *subscriber, int *kinds, uint32_t *room, uint32_t *count)
{
    call();
    if (subscriber || version < TELLS_FROM)
        return INVALID_PARAMETER;
    *count = 0;
    pthread_mutex_lock(&lock);
    for (int kind = 0; kind < KINDS; kind++)
        if (shared.enabled[kind] || joined[0].enabled[kind] || joined[1].enabled[kind]) {
            if (*count < *room)
                kinds[*count] = kind;
            ++*count;
        }
    pthread_mutex_unlock(&lock);
    return OK;
}

int cuptiActivitySetAttribute(int attribute, size_t *nbytes, void *value)
{
    call();
    if (attribute < 0 || attribute >= ATTRIBUTES || *nbytes > 8)
        return INVALID_PARAMETER;
    pthread_mutex_lock(&lock);
    if (attribute == PER_THREAD && !keeps_threads)
        per_thread = *(uint8_t *)value;
    pthread_mutex_unlock(&lock);
    return OK;
}

static uint64_t foreign(uint64_t time) { return (time - MOCK_CLOCK_NS) * 3 + 7000000000000000u; }

int cuptiGetTimestamp(uint64_t *now) { return call(), *now = foreign_clock ? foreign(now_ns()) : now_ns(), OK; }

int cuptiGetResultString(int result, const char **text)
{
    *text = result == ONE_SUBSCRIBER ? "MOCK_ONE_SUBSCRIBER" : "MOCK";
    return OK;
}

static size_t take_dropped(struct client *client)
{
    pthread_mutex_lock(&lock);
    size_t count = client->dropped;
    client->dropped = 0;
    pthread_mutex_unlock(&lock);
    return count;
}

int cuptiActivityGetNumDroppedRecords(void *context, uint32_t stream, size_t *count)
{
    (void)context, (void)stream;
    return *count = take_dropped(&shared), OK;
}

static size_t size_of(uint32_t kind)
{
    switch (kind) {
    case 1: return newest ? 112 : 96;
    case 2: return newest ? 104 : 88;
    case 3: case 10: return newest ? 248 : 208;
    case 22: return 96;
    default: return 56;
    }
}

int cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid, void **record)
{
    uint8_t *at = *record ? (uint8_t *)*record + size_of(*(uint32_t *)*record) : buffer;
    walked += *record != NULL; /* who asks for the next one is done with this */
    if ((size_t)(at - buffer) >= valid)
        return END;
    if (*(uint32_t *)at == MOCK_BROKEN)
        return INVALID_KIND;
    *record = at;
    return OK;
}

/* Without the lock. */
static void give_back(struct filled *filled)
{
    struct client *client = filled->client;
    if (client->complete_v2)
        client->complete_v2(filled->bytes, filled->nbytes, filled->used, NULL);
    else
        client->complete(NULL, 0, filled->bytes, filled->nbytes, filled->used);
    free(filled);
}

/* Under the lock, which is let go meanwhile. A buffer whose records have not all ended waits for them. */
static void deliver(struct filled *filled, int forced)
{
    int held = !forced && (filled->unfinished || (delaying && delaying++ % 3 == 0));
    if (held) {
        late[late_count++] = filled;
        if (late_count == BUFFERS)
            crash("more buffers than the mock can keep");
        return;
    }
    pthread_mutex_unlock(&lock);
    give_back(filled);
    pthread_mutex_lock(&lock);
}

static void deliver_late(int forced)
{
    for (unsigned i = 0; i < late_count;) {
        struct filled *filled = late[i];
        if (!forced && (filled->unfinished || delaying)) {
            i++;
            continue;
        }
        late[i] = late[--late_count];
        pthread_mutex_unlock(&lock);
        give_back(filled);
        pthread_mutex_lock(&lock);
        i = 0;
    }
}

static void flush_client(struct client *client, int forced)
{
    for (unsigned i = 0; client->is_there && i < SLOTS; i++) {
        struct filled *filled = client->slots[i];
        if (filled && (forced || !filled->unfinished)) {
            client->slots[i] = NULL;
            deliver(filled, forced);
        }
    }
}

/* The last slot first: what a thread launched earlier may well come later. */
int cuptiActivityFlushAll(uint32_t forced)
{
    call();
    check_fragile("buffers were flushed");
    pthread_mutex_lock(&lock);
    deliver_late((int)forced);
    flush_client(&joined[1], (int)forced);
    flush_client(&joined[0], (int)forced);
    flush_client(&shared, (int)forced);
    pthread_mutex_unlock(&lock);
    return OK;
}

/* ---- subscribers ---- */

static void (*hearing)(void *, int, uint32_t, const void *); /* the subscriber's callback */
static int heard_calls; /* how many of the calls that launch a kernel */

int cuptiSubscribe(void **subscriber, void *callback, void *user)
{
    (void)user;
    call();
    pthread_mutex_lock(&lock);
    int is_taken = subscribed || joined[0].is_there || joined[1].is_there;
    if (!is_taken)
        *(void **)&hearing = callback;
    subscribed |= !is_taken;
    refused_count += is_taken;
    pthread_mutex_unlock(&lock);
    *subscriber = &shared;
    return is_taken ? ONE_SUBSCRIBER : OK;
}

int cuptiEnableCallback(uint32_t enable, void *subscriber, int domain, uint32_t number)
{
    (void)subscriber;
    call();
    if (domain == 1 && number == 307)
        write_int(&heard_calls, (int)enable);
    return number > 700 ? 1 : OK; /* one that this version does not know */
}

int cuptiUnsubscribe(void *subscriber)
{
    struct client *client = subscriber;
    call();
    write_int(&heard_calls, 0);
    write_int(client == &shared ? &subscribed : &client->is_there, 0);
    return OK;
}

int cuptiSubscribe_v2(void **subscriber, void *callback, void *user, void *about)
{
    (void)callback, (void)user;
    call();
    int allows_many = *((uint8_t *)about + 32), is_other = read_int(&begins_other);
    if (version < MANY_FROM || !allows_many || read_int(&subscribed) || *(size_t *)about != 40)
        return ONE_SUBSCRIBER;
    pthread_mutex_lock(&lock);
    joined[is_other] = (struct client){.is_there = 1, .is_ours = !is_other};
    pthread_mutex_unlock(&lock);
    *subscriber = &joined[is_other];
    return OK;
}

int cuptiActivityRegisterCallbacks_v2(void *subscriber, request_function_v2 requested, complete_function_v2 completed)
{
    struct client *client = subscriber;
    client->request_v2 = requested;
    client->complete_v2 = completed;
    return OK;
}

int cuptiActivityEnable_v2(void *subscriber, int kind, void *config)
{
    (void)config;
    if (kind == 51)
        return INVALID_KIND; /* graphs as launches are chosen before anybody enables anything */
    return set_kind(subscriber, kind, 1);
}

int cuptiActivityDisable_v2(void *subscriber, int kind, void *config)
{
    (void)config;
    return set_kind(subscriber, kind, 0);
}

int cuptiActivityGetNextRecord_v2(void *subscriber, uint8_t *buffer, size_t valid, void **record)
{
    (void)subscriber;
    return cuptiActivityGetNextRecord(buffer, valid, record);
}

int cuptiActivityGetNumDroppedRecords_v2(void *subscriber, void *context, uint32_t stream, size_t *count)
{
    (void)context, (void)stream;
    return *count = take_dropped(subscriber), OK;
}

int cuptiGetTimestamp_v2(void *subscriber, uint64_t *now) { return (void)subscriber, call(), *now = now_ns(), OK; }

/* ---- the device ---- */

int mock_is_enabled(int kind)
{
    return (read_int(&shared.is_ours) && read_int(&shared.enabled[kind])) || read_int(&joined[0].enabled[kind]);
}

void mock_refuse(int is) { write_int(&refusing, is); }
void mock_delay(int is) { write_int(&delaying, is); }
unsigned long mock_dropped(void) { return dropped_so_far; }
unsigned long mock_walked(void) { return walked; }
void mock_capture(uint32_t graph) { untraceable[graph % GRAPHS] = !mock_is_enabled(10); }

static uint8_t *request_bytes(struct client *client, size_t *nbytes)
{
    uint8_t *bytes = NULL;
    size_t most = 0;
    if (refusing)
        return NULL;
    pthread_mutex_unlock(&lock);
    if (client->request_v2)
        client->request_v2(&bytes, nbytes, &most, NULL);
    else if (client->request)
        client->request(&bytes, nbytes, &most);
    pthread_mutex_lock(&lock);
    if (!bytes && version < REFUSING)
        crash("a request got no buffer");
    return bytes;
}

/* Under the lock. Another thread may have asked for the same slot meanwhile. */
static void ask_for_buffer(struct client *client, struct filled **slot)
{
    size_t nbytes = 0;
    while (!*slot) {
        uint8_t *bytes = request_bytes(client, &nbytes);
        if (bytes) {
            struct filled *filled = malloc(sizeof *filled);
            *filled = (struct filled){.bytes = bytes, .nbytes = nbytes, .client = client};
            if (*slot)
                deliver(filled, 1);
            else
                *slot = filled;
        } else if (!patient || refusing)
            return;
        else {
            pthread_mutex_unlock(&lock);
            sched_yield();
            pthread_mutex_lock(&lock);
        }
    }
}

static void put(uint8_t *at, size_t place, const void *value, size_t nbytes) { memcpy(at + place, value, nbytes); }

/* On the clock that is registered, but for kernels right after a change of clocks: one more with each change. */
static uint64_t to_clock(uint64_t time, int is_wrong)
{
    return !time || !foreign_clock || is_wrong || time < MOCK_CLOCK_NS ? time : foreign(time);
}

static void write_times(uint8_t *at, uint32_t kind, uint64_t start, uint64_t end)
{
    int is_short = kind == 38 || kind == 51, is_wrong = kind == 10 && wrong_left > 0 && wrong_left--;
    start = to_clock(start, is_wrong), end = to_clock(end, is_wrong);
    put(at, is_short ? 8 : 16, &start, 8), put(at, is_short ? 16 : 24, &end, 8);
}

static void write_record(uint8_t *at, const struct mock_record *r)
{
    int is_kernel = r->kind == 10 || r->kind == 3, is_ptop = r->kind == 22, is_copy = r->kind == 1 || is_ptop;
    memset(at, 0, size_of(r->kind));
    put(at, 0, &r->kind, 4);
    write_times(at, r->kind, r->start, r->end);
    if (r->kind == 38 || r->kind == 51) {
        int is_graph = r->kind == 51;
        put(at, is_graph ? 4 : 24, &r->correlation, 4);
        put(at, is_graph ? 32 : 28, &r->context, 4), put(at, is_graph ? 36 : 32, &r->stream, 4);
        put(at, is_graph ? 24 : 4, is_graph ? &r->device : &r->type, 4);
        if (is_graph)
            put(at, 28, &r->graph, 4), put(at, 48, &r->end_device, 4), put(at, 52, &r->context, 4);
        return;
    }
    put(at, is_kernel ? 40 : 32, &r->device, 4), put(at, is_kernel ? 44 : 36, &r->context, 4);
    put(at, is_kernel ? 48 : 40, &r->stream, 4);
    put(at, is_kernel ? 92 : is_ptop ? 60 : 44, &r->correlation, 4);
    put(at, is_kernel ? 144 : is_ptop ? 72 : 64, &r->graph_node, 8);
    put(at, is_kernel ? 156 : is_ptop ? 80 : 72, &r->graph, 4);
    if (is_kernel)
        put(at, 104, &r->name, 8);
    else
        put(at, 8, &r->nbytes, 8);
    if (is_copy)
        put(at, 4, &r->type, 1), put(at, 5, &r->source, 1), put(at, 6, &r->target, 1);
}

struct launched { struct filled *filled; size_t place; uint32_t kind; };

/* Under the lock. Returns where the record is, or NULL. */
static struct filled *reserve(struct client *client, const struct mock_record *record, size_t *place)
{
    size_t size = size_of(record->kind);
    unsigned mine = per_thread ? my_slot - 1 : 0;
    struct filled **slot = &client->slots[mine];
    if (*slot && (*slot)->used + size > (*slot)->nbytes) {
        struct filled *full = *slot;
        *slot = NULL;
        deliver(full, 0);
    }
    if (!*slot)
        ask_for_buffer(client, slot);
    struct filled *filled = *slot;
    if (!filled) {
        client->dropped++;
        dropped_so_far += client->is_ours;
        return NULL;
    }
    *place = filled->used;
    filled->used += size;
    write_record(filled->bytes + *place, record);
    return filled;
}

static struct filled *write_to(struct client *client, const struct mock_record *record, size_t *place)
{
    int is_lost = record->graph && record->kind != 51 && untraceable[record->graph % GRAPHS];
    if (!client->is_there || is_lost || (!client->enabled[record->kind] && record->kind != MOCK_BROKEN))
        return NULL;
    if (client == &shared && other_profiles)
        return other_count++, NULL; /* its buffers are no matter of ours */
    return reserve(client, record, place);
}

/* Under the lock. Returns where the collector's copy is. */
static struct filled *write_to_all(const struct mock_record *record, size_t *place)
{
    if (!my_slot)
        my_slot = slot_count++ % SLOTS + 1;
    other_count += joined[1].is_there && joined[1].enabled[record->kind];
    struct filled *first = write_to(&shared, record, place);
    return first ? first : write_to(&joined[0], record, place);
}

/* As the driver calls before it launches: at both ends, and the second tells nothing new. Nodes of a graph that have one
 * number after the other are one launch. */
static void call_back(const struct mock_record *record)
{
    static _Thread_local uint32_t launched;
    int is_node = record->graph && record->correlation == launched;
    launched = record->correlation;
    if (is_node)
        return;
    struct { int site; const char *name; void *none[4]; uint32_t context; void *user; uint32_t correlation; } data = {0};
    data.correlation = record->correlation;
    for (; read_int(&heard_calls) && data.site < 2; data.site++)
        hearing(NULL, 1, 307, &data);
}

int mock_emit(const struct mock_record *record)
{
    size_t place;
    call_back(record);
    pthread_mutex_lock(&lock);
    struct filled *filled = write_to_all(record, &place);
    if (filled)
        filled->unfinished += record->end == 0;
    int is_kept = filled != NULL;
    pthread_mutex_unlock(&lock);
    return is_kept;
}

void *mock_launch(const struct mock_record *record)
{
    struct launched launched = {.kind = record->kind}, *made = NULL;
    pthread_mutex_lock(&lock);
    launched.filled = write_to_all(record, &launched.place);
    if (launched.filled && (made = malloc(sizeof *made))) {
        launched.filled->unfinished++;
        *made = launched;
    }
    pthread_mutex_unlock(&lock);
    return made;
}

void mock_end(void *launched, uint64_t start, uint64_t end)
{
    struct launched *made = launched;
    pthread_mutex_lock(&lock);
    write_times(made->filled->bytes + made->place, made->kind, start, end);
    made->filled->unfinished--;
    pthread_mutex_unlock(&lock);
    free(made);
}

/* What another client gave before it was replaced comes to who is registered now; and one of ours comes twice. */
int mock_stray(void)
{
    static struct { uint8_t before[256], bytes[1024]; } foreign_buffer;
    struct mock_record record = {.kind = 10, .start = 1, .end = 2};
    int is_whole = 1;
    memset(foreign_buffer.before, 0xAA, sizeof foreign_buffer.before);
    write_record(foreign_buffer.bytes, &record);
    shared.complete(NULL, 0, foreign_buffer.bytes, sizeof foreign_buffer.bytes, size_of(10));
    for (size_t i = 0; i < sizeof foreign_buffer.before; i++)
        is_whole &= foreign_buffer.before[i] == 0xAA;
    pthread_mutex_lock(&lock);
    struct filled *filled = shared.slots[per_thread ? my_slot - 1 : 0];
    shared.slots[per_thread ? my_slot - 1 : 0] = NULL;
    uint8_t *bytes = filled ? filled->bytes : NULL;
    size_t nbytes = filled ? filled->nbytes : 0;
    if (filled)
        deliver(filled, 0);
    pthread_mutex_unlock(&lock);
    if (bytes)
        shared.complete(NULL, 0, bytes, nbytes, 0);
    return is_whole && bytes;
}

/* A forked child that starts a driver of its own has a CUPTI of its own. */
void mock_restart(void)
{
    shared = (struct client){.is_there = 1};
    memset(joined, 0, sizeof joined);
    pthread_mutex_init(&lock, NULL);
    late_count = 0;
    dropped_so_far = 0;
}

/* ---- other clients ---- */

static void take_shared(void)
{
    pthread_mutex_lock(&lock);
    forget_slots(&shared);
    shared.request = NULL;
    shared.is_ours = 0;
    shared.enabled[10] = shared.enabled[1] = 1;
    pthread_mutex_unlock(&lock);
}

static void leave_shared(void)
{
    write_int(&shared.enabled[10], 0);
    write_int(&shared.enabled[1], 0);
}

static void profile(int is)
{
    write_int(&other_profiles, is);
    (is ? take_shared : leave_shared)();
}

/* Returns whether it may record the device: at its first session it subscribes, and never ends that. */
static int stays_subscribed(void)
{
    static int has_subscribed;
    void *subscriber;
    if (!has_subscribed && !torch_leaves)
        has_subscribed = cuptiSubscribe(&subscriber, NULL, NULL) == OK;
    return has_subscribed || torch_leaves;
}

void mock_torch_profiler(int is)
{
    if (!stays_subscribed())
        return;
    if (is) {
        foreign_clock = 1;
        write_int(&wrong_left, ++wrong_heads);
    }
    profile(is);
}

void mock_proton(int is)
{
    write_int(&subscribed, is);
    profile(is);
}

void mock_monitor(int is)
{
    union { size_t nbytes; uint8_t bytes[40]; } about = {40};
    void *subscriber = &joined[1];
    about.bytes[32] = 1;
    write_int(&begins_other, 1);
    if (!is)
        cuptiUnsubscribe(subscriber);
    else if (!cuptiSubscribe_v2(&subscriber, NULL, NULL, &about))
        cuptiActivityEnable_v2(subscriber, 10, NULL);
    write_int(&begins_other, 0);
}

unsigned long mock_other_count(void) { return other_count; }

unsigned long mock_refused_count(void) { return refused_count; }

int mock_other_is_whole(void)
{
    pthread_mutex_lock(&lock);
    int is = joined[1].is_there ? joined[1].enabled[10] : other_profiles && shared.enabled[10] && !shared.is_ours;
    pthread_mutex_unlock(&lock);
    return is;
}
