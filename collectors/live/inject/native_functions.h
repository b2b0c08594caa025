/* The functions of native code that return addresses lie in. */
#ifndef DEEPPROF_NATIVE_FUNCTIONS_H
#define DEEPPROF_NATIVE_FUNCTIONS_H
#include <stdint.h>
#include "native_modules.h"

struct native_function {
    _Atomic uintptr_t address;            /* which returns into it; 0: free */
    uintptr_t begin;                      /* 0: not known */
    uint32_t name;
    enum module_role role;
};

/* Any thread, no lock where the address is known. NULL where there is no room for one more, which a notice tells. */
const struct native_function *native_function(uintptr_t address);
void native_functions_forget(void);       /* in the child of a fork */
#endif
