/* Packets from a job to its node's agent, as collectors/live/packets.py describes them: little endian, no padding. */
#ifndef DEEPPROF_PACKETS_H
#define DEEPPROF_PACKETS_H
#include <stdint.h>

enum { DP_VERSION = 3, DP_MAGIC = 0x31505044, DP_PAYLOAD_NBYTES = 4 << 20 };
enum dp_kind {
    DP_HELLO = 1, DP_NAMES = 2, DP_EVENTS = 3, DP_RANGES = 4, DP_TICK = 5, DP_NOTICE = 6, DP_END = 7,
    DP_CONTEXTS = 8, DP_CONTEXT_SUMS = 9, DP_LAUNCHES = 10, DP_MEMORY_CHANGES = 11,
    DP_WELCOME = 16, DP_LEVEL = 17
};
enum dp_reason {
    DP_NO_GAP = 0, DP_BUFFER_FULL = 1, DP_DISCONNECTED = 2, DP_DUTY_CYCLE = 3, DP_DRIVER_DROPPED = 4, DP_BUSY = 5
};
enum dp_level { DP_OFF = 0, DP_ON = 1 };
enum dp_activity { DP_KERNEL = 0, DP_MEMCPY = 1, DP_MEMSET = 2, DP_GRAPH = 3, DP_SYNC = 4 };
/* What is counted by kind: activities, ranges of whatever category, changes of memory, sums of contexts. */
enum { DP_RANGE = 5, DP_MEMORY = 6, DP_CONTEXT = 7, DP_RECORD_KINDS = 8 };
enum dp_context_kind { DP_PYTHON_FRAME = 0, DP_OPERATOR = 1, DP_NATIVE_FRAME = 2 };
enum { DP_HTOD = 0, DP_DTOH = 1, DP_DTOD = 2, DP_PTOP = 3, DP_HTOH = 4, DP_NO_COPY = 255 };
enum { DP_ANNOTATION = 254, DP_BY_NAME = 255 };
enum dp_range_source { DP_FROM_ITT = 0, DP_FROM_NVTX = 1, DP_FROM_HOOK = 2, DP_FROM_TORCH = 3, DP_FROM_ROCTX = 4 };
enum { DP_HAS_CORRELATION = 1 };
#define DP_NO_TIME INT64_MIN
#define DP_NEVER INT64_MAX
#define DP_NO_TOTAL UINT64_MAX

struct dp_head { uint32_t magic; uint16_t kind, zero; uint32_t nbytes, more; };
struct dp_name_head { uint32_t id, nbytes; };
struct dp_notice_head { uint32_t code, nbytes; };
/* `made` counts, by kind, the records numbered before `first`, those that were dropped on the way among them; the rest
 * of `first` are records of which nobody knows the kind. */
struct dp_records_head { uint64_t first; uint32_t count, reason; uint64_t made[DP_RECORD_KINDS]; };

struct dp_event {
    int64_t start_ns, end_ns;
    uint64_t nbytes, graph_node;
    uint32_t correlation, name, device, context, stream, graph;
    uint8_t activity, copy_kind;
    uint16_t flags;
    uint32_t zero;
};

struct dp_range {
    int64_t start_ns, end_ns;
    uint32_t name, thread;
    uint16_t depth;
    uint8_t category, source;
    uint32_t zero;
    uint64_t correlation;
};

struct dp_tick {
    int64_t device_ns, mono_ns, unix_ns;
    int64_t events_until_ns, ranges_until_ns, open_since_ns;
    uint64_t next, driver_dropped, collector_cpu_ns, process_cpu_ns;
    uint32_t level, reason;             /* the second: why records before `next` are missing that no packet has told of */
    uint64_t made[DP_RECORD_KINDS];     /* before `next` */
};

/* One allocation or release, or (`nbytes` 0) a look at what is in use. Ordered, and promised, with ranges. */
struct dp_memory_change {
    int64_t time_ns, nbytes;            /* CLOCK_MONOTONIC; negative for a release */
    uint64_t address;                   /* 0: not known */
    uint64_t allocated_nbytes, reserved_nbytes; /* after it; DP_NO_TOTAL: not known */
    uint64_t device_nbytes;             /* all of the device's memory, 0: not known */
    int32_t device;                     /* -1: memory of the host */
    uint32_t thread;                    /* 0: not known */
};

/* A node of the tree of calling contexts. Ids count from 1 without missing ones, all of them again on each connection;
 * a parent comes before its children, 0 is the root. */
struct dp_context { uint32_t id, parent, name, line, kind; };

/* What one context did in a window of time: how often it began (a function of Python is not counted: 0), and its time on
 * the host, its children's with it; a backward node is a child of its forward operator. */
struct dp_context_sum { int64_t start_ns, end_ns, host_ns; uint64_t count; uint32_t context, zero; };

/* Which context launched what: of the latest window, for records of the device that come later or came before. */
struct dp_launch { uint32_t correlation, context; };

_Static_assert(sizeof(struct dp_head) == 16 && sizeof(struct dp_records_head) == 80, "heads");
_Static_assert(sizeof(struct dp_event) == 64 && sizeof(struct dp_range) == 40 && sizeof(struct dp_tick) == 152, "records");
_Static_assert(sizeof(struct dp_context) == 20 && sizeof(struct dp_context_sum) == 40 && sizeof(struct dp_launch) == 8, "contexts");
_Static_assert(sizeof(struct dp_memory_change) == 56, "changes of memory");
#endif
