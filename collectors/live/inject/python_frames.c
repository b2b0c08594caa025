/* Reading Python's frames from C, for each operator and so as cheaply as can be.
 *
 * CPython's own functions make an object for each frame and need the interpreter's lock, which other threads may hold
 * for milliseconds. A thread's frames are changed by nobody but itself, and lie in a simple list. So where the layout of
 * that list is known by version, and agrees frame by frame with what CPython's functions answer when we begin, it is read
 * as it is; else, and for all names and lines, the functions are asked. Layouts are facts of the released versions.
 *
 * The order of locks: the interpreter's before any of ours, never the other way. While the interpreter is being finalised
 * it is not asked: that would end or stop the thread. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "core.h"
#include "python_frames.h"

enum { OLDEST = 9, NO_PYTHON = 38, SUBINTERPRETERS = 39, FREE_THREADED = 40, LOCKED_READING = 41, MORE_CODE = 42 };
enum { SHIM = 3 };                      /* owners from this one on hold no function of Python */
enum { CODES = 1 << 16, MOST_CODES = CODES / 2, MOST_NAMES = 1 << 18, MOST_ALIKE = 64, NAME_NBYTES = 1024, FRAME_OF_OBJECT = 24 };

typedef void object;

#define PYTHON_FUNCTIONS(one) \
    one(int, Py_IsInitialized, (void)) one(const char *, Py_GetVersion, (void)) \
    one(int, PyGILState_Ensure, (void)) one(void, PyGILState_Release, (int)) \
    one(void *, PyGILState_GetThisThreadState, (void)) \
    one(void *, PyInterpreterState_Head, (void)) one(void *, PyInterpreterState_Main, (void)) \
    one(object *, PyThreadState_GetFrame, (void *)) one(object *, PyFrame_GetBack, (object *)) \
    one(object *, PyFrame_GetCode, (object *)) one(int, PyFrame_GetLineNumber, (object *)) \
    one(int, PyCode_Addr2Line, (object *, int)) one(object *, PyObject_GetAttrString, (object *, const char *)) \
    one(const char *, PyUnicode_AsUTF8, (object *)) one(long, PyLong_AsLong, (object *)) \
    one(void, Py_IncRef, (object *)) one(void, Py_DecRef, (object *)) \
    one(void, PyErr_Fetch, (object **, object **, object **)) one(void, PyErr_Restore, (object *, object *, object *))

#define DECLARE(type, name, arguments) type (*name) arguments;
static struct {
    PYTHON_FUNCTIONS(DECLARE)
    int (*IsFinalizing)(void);          /* Py_IsFinalizing, or as it was called up to 3.12 */
    int (*GetLasti)(object *);          /* from 3.11 on */
    int (*GC_Disable)(void), (*GC_Enable)(void); /* from 3.10 on */
} py;

/* Where a frame has what, by version. `thread` is where a thread has its innermost frame: there, or at `inside` of what
 * is there. Instructions are counted from `code_begin` of the code object, which is measured. */
struct layout { int minor; unsigned code, previous, instruction, owner, thread; int inside; uintptr_t code_mask; };
static const struct layout LAYOUTS[] = {
    {11, 32, 48, 56, 69, 56, 8, ~(uintptr_t)0},
    {12, 0, 8, 56, 70, 56, 0, ~(uintptr_t)0},
    {13, 0, 8, 56, 70, 72, -1, ~(uintptr_t)0},
    {14, 0, 8, 56, 74, 64, -1, ~(uintptr_t)3},
};

static const struct layout *known;      /* NULL: by functions alone */
static ptrdiff_t code_begin;
static int is_ready, minor_version;
static char *prefixes;                  /* each ends with a zero, all with two */
static __thread int gil_state, collector_was_on;

/* Functions by their code object, which is kept so that its address stays its own: of those with one name, only the first
 * ones, for a program may compile the same text for ever. Under the interpreter's lock. */
static struct { const void *code; uint32_t name; } codes[CODES];
static int code_count;
static uint8_t alike[MOST_NAMES + 1];   /* how many are kept, by the id of their name */

static const void *word(const void *at, size_t offset)
{
    const void *value;
    memcpy(&value, (const char *)at + offset, sizeof value);
    return value;
}

/* ---- frames as they lie in memory ---- */

static const void *code_of(const void *frame)
{
    return (const void *)((uintptr_t)word(frame, known->code) & known->code_mask);
}

static uintptr_t instruction_of(const void *frame) { return (uintptr_t)word(frame, known->instruction); }

/* The frame itself, or the first around it that is a function of Python's. */
static const void *skip_shims(const void *frame)
{
    while (frame && known->minor > 11 && ((const unsigned char *)frame)[known->owner] >= SHIM)
        frame = word(frame, known->previous);
    return frame;
}

static const void *top_of(const void *thread)
{
    const void *at = word(thread, known->thread);
    return known->inside < 0 || !at ? at : word(at, (size_t)known->inside);
}

static const void *innermost(const void *thread) { return skip_shims(top_of(thread)); }

static const void *around(const void *frame) { return skip_shims(word(frame, known->previous)); }

/* ---- the interpreter ---- */

static int is_running(void) { return is_ready && py.Py_IsInitialized() && !py.IsFinalizing(); }

/* A second interpreter has thread states of its own, and asking for the first one's lock under it can wait for ever. The
 * newest one is the head; nothing is read in it, for another thread may end it. */
static int is_alone(void)
{
    if (py.PyInterpreterState_Head() == py.PyInterpreterState_Main())
        return 1;
    dp_notice(SUBINTERPRETERS, "this program runs sub-interpreters: contexts have no functions of Python meanwhile");
    return 0;
}

int python_reads_freely(void) { return known != NULL; }

int python_enter(void)
{
    if (!is_running() || !py.PyGILState_GetThisThreadState() || !is_alone())
        return 0;
    gil_state = py.PyGILState_Ensure();
    /* Up to 3.11 making a frame's object may begin a collection, which runs code of the program's. */
    collector_was_on = minor_version == 11 && py.GC_Disable && py.GC_Disable();
    return 1;
}

void python_leave(void)
{
    if (collector_was_on)
        py.GC_Enable();
    py.PyGILState_Release(gil_state);
}

const void *python_top(uintptr_t *at)
{
    const void *thread = known && is_running() ? py.PyGILState_GetThisThreadState() : NULL;
    const void *frame = thread ? innermost(thread) : NULL;
    *at = frame ? instruction_of(frame) : 0;
    return frame;
}

/* ---- reading ---- */

static int read_freely(const void *frame, const void *until, uintptr_t at, struct python_place *places, int most)
{
    int count = 0, deep = 0;
    const void *last = frame;
    for (; last && last != until; last = around(last))
        deep++;
    if (until && (!last || instruction_of(last) != at))
        return -1;
    for (const void *each = frame; each && each != until; each = around(each), deep--)
        if (deep <= most)
            places[count++] = (struct python_place){code_of(each), instruction_of(each)};
    return count;
}

/* Each answer is a reference of ours, given back at once: the frame that runs holds another. */
static int read_by_functions(struct python_place *places, int most)
{
    int count = 0;
    object *frame = py.PyThreadState_GetFrame(py.PyGILState_GetThisThreadState());
    while (frame) {
        object *code = py.PyFrame_GetCode(frame), *back = py.PyFrame_GetBack(frame);
        if (count == most) { /* the outermost ones count: those within are let go */
            memmove(places, places + 1, (size_t)(most - 1) * sizeof *places);
            count--;
        }
        places[count++] = (struct python_place){code, (uintptr_t)py.PyFrame_GetLineNumber(frame)};
        py.Py_DecRef(code);
        py.Py_DecRef(frame);
        frame = back;
    }
    return count;
}

int python_read(const void *until, uintptr_t at, struct python_place *places, int most)
{
    uintptr_t top;
    if (!known)
        return read_by_functions(places, most);
    const void *frame = python_top(&top);
    return frame ? read_freely(frame, until, at, places, most) : until ? -1 : 0;
}

/* ---- names ---- */

static const char *trim(const char *file)
{
    for (const char *prefix = prefixes; prefix && *prefix; prefix += strlen(prefix) + 1)
        if (!strncmp(file, prefix, strlen(prefix)))
            return file + strlen(prefix);
    return file;
}

static uint32_t write_name(object *code)
{
    char text[NAME_NBYTES];
    object *file = py.PyObject_GetAttrString(code, "co_filename"), *name = py.PyObject_GetAttrString(code, "co_name");
    object *line = py.PyObject_GetAttrString(code, "co_firstlineno");
    const char *path = file ? py.PyUnicode_AsUTF8(file) : NULL, *function = name ? py.PyUnicode_AsUTF8(name) : NULL;
    snprintf(text, sizeof text, "%s(%ld): %s", path ? trim(path) : "?", line ? py.PyLong_AsLong(line) : 0,
             function ? function : "?");
    object *all[] = {file, name, line};
    for (int i = 0; i < 3; i++)
        py.Py_DecRef(all[i]); /* takes NULL */
    return dp_intern(text);
}

/* An exception that is on its way stays as it is. */
static uint32_t name_safely(object *code)
{
    object *type, *value, *trace;
    py.PyErr_Fetch(&type, &value, &trace);
    uint32_t name = write_name(code);
    py.PyErr_Restore(type, value, trace);
    return name;
}

static unsigned place_of(const void *code)
{
    return (unsigned)(((uintptr_t)code * UINT64_C(0x9E3779B97F4A7C15)) >> 48);
}

/* The place of the code object, or a free one for it. */
static unsigned find_code(const void *code)
{
    unsigned place = place_of(code);
    while (codes[place].code && codes[place].code != code)
        place = (place + 1) % CODES;
    return place;
}

static int keep_code(unsigned place, const void *code, uint32_t name)
{
    if (name > MOST_NAMES || alike[name] >= MOST_ALIKE)
        return 0;
    alike[name]++;
    py.Py_IncRef((object *)(uintptr_t)code);
    codes[place].code = code, codes[place].name = name;
    code_count++;
    return 1;
}

static uint32_t find_line(const struct python_place *place)
{
    ptrdiff_t at = known ? (const char *)place->at - (const char *)place->code - code_begin : 0;
    int found = known ? py.PyCode_Addr2Line((object *)(uintptr_t)place->code, (int)at) : (int)place->at;
    return found > 0 ? (uint32_t)found : 0;
}

int python_name(const struct python_place *place, uint32_t *name, uint32_t *line)
{
    unsigned at = find_code(place->code);
    if (!codes[at].code && code_count >= MOST_CODES) {
        dp_notice(MORE_CODE, "more than 32,768 functions of Python have run operators: the others have one name");
        *name = dp_intern("(other functions)"), *line = 0;
        return 0;
    }
    *name = codes[at].code ? codes[at].name : name_safely((object *)(uintptr_t)place->code);
    *line = find_line(place);
    return codes[at].code || keep_code(at, place->code, *name);
}

/* ---- the beginning ---- */

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
    py.GC_Disable = (int (*)(void))dlsym(RTLD_DEFAULT, "PyGC_Disable");
    py.GC_Enable = (int (*)(void))dlsym(RTLD_DEFAULT, "PyGC_Enable");
#pragma GCC diagnostic pop
    return missing || !py.IsFinalizing ? -1 : 0;
}

/* Whether the frame, of which CPython answers with `code` and `offset`, is as the layout says. */
static int agrees(const void *frame, const void *code, int offset, int is_first)
{
    ptrdiff_t begin = (const char *)instruction_of(frame) - (const char *)code - offset;
    if (is_first)
        code_begin = begin;
    return code_of(frame) == code && begin == code_begin && begin > 0;
}

/* Compares all frames of this thread, as they lie in memory, with the answers of CPython's functions. */
static int is_confirmed(void)
{
    void *thread = py.PyGILState_GetThisThreadState();
    object *each = py.PyThreadState_GetFrame(thread);
    const void *frame = each ? top_of(thread) : NULL; /* not to be looked into before it is known to be one */
    int count = 0, is_equal = frame != NULL;
    while (each) {
        object *code = py.PyFrame_GetCode(each), *back = py.PyFrame_GetBack(each);
        is_equal = is_equal && frame && word(each, FRAME_OF_OBJECT) == frame && agrees(frame, code, py.GetLasti(each), !count);
        frame = is_equal ? around(frame) : NULL;
        count++;
        py.Py_DecRef(code);
        py.Py_DecRef(each);
        each = back;
    }
    return is_equal && !frame;
}

static void choose_layout(void)
{
    for (unsigned i = 0; i < sizeof LAYOUTS / sizeof *LAYOUTS && py.GetLasti; i++)
        if (LAYOUTS[i].minor == minor_version && !getenv("DEEPPROF_CONTEXTS_LOCKED"))
            known = &LAYOUTS[i];
    if (known && !is_confirmed())
        known = NULL;
    if (!known && minor_version >= 11)
        dp_notice(LOCKED_READING, "frames of this Python are read with its lock: contexts cost more");
}

static void keep_prefixes(const char *lines)
{
    size_t length = strlen(lines);
    char *kept = calloc(1, length + 2), *last;
    if (!kept)
        return;
    memcpy(kept, lines, length);
    for (last = kept; (last = strchr(last, '\n')); last++)
        *last = 0;
    prefixes = kept; /* once: what was there before stays with those who read it */
}

static int refuse(uint32_t code, const char *why)
{
    dp_notice(code, why);
    return -1;
}

int python_prepare(const char *lines)
{
    if (is_ready)
        return 0;
    if (find_functions() || !py.Py_IsInitialized() || sscanf(py.Py_GetVersion(), "3.%d", &minor_version) != 1
        || minor_version < OLDEST)
        return refuse(NO_PYTHON, "contexts have no functions of Python: this is no CPython from 3.9 on that can be asked");
    if (strstr(py.Py_GetVersion(), "free-threading"))
        return refuse(FREE_THREADED, "contexts have no functions of Python: this one runs without an interpreter lock");
    is_ready = 1;
    if (!python_enter()) {
        is_ready = 0;
        return refuse(NO_PYTHON, "contexts have no functions of Python: they were asked for on a thread without it");
    }
    keep_prefixes(lines ? lines : "");
    choose_layout();
    python_leave();
    return 0;
}
