/* What the library reads of a code object, for Python to hold against what Python says. */
#include "../../../../deepprof/collectors/live/inject/python_code.c"

#define EXPORT __attribute__((visibility("default")))

static char name[4096];

uint32_t dp_intern(const char *text)
{
    snprintf(name, sizeof name, "%s", text);
    return 1;
}

EXPORT void prepare(int minor, const char *lines) { code_prepare(minor, lines); }
EXPORT const char *name_of(const void *code) { return code_name(code) ? name : NULL; }
EXPORT uint64_t mark_of(const void *code) { return code_mark(code); }

/* The lines of all `count` instructions, two bytes each. */
EXPORT void lines_of(const void *code, uint32_t *lines, int count)
{
    for (int i = 0; i < count; i++)
        lines[i] = code_line(code, 2 * i);
}
