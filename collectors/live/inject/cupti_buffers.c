/* The pool of buffers that CUPTI fills. One that it holds is never freed nor filled by others: after a buffer was
 * requested it may be written to at any time until it comes back. Memory is taken as it is needed and kept. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include "cupti_parts.h"

/* Small ones: under a deep queue of launches CUPTI gives a buffer only when it is full. */
enum { NBYTES = 512 << 10, ALIGNMENT = 64 /* of at least 8, as CUPTI wants it */ };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct buffer *spare, *first_done, *last_done, *last_made;
static unsigned made, most, held; /* held: by CUPTI */
static uint64_t refused;
static int (*count_dropped_records)(void *, uint32_t, size_t *);

void buffers_prepare(unsigned most_buffers, int (*count_dropped)(void *, uint32_t, size_t *))
{
    pthread_mutex_lock(&lock);
    most = most_buffers;
    count_dropped_records = count_dropped;
    pthread_mutex_unlock(&lock);
}

/* Under the lock. The head stands before the bytes: one piece of memory, which is never given back. */
static struct buffer *make(void)
{
    void *memory;
    _Static_assert(sizeof(struct buffer) <= ALIGNMENT, "the head fits before the bytes");
    if (posix_memalign(&memory, ALIGNMENT, ALIGNMENT + NBYTES))
        return NULL;
    struct buffer *buffer = memory;
    *buffer = (struct buffer){.made_before = last_made, .bytes = (uint8_t *)memory + ALIGNMENT};
    return last_made = buffer;
}

static struct buffer *take_spare(void)
{
    struct buffer *buffer = spare;
    if (buffer)
        spare = buffer->next;
    else if (made < most && (buffer = make()))
        made++;
    if (buffer)
        buffer->is_held = 1, held++;
    else
        refused++;
    return buffer;
}

void buffers_request(uint8_t **bytes, size_t *nbytes, size_t *most_records)
{
    pthread_mutex_lock(&lock);
    struct buffer *buffer = take_spare();
    pthread_mutex_unlock(&lock);
    *bytes = buffer ? buffer->bytes : NULL; /* without one CUPTI drops records, and counts them */
    *nbytes = buffer ? NBYTES : 0;
    *most_records = 0; /* as many as fit */
}

/* Whose callbacks were registered before ours may have given CUPTI memory that now comes to us: it is not touched. There
 * are few buffers, and each has thousands of records. */
static struct buffer *claim(const uint8_t *bytes)
{
    pthread_mutex_lock(&lock);
    struct buffer *buffer = last_made;
    while (buffer && (buffer->bytes != bytes || !buffer->is_held))
        buffer = buffer->made_before;
    if (buffer)
        buffer->is_held = 0;
    pthread_mutex_unlock(&lock);
    return buffer;
}

/* Counts here and not on the worker what CUPTI dropped: the context may be gone when the worker comes. */
void buffers_complete(void *context, uint32_t stream, uint8_t *bytes, size_t nbytes, size_t valid_nbytes)
{
    size_t dropped = 0;
    struct buffer *buffer = claim(bytes);
    if (!buffer)
        return;
    if (count_dropped_records(context, stream, &dropped))
        dropped = 0;
    pthread_mutex_lock(&lock);
    buffer->next = NULL;
    buffer->valid_nbytes = valid_nbytes < nbytes ? valid_nbytes : nbytes;
    buffer->dropped = dropped;
    if (last_done)
        last_done->next = buffer;
    else
        first_done = buffer;
    last_done = buffer;
    held--;
    pthread_mutex_unlock(&lock);
    dp_wake();
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

int buffers_are_idle(void)
{
    pthread_mutex_lock(&lock);
    int idle = !held && !first_done;
    pthread_mutex_unlock(&lock);
    return idle;
}

uint64_t buffers_refused(void)
{
    pthread_mutex_lock(&lock);
    uint64_t count = refused;
    pthread_mutex_unlock(&lock);
    return count;
}

/* The parent's buffers are left alone: which of them its CUPTI held, and where, nobody knows here. */
void buffers_forget(void)
{
    pthread_mutex_init(&lock, NULL);
    spare = first_done = last_done = last_made = NULL;
    made = held = 0;
    refused = 0;
}
