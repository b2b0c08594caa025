/* Computations of JAX as contexts: each call of a function that jax.jit has made.
 *
 * Such a function is an object of C++, and its calls never come to Python. The object names the function that CPython
 * calls (PEP 590, "vectorcall"), a pointer in its own memory. The hook hands over each object as it is made, and the
 * pointer becomes ours; the object and its type stay what they are.
 *
 * What is called is found by the object's address. Each object begins with its type's own pointer, so one that comes here
 * was handed over since it was made, and the name at its address is its own: not that of an object that lay there before.
 * Objects that are made without the hook (a copy, one that was pickled) keep their pointer, and are not collected.
 * All of it happens under the interpreter's lock: builds without one are refused. Offsets are facts of CPython since 3.8,
 * and each object is compared with what CPython answers. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <string.h>
#include "context_threads.h"
#include "contexts.h"
#include "core.h"
#include "hooks.h"
#include "labels.h"

enum { SIZE_OF_TYPE = 32, CALL_OF_TYPE = 56, HAS_CALL = 1 << 11 }; /* the last: of a type's flags */
enum { PLACES = 1 << 16, MOST_PLACES = PLACES / 2, KINDS = 2 };
enum { OTHER_OBJECTS = 48, MORE_COMPUTATIONS = 49 }; /* notices */

typedef void object;
typedef object *(*caller)(object *self, object *const *arguments, size_t count, object *names);

#define PYTHON_FUNCTIONS(one) \
    one(caller, PyVectorcall_Function, (object *)) one(unsigned long, PyType_GetFlags, (object *)) \
    one(object *, PyObject_Type, (object *)) one(void, Py_DecRef, (object *)) one(const char *, Py_GetVersion, (void))

#define DECLARE(type, name, arguments) type (*name) arguments;
static struct { PYTHON_FUNCTIONS(DECLARE) } py;
static caller real[KINDS];              /* of jit, and of pmap where that is another type */
static struct { const object *self; struct dp_label *label; } places[PLACES];
static int place_count;

/* ---- calls ---- */

/* Where the object is, or the free place for it. */
static unsigned find_place(const object *self)
{
    unsigned place = (unsigned)(((uintptr_t)self * UINT64_C(0x9E3779B97F4A7C15)) >> 48);
    while (places[place].self && places[place].self != self)
        place = (place + 1) % PLACES;
    return place;
}

static struct dp_label *label_of(const object *self)
{
    static struct dp_label *others;
    struct dp_label *label = places[find_place(self)].label;
    if (!label && !(label = others))
        label = others = dp_label("(other computations)");
    return label;
}

/* An exception is a result, too: NULL. Apart, so that one load and a jump is all where nothing is collected. */
__attribute__((noinline)) static object *call_observed(caller function, object *self, object *const *arguments,
                                                       size_t count, object *names)
{
    dp_context_begin(label_of(self));
    object *result = function(self, arguments, count, names);
    dp_context_end();
    return result;
}

#define CALL(kind) \
    (atomic_load_explicit(&dp_contexts_on, memory_order_relaxed) ? call_observed(real[kind], self, arguments, count, names) \
                                                                 : real[kind](self, arguments, count, names))

static object *call_first(object *self, object *const *arguments, size_t count, object *names) { return CALL(0); }

static object *call_second(object *self, object *const *arguments, size_t count, object *names) { return CALL(1); }

static const caller OURS[KINDS] = {call_first, call_second};

/* ---- objects that are handed over ---- */

static uintptr_t read_word(const object *at, size_t offset)
{
    uintptr_t value;
    memcpy(&value, (const char *)at + offset, sizeof value);
    return value;
}

/* Where the object has its pointer; 0: it has none, or not where it should be. */
static size_t find_pointer(object *self)
{
    object *type = py.PyObject_Type(self);
    py.Py_DecRef(type); /* the object holds another */
    if (!(py.PyType_GetFlags(type) & HAS_CALL))
        return 0;
    size_t offset = read_word(type, CALL_OF_TYPE), nbytes = read_word(type, SIZE_OF_TYPE);
    if (offset < 2 * sizeof(void *) || offset % sizeof(void *) || offset + sizeof(void *) > nbytes)
        return 0;
    return read_word(self, offset) == (uintptr_t)py.PyVectorcall_Function(self) ? offset : 0;
}

/* Which of ours stands for the function, KINDS for none. */
static int find_kind(caller function)
{
    int kind = 0;
    while (kind < KINDS && real[kind] && real[kind] != function && OURS[kind] != function)
        kind++;
    if (function && kind < KINDS && !real[kind])
        real[kind] = function;
    return function ? kind : KINDS;
}

/* The label is written before the pointer, and over that of an object which lay here before. */
static void keep(const object *self, struct dp_label *label)
{
    unsigned place = find_place(self);
    if (!places[place].self && place_count == MOST_PLACES) {
        dp_notice(MORE_COMPUTATIONS, "more than 32,768 functions of JAX: the others are (other computations)");
        return;
    }
    place_count += !places[place].self;
    places[place].self = self, places[place].label = label;
}

static int take(object *self, const char *name)
{
    size_t offset = find_pointer(self);
    int kind = offset ? find_kind(py.PyVectorcall_Function(self)) : KINDS;
    if (kind == KINDS)
        return -1;
    keep(self, dp_label(name));
    memcpy((char *)self + offset, &OURS[kind], sizeof OURS[kind]);
    return 0;
}

static int find_functions(void)
{
    int missing = sizeof(void *) != 8; /* offsets are those of 64 bits */
#define FIND(type, name, arguments) missing |= !(py.name = (type (*) arguments)dlsym(RTLD_DEFAULT, #name));
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpedantic"
    PYTHON_FUNCTIONS(FIND)
#pragma GCC diagnostic pop
    return missing || strstr(py.Py_GetVersion(), "free-threading") ? -1 : 1;
}

static int is_ready(void)
{
    static int found; /* 0: not looked for yet */
    if (!found)
        found = find_functions();
    return found > 0;
}

/* A function that jax.jit has made, and the name of its computations. To be called with the interpreter's lock.
 * 0, or -1: it is left as it is, which a notice tells. */
DP_API int deepprof_computation(object *self, const char *name)
{
    if (is_ready() && !take(self, name))
        return 0;
    dp_notice(OTHER_OBJECTS, "this Python or this JAX does not say how its functions are called: JAX is not collected");
    return -1;
}

/* As deepprof_contexts, for a program whose operators nobody sends one by one, or of which PyTorch's hook says it. */
DP_API int deepprof_jax(int mode, const char *prefixes)
{
    return dp_contexts_start(mode, prefixes, !dp_operators_wanted());
}
