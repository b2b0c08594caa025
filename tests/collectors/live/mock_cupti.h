/* How a test drives the device of mock_cupti.c. */
#ifndef MOCK_CUPTI_H
#define MOCK_CUPTI_H
#include <stdint.h>

#define MOCK_CLOCK_NS 500000000000000000u /* what its clock is ahead of CLOCK_MONOTONIC */

enum { MOCK_BROKEN = 63 }; /* a kind: CUPTI cannot read on here */

struct mock_record {
    uint64_t start, end, nbytes, graph_node;
    const char *name;
    uint32_t kind, device, context, stream, correlation, graph;
    uint32_t type; /* of a copy or a synchronization */
    uint8_t source, target;
    uint32_t end_device; /* of a graph launch */
};
int mock_is_enabled(int kind);
int mock_emit(const struct mock_record *); /* whether it was kept; 0 also when its kind is not enabled */
void *mock_launch(const struct mock_record *); /* not ended yet; NULL: not kept */
void mock_end(void *launched, uint64_t start, uint64_t end);
void mock_refuse(int is);                  /* no buffer for anyone */
void mock_delay(int is);                   /* every third buffer stays back until a forced flush */
void mock_capture(uint32_t graph);         /* its kernels are recorded later only if kernels are enabled now */
unsigned long mock_dropped(void);
unsigned long mock_walked(void);           /* records that the collector is done with */
int mock_stray(const struct mock_record *); /* completes buffers that are not the collector's; whether they stay whole */
void mock_restart(void);

/* Another client of CUPTI in this process, as it begins (1) and ends (0). */
void mock_torch_profiler(int is); /* takes the callbacks and the clock; the clock and its subscription stay */
void mock_proton(int is);         /* subscribes as the only one */
void mock_monitor(int is);        /* subscribes beside others */
unsigned long mock_other_count(void); /* records that it was given */
unsigned long mock_refused_count(void); /* who asked to be beside another */
int mock_other_is_whole(void);        /* nobody has switched off what it enabled, or taken its callbacks */
#endif
