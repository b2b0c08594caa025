/* The Python functions that are running on the calling thread, where CPython 3.9 or later is in this process.
 *
 * Plain C without Python.h. All is read as it lies in memory: a thread's frames are changed by nobody but itself, and
 * the interpreter's lock is never asked for, which somebody may hold who waits for what this thread has. */
#ifndef DEEPPROF_PYTHON_FRAMES_H
#define DEEPPROF_PYTHON_FRAMES_H
#include <stdint.h>

/* A place in code: the code object, the instruction in it, and what tells it from another one at the same address. */
struct python_place { const void *code; uintptr_t at; uint64_t mark; };

static inline int python_is_same(const struct python_place *one, const struct python_place *other)
{
    return one->code == other->code && one->at == other->at && one->mark == other->mark;
}

/* Once, on a thread that runs Python and does not hold the interpreter's lock: finds the interpreter. `prefixes`: beginnings
 * of file names to leave out, a line each. Returns 0, or -1 where it cannot be read, which a notice tells. */
int python_prepare(const char *prefixes);

/* Where the thread's innermost function is: a mark that changes with each call and instruction; NULL: nowhere. */
const void *python_top(uintptr_t *at);

/* A mark of all that runs around the frame, of which the instructions move on once it has returned. */
uint64_t python_mark(const void *frame);

/* Writes the running functions, the innermost first, `most` of them at most, the outermost ones; only those in the frame
 * `until`, which is at `at` (NULL: all). Returns how many, -1 where that one does not run there. */
int python_read(const void *until, uintptr_t at, struct python_place *places, int most);

/* The id of the function's name and the running line, 0 for none, of a function that is running. */
void python_name(const struct python_place *place, uint32_t *name, uint32_t *line);
#endif
