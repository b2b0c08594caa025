/* Pairs backward nodes with forward operators, as metrics/contexts/backward.py does in a trace.
 *
 * An operator has the number that PyTorch's next node will be given, so of several with one number the last is meant,
 * and of those within each other the outermost. Where none of these is named as the node is, the node is of a function
 * in C++, which belongs to what lies around it. The node that runs is asked for by PyTorch's own function; where in it
 * the number lies was measured by the hook on nodes whose numbers Python tells. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include "forward_numbers.h"

enum { ENTRIES = 1 << 16, NAMES = 6 }; /* numbers that wait for their backward pass; names: the first, and the
                                                          last ones, of which the very last takes the number */

struct entry {
    _Atomic uint64_t number;    /* and 1; 0: nothing here, or it is being written */
    _Atomic uint64_t thread;
    _Atomic uint32_t context;
    _Atomic int count;
    const char *_Atomic names[NAMES];   /* of labels, which stay */
};

/* As PyTorch returns it: a std::shared_ptr, or from 2.13 on an intrusive pointer, which has no second word. Both are
 * returned in memory, where each processor has its own place for the address: as of this, for it is too large for registers. */
struct shared_node { void *node; int *count; void *unused[2]; };
enum { NUMBER_AT_SHARED = 24, NUMBER_AT_INTRUSIVE = 16 }; /* behind what either has before a node's members */

static struct {
    uint64_t (*peek)(void);
    int (*is_enabled)(void);
    uint64_t (*thread)(void);
    struct shared_node (*node)(void);
} torch;
static struct entry *entries;
static ptrdiff_t number_at, thread_at;

static void *find(const char *library, const char *name)
{
    void *handle = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
    void *found = handle ? dlsym(handle, name) : NULL;
    if (handle)
        dlclose(handle); /* the process holds it as before */
    return found;
}

int forward_prepare(int node_offset, int thread_offset)
{
    if (entries)
        return 0;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpedantic"
    torch.peek = (uint64_t (*)(void))find("libtorch_cpu.so", "_ZN2at15sequence_number4peekEv");
    torch.thread = (uint64_t (*)(void))find("libtorch_cpu.so", "_ZN2at14RecordFunction15currentThreadIdEv");
    torch.is_enabled = (int (*)(void))find("libc10.so", "_ZN3c108GradMode10is_enabledEv");
    torch.node = (struct shared_node (*)(void))find("libtorch_cpu.so", "_ZN5torch8autograd16get_current_nodeEv");
#pragma GCC diagnostic pop
    if (!torch.peek || !torch.thread || !torch.is_enabled || !torch.node || thread_offset < 0
        || (node_offset != NUMBER_AT_SHARED && node_offset != NUMBER_AT_INTRUSIVE))
        return -1;
    number_at = node_offset, thread_at = thread_offset;
    entries = calloc(ENTRIES, sizeof *entries);
    return entries ? 0 : -1;
}

int64_t forward_number(void)
{
    return entries && (torch.is_enabled() & 0xFF) ? (int64_t)torch.peek() : -1;
}

static struct entry *entry_of(uint64_t thread, uint64_t number)
{
    return &entries[(number ^ thread * 0x9E37u) % ENTRIES];
}

/* Only the forward thread writes an entry; whoever reads sees the number before and after, or does without. */
void forward_keep(int64_t number, uint32_t context, const char *name)
{
    uint64_t thread = torch.thread();
    struct entry *entry = entry_of(thread, (uint64_t)number);
    atomic_store_explicit(&entry->number, 0, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
    atomic_store_explicit(&entry->thread, thread, memory_order_relaxed);
    atomic_store_explicit(&entry->context, context, memory_order_relaxed);
    atomic_store_explicit(&entry->names[0], name, memory_order_relaxed);
    atomic_store_explicit(&entry->count, 1, memory_order_relaxed);
    atomic_store_explicit(&entry->number, (uint64_t)number + 1, memory_order_release);
}

void forward_add(int64_t number, const char *name)
{
    struct entry *entry = entry_of(torch.thread(), (uint64_t)number);
    int count = atomic_load_explicit(&entry->count, memory_order_relaxed);
    if (atomic_load_explicit(&entry->number, memory_order_relaxed) != (uint64_t)number + 1)
        return;
    atomic_store_explicit(&entry->names[1 + (count - 1) % (NAMES - 1)], name, memory_order_relaxed);
    atomic_store_explicit(&entry->count, count + 1, memory_order_release);
}

/* The number of the node that runs. The engine holds it meanwhile, so that a reference can be given back by counting. */
static int read_node(uint64_t *number, uint64_t *thread)
{
    struct shared_node shared = torch.node();
    if (!shared.node)
        return 0;
    memcpy(number, (const char *)shared.node + number_at, sizeof *number);
    memcpy(thread, (const char *)shared.node + thread_at, sizeof *thread);
    /* Both count in 32 bits behind their table of functions. The engine holds the node twice, so it is never the last. */
    int *count = number_at == NUMBER_AT_INTRUSIVE ? (int *)shared.node + 2 : shared.count ? shared.count + 2 : NULL;
    if (count)
        __atomic_fetch_sub(count, 1, __ATOMIC_ACQ_REL);
    return 1;
}

static int is_named(struct entry *entry, const char *name)
{
    int count = atomic_load_explicit(&entry->count, memory_order_acquire);
    size_t length = strlen(name);
    for (int i = 0; i < count && i < NAMES; i++) {
        const char *known = atomic_load_explicit(&entry->names[i], memory_order_relaxed);
        if (known && !strncmp(known, name, length))
            return 1;
    }
    return 0;
}

uint32_t forward_find(const char *name, int *named)
{
    uint64_t number, thread;
    *named = 0;
    if (!entries || !read_node(&number, &thread))
        return 0;
    struct entry *entry = entry_of(thread, number);
    if (atomic_load(&entry->number) != number + 1 || atomic_load(&entry->thread) != thread)
        return 0;
    uint32_t context = atomic_load(&entry->context);
    *named = is_named(entry, name);
    atomic_thread_fence(memory_order_acquire);
    return atomic_load(&entry->number) == number + 1 ? context : 0;
}
