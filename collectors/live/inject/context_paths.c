/* Where a thread is: its functions of Python, as far as they have come to run since what it has open began.
 *
 * Paths are compared with the thread's last one from the outermost function on. */
#define _GNU_SOURCE
#include <stddef.h>
#include "context_threads.h"
#include "contexts.h"
#include "native_frames.h"

/* Returns the context of the step, 0 where the interpreter has to be asked and cannot be. Where the code is not kept, its
 * address may be another's soon: it is not to be remembered. */
static uint32_t take_step(struct context_thread *thread, uint32_t from, const struct python_place *place, int *entered,
                          int *is_kept)
{
    const struct step *step = thread->steps ? context_step(thread, from, place) : NULL;
    *is_kept = 1;
    if (step && step->to)
        return step->to;
    if (!*entered && python_reads_freely() && !(*entered = python_enter()))
        return 0;
    return context_step_make(thread, from, place, is_kept);
}

/* How much of the path is as it was the last time. */
static int count_equal(const struct context_thread *thread, int count)
{
    int equal = 0;
    for (; equal < count && equal < thread->last_count; equal++) {
        const struct python_place *place = &thread->places[count - 1 - equal];
        if (thread->last[equal].code != place->code || thread->last[equal].at != place->at)
            break;
    }
    return equal;
}

/* From the root; the path is kept for the next time. */
static uint32_t follow_path(struct context_thread *thread, int count, int *entered)
{
    int at = thread->last_count = count_equal(thread, count), is_kept;
    uint32_t node = at ? thread->last[at - 1].node : 0, next;
    for (; at < count; at++, node = next) {
        const struct python_place *place = &thread->places[count - 1 - at];
        if (!(next = take_step(thread, node, place, entered, &is_kept)))
            break;
        if (!is_kept || at != thread->last_count)
            continue;
        thread->last[at].code = place->code, thread->last[at].at = place->at;
        thread->last[at].node = next;
        thread->last_count++;
    }
    return node;
}

static uint32_t follow_inside(struct context_thread *thread, uint32_t node, int count, int *entered)
{
    int is_kept;
    uint32_t next;
    while (count-- && (next = take_step(thread, node, &thread->places[count], entered, &is_kept)))
        node = next;
    return node;
}

/* Whether the function that began `open` is still running there: one that is not, as of a range that a function of its own
 * has opened, holds nothing. Reads what has come to run since. */
static int holds(struct context_thread *thread, struct open_context *open, int *count)
{
    if (python_reads_freely()) {
        *count = python_read(open->frame, open->at, thread->places, MOST_FRAMES);
        open->is_gone = *count < 0;
        return !open->is_gone;
    }
    const struct python_place *then = *count < open->frames ? NULL : &thread->places[*count - open->frames];
    open->is_gone = !then || (open->frames && (then->code != open->code || then->at != open->at));
    *count -= open->is_gone ? 0 : open->frames;
    return !open->is_gone;
}

/* The innermost open context that holds what begins now, NULL for none; in places, the functions from there on. */
static struct open_context *find_holder(struct context_thread *thread, int *count)
{
    *count = python_reads_freely() ? 0 : python_read(NULL, 0, thread->places, MOST_FRAMES);
    for (int k = thread->depth - 1; k >= 0; k--)
        if (!thread->open[k].is_gone && holds(thread, &thread->open[k], count))
            return &thread->open[k];
    if (python_reads_freely())
        *count = python_read(NULL, 0, thread->places, MOST_FRAMES);
    return NULL;
}

static uint32_t find_path(struct context_thread *thread, struct open_context *open)
{
    int count, entered = 0;
    if (!python_reads_freely() && !(entered = python_enter()))
        return thread->depth ? thread->open[thread->depth - 1].node : 0;
    struct open_context *holder = find_holder(thread, &count);
    open->frames = count + (holder ? holder->frames : 0);
    if (!python_reads_freely() && open->frames)
        open->code = thread->places[0].code, open->at = thread->places[0].at;
    uint32_t node = holder ? follow_inside(thread, holder->node, count, &entered) : follow_path(thread, count, &entered);
    if (entered)
        python_leave();
    return node;
}

/* Whether functions of Python have come to run since `around` began. Without looking, where they are not read freely:
 * PyTorch's own operators run none. */
static int may_run_python(const struct open_context *around, const struct open_context *open)
{
    if (around->is_gone)
        return 1;
    if (python_reads_freely())
        return open->frame != around->frame || open->at != around->at;
    return around->is_opaque;
}

/* While collecting goes on: whoever ends it has waited for those that read. */
static uint32_t read_around(struct context_thread *thread, struct open_context *open)
{
    const struct open_context *around = thread->depth ? &thread->open[thread->depth - 1] : NULL;
    if (!atomic_load(&dp_contexts_on))
        return around ? around->node : 0;
    open->frame = python_top(&open->at);
    if (!around || may_run_python(around, open))
        return find_path(thread, open);
    open->frames = around->frames, open->code = around->code, open->at = around->at;
    return around->node;
}

static uint32_t find_around(struct context_thread *thread, struct open_context *open)
{
    if (dp_contexts_mode < DP_WITH_PYTHON)
        return thread->depth ? thread->open[thread->depth - 1].node : 0;
    atomic_exchange(&thread->is_reading, 1); /* what the interpreter runs meanwhile is no part of the program */
    uint32_t node = read_around(thread, open);
    atomic_store_explicit(&thread->is_reading, 0, memory_order_release);
    return node;
}

uint32_t context_around(struct context_thread *thread, struct open_context *open)
{
    return native_around(thread, open, find_around(thread, open));
}
