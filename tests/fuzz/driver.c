/*
 * Makes inputs for the C core out of bytes, and checks every answer against its definition.
 *
 *     driver SEED COUNT      so many inputs of pseudo-random bytes
 *     driver FILE...         the bytes of these files, such as a fuzzer wrote
 *
 * Built with -DLIBFUZZER -fsanitize=fuzzer (clang), it is a libFuzzer target instead.  A wrong answer aborts, and so do
 * the sanitizers it is meant to be built with.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The core's own allocations fail once this many have succeeded; negative: never. */
static int allocations_left = -1;

static int may_allocate(void) { return allocations_left < 0 || allocations_left-- > 0; }
static void *starved_malloc(size_t size) { return may_allocate() ? malloc(size) : NULL; }
static void *starved_calloc(size_t count, size_t size) { return may_allocate() ? calloc(count, size) : NULL; }

#define malloc starved_malloc
#define calloc starved_calloc
#include "native.c"
#undef malloc
#undef calloc

#define CHECK(claim)                                                                   \
    do {                                                                               \
        if (!(claim)) {                                                                \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #claim);        \
            abort();                                                                   \
        }                                                                              \
    } while (0)

/* Bytes still to be used; when there are none left, every choice is 0. */
struct bytes {
    const uint8_t *next, *end;
};

static uint8_t take_byte(struct bytes *in) { return in->next < in->end ? *in->next++ : 0; }

/* A number below `below`, at most 256. */
static int32_t take(struct bytes *in, int32_t below) { return take_byte(in) % below; }

static int64_t take_int64(struct bytes *in)
{
    uint64_t number = 0;
    for (int i = 0; i < 8; i++) number = number << 8 | take_byte(in);
    return (int64_t)number;
}

/* Exactly as much memory as asked for, so that one step outside is seen. */
static void *room(int64_t count, size_t size)
{
    void *memory = calloc((size_t)count, size);
    CHECK(memory || count == 0);
    return memory;
}

/* The same symbols, `width` bytes each. */
static void *narrowed(const uint32_t *symbols, int64_t count, int32_t width)
{
    void *memory = room(count, (size_t)width);
    for (int64_t i = 0; i < count; i++) {
        if (width == 2) ((uint16_t *)memory)[i] = (uint16_t)symbols[i];
        else ((uint32_t *)memory)[i] = symbols[i];
    }
    return memory;
}

#include "arrays.h"
#include "matching.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct bytes in = {data, data + size};
    if (take(&in, 2)) try_arrays(&in);
    else try_matching(&in);
    return 0;
}

#ifndef LIBFUZZER
enum { LONGEST_INPUT = 700 };

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static void run_random(uint64_t seed, long count)
{
    uint8_t data[LONGEST_INPUT];
    uint64_t state = seed * HASH_BASE + 1;
    for (long i = 0; i < count; i++) {
        size_t size = (size_t)(next_random(&state) % LONGEST_INPUT);
        for (size_t at = 0; at < size; at++) data[at] = (uint8_t)(next_random(&state) >> 32);
        LLVMFuzzerTestOneInput(data, size);
    }
}

static void run_file(const char *path)
{
    static uint8_t data[1 << 16];
    FILE *file = fopen(path, "rb");
    CHECK(file);
    LLVMFuzzerTestOneInput(data, fread(data, 1, sizeof data, file));
    fclose(file);
}

int main(int count, char **arguments)
{
    char *end = NULL;
    uint64_t seed = count == 3 ? strtoull(arguments[1], &end, 10) : 0;
    if (end && !*end) run_random(seed, strtol(arguments[2], NULL, 10));
    else
        for (int i = 1; i < count; i++) run_file(arguments[i]);
    return 0;
}
#endif
