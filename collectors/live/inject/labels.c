/* A hash table of texts that only grows, to a limit: read without a lock, written under one. */
#define _GNU_SOURCE
#include <ctype.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "core.h"
#include "labels.h"

/* A job that writes a number into each range's text makes a new label each time; memory ends at some 10 MB. */
enum { SLOTS = 1 << 16, LABELS = SLOTS / 2, LONGEST = 1024, CACHED = 1 << 9 };

static const char STEP[] = "Optimizer.step#"; /* as PyTorch marks it, and a name of the optimizer */
static struct dp_label *_Atomic slots[SLOTS];
static struct dp_label others = {.text = "(other ranges)", .role = DP_MARKED, .plain = ""};
static int label_count;
static atomic_uint forks;
static pthread_mutex_t writing = PTHREAD_MUTEX_INITIALIZER;

static uint64_t hash_of(const char *text, size_t length)
{
    uint64_t hash = length * UINT64_C(0x9E3779B97F4A7C15), word;
    for (; length >= 8; text += 8, length -= 8) {
        memcpy(&word, text, 8);
        hash = (hash ^ word) * UINT64_C(0xD6E8FEB86659FD93);
        hash ^= hash >> 32;
    }
    word = 0;
    memcpy(&word, text, length);
    hash = (hash ^ word) * UINT64_C(0xD6E8FEB86659FD93);
    return hash ^ hash >> 29;
}

/* The label, or NULL and the slot where it belongs. */
static struct dp_label *find(const char *text, size_t length, uint64_t hash, uint32_t *place)
{
    struct dp_label *label;
    for (*place = hash % SLOTS; (label = atomic_load_explicit(&slots[*place], memory_order_acquire));
         *place = (*place + 1) % SLOTS)
        if (label->hash == hash && !strncmp(label->text, text, length) && !label->text[length])
            return label;
    return NULL;
}

/* As metrics/operators.py tells operators from other ranges: PyTorch's dispatcher writes namespace::name, and compiled
 * code counts as one operator since nothing inside it need be any. */
static int is_operator(const char *text)
{
    static const char COMPILED[] = "## Call CompiledFxGraph";
    return strstr(text, "::") != NULL || !strncmp(text, COMPILED, sizeof COMPILED - 1);
}

/* Backward nodes are named after what they are the backward of, with a number: AddmmBackward0. */
static enum dp_role role_of(const char *text)
{
    static const char NODE[] = "autograd::engine::evaluate_function: ";
    size_t length = strlen(text);
    if (!strncmp(text, NODE, sizeof NODE - 1))
        return strcmp(text + sizeof NODE - 1, "torch::autograd::AccumulateGrad") ? DP_ENGINE : DP_ADDING;
    while (length && isdigit((unsigned char)text[length - 1]))
        length--;
    return is_operator(text) || (length > 8 && !strncmp(text + length - 8, "Backward", 8)) ? DP_CALLED : DP_MARKED;
}

/* As metrics/contexts/backward.py compares them. */
static void write_plain(char *plain, const char *name)
{
    static const char ENGINE[] = "autograd::engine::evaluate_function: ";
    static const char *const ENDINGS[] = {"backwards", "backward"};
    size_t length = 0;
    name += strncmp(name, ENGINE, sizeof ENGINE - 1) ? 0 : sizeof ENGINE - 1;
    for (const char *colons; (colons = strstr(name, "::"));)
        name = colons + 2;
    for (; *name; name++)
        if (*name != '_')
            plain[length++] = (char)tolower((unsigned char)*name);
    plain[length] = 0;
    while (length && isdigit((unsigned char)plain[length - 1]))
        length--;
    for (int i = 0; i < 2; i++) {
        size_t size = strlen(ENDINGS[i]);
        if (length >= size && !strncmp(plain + length - size, ENDINGS[i], size)) {
            plain[length - size] = 0;
            return;
        }
    }
}

static struct dp_label *make(const char *text, size_t length, uint64_t hash)
{
    struct dp_label *label = calloc(1, sizeof *label + 2 * (length + 1));
    if (!label)
        return NULL;
    char *copy = memcpy(label + 1, text, length);
    label->text = copy;
    label->owner = label;
    label->hash = hash;
    label->is_operator = is_operator(copy);
    label->role = role_of(copy);
    label->is_step = !strncmp(copy, STEP, sizeof STEP - 1);
    write_plain(copy + length + 1, copy);
    label->plain = copy + length + 1;
    return label;
}

static struct dp_label *add(const char *text, size_t length, uint64_t hash)
{
    uint32_t place;
    pthread_mutex_lock(&writing);
    struct dp_label *label = find(text, length, hash, &place);
    if (!label && label_count < LABELS && (label = make(text, length, hash))) {
        label_count++;
        atomic_store_explicit(&slots[place], label, memory_order_release);
    }
    pthread_mutex_unlock(&writing);
    return label ? label : &others;
}

static struct dp_label *find_or_add(const char *text)
{
    uint32_t place;
    size_t length = strnlen(text, LONGEST);
    uint64_t hash = hash_of(text, length);
    struct dp_label *label = find(text, length, hash, &place);
    return label ? label : add(text, length, hash);
}

/* PyTorch asks for one at each operator, by a text that stays where it is; memory may have another text later. */
struct dp_label *dp_label(const char *text)
{
    static _Thread_local struct { const char *text; struct dp_label *label; } cache[CACHED];
    uint64_t place = ((uintptr_t)text * UINT64_C(0x9E3779B97F4A7C15)) >> 55;
    if (!text)
        return find_or_add("");
    if (cache[place].text == text && !strcmp(cache[place].label->text, text))
        return cache[place].label;
    struct dp_label *label = find_or_add(text);
    if (label != &others)
        cache[place].text = text, cache[place].label = label;
    return label;
}

static uint32_t intern_once(uint64_t *known, struct dp_label *label, uint32_t (*intern)(const char *text))
{
    uint64_t name = __atomic_load_n(known, __ATOMIC_RELAXED);
    uint64_t fork = (uint64_t)atomic_load_explicit(&forks, memory_order_relaxed) + 1;
    if (name >> 32 == fork)
        return (uint32_t)name;
    uint32_t id = intern(label->text);
    __atomic_store_n(known, fork << 32 | id, __ATOMIC_RELAXED);
    return id;
}

uint32_t dp_label_name(struct dp_label *label) { return intern_once(&label->name, label, dp_intern); }

/* Where a count begins: after # as in ProfilerStep#12, or after a word for a step as in "step 12". As frames.py has it. */
static size_t find_count(const char *text)
{
    static const char *const WORDS[] = {"step", "iter", "iteration", "batch", "epoch"};
    size_t length = strlen(text), digits = length, word;
    while (digits && text[digits - 1] >= '0' && text[digits - 1] <= '9')
        digits--;
    if (digits == length || (digits && text[digits - 1] == '#'))
        return digits;
    for (word = digits; word && strchr(" _:=#-", text[word - 1]); word--)
        ;
    for (unsigned i = 0; i < sizeof WORDS / sizeof *WORDS; i++) {
        size_t size = strlen(WORDS[i]);
        int is_word = size <= word && !strncasecmp(text + word - size, WORDS[i], size);
        if (is_word && (size == word || !(isalnum((unsigned char)text[word - size - 1]) || text[word - size - 1] == '_')))
            return digits;
    }
    return length;
}

static uint32_t intern_group(const char *text)
{
    char group[LONGEST + 2];
    size_t count = find_count(text);
    if (!text[count] || count >= LONGEST)
        return dp_intern(text);
    memcpy(group, text, count);
    memcpy(group + count, "*", 2);
    return dp_intern(group);
}

uint32_t dp_label_group(struct dp_label *label) { return intern_once(&label->group, label, intern_group); }

void dp_labels_forget(void)
{
    atomic_fetch_add(&forks, 1);
    pthread_mutex_init(&writing, NULL); /* another thread of the parent may have held it */
}
