/* The device of the mock: what a test launches on it becomes records in the buffers of its clients, of which torch.profiler,
 * Proton and a monitor are others than the collector. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include "mock_parts.h"

enum { GRAPHS = 1024 };

static unsigned slot_count;
static _Thread_local unsigned my_slot; /* from 1 */
static int refusing, wrong_heads, wrong_left;
static int other_profiles; /* it has the shared callbacks */
static unsigned long dropped_so_far, other_count;
static unsigned char untraceable[GRAPHS];

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

/* What another client gave before it was replaced comes to who is registered now; and one of ours comes twice, which has
 * the `last` record at least: nobody flushes it before. */
int mock_stray(const struct mock_record *last)
{
    static struct { uint8_t before[256], bytes[1024]; } foreign_buffer;
    size_t place;
    struct mock_record record = {.kind = 10, .start = 1, .end = 2};
    int is_whole = 1;
    memset(foreign_buffer.before, 0xAA, sizeof foreign_buffer.before);
    write_record(foreign_buffer.bytes, &record);
    shared.complete(NULL, 0, foreign_buffer.bytes, sizeof foreign_buffer.bytes, size_of(10));
    for (size_t i = 0; i < sizeof foreign_buffer.before; i++)
        is_whole &= foreign_buffer.before[i] == 0xAA;
    pthread_mutex_lock(&lock);
    struct filled *filled = write_to_all(last, &place);
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

unsigned long mock_refused_count(void)
{
    pthread_mutex_lock(&lock);
    unsigned long count = refused_count;
    pthread_mutex_unlock(&lock);
    return count;
}

int mock_other_is_whole(void)
{
    pthread_mutex_lock(&lock);
    int is = joined[1].is_there ? joined[1].enabled[10] : other_profiles && shared.enabled[10] && !shared.is_ours;
    pthread_mutex_unlock(&lock);
    return is;
}
