// What runs before each access to global memory: it is counted by block of memory, in the table of its launch.
//
// Threads of a warp that access the same block in the same way are counted together, by one of them: atomics on the
// same few slots would take most of the time otherwise. A launch without a table is not counted.
#include <sanitizer_patching.h>
#include "access_table.h"

enum { READ = SANITIZER_MEMORY_DEVICE_FLAG_READ, WRITE = SANITIZER_MEMORY_DEVICE_FLAG_WRITE };

static __device__ unsigned lane()
{
    unsigned number;
    asm volatile("mov.u32 %0, %%laneid;" : "=r"(number));
    return number;
}

// Tables lie in global memory: the compiler, which does not know, would make code for shared and local memory too, and
// have more registers to save around each access of the program.
static __device__ void increase(access_count *counter, access_count by)
{
    asm volatile("red.global.add.u64 [%0], %1;" ::"l"(__cvta_generic_to_global(counter)), "l"(by) : "memory");
}

// Returns what is in a slot's `block`: `key` from now on where it was free.
static __device__ access_count claim(access_count *block, access_count key)
{
    access_count found, place = __cvta_generic_to_global(block);
    asm volatile("ld.volatile.global.u64 %0, [%1];" : "=l"(found) : "l"(place) : "memory");
    if (!found)
        asm volatile("atom.global.cas.b64 %0, [%1], 0, %2;" : "=l"(found) : "l"(place), "l"(key) : "memory");
    return found ? found : key;
}

static __device__ struct access_slot *find_slot(struct access_table *table, access_count block)
{
    struct access_slot *slots = (struct access_slot *)(table + 1);
    unsigned mask = (unsigned)table->mask, at = (unsigned)(block * 0x9E3779B97F4A7C15ull >> 32);
    for (unsigned i = 0; i < MAX_PROBES && i <= mask; i++) {
        struct access_slot *slot = &slots[(at + i) & mask];
        if (claim(&slot->block, block + 1) == block + 1)
            return slot;
    }
    return &table->full;
}

static __device__ void add(struct access_table *table, access_count block, unsigned flags, access_count accesses,
                           access_count nbytes)
{
    struct access_slot *slot = find_slot(table, block);
    if (flags & READ) {
        increase(&slot->reads, accesses);
        increase(&slot->read_nbytes, nbytes);
    }
    if (flags & WRITE) {
        increase(&slot->writes, accesses);
        increase(&slot->write_nbytes, nbytes);
    }
}

// An access of each active thread. It is aligned to its size, so that it lies in one block.
static __device__ void count(void *userdata, access_count address, unsigned nbytes, unsigned flags)
{
    struct access_table *table = (struct access_table *)userdata;
    if (!table || flags & SANITIZER_MEMORY_DEVICE_FLAG_PREFETCH)
        return;
    access_count block = address >> table->shift;
    unsigned same = __match_any_sync(__activemask(), block << 10 | (access_count)nbytes << 2 | (flags & (READ | WRITE)));
    if (lane() == __ffs(same) - 1)
        add(table, block, flags, __popc(same), (access_count)__popc(same) * nbytes);
}

// One access of the whole warp, whose threads all have the same values: in each block that it touches it counts once.
static __device__ void count_bulk(void *userdata, access_count address, access_count nbytes, unsigned flags)
{
    struct access_table *table = (struct access_table *)userdata;
    if (!table || lane() != __ffs(__activemask()) - 1)
        return;
    while (nbytes) {
        access_count block = address >> table->shift, end = (block + 1) << table->shift;
        access_count part = nbytes < end - address ? nbytes : end - address;
        add(table, block, flags, 1, part);
        address += part;
        nbytes -= part;
    }
}

#define PATCH extern "C" __device__ __noinline__ SanitizerPatchResult SANITIZERAPI
enum { BULK_NBYTES = 16, BULK_BLOCKS = 0xffff }; // what is copied in bulk are so many bytes times the lower half

PATCH deepprof_access(void *userdata, uint64_t pc, void *address, uint32_t nbytes, uint32_t flags, const void *data)
{
    count(userdata, (access_count)address, nbytes, flags);
    return SANITIZER_PATCH_SUCCESS;
}

// From global to shared memory without a register between (cp.async); what it fills up with zeros counts as read.
PATCH deepprof_async_copy(void *userdata, uint64_t pc, void *source, uint32_t target, uint32_t nbytes)
{
    if (source)
        count(userdata, (access_count)source, nbytes, READ);
    return SANITIZER_PATCH_SUCCESS;
}

PATCH deepprof_bulk_read(void *userdata, uint64_t pc, uint64_t source, uint32_t target, uint32_t barrier, uint32_t size)
{
    count_bulk(userdata, source, (access_count)(size & BULK_BLOCKS) * BULK_NBYTES, READ);
    return SANITIZER_PATCH_SUCCESS;
}

PATCH deepprof_bulk_write(void *userdata, uint64_t pc, uint64_t target, uint32_t source, uint32_t size)
{
    count_bulk(userdata, target, (access_count)(size & BULK_BLOCKS) * BULK_NBYTES, WRITE);
    return SANITIZER_PATCH_SUCCESS;
}

PATCH deepprof_bulk_reduction(void *userdata, uint64_t pc, uint64_t target, uint32_t source, uint32_t size)
{
    count_bulk(userdata, target, (access_count)(size & BULK_BLOCKS) * BULK_NBYTES, READ | WRITE);
    return SANITIZER_PATCH_SUCCESS;
}

// By the tensor memory accelerator: which bytes follows from a map that is not taken apart here.
PATCH deepprof_tensor_copy(void *userdata, uint64_t pc)
{
    struct access_table *table = (struct access_table *)userdata;
    if (table && lane() == __ffs(__activemask()) - 1)
        increase(&table->tensor_copies, 1);
    return SANITIZER_PATCH_SUCCESS;
}
