/*
 * Loaded before libc (LD_PRELOAD) into a daemon: fails calls on files, and moves the wall clock, as a plan says.
 *
 * The plan is a file that both sides map (CHAOS_PLAN); benchmarks/chaos/plan.py is the other side and has the same
 * layout. A rule fails the calls in `calls` on paths that begin with `prefix`, `left` times (-1: for as long as it
 * stands), and counts in `hits` what it failed: a fault that never happened proves nothing. One whose error is 0 holds
 * the calls up for as long as it stands, as a disk does that hangs; then they are done.
 *
 * CHAOS_PARENT is the process with which this one dies, so that no daemon outlives an interrupted run.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { OPEN = 1, CREATE = 2, READ = 4, WRITE = 8, SYNC = 16, RENAME = 32, TRUNCATE = 64, UNLINK = 128, MKDIR = 256 };
enum { RULES = 4, PREFIX = 240, BILLION = 1000000000, HOLD_US = 2000 };

struct rule {
    volatile int32_t calls, error, left, hits;
    char prefix[PREFIX];
};
struct plan {
    volatile int64_t clock_ns; /* added to the wall clock */
    struct rule rules[RULES];
};
static struct plan *plan;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("CHAOS_PLAN"), *parent = getenv("CHAOS_PARENT");
    if (parent && atoi(parent) == getppid()) prctl(PR_SET_PDEATHSIG, SIGKILL);
    int file = path ? (int)syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC, 0) : -1;
    if (file < 0) return;
    void *found = mmap(NULL, sizeof *plan, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    syscall(SYS_close, file);
    if (found != MAP_FAILED) plan = found;
}

/* Whether `rule` has a failure left, which is then taken. */
static int take(struct rule *rule) {
    int32_t left = rule->left;
    while (left > 0 && !__atomic_compare_exchange_n(&rule->left, &left, left - 1, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
    if (left) __atomic_add_fetch(&rule->hits, 1, __ATOMIC_SEQ_CST);
    return left != 0;
}

/* Whether this call on this path shall fail; errno is then set. */
static int fails(int calls, const char *path) {
    for (int i = 0; plan && path && i < RULES; i++) {
        struct rule *rule = &plan->rules[i];
        if (!(rule->calls & calls) || !rule->left || strncmp(path, rule->prefix, strlen(rule->prefix))) continue;
        if (!take(rule)) continue;
        while (!rule->error && rule->left) usleep(HOLD_US);
        if (!rule->error) continue;
        errno = rule->error;
        return 1;
    }
    return 0;
}

static int fails_fd(int calls, int file) {
    int armed = 0;
    for (int i = 0; plan && i < RULES; i++) armed |= plan->rules[i].left ? plan->rules[i].calls & calls : 0;
    if (!armed) return 0;
    char link[32], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    long n = syscall(SYS_readlinkat, AT_FDCWD, link, path, sizeof path - 1);
    if (n <= 0) return 0;
    path[n] = 0;
    return fails(calls, path);
}

static int kinds_of(int flags) { return OPEN | (flags & (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC) ? CREATE : 0); }

#define REAL(type, name, ...) \
    static type (*real)(__VA_ARGS__); \
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, #name)

/* open() for writing alone is what a disk refuses that may only be read: OPEN fails all, CREATE those. */
#define OPENER(name) \
    int name(const char *path, int flags, ...) { \
        REAL(int, name, const char *, int, ...); \
        va_list more; \
        va_start(more, flags); \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0; \
        va_end(more); \
        return fails(kinds_of(flags), path) ? -1 : real(path, flags, mode); \
    }
OPENER(open)
OPENER(open64)

#define OPENER_AT(name) \
    int name(int folder, const char *path, int flags, ...) { \
        REAL(int, name, int, const char *, int, ...); \
        va_list more; \
        va_start(more, flags); \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0; \
        va_end(more); \
        return fails(kinds_of(flags), path) ? -1 : real(folder, path, flags, mode); \
    }
OPENER_AT(openat)
OPENER_AT(openat64)

#define ON_FILE(type, name, kind, parameters, given) \
    type name parameters { \
        static type (*real) parameters; \
        if (!real) *(void **)&real = dlsym(RTLD_NEXT, #name); \
        return fails_fd(kind, file) ? -1 : real given; \
    }
ON_FILE(ssize_t, read, READ, (int file, void *to, size_t n), (file, to, n))
ON_FILE(ssize_t, readv, READ, (int file, const struct iovec *to, int n), (file, to, n))
ON_FILE(ssize_t, pread, READ, (int file, void *to, size_t n, off_t at), (file, to, n, at))
ON_FILE(ssize_t, pread64, READ, (int file, void *to, size_t n, off64_t at), (file, to, n, at))
ON_FILE(ssize_t, write, WRITE, (int file, const void *from, size_t n), (file, from, n))
ON_FILE(ssize_t, writev, WRITE, (int file, const struct iovec *from, int n), (file, from, n))
ON_FILE(ssize_t, pwrite, WRITE, (int file, const void *from, size_t n, off_t at), (file, from, n, at))
ON_FILE(ssize_t, pwrite64, WRITE, (int file, const void *from, size_t n, off64_t at), (file, from, n, at))
ON_FILE(ssize_t, pwritev, WRITE, (int file, const struct iovec *from, int n, off_t at), (file, from, n, at))
ON_FILE(ssize_t, pwritev64, WRITE, (int file, const struct iovec *from, int n, off64_t at), (file, from, n, at))
ON_FILE(ssize_t, pwritev2, WRITE, (int file, const struct iovec *from, int n, off_t at, int how), (file, from, n, at, how))
ON_FILE(ssize_t, pwritev64v2, WRITE, (int file, const struct iovec *from, int n, off64_t at, int how), (file, from, n, at, how))
ON_FILE(int, fsync, SYNC, (int file), (file))
ON_FILE(int, fdatasync, SYNC, (int file), (file))
ON_FILE(int, ftruncate, TRUNCATE, (int file, off_t n), (file, n))
ON_FILE(int, ftruncate64, TRUNCATE, (int file, off64_t n), (file, n))

#define ON_PATH(name, kind, parameters, given) \
    int name parameters { \
        static int (*real) parameters; \
        if (!real) *(void **)&real = dlsym(RTLD_NEXT, #name); \
        return fails(kind, path) ? -1 : real given; \
    }
ON_PATH(rename, RENAME, (const char *path, const char *to), (path, to))
ON_PATH(renameat, RENAME, (int a, const char *path, int b, const char *to), (a, path, b, to))
ON_PATH(unlink, UNLINK, (const char *path), (path))
ON_PATH(unlinkat, UNLINK, (int folder, const char *path, int flags), (folder, path, flags))
ON_PATH(mkdir, MKDIR, (const char *path, mode_t mode), (path, mode))

int clock_gettime(clockid_t clock, struct timespec *time) {
    int failed = (int)syscall(SYS_clock_gettime, clock, time);
    int64_t more = plan && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) ? plan->clock_ns : 0;
    if (failed || !more) return failed;
    int64_t nanos = time->tv_nsec + more % BILLION;
    int64_t carry = nanos < 0 ? -1 : nanos / BILLION;
    time->tv_sec += more / BILLION + carry;
    time->tv_nsec = nanos - carry * BILLION;
    return 0;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec time;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &time)) return -1;
    now->tv_sec = time.tv_sec;
    now->tv_usec = time.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *to) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (to) *to = now.tv_sec;
    return now.tv_sec;
}
