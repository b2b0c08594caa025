/* The pool of buffers that CUPTI fills. One that it holds is never freed nor filled by others: after a buffer was
 * requested it may be written to at any time until it comes back. Memory is taken as it is needed and kept. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include "cupti_parts.h"

enum { SCRAP_NBYTES = 64 << 10, ALIGNMENT = 64 /* of at least 8, as CUPTI wants it */ };
enum { BY_CUPTI = 1, BY_CALLBACK = 2 }; /* who holds a buffer; 0: we */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct buffer *spare, *spare_scrap, *first_done, *last_done, *last_made;
static unsigned made, most;
static size_t buffer_nbytes;
static int may_refuse;
static uint64_t scrapped;

/* Up to CUDA 12.8 a request that gets nothing can crash the process: what there is no room for goes to scrap. */
void buffers_prepare(unsigned most_buffers, size_t nbytes, int can_do_without)
{
    pthread_mutex_lock(&lock);
    most = most_buffers;
    buffer_nbytes = nbytes;
    may_refuse = can_do_without;
    pthread_mutex_unlock(&lock);
}

/* Buffers that another client took over are not waited for, and no part of what may be made: it has them now. Those
 * that come back all the same are used again. */
void buffers_begin(void)
{
    pthread_mutex_lock(&lock);
    for (struct buffer *buffer = last_made; buffer; buffer = buffer->made_before)
        if (buffer->is_held && !buffer->is_abandoned) {
            buffer->is_abandoned = 1;
            made -= !buffer->is_scrap;
        }
    pthread_mutex_unlock(&lock);
}

/* Under the lock. The head stands before the bytes: one piece of memory, which is never given back. */
static struct buffer *make(size_t nbytes)
{
    void *memory;
    _Static_assert(sizeof(struct buffer) <= 2 * ALIGNMENT, "the head fits before the bytes");
    if (posix_memalign(&memory, ALIGNMENT, 2 * ALIGNMENT + nbytes))
        return NULL;
    struct buffer *buffer = memory;
    *buffer = (struct buffer){.made_before = last_made, .bytes = (uint8_t *)memory + 2 * ALIGNMENT};
    return last_made = buffer;
}

static struct buffer *take_spare(void)
{
    struct buffer *buffer = spare;
    if (buffer)
        spare = buffer->next;
    else if (made < most && (buffer = make(buffer_nbytes)))
        made++;
    return buffer;
}

/* As many as CUPTI fills at a time: each comes back to here at once. */
static struct buffer *take_scrap(void)
{
    struct buffer *buffer = spare_scrap;
    if (buffer)
        spare_scrap = buffer->next;
    else if ((buffer = make(SCRAP_NBYTES)))
        buffer->is_scrap = 1;
    return buffer;
}

void buffers_request(uint8_t **bytes, size_t *nbytes, size_t *most_records)
{
    pthread_mutex_lock(&lock);
    struct buffer *buffer = take_spare();
    if (!buffer && !may_refuse)
        buffer = take_scrap();
    if (buffer) {
        buffer->is_held = BY_CUPTI;
        buffer->is_abandoned = 0;
        buffer->requested_ns = dp_now_ns();
    }
    pthread_mutex_unlock(&lock);
    *bytes = buffer ? buffer->bytes : NULL; /* without one CUPTI drops records, and counts them */
    *nbytes = !buffer ? 0 : buffer->is_scrap ? SCRAP_NBYTES : buffer_nbytes;
    *most_records = 0; /* as many as fit */
}

/* Whose callbacks were registered before ours may have given CUPTI memory that now comes to us: it is not touched. There
 * are few buffers, and each has thousands of records. */
static struct buffer *claim(const uint8_t *bytes)
{
    pthread_mutex_lock(&lock);
    struct buffer *buffer = last_made;
    while (buffer && (buffer->bytes != bytes || buffer->is_held != BY_CUPTI))
        buffer = buffer->made_before;
    if (buffer)
        buffer->is_held = buffer->is_scrap ? 0 : BY_CALLBACK;
    pthread_mutex_unlock(&lock);
    return buffer;
}

static uint64_t count_records(struct buffer *buffer)
{
    uint64_t count = 0;
    void *record = NULL;
    while (!session_next_record(buffer->bytes, buffer->valid_nbytes, &record))
        count++;
    return count;
}

static void discard(struct buffer *buffer)
{
    uint64_t count = count_records(buffer);
    pthread_mutex_lock(&lock);
    scrapped += count;
    buffer->next = spare_scrap;
    spare_scrap = buffer;
    pthread_mutex_unlock(&lock);
}

static void keep(struct buffer *buffer)
{
    pthread_mutex_lock(&lock);
    buffer->next = NULL;
    made += buffer->is_abandoned;
    buffer->is_abandoned = 0;
    buffer->is_held = 0; /* only now: the oldest that is held must not seem newer before this one can be taken */
    if (last_done)
        last_done->next = buffer;
    else
        first_done = buffer;
    last_done = buffer;
    pthread_mutex_unlock(&lock);
}

/* Counts here and not on the worker what CUPTI dropped: the context may be gone when the worker comes. */
void buffers_complete(void *context, uint32_t stream, uint8_t *bytes, size_t nbytes, size_t valid_nbytes)
{
    struct buffer *buffer = claim(bytes);
    if (!buffer)
        return;
    buffer->valid_nbytes = valid_nbytes < nbytes ? valid_nbytes : nbytes;
    if (buffer->is_scrap) {
        discard(buffer);
        return;
    }
    buffer->dropped = session_dropped(context, stream);
    keep(buffer);
    dp_wake();
}

void buffers_request_v2(uint8_t **bytes, size_t *nbytes, size_t *most_records, void *about)
{
    (void)about;
    buffers_request(bytes, nbytes, most_records);
}

void buffers_complete_v2(uint8_t *bytes, size_t nbytes, size_t valid_nbytes, void *about)
{
    (void)about;
    buffers_complete(NULL, 0, bytes, nbytes, valid_nbytes);
}

struct buffer *buffers_take(void)
{
    pthread_mutex_lock(&lock);
    struct buffer *buffer = first_done;
    if (buffer) {
        first_done = buffer->next;
        last_done = first_done ? last_done : NULL;
    }
    pthread_mutex_unlock(&lock);
    return buffer;
}

void buffers_give_back(struct buffer *buffer)
{
    pthread_mutex_lock(&lock);
    buffer->next = spare;
    spare = buffer;
    pthread_mutex_unlock(&lock);
}

int64_t buffers_oldest_ns(void)
{
    int64_t oldest = DP_NEVER;
    pthread_mutex_lock(&lock);
    for (struct buffer *buffer = last_made; buffer; buffer = buffer->made_before)
        if (buffer->is_held && !buffer->is_scrap && !buffer->is_abandoned && buffer->requested_ns < oldest)
            oldest = buffer->requested_ns;
    pthread_mutex_unlock(&lock);
    return oldest;
}

uint64_t buffers_scrapped(void)
{
    pthread_mutex_lock(&lock);
    uint64_t count = scrapped;
    scrapped = 0;
    pthread_mutex_unlock(&lock);
    return count;
}

/* The parent's buffers are left alone: which of them its CUPTI held, and where, nobody knows here. */
void buffers_forget(void)
{
    pthread_mutex_init(&lock, NULL);
    spare = spare_scrap = first_done = last_done = last_made = NULL;
    made = 0;
    scrapped = 0;
}
