/* Reading Python's frames from C, for each operator and so as cheaply as can be.
 *
 * CPython's own functions make an object for each frame and need the interpreter's lock, which other threads may hold
 * for milliseconds, or for ever where they wait for a lock of the program's that this thread has. A thread's frames lie
 * in a simple list. Its layout is a fact of each released version, and is used only where all of it agrees, frame by
 * frame, with what CPython's functions answer when we begin.
 *
 * While the interpreter is being finalised nothing is read: what is given back then is not this thread's alone. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "core.h"
#include "python_code.h"
#include "python_frames.h"

enum { NO_PYTHON = 38, SUBINTERPRETERS = 39, FREE_THREADED = 40, OTHER_LAYOUT = 41 }; /* notices */
enum { SHIM = 3 };                      /* owners from this one on hold no function of Python */
enum { FRAME_OF_OBJECT = 24, TEXT_NBYTES = 4096, LEAST_STATE_NBYTES = 128 };

typedef void object;

#define PYTHON_FUNCTIONS(one) \
    one(int, Py_IsInitialized, (void)) one(const char *, Py_GetVersion, (void)) \
    one(int, PyGILState_Ensure, (void)) one(void, PyGILState_Release, (int)) \
    one(void *, PyGILState_GetThisThreadState, (void)) \
    one(void *, PyInterpreterState_Head, (void)) one(void *, PyInterpreterState_Main, (void)) \
    one(object *, PyThreadState_GetFrame, (void *)) one(object *, PyFrame_GetBack, (object *)) \
    one(object *, PyFrame_GetCode, (object *)) one(int, PyFrame_GetLineNumber, (object *)) \
    one(object *, PyObject_GetAttrString, (object *, const char *)) \
    one(object *, PyUnicode_FromString, (const char *)) one(const char *, PyUnicode_AsUTF8, (object *)) \
    one(long, PyLong_AsLong, (object *)) one(void, Py_DecRef, (object *)) one(void, PyErr_Clear, (void))

#define DECLARE(type, name, arguments) type (*name) arguments;
static struct {
    PYTHON_FUNCTIONS(DECLARE)
    int (*IsFinalizing)(void);          /* Py_IsFinalizing, or as it was called up to 3.12 */
    int (*GetLasti)(object *);          /* from 3.11 on */
} py;

/* Where a frame has what, by version. `thread` is where a thread has its innermost frame: there, or at `inside` of what is
 * there; where it is there itself it is looked for, as fields before it have come and gone from 3.13 on. Instructions are counted from `code_begin` of the code object, which is measured; up to 3.10 frames have the
 * instruction's number instead, and are objects. `owner` 0: all are functions of Python's. */
static struct layout { unsigned code, previous, instruction, owner, thread; int inside; uintptr_t code_mask; } LAYOUTS[] = {
    {32, 24, 104, 0, 24, -1, ~(uintptr_t)0}, /* 3.9 */
    {32, 24, 96, 0, 24, -1, ~(uintptr_t)0},
    {32, 48, 56, 0, 56, 8, ~(uintptr_t)0},
    {0, 8, 56, 70, 56, 0, ~(uintptr_t)0},
    {0, 8, 56, 70, 72, -1, ~(uintptr_t)0},
    {0, 8, 56, 74, 72, -1, ~(uintptr_t)3}, /* 3.14 */
};
static struct layout *known;
static ptrdiff_t code_begin;
static int is_ready, minor_version;

static const void *word(const void *at, size_t offset)
{
    const void *value;
    memcpy(&value, (const char *)at + offset, sizeof value);
    return value;
}

/* ---- frames ---- */

static const void *code_of(const void *frame)
{
    return (const void *)((uintptr_t)word(frame, known->code) & known->code_mask);
}

static uintptr_t instruction_of(const void *frame)
{
    int number;
    if (minor_version >= 11)
        return (uintptr_t)word(frame, known->instruction);
    memcpy(&number, (const char *)frame + known->instruction, sizeof number);
    return (uintptr_t)(intptr_t)number;
}

/* The instruction, in bytes from the first one; negative: none has run. */
static int offset_of(const struct python_place *place)
{
    if (minor_version >= 11)
        return (int)((const char *)place->at - (const char *)place->code - code_begin);
    return (int)(intptr_t)place->at * (minor_version == 10 ? 2 : 1);
}

/* The frame itself, or the first around it that is a function of Python's. */
static const void *skip_shims(const void *frame)
{
    while (frame && known->owner && ((const unsigned char *)frame)[known->owner] >= SHIM)
        frame = word(frame, known->previous);
    return frame;
}

static const void *top_of(const void *thread)
{
    const void *at = word(thread, known->thread);
    return known->inside < 0 || !at ? at : word(at, (size_t)known->inside);
}

static const void *around(const void *frame) { return skip_shims(word(frame, known->previous)); }

static int is_running(void) { return is_ready && py.Py_IsInitialized() && !py.IsFinalizing(); }

const void *python_top(uintptr_t *at)
{
    const void *thread = is_running() ? py.PyGILState_GetThisThreadState() : NULL;
    const void *frame = thread ? skip_shims(top_of(thread)) : NULL;
    *at = frame ? instruction_of(frame) : 0;
    return frame;
}

static struct python_place place_of(const void *frame)
{
    const void *code = code_of(frame);
    return (struct python_place){code, instruction_of(frame), code_mark(code)};
}

uint64_t python_mark(const void *frame)
{
    uint64_t mark = 0;
    for (; frame; frame = around(frame))
        mark = ((mark ^ (uintptr_t)frame) * UINT64_C(0x9E3779B97F4A7C15) ^ instruction_of(frame)) * UINT64_C(0xD6E8FEB86659FD93);
    return mark;
}

int python_read(const void *until, uintptr_t at, struct python_place *places, int most)
{
    uintptr_t top;
    int count = 0, deep = 0;
    const void *frame = python_top(&top), *last = frame;
    for (; last && last != until; last = around(last))
        deep++;
    if (until && (!last || instruction_of(last) != at))
        return -1;
    for (const void *each = frame; each && each != until; each = around(each), deep--)
        if (deep <= most)
            places[count++] = place_of(each);
    return count;
}

void python_name(const struct python_place *place, uint32_t *name, uint32_t *line)
{
    *name = code_name(place->code);
    *line = code_line(place->code, offset_of(place));
}

/* ---- the beginning: all that is read is compared with what CPython's functions answer ---- */

static int find_functions(void)
{
    int missing = 0;
#define FIND(type, name, arguments) missing |= !(py.name = (type (*) arguments)dlsym(RTLD_DEFAULT, #name));
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpedantic"
    PYTHON_FUNCTIONS(FIND)
    py.IsFinalizing = (int (*)(void))dlsym(RTLD_DEFAULT, "Py_IsFinalizing");
    if (!py.IsFinalizing)
        py.IsFinalizing = (int (*)(void))dlsym(RTLD_DEFAULT, "_Py_IsFinalizing");
    py.GetLasti = (int (*)(object *))dlsym(RTLD_DEFAULT, "PyFrame_GetLasti");
#pragma GCC diagnostic pop
    return missing || !py.IsFinalizing ? -1 : 0;
}

/* Whether `string`, a reference that is given back, is what is read `from` somewhere. One with half of a surrogate pair, as
 * file names have that are not UTF-8, has no form that it could be compared in. */
static int reads_text(object *string, const void *from, void (*read)(const void *, char *, size_t))
{
    char text[TEXT_NBYTES];
    const char *expected = string ? py.PyUnicode_AsUTF8(string) : NULL;
    if (expected)
        read(from, text, sizeof text);
    int is_equal = expected ? strlen(expected) >= sizeof text - 4 || !strcmp(text, expected) : string != NULL;
    py.PyErr_Clear();
    py.Py_DecRef(string); /* takes NULL */
    return is_equal;
}

static int has_text(object *code, const char *attribute, void (*read)(const void *, char *, size_t))
{
    return reads_text(py.PyObject_GetAttrString(code, attribute), code, read);
}

static int has_first_line(object *code)
{
    object *line = py.PyObject_GetAttrString(code, "co_firstlineno");
    int is_equal = line && py.PyLong_AsLong(line) == code_first_line(code);
    py.Py_DecRef(line);
    return is_equal;
}

static const void *frame_of(const object *each) { return minor_version >= 11 ? word(each, FRAME_OF_OBJECT) : each; }

/* Where the thread's state, of which so much is there in all versions, has the frame of the innermost function. */
static void find_innermost(const void *thread, const object *each)
{
    for (unsigned at = 0; known->inside < 0 && at < LEAST_STATE_NBYTES; at += sizeof(void *))
        if (word(thread, at) == frame_of(each)) {
            known->thread = at;
            return;
        }
}

/* Whether `frame` is the one of the object, which holds a reference to `code`. */
static int agrees(const void *frame, object *each, object *code, int is_first)
{
    struct python_place place;
    if (frame_of(each) != frame || code_of(frame) != code)
        return 0;
    place = (struct python_place){code, instruction_of(frame), 0};
    if (is_first && minor_version >= 11)
        code_begin = (const char *)place.at - (const char *)code - py.GetLasti(each);
    if (minor_version >= 11 && offset_of(&place) != py.GetLasti(each))
        return 0;
    int line = py.PyFrame_GetLineNumber(each);
    return has_text(code, "co_filename", code_file) && has_text(code, "co_name", code_function) && has_first_line(code)
        && code_line(code, offset_of(&place)) == (uint32_t)(line > 0 ? line : 0);
}

/* All frames of this thread. */
static int frames_agree(void)
{
    const void *thread = py.PyGILState_GetThisThreadState();
    object *each = py.PyThreadState_GetFrame(py.PyGILState_GetThisThreadState());
    if (each)
        find_innermost(thread, each);
    const void *frame = each ? top_of(thread) : NULL; /* looked into once it is known to be one */
    int count = 0, is_equal = frame != NULL;
    while (each) {
        object *code = py.PyFrame_GetCode(each), *back = py.PyFrame_GetBack(each);
        is_equal = is_equal && frame && agrees(frame, each, code, !count);
        frame = is_equal ? around(frame) : NULL;
        count++;
        py.Py_DecRef(code);
        py.Py_DecRef(each);
        each = back;
    }
    py.PyErr_Clear();
    return is_equal && !frame;
}

/* Texts of one, two and four bytes a character. */
static int texts_agree(void)
{
    static const char *const TEXTS[] = {"text", "t\xC3\xA9xt", "t\xE2\x82\xACxt", "t\xF0\x9F\x94\xA5xt"};
    int are_equal = 1;
    for (size_t i = 0; i < sizeof TEXTS / sizeof *TEXTS; i++) {
        object *string = py.PyUnicode_FromString(TEXTS[i]);
        are_equal &= string && reads_text(string, string, code_text);
    }
    return are_equal;
}

static int choose_layout(const char *prefixes)
{
    if (minor_version > PYTHON_NEWEST || (minor_version >= 11 && !py.GetLasti))
        return -1;
    known = &LAYOUTS[minor_version - PYTHON_OLDEST];
    code_prepare(minor_version, prefixes);
    return texts_agree() && frames_agree() ? 0 : -1;
}

/* A second interpreter has thread states of its own, and asking for the first one's lock under it can wait for ever. The
 * newest one is the head; nothing is read in it, for another thread may end it. */
static int enter(int *state)
{
    if (!py.PyGILState_GetThisThreadState() || py.IsFinalizing())
        return NO_PYTHON;
    if (py.PyInterpreterState_Head() != py.PyInterpreterState_Main())
        return SUBINTERPRETERS;
    *state = py.PyGILState_Ensure();
    return 0;
}

static int read_version(void)
{
    return !find_functions() && py.Py_IsInitialized() && sscanf(py.Py_GetVersion(), "3.%d", &minor_version) == 1
        && minor_version >= PYTHON_OLDEST ? 0 : -1;
}

static int refuse(int code)
{
    static const char *const REASONS[] = {
        "this is no CPython from 3.9 on that can be asked on this thread",
        "they were asked for while the program ran sub-interpreters",
        "this Python runs without an interpreter lock",
        "frames of this Python lie in memory as of no version that is known",
    };
    char text[200];
    snprintf(text, sizeof text, "contexts have no functions of Python: %s", REASONS[code - NO_PYTHON]);
    dp_notice((uint32_t)code, text);
    return -1;
}

int python_prepare(const char *prefixes)
{
    int state, failed;
    if (is_ready)
        return 0;
    if (read_version())
        return refuse(NO_PYTHON);
    if (strstr(py.Py_GetVersion(), "free-threading"))
        return refuse(FREE_THREADED);
    if ((failed = enter(&state)))
        return refuse(failed);
    failed = choose_layout(prefixes ? prefixes : "") ? OTHER_LAYOUT : 0;
    py.PyGILState_Release(state);
    if (failed)
        return refuse(failed);
    is_ready = 1;
    return 0;
}
