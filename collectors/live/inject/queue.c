/* Packets that wait for the agent, and the numbers of records. Worker thread only, so that nothing here is locked.
 *
 * Records that follow each other are gathered into one packet while it waits. When the agent does not keep up, what
 * does not fit is dropped until half of the queue is free: one long gap can be told and lived with, many short ones
 * destroy the sequence of kernels that everything above looks at. */
#include <stdlib.h>
#include <string.h>
#include "parts.h"

/* One write to a socket of usual size takes 200 KiB; what a packet costs the agent is shared by its records. */
enum { HEADS = sizeof(struct dp_head) + sizeof(struct dp_records_head), LEAST_CAPACITY = 4 << 10, FULL = 192 << 10 };
enum { SLACK = 64 << 10 }; /* for small packets while records are dropped */
enum { PUSH_NBYTES = 384 << 10 }; /* so much waits before a busy source is interrupted for a write */

static struct packet *head, *tail;
static size_t nbytes, most_nbytes;
static size_t full_nbytes, push_nbytes; /* FULL and PUSH_NBYTES, less where half a queue is less: what is free after a drop */
static uint64_t next, made[DP_RECORD_KINDS]; /* the second: of the records before `next`, those of known kind */
static int64_t put_ns;
static int is_open, dropping;
static enum dp_reason pending;

static struct dp_head *head_of(struct packet *packet) { return (struct dp_head *)packet->bytes; }
static struct dp_records_head *records_of(struct packet *packet)
{
    return (struct dp_records_head *)(packet->bytes + sizeof(struct dp_head));
}

static uint32_t size_of(enum dp_kind kind)
{
    switch (kind) {
    case DP_EVENTS: return sizeof(struct dp_event);
    case DP_MEMORY_CHANGES: return sizeof(struct dp_memory_change);
    case DP_CONTEXT_SUMS: return sizeof(struct dp_context_sum);
    default: return sizeof(struct dp_range);
    }
}

static struct packet *append(enum dp_kind kind, uint32_t capacity)
{
    struct packet *packet = malloc(sizeof *packet + capacity);
    if (!packet)
        return NULL;
    *packet = (struct packet){.capacity = capacity, .filled = sizeof(struct dp_head)};
    *head_of(packet) = (struct dp_head){.magic = DP_MAGIC, .kind = (uint16_t)kind};
    nbytes += capacity;
    tail = *(tail ? &tail->next : &head) = packet;
    return packet;
}

static void fill(struct packet *packet, const void *payload, uint32_t count)
{
    memcpy(packet->bytes + packet->filled, payload, count);
    packet->filled += count;
    head_of(packet)->nbytes += count;
}

/* How many records of `kind` the last packet takes before they go anywhere: with a gap before them, none. */
static uint32_t room_in_tail(enum dp_kind kind)
{
    if (!tail || tail->sent || head_of(tail)->kind != kind || pending)
        return 0;
    if (records_of(tail)->first + records_of(tail)->count != next)
        return 0;
    return (tail->capacity - tail->filled) / size_of(kind);
}

static struct dp_records_head make_head(void)
{
    struct dp_records_head records = {.first = next, .reason = pending};
    memcpy(records.made, made, sizeof made);
    return records;
}

/* Returns a new packet for `count` records, fewer where they are too many for one, or NULL when the queue is full. */
static struct packet *start_records(enum dp_kind kind, uint32_t count)
{
    uint64_t wanted = HEADS + (uint64_t)count * size_of(kind);
    uint32_t capacity = wanted < LEAST_CAPACITY ? LEAST_CAPACITY : wanted > full_nbytes ? (uint32_t)full_nbytes : (uint32_t)wanted;
    if (nbytes + capacity > (dropping ? most_nbytes / 2 : most_nbytes))
        return NULL;
    struct packet *packet = append(kind, capacity);
    if (!packet)
        return NULL;
    struct dp_records_head records = make_head();
    fill(packet, &records, sizeof records);
    pending = DP_NO_GAP;
    dropping = 0;
    return packet;
}

/* Queues the first of `count` records, and returns how many. */
static uint32_t put_some(enum dp_kind kind, const void *records, uint32_t count)
{
    uint32_t room = room_in_tail(kind);
    struct packet *packet = room ? tail : start_records(kind, count);
    if (!packet) {
        dropping = 1;
        queue_gap(DP_BUFFER_FULL);
        return count;
    }
    room = room ? room : (packet->capacity - HEADS) / size_of(kind);
    count = count < room ? count : room;
    fill(packet, records, count * size_of(kind));
    records_of(packet)->count += count;
    packet->names = names_count(); /* those of the records are among them */
    return count;
}

/* What is dropped is counted as what is sent: only so can anybody say of which kind the missing ones were. */
static void count_made(enum dp_kind kind, const void *records, uint32_t count)
{
    const struct dp_event *events = records;
    made[DP_RANGE] += kind == DP_RANGES ? count : 0;
    made[DP_MEMORY] += kind == DP_MEMORY_CHANGES ? count : 0;
    made[DP_CONTEXT] += kind == DP_CONTEXT_SUMS ? count : 0;
    for (uint32_t i = 0; kind == DP_EVENTS && i < count; i++)
        if (events[i].activity < DP_RANGE)
            made[events[i].activity]++;
}

void dp_made(enum dp_activity kind, uint64_t count) { made[kind] += count; }

void dp_put(enum dp_kind kind, const void *records, uint32_t count, uint64_t lost, enum dp_reason reason)
{
    const unsigned char *from = records;
    queue_gap(reason);
    next += lost;
    made[DP_RANGE] += kind == DP_RANGES ? lost : 0; /* of lost events only who lost them may know what they were */
    made[DP_MEMORY] += kind == DP_MEMORY_CHANGES ? lost : 0;
    made[DP_CONTEXT] += kind == DP_CONTEXT_SUMS ? lost : 0;
    put_ns = dp_now_ns();
    while (count) {
        uint32_t done = is_open ? put_some(kind, from, count) : count;
        count_made(kind, from, done);
        from += (size_t)done * size_of(kind);
        next += done;
        count -= done;
        if (nbytes > push_nbytes)
            connection_push();
    }
}

void queue_open(uint64_t most)
{
    is_open = 1;
    most_nbytes = most;
    full_nbytes = most / 2 < FULL ? most / 2 : FULL;
    push_nbytes = most / 2 < PUSH_NBYTES ? most / 2 : PUSH_NBYTES;
}

void queue_close(void)
{
    while (head)
        queue_pop();
    is_open = dropping = 0;
}

/* Of several reasons the one that explains most: what was never asked for outdoes what was lost on its way. */
void queue_gap(enum dp_reason reason)
{
    static const int WEIGHTS[] = {[DP_NO_GAP] = 0, [DP_DRIVER_DROPPED] = 1, [DP_BUFFER_FULL] = 2, [DP_DUTY_CYCLE] = 3,
                                  [DP_BUSY] = 4, [DP_DISCONNECTED] = 5};
    if (WEIGHTS[reason] > WEIGHTS[pending])
        pending = reason;
}

int queue_put(enum dp_kind kind, const void *payload, uint32_t count)
{
    struct packet *packet = NULL;
    if (is_open && nbytes + sizeof(struct dp_head) + count <= most_nbytes + SLACK)
        packet = append(kind, sizeof(struct dp_head) + count);
    if (!packet)
        return -1;
    fill(packet, payload, count);
    packet->names = kind == DP_CONTEXTS ? names_count() : 0;
    return 0;
}

int queue_is_open(void) { return is_open; }

void queue_end(void)
{
    struct dp_records_head end = make_head();
    queue_put(DP_END, &end, sizeof end);
}

struct packet *queue_head(void) { return head; }
size_t queue_nbytes(void) { return nbytes; }
uint64_t queue_next(void) { return next; }

void queue_count(struct dp_tick *tick)
{
    tick->next = next;
    tick->reason = pending;
    memcpy(tick->made, made, sizeof made);
}

int64_t queue_put_ns(void) { return put_ns; }

void queue_pop(void)
{
    struct packet *packet = head;
    head = packet->next;
    tail = head ? tail : NULL;
    nbytes -= packet->capacity;
    free(packet);
}

void queue_forget(void)
{
    head = tail = NULL;
    nbytes = next = 0;
    memset(made, 0, sizeof made);
    put_ns = is_open = dropping = 0;
    pending = DP_NO_GAP;
}
