/* What time it is, on which thread, a thread of our own and what it waits for. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "parts.h"

enum { STACK_NBYTES = 1 << 20 /* the driver's library runs on it */ };

static _Thread_local uint32_t thread_id;

int64_t clock_ns(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

int64_t dp_now_ns(void) { return clock_ns(CLOCK_MONOTONIC); }

/* Read one after the other, the closest of three tries: who is put to sleep in between would see a clock that was set. */
void clock_pair(int64_t *mono_ns, int64_t *unix_ns)
{
    int64_t closest = DP_NEVER;
    for (int i = 0; i < 3; i++) {
        int64_t before = dp_now_ns(), unix_time = clock_ns(CLOCK_REALTIME), took = dp_now_ns() - before;
        if (took >= closest)
            continue;
        closest = took;
        *mono_ns = before + took / 2;
        *unix_ns = unix_time;
    }
}

uint32_t dp_thread(void)
{
    if (!thread_id)
        thread_id = (uint32_t)syscall(SYS_gettid);
    return thread_id;
}

void thread_forget(void) { thread_id = 0; }

/* The job's signals are for the job's threads. */
int thread_start(void *(*work)(void *))
{
    pthread_t thread;
    pthread_attr_t attributes;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_NBYTES);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    int failed = pthread_create(&thread, &attributes, work, NULL);
    pthread_attr_destroy(&attributes);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed ? -1 : 0;
}

void condition_make(pthread_cond_t *condition)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

int condition_wait(pthread_cond_t *condition, pthread_mutex_t *mutex, int64_t until_ns)
{
    struct timespec until = {until_ns / 1000000000, until_ns % 1000000000};
    return pthread_cond_timedwait(condition, mutex, &until) == ETIMEDOUT;
}
