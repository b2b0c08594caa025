/* What the parts of the CUPTI source know of each other. */
#ifndef DEEPPROF_CUPTI_PARTS_H
#define DEEPPROF_CUPTI_PARTS_H
#include "core.h"
#include "cupti_facts.h"

/* cupti_driver.c */
enum driver_state { DRIVER_STARTING, DRIVER_READY, DRIVER_WITHOUT_DEVICE };
enum driver_state driver_state(void);

/* cupti_library.c */
void cupti_library_prepare(void);           /* on the thread that the driver calls us on */
int cupti_find(struct cupti *api);          /* 0: every function of a library is there */
int cupti_sees_other_profiler(void);        /* a library of Nsight's is in this process */

/* cupti_session.c: results are CUPTI's. Only once the driver is ready. Worker thread, but for session_dropped. */
int session_find(void);                     /* 0: a libcupti is there */
uint32_t session_version(void);             /* of its interface; 0: it does not say */
struct torch_signs {
    unsigned sessions, clocks;              /* how often it was said to run; how often a clock as it has one was found */
    int is_all_one;                         /* who has subscribed does not matter */
};
int session_is_taken(struct torch_signs);   /* another client has subscribed meanwhile */
int session_is_beside_torch(void);          /* torch.profiler stays subscribed, whether it collects or not */
int session_begin(int graphs_as_launches, struct torch_signs);
int session_is_joined(void);                /* beside another client: what is flushed by force is cut off for it too */
void session_disable(void);                 /* records of before may still come */
void session_leave(void);                   /* after them */
void session_abandon(void);                 /* another client has it: what is enabled is its */
int session_is_busy(int result);            /* it says that another client is there */
void session_flush(uint32_t flag);
int session_next_record(uint8_t *buffer, size_t valid_nbytes, void **record);
size_t session_dropped(void *context, uint32_t stream); /* any thread */
uint64_t session_timestamp(void);           /* 0: none */
const char *session_describe(int result);
void session_forget(void);

/* cupti_launches.c: which context launched what. Worker thread only, but the callback. */
void launches_begin(const struct cupti *api, void *joined); /* a session of ours has begun; `joined`: its subscriber, if any */
void launches_end(const struct cupti *api);
int launches_subscribed(void);              /* it is we who have */
cupti_callback launches_callback(void);
void launches_forget(void);

/* cupti_clock.c. Worker thread only. */
enum clock_news { CLOCK_UNKNOWN /* it is being measured */, CLOCK_SAME, CLOCK_CHANGED };
enum clock_news clock_look(void);
unsigned clock_cycles(void);                /* how often one was found that counts no nanoseconds */
int clock_settle(void);                     /* waits until it is known; -1: there is none */
void clock_untell(void);                    /* whoever listens from now on has not heard it */
int clock_is_told(void);                    /* a tick has said it: the agent can lay records on it */
int64_t clock_to_ours(uint64_t device);
int64_t clock_from_mono(int64_t mono_ns);   /* both only once it is known */
struct window { uint64_t earliest, latest; }; /* on CUPTI's clock */
struct window clock_window(int64_t earliest_ns, int64_t latest_ns); /* of times on ours */
int clock_read(struct dp_tick *);           /* all three at one moment; -1: not now */
void clock_forget(void);

/* cupti_buffers.c: memory that CUPTI fills. The callbacks run on any thread, the rest on the worker. */
struct buffer {
    struct buffer *next, *made_before;
    int is_held;                            /* not ours at the moment */
    int is_scrap;                           /* what comes in it is lost */
    int is_abandoned;                       /* another client was given it */
    int64_t requested_ns;                   /* CLOCK_MONOTONIC */
    size_t valid_nbytes;
    uint64_t dropped;                       /* records that CUPTI says it lost before these */
    uint8_t *bytes;
};
void buffers_prepare(unsigned most, size_t nbytes, int may_refuse); /* a deep queue of launches gives only full ones */
void buffers_begin(void);                   /* what CUPTI holds it may keep: another client was given it */
void buffers_request(uint8_t **bytes, size_t *nbytes, size_t *most_records);
void buffers_complete(void *context, uint32_t stream, uint8_t *bytes, size_t nbytes, size_t valid_nbytes);
void buffers_request_v2(uint8_t **bytes, size_t *nbytes, size_t *most_records, void *about);
void buffers_complete_v2(uint8_t *bytes, size_t nbytes, size_t valid_nbytes, void *about);
struct buffer *buffers_take(void);          /* the one that was completed first, or NULL */
void buffers_give_back(struct buffer *);
int64_t buffers_oldest_ns(void);            /* when the oldest that CUPTI holds was requested, or DP_NEVER */
uint64_t buffers_scrapped(void);            /* records that came in scrap since the last time */
void buffers_forget(void);

/* cupti_records.c: records to events. Worker thread only. */
enum { DECODED = 1, LEFT_OUT = 0, BAD_TIMES = -1, ODD_RECORD = -2, UNFINISHED = -3 /* or never measured */ };
int decode(const void *record, size_t room, struct window, struct dp_event *); /* times within the window can be true */
void decode_forget(void);
#endif
