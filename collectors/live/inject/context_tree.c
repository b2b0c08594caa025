/* A hash table of nodes that only grows, to a limit: read without a lock, written under one. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include "context_tree.h"
#include "core.h"
#include "parts.h"

enum { CHUNK = 1 << 12, CHUNKS = 256, BUCKETS = 1 << 16, MOST_NODES = 1000000 }; /* of 64 bytes: 64 MB at most */
enum { TREE_FULL = 37 }; /* notice */

static struct context_node *_Atomic chunks[CHUNKS];
static _Atomic uint32_t buckets[BUCKETS];
static _Atomic uint32_t count;
static _Atomic uint64_t folded;
static uint32_t most = MOST_NODES;
static pthread_mutex_t adding = PTHREAD_MUTEX_INITIALIZER;

struct context_node *context_node(uint32_t id)
{
    return &atomic_load_explicit(&chunks[(id - 1) / CHUNK], memory_order_acquire)[(id - 1) % CHUNK];
}

uint32_t context_count(void) { return atomic_load_explicit(&count, memory_order_acquire); }
uint64_t contexts_folded(void) { return atomic_load_explicit(&folded, memory_order_relaxed); }

static uint32_t bucket_of(uint32_t parent, uint32_t name, uint32_t line, uint32_t kind)
{
    uint64_t hash = ((uint64_t)parent << 32 | name) * UINT64_C(0x9E3779B97F4A7C15);
    hash = (hash ^ hash >> 29 ^ ((uint64_t)line << 3 | kind)) * UINT64_C(0xD6E8FEB86659FD93);
    return (uint32_t)(hash >> 48);
}

static uint32_t find(uint32_t bucket, const struct context_node *like)
{
    uint32_t id = atomic_load_explicit(&buckets[bucket], memory_order_acquire);
    while (id) {
        const struct context_node *node = context_node(id);
        if (node->parent == like->parent && node->name == like->name && node->line == like->line
            && node->kind == like->kind)
            return id;
        id = node->next;
    }
    return 0;
}

void context_tree_prepare(void) { most = (uint32_t)setting("DEEPPROF_CONTEXTS_MOST", MOST_NODES, 1, MOST_NODES); }

/* Under the lock. Returns 0 where there is no room. */
static uint32_t add(uint32_t bucket, const struct context_node *like)
{
    uint32_t place = context_count();
    struct context_node *_Atomic *chunk = &chunks[place / CHUNK];
    if (place >= most)
        return 0;
    struct context_node *nodes = atomic_load(chunk);
    if (!nodes && !(nodes = calloc(CHUNK, sizeof *nodes)))
        return 0;
    nodes[place % CHUNK] = *like;
    nodes[place % CHUNK].next = atomic_load(&buckets[bucket]);
    atomic_store_explicit(chunk, nodes, memory_order_release);
    atomic_store_explicit(&count, place + 1, memory_order_release);
    atomic_store_explicit(&buckets[bucket], place + 1, memory_order_release);
    return place + 1;
}

static void tell_full(void)
{
    char text[200];
    if (atomic_fetch_add_explicit(&folded, 1, memory_order_relaxed))
        return;
    snprintf(text, sizeof text, "more than %u calling contexts: what lies deeper counts for the context around it", most);
    dp_notice(TREE_FULL, text);
}

uint32_t context_child(uint32_t parent, uint32_t name, uint32_t line, enum dp_context_kind kind, int is_range)
{
    struct context_node like = {.parent = parent, .name = name, .line = line, .kind = (uint8_t)kind,
                                .is_range = (uint8_t)is_range};
    uint32_t bucket = bucket_of(parent, name, line, kind), id = find(bucket, &like);
    if (id)
        return id;
    if (context_count() < most) {
        pthread_mutex_lock(&adding);
        id = find(bucket, &like);
        if (!id)
            id = add(bucket, &like);
        pthread_mutex_unlock(&adding);
    }
    if (!id)
        tell_full();
    return id ? id : parent;
}

/* The child goes on with the parent's nodes, whose counts so far are the parent's to tell. */
void context_tree_forget(void)
{
    pthread_mutex_init(&adding, NULL); /* another thread of the parent may have held it */
    atomic_store(&folded, 0); /* to be told again */
    for (uint32_t id = 1; id <= count; id++) {
        struct context_node *node = context_node(id);
        node->told_count = atomic_load(&node->count);
        node->told_ticks = atomic_load(&node->own_ticks);
    }
}
