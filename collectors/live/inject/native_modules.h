/* The libraries, and the program itself, that native stacks run through. No lock of the program's or the loader's is
 * waited for but that around the loader's list. */
#ifndef DEEPPROF_NATIVE_MODULES_H
#define DEEPPROF_NATIVE_MODULES_H
#include <stdint.h>

/* Hidden are we, PyTorch, and what only calls, or begins threads. */
enum module_role { MODULE_SHOWN, MODULE_HIDDEN, MODULE_INTERPRETER };
struct native_module {
    uintptr_t base, begin, end;
    uint64_t mark;                       /* of what its table for unwinding is like */
    enum module_role role;
    char name[64];                       /* of the file */
};

void modules_prepare(uintptr_t interpreter);             /* an address in it, 0: none */
const struct native_module *module_around(uintptr_t address); /* NULL: in none, or there is no room for one more */
int modules_are_full(void);              /* there was no room: whether that one changes nobody sees */
int modules_are_sound(void);             /* 0: where one of those asked for was, another has been loaded */
void modules_forget(void);                               /* in the child of a fork */
#endif
