/* libunwind 1.x, by the names that its functions have in the library.
 *
 * It is loaded for us alone (RTLD_LOCAL): it has functions that throw exceptions, too, and nobody else is to be given
 * these. unw_backtrace remembers, for each thread, how to leave a function at an address, and never forgets it: whoever
 * calls unwind_stack has made sure that no library has taken the place of another (native_modules.c). What is locked on
 * the way are locks of its own, and the one around the loader's list of libraries, which the loader holds for moments
 * only and never while it runs a library's constructors. dladdr would wait for those, and so might never return. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include "native_unwind.h"

#if defined(__x86_64__)
enum { INSTRUCTION = 16 };              /* the number of the register */

struct cursor { uint64_t words[256]; }; /* both larger than those of any version */
struct registers { uint64_t words[256]; };
struct function { uintptr_t begin, end, more[30]; };

static struct {
    int (*backtrace)(void **, int);
    int (*get_registers)(struct registers *);
    int (*begin)(struct cursor *, struct registers *);
    int (*set)(struct cursor *, int, uintptr_t);
    int (*describe)(struct cursor *, struct function *);
    int (*name)(struct cursor *, char *, size_t, uintptr_t *);
} unwind;

static int find_functions(void *library)
{
    int missing = 0;
#define FIND(function, symbol) missing |= !(unwind.function = (__typeof__(unwind.function))dlsym(library, symbol));
    FIND(backtrace, "unw_backtrace")
    FIND(get_registers, "_Ux86_64_getcontext")
    FIND(begin, "_ULx86_64_init_local")
    FIND(set, "_ULx86_64_set_reg")
    FIND(describe, "_ULx86_64_get_proc_info")
    FIND(name, "_ULx86_64_get_proc_name")
    return missing ? -1 : 0;
}

const char *unwind_prepare(void)
{
    const char *path = getenv("DEEPPROF_LIBUNWIND");
    void *library = dlopen(path ? path : "libunwind.so.8", RTLD_NOW | RTLD_LOCAL);
    uintptr_t first[4];
    if (!library)
        return dlerror();
    return !find_functions(library) && unwind_stack(first, 4) > 0 ? NULL : "its functions have other names";
}

int unwind_stack(uintptr_t *addresses, int most) { return unwind.backtrace((void **)addresses, most); }

/* A cursor on this function here, moved into the one around `address`. */
uintptr_t unwind_function(uintptr_t address, char *symbol, size_t room)
{
    struct registers registers;
    struct cursor cursor;
    struct function function = {0};
    uintptr_t inside = address - 1, offset = 0; /* the call may be the last instruction */
    symbol[0] = 0;
    unwind.get_registers(&registers);
    if (unwind.begin(&cursor, &registers) || unwind.set(&cursor, INSTRUCTION, inside)
        || unwind.describe(&cursor, &function) || function.end - function.begin <= 1)
        return 0;
    if (unwind.name(&cursor, symbol, room, &offset) || inside - offset != function.begin)
        symbol[0] = 0; /* the nearest one is another function's */
    return function.begin;
}
#else
const char *unwind_prepare(void) { return "this is not x86-64"; }

int unwind_stack(uintptr_t *addresses, int most) { return (void)addresses, (void)most, 0; }

uintptr_t unwind_function(uintptr_t address, char *symbol, size_t room)
{
    (void)address, (void)room;
    symbol[0] = 0;
    return 0;
}
#endif
