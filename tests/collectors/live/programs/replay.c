/* A job that does on its device what a recorded one did: loads the collector as the driver does, and replays a file.
 *
 *   replay FILE full|recorded [BEGIN]
 *
 * CUDA_INJECTION64_PATH is the collector, DEEPPROF_CUPTI the library of mock_cupti.c. FILE is written by
 * tests/collectors/live/recordings.py; BEGIN is where it begins on CLOCK_MONOTONIC, for ranks of one job at full speed. It prints one
 * line - records that the device kept, those it dropped, the seconds in which they ended - once the collector has walked
 * all of them, and ends when its standard input does.
 *
 * The process has a time of its own, so that no record depends on how busy the machine is: time does not pass an event
 * that has not happened yet. At the recorded speed a kernel is launched a little before it starts, and ends when it
 * ended. At full speed the process begins in the past, launches everything, and then a minute passes at once. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "../mock_cupti.h"

enum { KERNEL = 10, SYNC = 38, NO_NAME = -1 };
static const int64_t SECOND_NS = 1000000000, MILLISECOND_NS = 1000000;
static const int64_t AHEAD_NS = 1000000;     /* of a kernel's start: when it is launched */
static const int64_t PAST_NS = 60000000000;  /* how far in the past a replay at full speed begins */
static const int64_t PATIENCE_NS = 120000000000;

/* ---- time ---- */

static atomic_llong behind_ns, limit_ns = INT64_MAX; /* of the machine's CLOCK_MONOTONIC; of the process's */
static int64_t unix_ns;                              /* CLOCK_REALTIME less CLOCK_MONOTONIC, from the beginning on */

static int64_t read_clock(clockid_t clock)
{
    struct timespec time;
    syscall(SYS_clock_gettime, clock, &time);
    return (int64_t)time.tv_sec * SECOND_NS + time.tv_nsec;
}

/* Whole milliseconds: two clocks that are read one after the other agree to the nanosecond. */
static int64_t now_ns(void)
{
    int64_t now = read_clock(CLOCK_MONOTONIC) - behind_ns, limit = limit_ns;
    now = now < limit ? now : limit;
    return now - now % MILLISECOND_NS;
}

__attribute__((visibility("default"))) int clock_gettime(clockid_t clock, struct timespec *time)
{
    if (clock != CLOCK_MONOTONIC && clock != CLOCK_REALTIME)
        return (int)syscall(SYS_clock_gettime, clock, time);
    int64_t now = now_ns() + (clock == CLOCK_REALTIME ? unix_ns : 0);
    *time = (struct timespec){(time_t)(now / SECOND_NS), (long)(now % SECOND_NS)};
    return 0;
}

__attribute__((visibility("default"))) int pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex,
                                                                  const struct timespec *until)
{
    static int (*wait)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
    if (!wait)
        *(void **)&wait = dlsym(RTLD_NEXT, "pthread_cond_timedwait");
    int64_t at = (int64_t)until->tv_sec * SECOND_NS + until->tv_nsec + behind_ns;
    return wait(condition, mutex, &(struct timespec){(time_t)(at / SECOND_NS), (long)(at % SECOND_NS)});
}

static void nap(int64_t ns) { nanosleep(&(struct timespec){(time_t)(ns / SECOND_NS), (long)(ns % SECOND_NS)}, NULL); }

/* ---- the two libraries ---- */

static int (*is_enabled)(int), (*emit)(const struct mock_record *), (*initialize)(void);
static void *(*launch)(const struct mock_record *);
static void (*end)(void *, uint64_t, uint64_t);
static unsigned long (*walked)(void), (*dropped)(void);

static void fail(const char *what)
{
    fprintf(stderr, "replay: %s\n", what);
    exit(3);
}

static void *library(const char *variable)
{
    const char *path = getenv(variable);
    void *found = path ? dlopen(path, RTLD_NOW) : NULL;
    if (!found)
        fail(path ? dlerror() : variable);
    return found;
}

static void *function(void *library, const char *name)
{
    void *found = dlsym(library, name);
    if (!found)
        fail(dlerror());
    return found;
}

static void load(void)
{
    void *mock = library("DEEPPROF_CUPTI");
    *(void **)&is_enabled = function(mock, "mock_is_enabled");
    *(void **)&emit = function(mock, "mock_emit");
    *(void **)&launch = function(mock, "mock_launch");
    *(void **)&end = function(mock, "mock_end");
    *(void **)&walked = function(mock, "mock_walked");
    *(void **)&dropped = function(mock, "mock_dropped");
    *(void **)&initialize = function(library("CUDA_INJECTION64_PATH"), "InitializeInjection");
}

/* ---- the recording ---- */

struct head {
    uint64_t records, names;
    int32_t last_kind; /* that is enabled: nothing is launched before */
    uint32_t zero;
};
struct row {
    uint64_t start, end, nbytes, graph_node;
    int32_t name;
    uint32_t kind, device, context, stream, correlation, graph, type;
    uint8_t source, target, zero[6];
};

/* `rows` are in the order of their ends, `by_start` their numbers in the order of their starts. */
static struct {
    const struct head *head;
    const struct row *rows;
    const char **names;
    size_t *by_start;
    void **launched;
    unsigned long kept;
} r;

static char *read_file(const char *path, size_t *nbytes)
{
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END))
        fail(path);
    *nbytes = (size_t)ftell(file);
    char *bytes = malloc(*nbytes + 1);
    rewind(file);
    if (!bytes || fread(bytes, 1, *nbytes, file) != *nbytes)
        fail(path);
    bytes[*nbytes] = 0;
    fclose(file);
    return bytes;
}

static int compare_starts(const void *one, const void *other)
{
    size_t a = *(const size_t *)one, b = *(const size_t *)other;
    uint64_t start_a = r.rows[a].start, start_b = r.rows[b].start;
    return start_a != start_b ? (start_a < start_b ? -1 : 1) : (a > b) - (a < b);
}

/* Names stay where they are for as long as the process lives, as CUPTI keeps them. */
static void read_recording(const char *path)
{
    size_t nbytes;
    char *bytes = read_file(path, &nbytes), *text;
    r.head = (const struct head *)bytes;
    r.rows = (const struct row *)(r.head + 1);
    if (nbytes < sizeof *r.head || (nbytes - sizeof *r.head) / sizeof *r.rows < r.head->records)
        fail("the file is cut");
    text = (char *)(r.rows + r.head->records);
    r.names = calloc(r.head->names + 1, sizeof *r.names);
    for (uint64_t i = 0; i < r.head->names; text += strlen(text) + 1, i++) {
        if (text >= bytes + nbytes)
            fail("the file is cut");
        r.names[i] = text;
    }
    r.by_start = calloc(r.head->records + 1, sizeof *r.by_start);
    r.launched = calloc(r.head->records + 1, sizeof *r.launched);
    for (size_t i = 0; i < r.head->records; i++)
        r.by_start[i] = i;
    qsort(r.by_start, r.head->records, sizeof *r.by_start, compare_starts);
}

static struct mock_record record_of(const struct row *row)
{
    return (struct mock_record){
        .nbytes = row->nbytes, .graph_node = row->graph_node, .name = row->name == NO_NAME ? NULL : r.names[row->name],
        .kind = row->kind, .device = row->device, .context = row->context, .stream = row->stream,
        .correlation = row->correlation, .graph = row->graph, .type = row->type, .source = row->source,
        .target = row->target, .end_device = row->device,
    };
}

static void launch_row(size_t number)
{
    struct mock_record record = record_of(&r.rows[number]);
    r.launched[number] = launch(&record);
    r.kept += r.launched[number] != NULL;
}

/* A wait is recorded when it is over; it was never launched. */
static void end_row(size_t number, uint64_t begin)
{
    const struct row *row = &r.rows[number];
    if (r.launched[number])
        end(r.launched[number], begin + row->start, begin + row->end);
    else if (row->kind == SYNC) {
        struct mock_record record = record_of(row);
        record.start = begin + row->start, record.end = begin + row->end;
        r.kept += (unsigned long)emit(&record);
    }
}

/* ---- replaying ---- */

static uint64_t on_device(int64_t mono_ns) { return MOCK_CLOCK_NS + (uint64_t)mono_ns; }

static void play_at_once(int64_t begin_ns)
{
    for (size_t i = 0; i < r.head->records; i++)
        launch_row(r.by_start[i]);
    if (!begin_ns)
        begin_ns = read_clock(CLOCK_MONOTONIC) - (int64_t)r.rows[r.head->records - 1].end;
    if (begin_ns < now_ns() + MILLISECOND_NS)
        fail("the recording is longer than a minute; replay it at its speed");
    behind_ns = 0;
    for (size_t i = 0; i < r.head->records; i++)
        end_row(i, on_device(begin_ns));
}

/* Time stands still at the next event until it has happened. */
static void await_time(int64_t time_ns)
{
    limit_ns = time_ns;
    for (int64_t left; (left = time_ns - read_clock(CLOCK_MONOTONIC)) > 0;)
        nap(left);
}

static void play_in_time(void)
{
    size_t launches = 0, ends = 0, count = r.head->records;
    int64_t begin_ns = now_ns() + 2 * AHEAD_NS;
    while (ends < count) {
        const struct row *next = launches < count ? &r.rows[r.by_start[launches]] : NULL;
        int64_t launch_ns = next ? begin_ns + (int64_t)next->start - AHEAD_NS : INT64_MAX;
        int64_t end_ns = begin_ns + (int64_t)r.rows[ends].end;
        await_time(launch_ns <= end_ns ? launch_ns : end_ns);
        if (launch_ns > end_ns)
            end_row(ends++, on_device(begin_ns));
        else if (next->kind == SYNC)
            launches++;
        else
            launch_row(r.by_start[launches++]);
    }
    limit_ns = INT64_MAX;
}

static void await_collector(void)
{
    int64_t until = read_clock(CLOCK_MONOTONIC) + PATIENCE_NS;
    for (; !is_enabled(KERNEL) || !is_enabled(r.head->last_kind); nap(MILLISECOND_NS))
        if (read_clock(CLOCK_MONOTONIC) > until)
            fail("the collector has not enabled what it collects");
}

static void await_walk(void)
{
    int64_t until = read_clock(CLOCK_MONOTONIC) + PATIENCE_NS;
    for (; walked() < r.kept; nap(MILLISECOND_NS))
        if (read_clock(CLOCK_MONOTONIC) > until)
            fail("the collector has not taken the records");
}

int main(int argc, char **argv)
{
    char byte;
    if (argc < 3)
        return 2;
    int is_full = !strcmp(argv[2], "full");
    int64_t begin_ns = argc > 3 ? strtoll(argv[3], NULL, 10) : 0;
    unix_ns = read_clock(CLOCK_REALTIME) - read_clock(CLOCK_MONOTONIC);
    behind_ns = is_full ? PAST_NS : 0;
    read_recording(argv[1]);
    load();
    initialize();
    await_collector();
    int64_t began = read_clock(CLOCK_MONOTONIC);
    if (is_full)
        play_at_once(begin_ns);
    else
        play_in_time();
    int64_t took = read_clock(CLOCK_MONOTONIC) - began;
    await_walk();
    printf("%lu %lu %.6f\n", r.kept, dropped(), (double)took / 1e9);
    fflush(stdout);
    while (read(STDIN_FILENO, &byte, 1) > 0)
        ;
    return 0;
}
