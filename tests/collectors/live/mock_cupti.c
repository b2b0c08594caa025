/* A libcupti for machines without a GPU: the functions that the collector calls, and a device that a test drives.
 *
 * Records have the sizes that they have in CUDA 12.9 or, with MOCK_CUDA=13, in 13.5. Each thread that launches has a
 * buffer of its own. MOCK_BUSY=n refuses the first n registrations, MOCK_PATIENT=1 waits for a buffer in place of
 * dropping records. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "mock_cupti.h"

enum { SLOTS = 64, LATE = 256, KINDS = 64 };
enum { OK = 0, END = 12, INVALID_KIND = 21, ONE_SUBSCRIBER = 39 };

static struct slot {
    pthread_mutex_t lock;
    uint8_t *buffer;
    size_t nbytes, used;
    int unfinished; /* a record that has not ended yet is in it */
} slots[SLOTS];
static atomic_uint slot_count;
static _Thread_local struct slot *mine;
static struct { uint8_t *buffer; size_t nbytes, used; } late[LATE];
static int late_count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void (*_Atomic request)(uint8_t **, size_t *, size_t *);
static void (*_Atomic complete)(void *, uint32_t, uint8_t *, size_t, size_t);
static atomic_int enabled[KINDS], newest, patient, busy, refusing, delaying;
static atomic_ulong dropped, dropped_so_far, walked;

__attribute__((constructor)) static void prepare(void)
{
    const char *cuda = getenv("MOCK_CUDA"), *times = getenv("MOCK_BUSY");
    newest = cuda && atoi(cuda) == 13;
    patient = getenv("MOCK_PATIENT") != NULL;
    busy = times ? atoi(times) : 0;
    for (int i = 0; i < SLOTS; i++)
        pthread_mutex_init(&slots[i].lock, NULL);
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

/* ---- what the collector calls ---- */

int cuptiActivityRegisterCallbacks(void (*requested)(uint8_t **, size_t *, size_t *),
                                   void (*completed)(void *, uint32_t, uint8_t *, size_t, size_t))
{
    if (busy > 0 && busy-- > 0)
        return ONE_SUBSCRIBER;
    request = requested;
    complete = completed;
    return OK;
}

int cuptiActivityEnable(int kind)
{
    enabled[kind] = 1;
    return OK;
}

int cuptiActivityDisable(int kind)
{
    enabled[kind] = 0;
    return OK;
}

int cuptiGetTimestamp(uint64_t *now)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    *now = MOCK_CLOCK_NS + (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
    return OK;
}

int cuptiGetResultString(int result, const char **text)
{
    *text = result == ONE_SUBSCRIBER ? "MOCK_ONE_SUBSCRIBER" : "MOCK";
    return OK;
}

int cuptiActivityGetNumDroppedRecords(void *context, uint32_t stream, size_t *count)
{
    (void)context, (void)stream;
    *count = atomic_exchange(&dropped, 0);
    return OK;
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

/* Under the slot's lock. */
static void deliver(struct slot *slot)
{
    uint8_t *buffer = slot->buffer;
    slot->buffer = NULL;
    slot->unfinished = 0;
    pthread_mutex_lock(&lock);
    int hold = delaying && late_count < LATE && delaying++ % 3 == 0;
    if (hold) {
        late[late_count].buffer = buffer;
        late[late_count].nbytes = slot->nbytes;
        late[late_count++].used = slot->used;
    }
    pthread_mutex_unlock(&lock);
    if (!hold)
        complete(NULL, 0, buffer, slot->nbytes, slot->used);
}

static void deliver_late(void)
{
    for (;;) {
        pthread_mutex_lock(&lock);
        int has = late_count > 0;
        uint8_t *buffer = has ? late[--late_count].buffer : NULL;
        size_t nbytes = late[late_count].nbytes, used = late[late_count].used;
        pthread_mutex_unlock(&lock);
        if (!has)
            return;
        complete(NULL, 0, buffer, nbytes, used);
    }
}

int cuptiActivityFlushAll(uint32_t forced)
{
    for (unsigned i = 0; i < SLOTS; i++) {
        pthread_mutex_lock(&slots[i].lock);
        if (slots[i].buffer && (forced || !slots[i].unfinished))
            deliver(&slots[i]);
        pthread_mutex_unlock(&slots[i].lock);
    }
    if (forced)
        deliver_late();
    return OK;
}

/* ---- the device ---- */

int mock_is_enabled(int kind) { return enabled[kind]; }
void mock_refuse(int is) { refusing = is; }
void mock_delay(int is) { delaying = is; }
unsigned long mock_dropped(void) { return dropped_so_far; }
unsigned long mock_walked(void) { return walked; }

static void ask_for_buffer(struct slot *slot)
{
    size_t most;
    while (request && !refusing) {
        request(&slot->buffer, &slot->nbytes, &most);
        slot->used = 0;
        if (slot->buffer || !patient)
            return;
        pthread_mutex_unlock(&slot->lock);
        sched_yield();
        pthread_mutex_lock(&slot->lock);
    }
}

static void put(uint8_t *at, size_t place, const void *value, size_t nbytes) { memcpy(at + place, value, nbytes); }

static void write_record(uint8_t *at, const struct mock_record *r)
{
    int is_kernel = r->kind == 10 || r->kind == 3, is_ptop = r->kind == 22, is_copy = r->kind == 1 || is_ptop;
    memset(at, 0, size_of(r->kind));
    put(at, 0, &r->kind, 4);
    if (r->kind == 38 || r->kind == 51) {
        int is_graph = r->kind == 51;
        put(at, 8, &r->start, 8), put(at, 16, &r->end, 8);
        put(at, is_graph ? 4 : 24, &r->correlation, 4);
        put(at, is_graph ? 32 : 28, &r->context, 4), put(at, is_graph ? 36 : 32, &r->stream, 4);
        put(at, is_graph ? 24 : 4, is_graph ? &r->device : &r->type, 4);
        if (is_graph)
            put(at, 28, &r->graph, 4);
        return;
    }
    put(at, 16, &r->start, 8), put(at, 24, &r->end, 8);
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

int mock_emit(const struct mock_record *record)
{
    size_t size = size_of(record->kind);
    if (!enabled[record->kind] && record->kind != MOCK_BROKEN)
        return 0;
    if (!mine)
        mine = &slots[slot_count++ % SLOTS];
    pthread_mutex_lock(&mine->lock);
    if (mine->buffer && mine->used + size > mine->nbytes)
        deliver(mine);
    if (!mine->buffer)
        ask_for_buffer(mine);
    int is_kept = mine->buffer != NULL;
    if (is_kept) {
        write_record(mine->buffer + mine->used, record);
        mine->used += size;
        mine->unfinished |= record->end == 0;
    } else {
        dropped++;
        dropped_so_far++;
    }
    pthread_mutex_unlock(&mine->lock);
    return is_kept;
}

/* What another client gave before it was replaced comes to who is registered now; and one of ours comes twice. */
int mock_stray(void)
{
    static struct { uint8_t before[256], bytes[1024]; } foreign;
    struct mock_record record = {.kind = 10, .start = 1, .end = 2};
    int is_whole = 1;
    memset(foreign.before, 0xAA, sizeof foreign.before);
    write_record(foreign.bytes, &record);
    complete(NULL, 0, foreign.bytes, sizeof foreign.bytes, size_of(10));
    for (size_t i = 0; i < sizeof foreign.before; i++)
        is_whole &= foreign.before[i] == 0xAA;
    pthread_mutex_lock(&mine->lock);
    uint8_t *buffer = mine->buffer;
    size_t nbytes = mine->nbytes;
    if (buffer)
        deliver(mine);
    pthread_mutex_unlock(&mine->lock);
    if (buffer)
        complete(NULL, 0, buffer, nbytes, 0);
    return is_whole && buffer;
}

/* A forked child that starts a driver of its own has a CUPTI of its own. */
void mock_restart(void)
{
    for (int i = 0; i < SLOTS; i++) {
        pthread_mutex_init(&slots[i].lock, NULL);
        slots[i].buffer = NULL;
    }
    for (int i = 0; i < KINDS; i++)
        enabled[i] = 0;
    pthread_mutex_init(&lock, NULL);
    request = NULL;
    late_count = 0;
    dropped = dropped_so_far = 0;
}
