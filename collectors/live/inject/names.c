/* Names by id: texts are kept once, for the life of the process, and found again by their hash.
 *
 * Ids count from 1 without holes. Entries never move and never change, so that whoever has an id may read its text
 * without a lock. A pointer says nothing for certain - memory is used again, with other text - so that the cache in
 * front compares the text each time, which for names is as fast as a hash and needs no lock. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include "parts.h"

/* A job has some thousands of names; one that makes a new one for every iteration must not fill the memory. */
enum { CHUNK = 1024, CHUNKS = 256, MOST_NAMES = CHUNK * CHUNKS, LONGEST = 64 << 10, MOST_NBYTES = 32 << 20 };
enum { CACHED = 256 };

struct name {
    uint64_t hash;
    uint32_t length;
    char text[];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct name **_Atomic chunks[CHUNKS];
static atomic_uint count;
static size_t text_nbytes;
static uint32_t *slots; /* ids, 0 for free; a power of two of them, at most half full */
static uint32_t slot_mask;

static struct name *find(uint32_t id)
{
    if (!id || id > atomic_load_explicit(&count, memory_order_acquire))
        return NULL;
    return atomic_load_explicit(&chunks[(id - 1) / CHUNK], memory_order_acquire)[(id - 1) % CHUNK];
}

/* Eight bytes at a time; the finish spreads the high bits down, which is where the table looks. */
static uint64_t hash_text(const char *text, size_t length)
{
    uint64_t hash = 0x9E3779B97F4A7C15u ^ length, word;
    for (; length >= 8; text += 8, length -= 8) {
        memcpy(&word, text, 8);
        hash = (hash ^ word) * 0xD6E8FEB86659FD93u;
        hash ^= hash >> 32;
    }
    word = 0;
    memcpy(&word, text, length);
    hash = (hash ^ word) * 0xD6E8FEB86659FD93u;
    return hash ^ (hash >> 29);
}

static int grow_slots(void)
{
    uint32_t size = slots ? 2 * (slot_mask + 1) : 4096;
    uint32_t *grown = calloc(size, sizeof *grown);
    if (!grown)
        return -1;
    for (uint32_t id = 1; id <= count; id++) {
        uint32_t place = (uint32_t)find(id)->hash & (size - 1);
        while (grown[place])
            place = (place + 1) & (size - 1);
        grown[place] = id;
    }
    free(slots);
    slots = grown;
    slot_mask = size - 1;
    return 0;
}

static struct name *make_name(const char *text, size_t length, uint64_t hash)
{
    struct name *name = malloc(sizeof *name + length + 1);
    if (!name)
        return NULL;
    name->hash = hash;
    name->length = (uint32_t)length;
    memcpy(name->text, text, length);
    name->text[length] = 0;
    return name;
}

/* Under the lock. Returns the new id, or 0 where there is no room for one more. */
static uint32_t add(const char *text, size_t length, uint64_t hash)
{
    uint32_t id = count + 1;
    if (id > MOST_NAMES || text_nbytes + length > MOST_NBYTES)
        return 0;
    if ((!slots || 2 * (uint64_t)id > slot_mask) && grow_slots())
        return 0;
    struct name **chunk = chunks[(id - 1) / CHUNK], *name = make_name(text, length, hash);
    if (!chunk)
        chunk = calloc(CHUNK, sizeof *chunk);
    if (!chunk || !name) {
        free(name); /* a chunk that was just made stays unused this once */
        return 0;
    }
    chunk[(id - 1) % CHUNK] = name;
    text_nbytes += length;
    atomic_store_explicit(&chunks[(id - 1) / CHUNK], chunk, memory_order_release);
    atomic_store_explicit(&count, id, memory_order_release);
    return id;
}

static uint32_t find_or_add(const char *text, size_t length)
{
    uint64_t hash = hash_text(text, length);
    uint32_t place = (uint32_t)hash, id;
    for (; slots && (id = slots[place & slot_mask]); place++) {
        struct name *name = find(id);
        if (name->hash == hash && name->length == length && !memcmp(name->text, text, length))
            return id;
    }
    id = add(text, length, hash);
    if (!id)
        return 0;
    for (place = (uint32_t)hash; slots[place & slot_mask]; place++) /* again: the table may have grown */
        ;
    slots[place & slot_mask] = id;
    return id;
}

static uint32_t intern_slowly(const char *text)
{
    size_t length = strnlen(text, LONGEST);
    pthread_mutex_lock(&lock);
    uint32_t id = find_or_add(text, length);
    pthread_mutex_unlock(&lock);
    if (!id)
        dp_notice(DP_NAMES_FULL, "more than 262,144 different names, or 32 MiB of them: later ones are left out");
    return id;
}

uint32_t dp_intern(const char *text)
{
    static _Thread_local struct { const char *text; uint32_t id; } cache[CACHED];
    if (!text)
        return 0;
    uint64_t place = ((uintptr_t)text * 0x9E3779B97F4A7C15u) >> 56;
    struct name *name = cache[place].text == text ? find(cache[place].id) : NULL;
    if (name && name->length < LONGEST && !strcmp(name->text, text))
        return cache[place].id;
    uint32_t id = intern_slowly(text);
    if (id)
        cache[place].text = text, cache[place].id = id;
    return id;
}

uint32_t names_count(void) { return atomic_load_explicit(&count, memory_order_acquire); }
size_t names_length(uint32_t id) { return find(id)->length; }
const char *names_text(uint32_t id) { return find(id)->text; }

/* The child keeps the names: ids that others have cached stay true, and each connection tells all of them anyway. */
void names_lock(void) { pthread_mutex_lock(&lock); }
void names_unlock(void) { pthread_mutex_unlock(&lock); }
