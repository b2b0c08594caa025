/* Code objects as they lie in memory. Layouts are facts of the released versions; whoever uses this has compared them
 * with the answers of CPython's functions. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "core.h"
#include "python_code.h"

/* `version` is a number that no other code object has had; versions up to 3.11 have none. Offsets in bytes. */
struct code_layout { int minor; unsigned first_line, file, name, lines, version, ascii, compact; };
static const struct code_layout LAYOUTS[] = {
    {9, 40, 104, 112, 120, 0, 48, 72},
    {10, 40, 104, 112, 120, 0, 48, 72},
    {11, 72, 112, 120, 136, 0, 48, 72},
    {12, 68, 112, 120, 136, 92, 40, 56},
    {13, 68, 112, 120, 136, 92, 40, 56},
    {14, 68, 112, 120, 136, 92, 40, 56},
};
enum { LENGTH = 16, HASH = 24, STATE = 32, BYTES = 32 }; /* of texts; the last is where the content of bytes begins */
enum { NAME_NBYTES = 1024, MOST_LENGTH = 1 << 26, MOST_MARKED = 1 << 9 };

static const struct code_layout *known;
static char *prefixes;                  /* each ends with a zero, all with two */

static const void *pointer(const void *at, size_t offset)
{
    const void *value;
    memcpy(&value, (const char *)at + offset, sizeof value);
    return value;
}

static int64_t number(const void *at, size_t offset)
{
    int64_t value;
    memcpy(&value, (const char *)at + offset, sizeof value);
    return value;
}

static int32_t small_number(const void *at, size_t offset)
{
    int32_t value;
    memcpy(&value, (const char *)at + offset, sizeof value);
    return value;
}

/* ---- texts ---- */

/* A text's characters lie behind its head, each in as many bytes as its largest one needs; those of a subclass of str, as
 * some libraries have for paths, lie elsewhere. */
struct characters { const unsigned char *data; int64_t count; unsigned size; };

static struct characters characters_of(const void *string)
{
    unsigned state = (unsigned)small_number(string, STATE), size = state >> 2 & 7, is_compact = state >> 5 & 1;
    unsigned head = state >> 6 & 1 ? known->ascii : known->compact;
    int64_t count = number(string, LENGTH);
    if (count < 0 || count > MOST_LENGTH || (size != 1 && size != 2 && size != 4))
        return (struct characters){NULL, 0, 1};
    const unsigned char *data = is_compact ? (const unsigned char *)string + head : pointer(string, known->compact);
    return (struct characters){data, data ? count : 0, size};
}

static uint32_t character_at(const struct characters *all, int64_t place)
{
    uint32_t value = 0;
    memcpy(&value, all->data + (size_t)place * all->size, all->size); /* little endian, as all that CPython runs on here */
    return value;
}

/* Returns how many bytes it takes. Half of a surrogate pair has no form in UTF-8. */
static size_t encode(uint32_t value, char bytes[4])
{
    if (value > 0x10FFFF || (value >= 0xD800 && value < 0xE000))
        value = '?';
    size_t count = value < 0x80 ? 1 : value < 0x800 ? 2 : value < 0x10000 ? 3 : 4;
    static const unsigned char FIRST[] = {0, 0, 0xC0, 0xE0, 0xF0};
    for (size_t i = count - 1; i; i--, value >>= 6)
        bytes[i] = (char)(0x80 | (value & 0x3F));
    bytes[0] = (char)(FIRST[count] | value);
    return count;
}

void code_text(const void *string, char *text, size_t room)
{
    struct characters all = characters_of(string);
    size_t length = 0;
    for (int64_t i = 0; i < all.count; i++) {
        char bytes[4];
        size_t count = encode(character_at(&all, i), bytes);
        if (length + count >= room)
            break;
        memcpy(text + length, bytes, count);
        length += count;
    }
    text[length] = 0;
}

void code_file(const void *code, char *text, size_t room) { code_text(pointer(code, known->file), text, room); }
void code_function(const void *code, char *text, size_t room) { code_text(pointer(code, known->name), text, room); }
int code_first_line(const void *code) { return small_number(code, known->first_line); }

/* ---- names ---- */

static const char *trim(const char *file)
{
    for (const char *prefix = prefixes; prefix && *prefix; prefix += strlen(prefix) + 1)
        if (!strncmp(file, prefix, strlen(prefix)))
            return file + strlen(prefix);
    return file;
}

uint32_t code_name(const void *code)
{
    char file[NAME_NBYTES], function[NAME_NBYTES / 2], text[2 * NAME_NBYTES];
    code_file(code, file, sizeof file);
    code_function(code, function, sizeof function);
    snprintf(text, sizeof text, "%s(%d): %s", trim(file), code_first_line(code), function);
    return dp_intern(text);
}

/* ---- lines ---- */

static unsigned read_varint(const unsigned char **at, const unsigned char *end)
{
    unsigned value = 0, shift = 0;
    for (; *at < end && shift < 32; shift += 6) {
        unsigned byte = *(*at)++;
        value |= (byte & 63) << shift;
        if (!(byte & 64))
            break;
    }
    return value;
}

/* From 3.11 on: an entry's first byte has the high bit; a kind; how many instructions; then columns and lines. */
static int line_by_locations(const unsigned char *at, const unsigned char *end, int line, int offset)
{
    enum { ONE_LINE = 10, NO_COLUMN = 13, LONG_FORM = 14, NO_LINE = 15 };
    for (int until = 0; at < end;) {
        unsigned first = *at++, kind = first >> 3 & 15, moved;
        if (kind == NO_COLUMN || kind == LONG_FORM) {
            moved = read_varint(&at, end);
            line += moved & 1 ? -(int)(moved >> 1) : (int)(moved >> 1);
        } else if (kind >= ONE_LINE && kind < NO_COLUMN) {
            line += (int)kind - ONE_LINE;
        }
        until += 2 * ((int)(first & 7) + 1);
        if (offset < until)
            return kind == NO_LINE ? 0 : line;
        while (at < end && !(*at & 128))
            at++;
    }
    return 0;
}

/* 3.10: pairs of how many bytes of code, and how the line moves before them; -128: they have none. */
static int line_by_ranges(const unsigned char *at, const unsigned char *end, int line, int offset)
{
    int until = 0, has_line = 1;
    for (; end - at >= 2; at += 2) {
        has_line = (signed char)at[1] != -128;
        line += has_line ? (signed char)at[1] : 0;
        until += at[0];
        if (offset < until)
            return has_line ? line : 0;
    }
    return 0;
}

/* 3.9: pairs of how many bytes on, and how the line moves there. */
static int line_by_steps(const unsigned char *at, const unsigned char *end, int line, int offset)
{
    for (int from = 0; end - at >= 2; at += 2) {
        from += at[0];
        if (from > offset)
            break;
        line += (signed char)at[1];
    }
    return line;
}

uint32_t code_line(const void *code, int offset)
{
    const void *lines = pointer(code, known->lines);
    int64_t length = number(lines, LENGTH);
    int first = code_first_line(code), line;
    if (length < 0 || length > MOST_LENGTH)
        return 0;
    const unsigned char *begin = (const unsigned char *)lines + BYTES, *end = begin + length;
    if (offset < 0)
        line = first;
    else if (known->minor >= 11)
        line = line_by_locations(begin, end, first, offset);
    else
        line = (known->minor == 10 ? line_by_ranges : line_by_steps)(begin, end, first, offset);
    return line > 0 ? (uint32_t)line : 0;
}

/* ---- which code it is ---- */

static uint64_t mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * UINT64_C(0x9E3779B97F4A7C15);
    return hash ^ hash >> 29;
}

/* Where it lies, its length and what is in it; of a long one, the beginning and the end. Each word has a factor of its own, so
 * that none waits for another. */
static uint64_t mix_content(uint64_t hash, const unsigned char *data, int64_t nbytes)
{
    uint64_t sum = 0, last = 0, word, factor = UINT64_C(0xD6E8FEB86659FD93);
    int64_t whole = nbytes < MOST_MARKED ? nbytes : MOST_MARKED;
    for (int64_t at = 0; at + 8 <= whole; at += 8, factor += 2 * UINT64_C(0xD6E8FEB86659FD93)) {
        memcpy(&word, data + at, 8);
        sum += word * factor;
    }
    if (nbytes > 0)
        memcpy(&last, data + (nbytes > 8 ? nbytes - 8 : 0), nbytes > 8 ? 8 : (size_t)nbytes);
    return mix(mix(mix(mix(hash, (uintptr_t)data), (uint64_t)nbytes), sum), last);
}

static uint64_t mark_content(const void *code)
{
    const void *lines = pointer(code, known->lines);
    struct characters file = characters_of(pointer(code, known->file));
    uint64_t hash = mix((uint64_t)(unsigned)code_first_line(code), (uint64_t)number(pointer(code, known->name), HASH));
    hash = mix_content(hash, file.data, file.count * file.size);
    return mix_content(hash, (const unsigned char *)lines + BYTES, number(lines, LENGTH));
}

uint64_t code_mark(const void *code)
{
    uint32_t version = known->version ? (uint32_t)small_number(code, known->version) : 0;
    return version ? version : mark_content(code);
}

/* ---- the beginning ---- */

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

void code_prepare(int minor, const char *lines)
{
    known = &LAYOUTS[minor - PYTHON_OLDEST];
    keep_prefixes(lines);
}
