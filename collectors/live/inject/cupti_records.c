/* One CUPTI record to one event. Worker thread only. */
#include <stdio.h>
#include <string.h>
#include "cupti_parts.h"

/* Kinds of copies and memory by CUPTI's numbers. Arrays are device memory, as in every importer. */
static const uint8_t COPY_KINDS[] = {
    DP_NO_COPY, DP_HTOD, DP_DTOH, DP_HTOD, DP_DTOH, DP_DTOD, DP_DTOD, DP_DTOD, DP_DTOD, DP_HTOH, DP_PTOP,
};
static const char *const DIRECTIONS[] = {"HtoD", "DtoH", "DtoD", "PtoP", "HtoH"};
static const char *const MEMORY[] = {"Unknown", "Pageable", "Pinned", "Device", "Array", "Managed", "Device Static",
                                     "Managed Static"};
static const char *const SYNCS[] = {"Sync", "Event Sync", "Stream Wait Event", "Stream Sync", "Context Sync"};
enum { COPIES = sizeof COPY_KINDS, MEMORIES = sizeof MEMORY / sizeof *MEMORY, SYNC_TYPES = sizeof SYNCS / sizeof *SYNCS };

/* A synchronization names its context but no device: this remembers whose contexts were seen. */
enum { CONTEXTS = 64 };
static struct { uint32_t context, device; } contexts[CONTEXTS];
static uint32_t latest_device, latest_context;

static void remember(uint32_t context, uint32_t device)
{
    latest_device = device;
    latest_context = context;
    contexts[context % CONTEXTS].context = context;
    contexts[context % CONTEXTS].device = device;
}

static uint32_t device_of(uint32_t context)
{
    return contexts[context % CONTEXTS].context == context ? contexts[context % CONTEXTS].device : 0;
}

void decode_forget(void)
{
    memset(contexts, 0, sizeof contexts);
    latest_device = latest_context = 0;
}

static int set_times(struct dp_event *event, uint64_t start, uint64_t end, struct window window)
{
    if (!start || !end)
        return UNFINISHED;
    if (start < window.earliest || end < start || end > window.latest)
        return BAD_TIMES;
    event->start_ns = clock_to_ours(start);
    event->end_ns = clock_to_ours(end);
    return DECODED;
}

static void set_place(struct dp_event *event, uint32_t device, uint32_t context, uint32_t stream)
{
    remember(context, device);
    event->device = device;
    event->context = context;
    event->stream = stream;
}

static void set_launch(struct dp_event *event, uint32_t correlation, uint64_t node, uint32_t graph)
{
    event->correlation = correlation;
    event->flags = correlation ? DP_HAS_CORRELATION : 0;
    event->graph_node = node;
    event->graph = graph;
}

static uint32_t name_copy(uint8_t kind, uint8_t source, uint8_t target)
{
    char text[80], direction[8] = "";
    if (kind != DP_NO_COPY)
        snprintf(direction, sizeof direction, " %s", DIRECTIONS[kind]);
    if (source && target && source < MEMORIES && target < MEMORIES)
        snprintf(text, sizeof text, "Memcpy%s (%s -> %s)", direction, MEMORY[source], MEMORY[target]);
    else
        snprintf(text, sizeof text, "Memcpy%s", direction);
    return dp_intern(text);
}

/* There are few names of copies, and each of them is made only once. */
static void set_copy(struct dp_event *event, uint8_t kind, uint8_t source, uint8_t target, uint64_t nbytes)
{
    static uint32_t names[DP_HTOH + 2][MEMORIES][MEMORIES];
    kind = kind < COPIES ? COPY_KINDS[kind] : DP_NO_COPY;
    source = source < MEMORIES ? source : 0;
    target = target < MEMORIES ? target : 0;
    uint32_t *name = &names[kind == DP_NO_COPY ? DP_HTOH + 1 : kind][source][target];
    if (!*name)
        *name = name_copy(kind, source, target);
    event->name = *name;
    event->copy_kind = kind;
    event->activity = DP_MEMCPY;
    event->nbytes = nbytes;
}

static int decode_kernel(const struct cupti_kernel *record, struct window window, struct dp_event *event)
{
    set_place(event, record->device, record->context, record->stream);
    set_launch(event, record->correlation, record->graph_node, record->graph);
    event->activity = DP_KERNEL;
    event->name = dp_intern(record->name);
    return set_times(event, record->start, record->end, window);
}

static int decode_copy(const struct cupti_copy *record, struct window window, struct dp_event *event)
{
    set_place(event, record->device, record->context, record->stream);
    set_launch(event, record->correlation, record->graph_node, record->graph);
    set_copy(event, record->copy_kind, record->source, record->target, record->nbytes);
    return set_times(event, record->start, record->end, window);
}

static int decode_copy_ptop(const struct cupti_copy_ptop *record, struct window window, struct dp_event *event)
{
    set_place(event, record->device, record->context, record->stream);
    set_launch(event, record->correlation, record->graph_node, record->graph);
    set_copy(event, record->copy_kind, record->source, record->target, record->nbytes);
    return set_times(event, record->start, record->end, window);
}

static int decode_memset(const struct cupti_memset *record, struct window window, struct dp_event *event)
{
    set_place(event, record->device, record->context, record->stream);
    set_launch(event, record->correlation, record->graph_node, record->graph);
    event->activity = DP_MEMSET;
    event->nbytes = record->nbytes;
    event->name = dp_intern("Memset");
    return set_times(event, record->start, record->end, window);
}

static int decode_sync(const struct cupti_synchronization *record, struct window window, struct dp_event *event)
{
    event->device = device_of(record->context);
    event->context = record->context;
    event->stream = record->stream;
    set_launch(event, record->correlation, 0, 0);
    event->activity = DP_SYNC;
    event->name = dp_intern(SYNCS[record->type < SYNC_TYPES ? record->type : 0]);
    return set_times(event, record->start, record->end, window);
}

/* A graph may begin with a host function: then it is on the device of its last node, or of what came before it. */
static int decode_graph(const struct cupti_graph *record, size_t room, struct window window, struct dp_event *event)
{
    char text[32];
    uint32_t device = record->device, context = record->context;
    const struct cupti_graph_end *end = (const struct cupti_graph_end *)record;
    if (device == ON_HOST && room >= sizeof *end && end->device != ON_HOST)
        device = end->device, context = end->context;
    if (device == ON_HOST)
        device = latest_device, context = latest_context;
    snprintf(text, sizeof text, "CUDA graph %u", record->graph);
    set_place(event, device, context, record->stream);
    set_launch(event, record->correlation, 0, record->graph);
    event->activity = DP_GRAPH;
    event->name = dp_intern(text);
    return set_times(event, record->start, record->end, window);
}

/* `room`: what is left of the buffer. A record that is cut off says that we do not understand this library. */
int decode(const void *record, size_t room, struct window window, struct dp_event *event)
{
    uint32_t kind;
    if (room < sizeof kind)
        return ODD_RECORD;
    memcpy(&kind, record, sizeof kind);
    *event = (struct dp_event){.copy_kind = DP_NO_COPY};
#define CASE(type, function) return room < sizeof(struct type) ? ODD_RECORD : function(record, window, event)
    switch (kind) {
    case KIND_KERNEL:
    case KIND_CONCURRENT_KERNEL: CASE(cupti_kernel, decode_kernel);
    case KIND_MEMCPY: CASE(cupti_copy, decode_copy);
    case KIND_MEMCPY_PTOP: CASE(cupti_copy_ptop, decode_copy_ptop);
    case KIND_MEMSET: CASE(cupti_memset, decode_memset);
    case KIND_SYNCHRONIZATION: CASE(cupti_synchronization, decode_sync);
    case KIND_GRAPH_TRACE: return room < sizeof(struct cupti_graph) ? ODD_RECORD : decode_graph(record, room, window, event);
    default: return LEFT_OUT; /* a kind that we did not ask for */
    }
#undef CASE
}
