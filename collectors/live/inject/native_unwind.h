/* The native stack of the calling thread, by libunwind where it is installed: found at run time, never linked. */
#ifndef DEEPPROF_NATIVE_UNWIND_H
#define DEEPPROF_NATIVE_UNWIND_H
#include <stddef.h>
#include <stdint.h>

const char *unwind_prepare(void);                        /* NULL, or why there is none */
int unwind_stack(uintptr_t *addresses, int most);        /* return addresses, the innermost first; how many */

/* Where the function around a return address begins, by its library's table for unwinding (0: not known), and what the
 * symbol that begins there is called ("": there is none). */
uintptr_t unwind_function(uintptr_t address, char *symbol, size_t room);
#endif
