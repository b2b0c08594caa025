/* What the parts of the CUPTI source know of each other. */
#ifndef DEEPPROF_CUPTI_PARTS_H
#define DEEPPROF_CUPTI_PARTS_H
#include "core.h"
#include "cupti_facts.h"

/* cupti_library.c */
void cupti_library_prepare(void);           /* on the thread that the driver calls us on */
int cupti_find(struct cupti *api);          /* 0: every function of a library is there */
int cupti_sees_other_profiler(void);        /* a library of Nsight's is in this process */

/* cupti_buffers.c: memory that CUPTI fills. The callbacks run on any thread, the rest on the worker. */
struct buffer {
    struct buffer *next, *made_before;
    int is_held;                            /* by CUPTI */
    size_t valid_nbytes;
    uint64_t dropped;                       /* records that CUPTI says it lost before these */
    uint8_t *bytes;
};
void buffers_prepare(unsigned most, int (*count_dropped)(void *, uint32_t, size_t *));
void buffers_request(uint8_t **bytes, size_t *nbytes, size_t *most_records);
void buffers_complete(void *context, uint32_t stream, uint8_t *bytes, size_t nbytes, size_t valid_nbytes);
struct buffer *buffers_take(void);          /* the one that was completed first, or NULL */
void buffers_give_back(struct buffer *);
int buffers_are_idle(void);                 /* CUPTI holds none, and none waits */
uint64_t buffers_refused(void);             /* requests when none was left */
void buffers_forget(void);

/* cupti_records.c: records to events. Worker thread only. */
enum { DECODED = 1, LEFT_OUT = 0, BAD_TIMES = -1, ODD_RECORD = -2, UNFINISHED = -3 /* or never measured */ };
struct window { uint64_t earliest_ns, latest_ns; }; /* of times that can be true */
int decode(const void *record, size_t room, struct window, struct dp_event *);
void decode_forget(void);
#endif
