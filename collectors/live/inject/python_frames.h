/* The Python functions that are running on the calling thread, where CPython 3.9 or later is in this process.
 *
 * Plain C without Python.h: all functions are found by name in the process. */
#ifndef DEEPPROF_PYTHON_FRAMES_H
#define DEEPPROF_PYTHON_FRAMES_H
#include <stdint.h>

/* A place in code: the code object, and the instruction in it (or, of CPython 3.9 and 3.10, the line). */
struct python_place { const void *code; uintptr_t at; };

/* Once, on a thread that runs Python: finds the interpreter. `prefixes`: beginnings of file names to leave out, a line
 * each. Returns 0, or -1 where it cannot be read, which a notice tells. */
int python_prepare(const char *prefixes);

/* Whether the frames of this thread are read without the interpreter's lock: nobody but it changes them, and a
 * comparison on the thread of its own needs no reference. Else python_enter comes before. */
int python_reads_freely(void);
int python_enter(void);                /* takes the interpreter's lock; 0: not now, or this thread runs no Python */
void python_leave(void);

/* Where the thread's innermost function is: a mark that changes with each call and instruction; NULL: nowhere. Only where
 * frames are read freely. */
const void *python_top(uintptr_t *at);

/* Writes the running functions, the innermost first, `most` of them at most, the outermost ones; where they are read
 * freely, only those in the frame `until`, which is at `at` (NULL: all). Returns how many, -1 where that one does not
 * run there. With the interpreter's lock, or freely. */
int python_read(const void *until, uintptr_t at, struct python_place *places, int most);

/* With the interpreter's lock: the id of the function's name and the running line. Returns whether the code object stays
 * the same for the life of the process, so that its address tells it; else it may not be kept. */
int python_name(const struct python_place *place, uint32_t *name, uint32_t *line);
#endif
