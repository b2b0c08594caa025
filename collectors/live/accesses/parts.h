/* What the parts of this library give each other: accesses.c follows the driver, recording.c writes the file. */
#ifndef DEEPPROF_ACCESSES_PARTS_H
#define DEEPPROF_ACCESSES_PARTS_H
#include <stddef.h>
#include <stdint.h>
#include "access_table.h"

enum loss { /* why accesses of launches, and other accesses to memory, are not counted */
    LOST_SKIPPED,    /* launches before the first that is counted */
    LOST_LIMIT,      /* launches after the last */
    LOST_NAME,       /* launches of kernels with other names */
    LOST_GRAPH,      /* kernels of a CUDA graph */
    LOST_UNPATCHED,  /* launches of kernels whose module could not be patched */
    LOST_NO_TABLE,   /* launches for which there was no memory, or more at once than tables */
    LOST_UNREAD,     /* launches that failed, or whose table could not be read */
    LOST_COPY,       /* copies that are no kernels */
    LOST_MEMSET,
    LOSSES
};

struct launch { /* one that was counted */
    const char *name;
    unsigned long long number, stream, grid;
    unsigned device, context, block;
    int64_t start_ns, end_ns; /* of the monotonic clock */
};

struct settings {
    const char *path, *patches, *name; /* NULL: any name */
    unsigned long long skip, launches, slots, block_nbytes;
    unsigned shift; /* of `block_nbytes` */
};

int64_t monotonic_ns(void);
void recording_open(const struct settings *settings, int sees_tensor_copies);
void recording_launch(const struct launch *launch, const struct access_table *table);
void recording_memory(unsigned device, unsigned long long address, long long nbytes); /* negative: a release */
void recording_problem(const char *what, const char *why);
void recording_lose(enum loss reason);
void recording_close(void);

#endif
