/* What the two files of the mock share: its clients, and what differs between versions. */
#ifndef MOCK_PARTS_H
#define MOCK_PARTS_H
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include "mock_cupti.h"

enum { SLOTS = 64, KINDS = 64 };
enum { OK = 0, INVALID_PARAMETER = 1, END = 12, INVALID_KIND = 21, ONE_SUBSCRIBER = 39 };
enum { REFUSING = 27 };

typedef void (*request_function)(uint8_t **, size_t *, size_t *);
typedef void (*complete_function)(void *, uint32_t, uint8_t *, size_t, size_t);
typedef void (*request_function_v2)(uint8_t **, size_t *, size_t *, void *);
typedef void (*complete_function_v2)(uint8_t *, size_t, size_t, void *);

/* A buffer that a client gave: what is reserved in it and has not ended yet keeps it from being given back. */
struct filled {
    uint8_t *bytes;
    size_t nbytes, used;
    int unfinished, is_full;
    struct client *client;
};

/* Those that share what every version has are one client; a subscriber of its own is another. */
struct client {
    int is_there, is_ours; /* ours: of the collector that is tested */
    request_function request;
    complete_function complete;
    request_function_v2 request_v2;
    complete_function_v2 complete_v2;
    int enabled[KINDS];
    unsigned long dropped;
    struct filled *slots[SLOTS];
};

#pragma GCC visibility push(hidden)
extern struct client shared, joined[2];
extern pthread_mutex_t lock; /* of everything; callbacks are called without it */
extern unsigned late_count;
extern int newest, patient, delaying, per_thread, torch_leaves;
extern int subscribed, begins_other; /* somebody has; another client is subscribing */
extern long version;
extern unsigned long refused_count;
extern atomic_ulong walked;
extern atomic_int foreign_clock;
extern void (*hearing)(void *, int, uint32_t, const void *); /* the subscriber's callback */
extern int heard_calls; /* how many of the calls that launch a kernel */

void crash(const char *why);
int read_int(int *value);
void write_int(int *value, int wanted);
uint64_t foreign(uint64_t time);
size_t size_of(uint32_t kind);
void forget_slots(struct client *client);
void deliver(struct filled *filled, int forced); /* under the lock, which is let go meanwhile */
#pragma GCC visibility pop

int cuptiSubscribe(void **subscriber, void *callback, void *user);
int cuptiUnsubscribe(void *subscriber);
int cuptiSubscribe_v2(void **subscriber, void *callback, void *user, void *about);
int cuptiActivityEnable_v2(void *subscriber, int kind, void *config);
#endif
