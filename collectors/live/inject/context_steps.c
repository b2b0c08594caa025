/* Steps that a thread has taken before: a table of its own, so that a steady loop never asks the interpreter. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include "context_threads.h"
#include "context_tree.h"

enum { FIRST_STEPS = 1 << 10, MOST_STEPS = 1 << 17 };

static unsigned place_of(const struct context_thread *thread, uint32_t from, const struct python_place *place)
{
    uint64_t hash = ((uintptr_t)place->code ^ (uint64_t)from << 40) * UINT64_C(0x9E3779B97F4A7C15);
    hash = (hash ^ hash >> 32 ^ place->at ^ place->mark) * UINT64_C(0xD6E8FEB86659FD93);
    return (unsigned)(hash >> 40) & thread->step_mask;
}

/* The step, or the free place for it. */
static struct step *find_step(const struct context_thread *thread, uint32_t from, const struct python_place *place)
{
    unsigned at = place_of(thread, from, place);
    struct step *step = &thread->steps[at];
    while (step->to && !(step->from == from && python_is_same(&step->place, place)))
        step = &thread->steps[at = (at + 1) & thread->step_mask];
    return step;
}

/* Twice the room; a program with more steps than fit begins again, and pays for it. */
static int grow_steps(struct context_thread *thread)
{
    unsigned size = thread->steps ? 2 * (thread->step_mask + 1) : FIRST_STEPS, before = thread->step_mask;
    struct step *old = thread->steps, *grown = size <= MOST_STEPS ? calloc(size, sizeof *grown) : NULL;
    if (!grown) {
        if (old)
            memset(old, 0, ((size_t)before + 1) * sizeof *old);
        thread->step_count = 0;
        return old ? 0 : -1;
    }
    thread->steps = grown, thread->step_mask = size - 1;
    for (unsigned i = 0; old && i <= before; i++)
        if (old[i].to)
            *find_step(thread, old[i].from, &old[i].place) = old[i];
    free(old);
    return 0;
}

static int has_room_for_step(struct context_thread *thread)
{
    return (thread->steps && 2u * (unsigned)thread->step_count <= thread->step_mask) || !grow_steps(thread);
}

static uint32_t make_step(struct context_thread *thread, uint32_t from, const struct python_place *place)
{
    uint32_t name, line;
    python_name(place, &name, &line);
    uint32_t to = context_child(from, name, line, DP_PYTHON_FRAME, 0);
    if (to && has_room_for_step(thread)) {
        *find_step(thread, from, place) = (struct step){from, to, *place};
        thread->step_count++;
    }
    return to;
}

uint32_t context_step(struct context_thread *thread, uint32_t from, const struct python_place *place)
{
    const struct step *step = thread->steps ? find_step(thread, from, place) : NULL;
    return step && step->to ? step->to : make_step(thread, from, place);
}
