/* Of the native stack, what lies inside the interpreter's innermost frame, without what was there already when the context
 * around began: of that, its stack is kept, as far as it fits.
 *
 * Two stacks have in common what returns to the same addresses, from the outermost function on, and the function in which
 * they part: it has begun both. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include "context_tree.h"
#include "contexts.h"
#include "native_frames.h"
#include "native_functions.h"
#include "native_names.h"
#include "native_unwind.h"

enum { NO_LIBUNWIND = 53, NO_MORE_STACKS = 54, DEEP_STACK = 56, UNDER_TSAN = 57 }; /* notices */
enum { UNKNOWN = -1 };                   /* how many frames are kept of a stack that could not be read, or be kept */
enum { MORE_WALKED = 16 };

static atomic_int is_ready;

static void end_for_good(const char *why)
{
    atomic_store(&is_ready, 0);
    if (why)
        dp_notice(NO_MORE_STACKS, why);
}

/* Where the interpreter's innermost frame is, `count` where there is none; UNKNOWN where a frame is. All are looked at, so
 * that their libraries are known. */
static int find_interpreter(const uintptr_t *stack, int count)
{
    int found = count;
    for (int i = 0; i < count; i++) {
        const struct native_function *function = native_function(stack[i]);
        if (!function) {
            end_for_good(NULL);
            return UNKNOWN;
        }
        if (found == count && function->role == MODULE_INTERPRETER)
            found = i;
    }
    return found;
}

/* Reads the stack, first a little more of it than was needed the last time. Returns how many frames lie inside the
 * interpreter's innermost one; all where there is none. */
static int read_stack(struct context_thread *thread)
{
    int most = thread->walked < MOST_WALKED - MORE_WALKED ? thread->walked + MORE_WALKED : MOST_WALKED;
    int count = unwind_stack(thread->walk, most), inside = find_interpreter(thread->walk, count);
    if (inside == most && most < MOST_WALKED) {
        count = unwind_stack(thread->walk, most = MOST_WALKED);
        inside = find_interpreter(thread->walk, count);
    }
    inside = inside < MOST_WALKED ? inside : UNKNOWN;
    thread->walked = inside < 0 ? 0 : inside;
    return inside;
}

/* Keeps the outermost part behind that of what is open, the outermost frame first. */
static void keep_stack(struct context_thread *thread, struct open_context *open)
{
    const struct open_context *last = thread->depth ? open - 1 : NULL;
    int inside = read_stack(thread), kept = inside < MOST_KEPT ? inside : MOST_KEPT;
    open->stack_at = last ? last->stack_at + (last->stack_count > 0 ? last->stack_count : 0) : 0;
    open->stack_count = kept <= MOST_STACKS - open->stack_at ? kept : UNKNOWN;
    if (open->stack_count == UNKNOWN)
        dp_notice(DEEP_STACK, "more than 1,024 calls in native code were open: such contexts have no native frames");
    for (int i = 0; i < open->stack_count; i++)
        thread->stacks[open->stack_at + i] = thread->walk[inside - 1 - i];
}

/* The open context whose node it is: no function of Python has begun since. */
static const struct open_context *find_open(const struct context_thread *thread, uint32_t node)
{
    for (int k = thread->depth - 1; k >= 0 && node; k--)
        if (thread->open[k].node == node && !thread->open[k].is_gone)
            return &thread->open[k];
    return NULL;
}

static int is_same_function(uintptr_t one, uintptr_t other)
{
    const struct native_function *first = native_function(one), *second = native_function(other);
    return first && second && first->begin && first->begin == second->begin;
}

static int count_common(const struct context_thread *thread, const struct open_context *one, const struct open_context *other)
{
    const uintptr_t *of_one = &thread->stacks[one->stack_at], *of_other = &thread->stacks[other->stack_at];
    int common = 0, most = one->stack_count < other->stack_count ? one->stack_count : other->stack_count;
    while (common < most && of_one[common] == of_other[common])
        common++;
    return common < most && is_same_function(of_one[common], of_other[common]) ? common + 1 : common;
}

uint32_t native_around(struct context_thread *thread, struct open_context *open, uint32_t around)
{
    if (!atomic_load_explicit(&is_ready, memory_order_relaxed))
        return around;
    if (!modules_are_sound()) {
        end_for_good("a library of native code was loaded in the place of another: native frames end here");
        return around;
    }
    keep_stack(thread, open);
    const struct open_context *outer = find_open(thread, around);
    if (outer && outer->stack_count == UNKNOWN)
        return around;
    for (int at = outer ? count_common(thread, outer, open) : 0; at < open->stack_count; at++) {
        const struct native_function *function = native_function(thread->stacks[open->stack_at + at]);
        if (function && function->role == MODULE_SHOWN)
            around = context_child(around, function->name, 0, DP_NATIVE_FRAME, 0);
    }
    return around;
}

static int refuse(uint32_t code, const char *why)
{
    dp_notice(code, why);
    return -1;
}

int native_prepare(void)
{
    if (dlsym(RTLD_DEFAULT, "__tsan_init") && !getenv("DEEPPROF_LIBUNWIND")) /* a thread's end is its own; else it crashes */
        return refuse(UNDER_TSAN, "contexts have no native frames: libunwind does not work in a program with ThreadSanitizer");
    const char *why = unwind_prepare();
    char text[256];
    if (why) {
        snprintf(text, sizeof text, "contexts have no native frames: install libunwind 8 (Debian, Ubuntu: libunwind8): %s", why);
        return refuse(NO_LIBUNWIND, text);
    }
    modules_prepare((uintptr_t)dlsym(RTLD_DEFAULT, "Py_IsInitialized"));
    native_names_prepare();
    atomic_store(&is_ready, 1);
    return 0;
}

void native_forget(void)
{
    modules_forget();
    native_functions_forget();
    end_for_good(NULL);
}
