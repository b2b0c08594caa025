/* Texts and their ids: each distinct text is kept once, numbered in order of first use. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if !defined(FIRST_ROOM) /* a test begins smaller, to see it grow */
#define FIRST_ROOM 65536 /* bytes */
#define FIRST_CAPACITY 1024
#endif

typedef unsigned char Byte;

typedef struct {
    Byte *arena;                   /* all texts one after the other, as they stand in the JSON */
    uint64_t *ends;                /* where each one ends in the arena */
    uint32_t *slots;               /* hash table of ids plus one */
    uint64_t used, room;
    uint32_t count, capacity;      /* capacity of `ends`; `slots` has four times as many */
} Texts;

static int texts_grow(Texts *t, uint32_t capacity)
{
    uint64_t *ends = realloc(t->ends, capacity * sizeof *ends);
    if (ends)
        t->ends = ends;
    uint32_t *slots = calloc((size_t)capacity * 4, sizeof *slots);
    if (!ends || !slots) {
        free(slots);
        return 0;
    }
    free(t->slots);
    t->slots = slots;
    t->capacity = capacity;
    return 1;
}

static uint64_t hash(const Byte *text, size_t n)
{
    uint64_t h = 0x9E3779B97F4A7C15u ^ n;
    for (; n >= 8; text += 8, n -= 8) {
        uint64_t word;
        memcpy(&word, text, 8);
        h = (h ^ word) * 0xFF51AFD7ED558CCDu;
        h ^= h >> 32;
    }
    uint64_t word = 0;
    memcpy(&word, text, n);
    h = (h ^ word) * 0xC4CEB9FE1A85EC53u;
    return h ^ h >> 29;
}

static uint32_t *texts_slot(const Texts *t, const Byte *text, size_t n)
{
    uint32_t mask = t->capacity * 4 - 1;
    for (uint32_t at = (uint32_t)hash(text, n) & mask;; at = (at + 1) & mask) {
        uint32_t id = t->slots[at];
        if (!id)
            return &t->slots[at];
        uint64_t start = id > 1 ? t->ends[id - 2] : 0;
        if (t->ends[id - 1] - start == n && !memcmp(t->arena + start, text, n))
            return &t->slots[at];
    }
}

static int texts_rehash(Texts *t)
{
    if (t->capacity > UINT32_MAX / 16 || !texts_grow(t, t->capacity * 2))
        return 0;
    for (uint32_t id = 0; id < t->count; id++) {
        uint64_t start = id ? t->ends[id - 1] : 0;
        *texts_slot(t, t->arena + start, t->ends[id] - start) = id + 1;
    }
    return 1;
}

/* Returns the id of the text, a new one where it has none; UINT32_MAX without memory. */
static uint32_t texts_id(Texts *t, const Byte *text, size_t n)
{
    uint32_t *slot = texts_slot(t, text, n);
    if (*slot)
        return *slot - 1;
    if (t->count == t->capacity) {
        if (!texts_rehash(t))
            return UINT32_MAX;
        slot = texts_slot(t, text, n);
    }
    if (t->used + n > t->room) {
        uint64_t room = (t->used + n) * 2;
        Byte *arena = realloc(t->arena, room);
        if (!arena)
            return UINT32_MAX;
        t->arena = arena;
        t->room = room;
    }
    memcpy(t->arena + t->used, text, n);
    t->used += n;
    t->ends[t->count] = t->used;
    *slot = ++t->count;
    return t->count - 1;
}

static int texts_begin(Texts *t)
{
    t->arena = malloc(t->room = FIRST_ROOM);
    return t->arena && texts_grow(t, FIRST_CAPACITY);
}

static void texts_end(Texts *t)
{
    free(t->arena);
    free(t->ends);
    free(t->slots);
}
