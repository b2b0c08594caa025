/* The table on the device in which the patches (patches.cu) count what one launch accesses, and accesses.c reads. */
#ifndef DEEPPROF_ACCESS_TABLE_H
#define DEEPPROF_ACCESS_TABLE_H

typedef unsigned long long access_count;

enum { MAX_PROBES = 64 }; /* slots that are tried for a block; then its accesses count as those of `full` */

struct access_slot {
    access_count block; /* its number from 1 on, 0 while the slot is free */
    access_count reads, read_nbytes, writes, write_nbytes;
};

struct access_table { /* and behind it `mask` + 1 slots */
    access_count mask;  /* slots less one; their number is a power of two */
    access_count shift; /* a block holds 2 to this power bytes */
    access_count tensor_copies; /* whose bytes are not known */
    struct access_slot full;    /* accesses of blocks for which there was no slot */
};

#endif
