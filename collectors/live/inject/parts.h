/* What the parts of the library's middle know of each other. Unless said otherwise: worker thread only. */
#ifndef DEEPPROF_PARTS_H
#define DEEPPROF_PARTS_H
#include <pthread.h>
#include <stddef.h>
#include <time.h>
#include "core.h"

/* core.c */
int core_is_paused(void);                              /* another profiler runs, as somebody has said */
unsigned core_pauses(void);                            /* how often somebody has said so */
void core_tick(void);                                  /* at once: a source knows a clock, and records are to come after it */

/* identity.c: who we are. Taken once on the thread that starts us, because getenv beside a setenv is a race. */
int identity_take(const char *collector);              /* -1: no agent is wanted */
const char *identity_socket(void);
size_t identity_hello(char *text, size_t room, int continues); /* lines of key=value, whole ones that fit */
uint64_t setting(const char *name, uint64_t fallback, uint64_t least, uint64_t most); /* a number in the environment */
void identity_forget(void);
size_t process_name(char *text, size_t room);          /* as the system shows it; its length */
enum { HELLO_NBYTES = 16 << 10 };

/* clock.c. Any thread. */
int64_t clock_ns(clockid_t clock);
void clock_pair(int64_t *mono_ns, int64_t *unix_ns);    /* both at one moment */
void thread_forget(void);                              /* in a forked child: its thread has another id */
int thread_start(void *(*work)(void *));               /* detached, without signals; -1: none can be made */
void condition_make(pthread_cond_t *condition);        /* whose times are those of dp_now_ns */
int condition_wait(pthread_cond_t *condition, pthread_mutex_t *mutex, int64_t until_ns); /* whether the time is over */

/* names.c: texts by id, from 1. Any thread. */
uint32_t names_count(void);
size_t names_length(uint32_t id);
const char *names_text(uint32_t id);                   /* not ended by a zero */
void names_lock(void);                                 /* around a fork, so that the child finds the table whole */
void names_unlock(void);

/* notices.c: lines for people, kept to be told on each connection. */
int notices_next(uint32_t *code, char *text, size_t room); /* one that this connection has not been told */
void notices_again(void);                              /* a new connection: all of them */
void notices_forget(void);
void notices_lock(void);
void notices_unlock(void);

/* queue.c: packets that wait for the agent. */
struct packet {
    struct packet *next;
    uint32_t filled, capacity, sent; /* of bytes */
    uint32_t names;                  /* ids up to this one must be told before */
    unsigned char bytes[];           /* a head and its payload */
};
void queue_open(uint64_t most_nbytes);                 /* an agent is there */
void queue_close(void);                                /* it has gone: all that waits is lost */
void queue_gap(enum dp_reason reason);                 /* the next records say so; NONE changes nothing */
int queue_put(enum dp_kind kind, const void *payload, uint32_t nbytes); /* a small packet, also when it is full; -1: lost */
int queue_is_open(void);
void queue_end(void);
struct packet *queue_head(void);
void queue_pop(void);
size_t queue_nbytes(void);
uint64_t queue_next(void);                             /* number of the next record */
void queue_count(struct dp_tick *);                    /* fills in what has been made, and why some of it is missing */
int64_t queue_put_ns(void);                            /* when records came last */
void queue_forget(void);                               /* a forked child: from 0, and what waited is the parent's */

/* cupti_launches.c, which the tool for AMD GPUs does not have: NULL there */
__attribute__((weak)) uint64_t launches_heard(void);   /* how many: they name nodes that there were before */
__attribute__((weak)) void launches_put(uint64_t end); /* those up to then */

/* connection.c: the socket. */
enum { NO_AGENT, GREETED, WELCOMED };
int connection_state(void);
int connection_level(void);
uint32_t connection_times(void);                       /* how many there have been */
void connection_follow(int may_open);                  /* connect when it is time to, and hear what the agent says */
void connection_push(void);                            /* send what can be sent without waiting */
int connection_is_blocked(void);                       /* something waits, and the socket takes no more */
void connection_wait(int milliseconds);                /* until it takes more or is heard */
void connection_wait_to_hear(int milliseconds);        /* until it is heard, although it takes more */
void connection_close(void);
void connection_forget(void);                          /* closes our end only: the parent's stays as it is */
#endif
