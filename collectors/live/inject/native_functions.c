/* A hash table of return addresses that only grows, to a limit: read without a lock, written under one. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include "core.h"
#include "native_functions.h"
#include "native_names.h"
#include "native_unwind.h"

enum { SLOTS = 1 << 17, MOST_ADDRESSES = SLOTS / 2, SYMBOL_NBYTES = 4096, NAME_NBYTES = 1024 };
enum { MORE_PLACES = 55, MORE_LIBRARIES = 58 }; /* notices */

static struct native_function functions[SLOTS];
static int count;
static pthread_mutex_t adding = PTHREAD_MUTEX_INITIALIZER;
static const struct native_function NOWHERE = {.role = MODULE_HIDDEN}; /* code that no library has */

/* The one of the address, or a free one for it. */
static struct native_function *find(uintptr_t address)
{
    uint32_t place = (uint32_t)(address * UINT64_C(0x9E3779B97F4A7C15) >> 47);
    for (uintptr_t there; (there = atomic_load_explicit(&functions[place].address, memory_order_acquire)) != address;
         place = (place + 1) % SLOTS)
        if (!there)
            break;
    return &functions[place];
}

/* Nothing of it is under our lock. */
static void describe(uintptr_t address, const struct native_module *module, struct native_function *function)
{
    char symbol[SYMBOL_NBYTES], text[NAME_NBYTES];
    function->role = module->role;
    if (module->role != MODULE_SHOWN)
        return;
    function->begin = unwind_function(address, symbol, sizeof symbol);
    if (!symbol[0])
        snprintf(text, sizeof text, "[%s+0x%zx]", module->name, (function->begin ? function->begin : address) - module->base);
    else if (!native_name(symbol, text, sizeof text))
        function->role = MODULE_HIDDEN;
    if (function->role == MODULE_SHOWN)
        function->name = dp_intern(text);
}

static const struct native_function *add(uintptr_t address, const struct native_function *like)
{
    pthread_mutex_lock(&adding);
    struct native_function *place = find(address);
    int has_room = atomic_load(&place->address) || count < MOST_ADDRESSES;
    if (has_room && !atomic_load(&place->address)) {
        place->begin = like->begin, place->name = like->name, place->role = like->role;
        count++;
        atomic_store_explicit(&place->address, address, memory_order_release);
    }
    pthread_mutex_unlock(&adding);
    if (!has_room)
        dp_notice(MORE_PLACES, "operators were called from more than 65,536 places in native code: native frames end here");
    return has_room ? place : NULL;
}

/* Code that a program has made, as far as is known. */
static const struct native_function *find_nowhere(void)
{
    if (!modules_are_full())
        return &NOWHERE;
    dp_notice(MORE_LIBRARIES, "operators were called from more than 1,024 libraries: native frames end here");
    return NULL;
}

const struct native_function *native_function(uintptr_t address)
{
    struct native_function *function = find(address), made = {0};
    if (atomic_load_explicit(&function->address, memory_order_relaxed))
        return function;
    const struct native_module *module = module_around(address);
    if (!module)
        return find_nowhere();
    describe(address, module, &made);
    return add(address, &made);
}

void native_functions_forget(void) { pthread_mutex_init(&adding, NULL); } /* another thread of the parent may have held it */
