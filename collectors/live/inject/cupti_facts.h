/* What we know of CUPTI, in our own words: no NVIDIA header is needed to build this, and none is copied.
 *
 * Only the beginnings of records are declared, as far as they are read. These places are the same in CUDA 12.1, 12.9,
 * 13.0 and 13.5; sizes are not (a kernel has 208 bytes in 12.9, 248 in 13.5), so that the next record is always asked for. */
#ifndef DEEPPROF_CUPTI_FACTS_H
#define DEEPPROF_CUPTI_FACTS_H
#include <stddef.h>
#include <stdint.h>

enum cupti_kind {
    KIND_MEMCPY = 1, KIND_MEMSET = 2, KIND_KERNEL = 3, KIND_CONCURRENT_KERNEL = 10, KIND_MEMCPY_PTOP = 22,
    KIND_SYNCHRONIZATION = 38, KIND_GRAPH_TRACE = 51
};
enum cupti_result {
    CUPTI_OK = 0, CUPTI_END = 12, CUPTI_NOT_COMPATIBLE = 14, CUPTI_HARDWARE_BUSY = 26, CUPTI_NO_PRIVILEGES = 35,
    CUPTI_OLD_PROFILER = 36, CUPTI_ONE_SUBSCRIBER = 39, CUPTI_NO_PRIVILEGES_HERE = 40
};
enum { CUPTI_FLUSH_COMPLETED = 0, CUPTI_FLUSH_FORCED = 1 };

struct cupti_kernel {
    uint32_t kind, flags_4[3];
    uint64_t start, end, completed;
    uint32_t device, context, stream, grid[3], block[3], static_nbytes, dynamic_nbytes, flags_84[2], correlation;
    uint64_t grid_id;
    const char *name; /* mangled, kept by CUPTI */
    uint64_t flags_112, queued, submitted, flags_136, graph_node;
    uint32_t flags_152, graph;
};
struct cupti_copy {
    uint32_t kind;
    uint8_t copy_kind, source, target, flags;
    uint64_t nbytes, start, end;
    uint32_t device, context, stream, correlation;
    uint64_t flags_48[2], graph_node;
    uint32_t graph;
};
struct cupti_copy_ptop {
    uint32_t kind;
    uint8_t copy_kind, source, target, flags;
    uint64_t nbytes, start, end;
    uint32_t device, context, stream, source_device, source_context, target_device, target_context, correlation;
    uint64_t reserved, graph_node;
    uint32_t graph;
};
struct cupti_memset {
    uint32_t kind, value;
    uint64_t nbytes, start, end;
    uint32_t device, context, stream, correlation;
    uint64_t flags_48[2], graph_node;
    uint32_t graph;
};
struct cupti_synchronization {
    uint32_t kind, type;
    uint64_t start, end;
    uint32_t correlation, context, stream /* all ones: of none */, event;
};
struct cupti_graph {
    uint32_t kind, correlation;
    uint64_t start, end;
    uint32_t device, graph, context, stream;
};
struct cupti_graph_end { /* from 12.3 on, where alone a device of ON_HOST can be */
    struct cupti_graph begin;
    uint64_t flags_40;
    uint32_t device, context;
};
enum { ON_HOST = 0x7fffffff }; /* the device of a graph whose first or last node runs on none */

#define AT(type, field, place) _Static_assert(offsetof(struct type, field) == (place), #type "." #field)
AT(cupti_kernel, start, 16); AT(cupti_kernel, end, 24); AT(cupti_kernel, device, 40); AT(cupti_kernel, context, 44);
AT(cupti_kernel, stream, 48); AT(cupti_kernel, correlation, 92); AT(cupti_kernel, grid_id, 96);
AT(cupti_kernel, name, 104); AT(cupti_kernel, queued, 120); AT(cupti_kernel, graph_node, 144);
AT(cupti_kernel, graph, 156);
AT(cupti_copy, copy_kind, 4); AT(cupti_copy, source, 5); AT(cupti_copy, target, 6); AT(cupti_copy, nbytes, 8);
AT(cupti_copy, start, 16); AT(cupti_copy, end, 24); AT(cupti_copy, device, 32); AT(cupti_copy, context, 36);
AT(cupti_copy, stream, 40); AT(cupti_copy, correlation, 44); AT(cupti_copy, graph_node, 64);
AT(cupti_copy, graph, 72);
AT(cupti_copy_ptop, stream, 40); AT(cupti_copy_ptop, source_device, 44); AT(cupti_copy_ptop, correlation, 60);
AT(cupti_copy_ptop, graph_node, 72); AT(cupti_copy_ptop, graph, 80);
AT(cupti_memset, value, 4); AT(cupti_memset, nbytes, 8); AT(cupti_memset, start, 16); AT(cupti_memset, device, 32);
AT(cupti_memset, correlation, 44); AT(cupti_memset, graph_node, 64); AT(cupti_memset, graph, 72);
AT(cupti_synchronization, type, 4); AT(cupti_synchronization, start, 8); AT(cupti_synchronization, end, 16);
AT(cupti_synchronization, correlation, 24); AT(cupti_synchronization, context, 28);
AT(cupti_synchronization, stream, 32); AT(cupti_synchronization, event, 36);
AT(cupti_graph, correlation, 4); AT(cupti_graph, start, 8); AT(cupti_graph, end, 16); AT(cupti_graph, device, 24);
AT(cupti_graph, graph, 28); AT(cupti_graph, context, 32); AT(cupti_graph, stream, 36);
AT(cupti_graph_end, device, 48); AT(cupti_graph_end, context, 52);
#undef AT

typedef void (*cupti_request)(uint8_t **buffer, size_t *nbytes, size_t *most_records);
typedef void (*cupti_complete)(void *context, uint32_t stream, uint8_t *buffer, size_t nbytes, size_t valid_nbytes);
typedef void (*cupti_request_v2)(uint8_t **buffer, size_t *nbytes, size_t *most_records, void *about);
typedef void (*cupti_complete_v2)(uint8_t *buffer, size_t nbytes, size_t valid_nbytes, void *about);
typedef void (*cupti_callback)(void *user, int domain, uint32_t number, const void *data);

struct cupti_subscriber {
    size_t nbytes; /* of this */
    const char *name;
    char *old_name; /* whoever is in the way is written here */
    size_t old_nbytes;
    uint8_t many, padding[7]; /* others are allowed */
};
_Static_assert(offsetof(struct cupti_subscriber, many) == 32 && sizeof(struct cupti_subscriber) == 40, "subscriber");

/* The functions that we call, under their names less "cupti". */
struct cupti {
    int (*ActivityRegisterCallbacks)(cupti_request, cupti_complete);
    int (*ActivityEnable)(int kind);
    int (*ActivityDisable)(int kind);
    int (*ActivityFlushAll)(uint32_t flag);
    int (*ActivityGetNextRecord)(uint8_t *buffer, size_t valid_nbytes, void **record);
    int (*ActivityGetNumDroppedRecords)(void *context, uint32_t stream, size_t *dropped);
    int (*ActivitySetAttribute)(int attribute, size_t *nbytes, void *value);
    int (*GetTimestamp)(uint64_t *);
    int (*GetVersion)(uint32_t *);
    int (*Subscribe)(void **subscriber, cupti_callback, void *user);
    int (*Unsubscribe)(void *subscriber);
    /* NULL in a library without them: */
    int (*GetResultString)(int result, const char **text);
    int (*EnableCallback)(uint32_t enable, void *subscriber, int domain, uint32_t number);
    int (*ActivityGetEnabledKinds)(void *subscriber, int *kinds, uint32_t *room, uint32_t *count);
    int (*Subscribe_v2)(void **subscriber, cupti_callback, void *user, struct cupti_subscriber *);
    int (*ActivityRegisterCallbacks_v2)(void *subscriber, cupti_request_v2, cupti_complete_v2);
    int (*ActivityEnable_v2)(void *subscriber, int kind, void *config);
    int (*ActivityDisable_v2)(void *subscriber, int kind, void *config);
    int (*ActivityGetNextRecord_v2)(void *subscriber, uint8_t *buffer, size_t valid_nbytes, void **record);
    int (*ActivityGetNumDroppedRecords_v2)(void *subscriber, void *context, uint32_t stream, size_t *dropped);
    int (*GetTimestamp_v2)(void *subscriber, uint64_t *);
};
#endif
