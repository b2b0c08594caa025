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
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "mock_parts.h"

enum { BUFFERS = 4096, ATTRIBUTES = 32 };
enum { FRAGILE = 130000, PER_THREAD = 9, PER_THREAD_FROM = 130000, TELLS_FROM = 130200, MANY_FROM = 130300 };
enum { NOT_READY = 3, NO_DEVICE = 100 };

struct client shared = {.is_there = 1}, joined[2];
pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
unsigned late_count;
int newest, patient, delaying, per_thread, torch_leaves, subscribed, begins_other;
long version = 28;
unsigned long refused_count;
atomic_ulong walked;
atomic_int foreign_clock;
void (*hearing)(void *, int, uint32_t, const void *);
int heard_calls;
static struct filled *late[BUFFERS];
static int busy, shows_left, keeps_threads, makes_thread;
static long ready_ms;
static uint64_t loaded_ns;

void crash(const char *why)
{
    fprintf(stderr, "mock CUPTI: %s\n", why);
    abort();
}

int read_int(int *value)
{
    pthread_mutex_lock(&lock);
    int found = *value;
    pthread_mutex_unlock(&lock);
    return found;
}

void write_int(int *value, int wanted)
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

void forget_slots(struct client *client) { memset(client->slots, 0, sizeof client->slots); }

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
    refused_count += *count && !shared.is_ours; /* who asks begins nothing then */
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

uint64_t foreign(uint64_t time) { return (time - MOCK_CLOCK_NS) * 3 + 7000000000000000u; }

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

size_t size_of(uint32_t kind)
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
void deliver(struct filled *filled, int forced)
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
