/* Where a thread is: its functions of Python, as far as they have come to run since what it has open began.
 *
 * Paths are compared with the thread's last one from the outermost function on. */
#define _GNU_SOURCE
#include <stddef.h>
#include "context_threads.h"
#include "contexts.h"
#include "native_frames.h"

/* How much of the path is as it was the last time. */
static int count_equal(const struct context_thread *thread, int count)
{
    int equal = 0;
    while (equal < count && equal < thread->last_count
           && python_is_same(&thread->last[equal].place, &thread->places[count - 1 - equal]))
        equal++;
    return equal;
}

/* From the root; the path is kept for the next time. */
static uint32_t follow_path(struct context_thread *thread, int count)
{
    int at = count_equal(thread, count);
    uint32_t node = at ? thread->last[at - 1].node : 0;
    for (; at < count; at++) {
        const struct python_place *place = &thread->places[count - 1 - at];
        node = context_step(thread, node, place);
        thread->last[at].place = *place, thread->last[at].node = node;
    }
    thread->last_count = count;
    return node;
}

static uint32_t follow_inside(struct context_thread *thread, uint32_t node, int count)
{
    while (count--)
        node = context_step(thread, node, &thread->places[count]);
    return node;
}

/* Whether the function has returned that began the range, although one runs in its frame, at the same instruction: the same
 * function again, as when a program opens a range in another. */
static int has_returned(const struct open_context *open)
{
    return open->may_outlast && open->frame && python_mark(open->frame) != open->around;
}

/* The innermost open context that holds what begins now, NULL for none; in places, the functions from there on. One whose
 * function no longer runs there, as of a range that a function of its own has opened, holds nothing. */
static struct open_context *find_holder(struct context_thread *thread, int *count)
{
    for (int k = thread->depth - 1; k >= 0; k--) {
        struct open_context *open = &thread->open[k];
        *count = open->is_gone ? -1 : python_read(open->frame, open->at, thread->places, MOST_FRAMES);
        open->is_gone = *count < 0 || has_returned(open);
        if (!open->is_gone)
            return open;
    }
    *count = python_read(NULL, 0, thread->places, MOST_FRAMES);
    return NULL;
}

static uint32_t find_path(struct context_thread *thread)
{
    int count;
    const struct open_context *holder = find_holder(thread, &count);
    return holder ? follow_inside(thread, holder->node, count) : follow_path(thread, count);
}

/* Whether nothing of Python's has begun or ended since the one around it began. */
static int is_inside(const struct open_context *around, const struct open_context *open)
{
    return !around->is_gone && open->frame == around->frame && open->at == around->at && !has_returned(around);
}

/* While collecting goes on: whoever ends it has waited for those that read. */
static uint32_t read_around(struct context_thread *thread, struct open_context *open)
{
    const struct open_context *around = thread->depth ? &thread->open[thread->depth - 1] : NULL;
    if (!atomic_load(&dp_contexts_on))
        return around ? around->node : 0;
    open->frame = python_top(&open->at);
    open->around = open->may_outlast && open->frame ? python_mark(open->frame) : 0;
    return around && is_inside(around, open) ? around->node : find_path(thread);
}

static uint32_t find_around(struct context_thread *thread, struct open_context *open)
{
    if (dp_contexts_mode < DP_WITH_PYTHON)
        return thread->depth ? thread->open[thread->depth - 1].node : 0;
    atomic_exchange(&thread->is_reading, 1);
    uint32_t node = read_around(thread, open);
    atomic_store_explicit(&thread->is_reading, 0, memory_order_release);
    return node;
}

uint32_t context_around(struct context_thread *thread, struct open_context *open)
{
    return native_around(thread, open, find_around(thread, open));
}
