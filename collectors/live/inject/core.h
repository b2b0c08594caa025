/* The middle of the injected library: one worker thread that gathers from sources and writes packets to the agent.
 *
 * Nothing here ever waits for the agent on a thread of the job, and nothing grows without bound. */
#ifndef DEEPPROF_CORE_H
#define DEEPPROF_CORE_H
#include <stdint.h>
#include "packets.h"

/* Everything else is hidden (-fvisibility=hidden): a job may hold names like ours. */
#define DP_EXPORT __attribute__((visibility("default")))

/* What gathers records. All functions but `forget` run on the worker thread, and any of them may be NULL. */
struct dp_source {
    void (*drain)(int idle);          /* give what has come since the last time to dp_put; idle: nothing came lately */
    void (*tick)(struct dp_tick *);   /* fill in what the source knows, after a drain; costs are to be added */
    void (*set)(int on);              /* collect from now on, or stop and give all that was collected before */
    void (*finish)(void);             /* the process ends: give everything */
    int early;                        /* collecting costs next to nothing while nobody listens: it begins before the
                                         agent has answered, so that a job's first moments are not lost; it waits
                                         DEEPPROF_EARLY_MS for that, 2,000 where nothing is set */
    void (*forget)(void);             /* in a forked child, on its only thread: as if nothing had been started;
                                         no locks (their holders are gone), no frees (the heap of others is theirs) */
};

/* Starts the worker unless it runs in this process (a fork starts its own); `collector` names the first to ask.
 * Returns 0, or -1 where no agent is wanted (DEEPPROF_SOCKET is not set) or no thread could be made. */
int dp_start(const char *collector);
void dp_add_source(const struct dp_source *source);   /* any thread, also while it runs; at most 8; kept by address */
void dp_describe(const char *key, const char *value);  /* one more line for HELLO ("stand_in", "1"); before dp_start */
void dp_finish(void);                                  /* gives everything, says END, waits a second at most */

/* Another profiler is about to run: stops all sources and waits until they have stopped, a second at most. Both are
 * counted; the last dp_resume starts them again, with reason BUSY. Never from a source. */
void dp_pause(void);
void dp_resume(void);

int dp_is_on(void);                                    /* any thread, one relaxed load: level ON, or not known yet */
int64_t dp_now_ns(void);                               /* CLOCK_MONOTONIC */
uint32_t dp_thread(void);                              /* the caller's thread id, cached */

uint32_t dp_intern(const char *text);                  /* any thread; the name's id, 0 for NULL or when the table is full */

/* Worker thread only. Numbers `count` records that follow `lost` missing ones, and queues them; what does not fit is
 * dropped as a whole stretch until half of the queue is free, and the next that fits says DP_BUFFER_FULL. */
void dp_put(enum dp_kind kind, const void *records, uint32_t count, uint64_t lost, enum dp_reason reason);
void dp_made(enum dp_activity kind, uint64_t count);    /* of those that dp_put is told next to be lost: what they were */
void dp_notice(uint32_t code, const char *text);       /* any thread; a line for people, each code once a connection */
void dp_notice_again(uint32_t code, const char *text); /* also where another text of this code was told */
void dp_wake(void);                                    /* any thread; the worker looks at its sources now */

/* Codes of notices; ranges have theirs from 32 on, contexts from 37, the hook from 64. */
enum dp_notice_code {
    DP_NAMES_FULL = 1, DP_NO_CUPTI = 2, DP_CUPTI_BUSY = 3, DP_CUPTI_DENIED = 4, DP_CUPTI_FAILED = 5, DP_BAD_TIMES = 6,
    DP_DRIVER_LOST = 7, DP_ODD_RECORDS = 8, DP_NO_DEVICE = 9, DP_CUPTI_TAKEN = 10, DP_FRAGILE = 11, DP_CUPTI_NEWER = 12
};
#endif
