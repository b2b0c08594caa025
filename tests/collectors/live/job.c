/* A job for tests: loads the collector as a driver does, and launches on the device of mock_cupti.c.
 *
 *   job SCENARIO COUNT [THREADS, or for a burst records a second]
 *                                     JOB_LIBRARY, DEEPPROF_CUPTI: the two libraries; JOB_TRUTH: where to write what
 *                                     was launched, as struct truth; JOB_ALONE: do not wait for an agent
 * It prints one line: the records that the device kept, those it dropped, and the seconds that launching took. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "mock_cupti.h"

struct truth {
    int64_t start, end;
    uint64_t nbytes, graph_node;
    uint32_t kind, device, context, stream, correlation, graph, type, name;
};

enum { NAMES = 50 };
static char names[NAMES][64];
static int (*is_enabled)(int), (*emit)(const struct mock_record *), (*stray)(void);
static void (*refuse)(int), (*delay)(int), (*restart)(void);
static unsigned long (*dropped)(void), (*walked)(void);
static int (*initialize)(void);
static void (*pause_all)(void), (*resume_all)(void), (*push)(const char *), (*pop)(void);
static FILE *truth;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t base;
static long kept, most;

static uint64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return MOCK_CLOCK_NS + (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static void nap(long microseconds)
{
    struct timespec time = {microseconds / 1000000, microseconds % 1000000 * 1000};
    nanosleep(&time, NULL);
}

static void *function(void *library, const char *name)
{
    void *found = library ? dlsym(library, name) : NULL;
    if (!found) {
        fprintf(stderr, "job: %s: %s\n", name, dlerror());
        exit(3);
    }
    return found;
}

static void load(void)
{
    const char *other = getenv("JOB_CUPTI"); /* where the collector is not to find it */
    void *mock = dlopen(other ? other : getenv("DEEPPROF_CUPTI"), RTLD_NOW), *library = dlopen(getenv("JOB_LIBRARY"), RTLD_NOW);
    *(void **)&is_enabled = function(mock, "mock_is_enabled");
    *(void **)&emit = function(mock, "mock_emit");
    *(void **)&refuse = function(mock, "mock_refuse");
    *(void **)&delay = function(mock, "mock_delay");
    *(void **)&stray = function(mock, "mock_stray");
    *(void **)&dropped = function(mock, "mock_dropped");
    *(void **)&walked = function(mock, "mock_walked");
    *(void **)&pause_all = function(library, "deepprof_pause");
    *(void **)&resume_all = function(library, "deepprof_resume");
    *(void **)&push = function(library, "deepprof_push");
    *(void **)&pop = function(library, "deepprof_pop");
    *(void **)&restart = function(mock, "mock_restart");
    *(void **)&initialize = function(library, "InitializeInjection");
}

static void await(int kind, int wanted)
{
    for (int i = 0; i < 20000 && is_enabled(kind) != wanted && !getenv("JOB_ALONE"); i++)
        nap(1000);
}

static void write_truth(const struct mock_record *r)
{
    struct truth row = {(int64_t)r->start, (int64_t)r->end, r->nbytes, r->graph_node, r->kind, r->device, r->context,
                        r->stream, r->correlation, r->graph, r->type, 0};
    row.name = r->name ? (uint32_t)((r->name - names[0]) / (long)sizeof *names) : NAMES;
    fwrite(&row, sizeof row, 1, truth);
}

static void launch(const struct mock_record *record)
{
    int is = emit(record);
    if (!truth && !is)
        return;
    pthread_mutex_lock(&lock);
    kept += is;
    if (truth && is)
        write_truth(record);
    pthread_mutex_unlock(&lock);
}

static struct mock_record kernel(long i, uint32_t stream)
{
    return (struct mock_record){.kind = 10, .start = base + 10 * (uint64_t)i, .end = base + 10 * (uint64_t)i + 7,
                                .name = names[i * 7 % NAMES], .device = 1, .context = 2, .stream = stream,
                                .correlation = (uint32_t)i + 1};
}

/* ---- scenarios ---- */

/* Every kind of record in turn. */
static void run_mixed(long count)
{
    static const uint32_t KINDS[] = {10, 1, 2, 38, 22, 51, 10, 3};
    for (long i = 0; i < count; i++) {
        struct mock_record r = kernel(i, 7 + (uint32_t)(i % 3));
        r.kind = KINDS[i % 8] == 3 ? 10 : KINDS[i % 8]; /* the serial kind is asked for by nobody */
        r.nbytes = r.kind == 10 ? 0 : (uint64_t)i * 3;
        r.type = r.kind == 38 ? (uint32_t)(i % 5) : (uint32_t)(i % 11);
        r.source = (uint8_t)(i % 8), r.target = (uint8_t)(i % 5);
        r.graph = i % 8 == 6 || r.kind == 51 ? (uint32_t)i % 3 + 1 : 0;
        r.graph_node = i % 8 == 6 ? (uint64_t)i + 1000 : 0;
        if (r.kind != 10)
            r.name = NULL;
        launch(&r);
    }
}

static void run_kernels(long count, uint32_t stream)
{
    for (long i = 0; i < count; i++) {
        struct mock_record r = kernel(i, stream);
        launch(&r);
    }
}

static void *run_thread(void *stream)
{
    run_kernels(most, (uint32_t)(uintptr_t)stream);
    return NULL;
}

static void run_threads(long count, long threads)
{
    pthread_t ids[64];
    most = count;
    for (long i = 0; i < threads; i++)
        pthread_create(&ids[i], NULL, run_thread, (void *)(uintptr_t)(i + 20));
    for (long i = 0; i < threads; i++)
        pthread_join(ids[i], NULL);
}

/* As fast as they can be written, with nothing beside; or `rate` a second, a thousand at a time. */
static void run_burst(long count, long rate)
{
    for (long i = 0; i < count; i++) {
        struct mock_record r = kernel(i, 7);
        if (rate) {
            r.start = base + (uint64_t)((double)i * 1e9 / (double)rate);
            r.end = r.start + (uint64_t)(700000000 / rate);
        }
        kept += emit(&r);
        while (rate && i % 1000 == 999 && (double)(now() - base) < 1e9 / (double)rate * (double)i)
            nap(50);
    }
}

static void run_backward(long count)
{
    for (long i = count; i--;) {
        struct mock_record r = kernel(i ^ 5, 7);
        launch(&r);
    }
}

static void run_garbage(long count)
{
    static const uint64_t BAD[][2] = {{0, 0}, {5, 0}, {0, UINT64_MAX}, {20, 10}, {1u << 30, 1u << 31}};
    for (long i = 0; i < count; i++) {
        struct mock_record r = kernel(i, 7);
        if (i % 10 == 3)
            r.start = BAD[i / 10 % 5][0], r.end = BAD[i / 10 % 5][1];
        launch(&r);
    }
}

/* The middle third finds no buffer. */
static void run_dropped(long count)
{
    for (long i = 0; i < count; i++) {
        struct mock_record r = kernel(i, 7);
        refuse(i >= count / 3 && i < 2 * count / 3);
        launch(&r);
    }
}

/* Kernels that have not ended when the window does: all after the first half. */
static void run_unfinished(long count)
{
    for (long i = 0; i < count; i++) {
        struct mock_record r = kernel(i, 7);
        r.start = i < count / 2 ? r.start : 0;
        r.end = i < count / 2 ? r.end : 0;
        launch(&r);
    }
}

/* A name for every kernel, and then others at the same addresses. */
static void run_names(long count)
{
    char(*texts)[32] = calloc((size_t)count, sizeof *texts);
    for (int round = 0; round < 2; round++) {
        for (long i = 0; i < count; i++) {
            struct mock_record r = kernel(i, 7 + (uint32_t)round);
            snprintf(texts[i], sizeof *texts, "%c%ld", 'a' + round, i);
            r.name = texts[i];
            kept += emit(&r);
        }
        while (walked() < (unsigned long)kept)
            nap(1000);
    }
}

/* When dp_pause returns, nothing is enabled any more. */
static void run_paused(long count)
{
    for (int round = 0; round < 3; round++) {
        run_kernels(count, 7 + (uint32_t)round);
        pause_all();
        pause_all();
        if (is_enabled(10))
            exit(5);
        run_kernels(count, 40); /* of which nothing is seen */
        resume_all();
        if (is_enabled(10))
            exit(6);
        resume_all();
        await(10, 1);
    }
}

/* Buffers that are another client's come between ours. */
static void run_stray(long count)
{
    for (int round = 0; round < 3; round++) {
        run_kernels(count, 7 + (uint32_t)round);
        if (!stray())
            exit(7);
    }
}

/* The first third of a buffer can be read. */
static void run_broken(long count)
{
    for (long i = 0; i < count; i++) {
        struct mock_record r = kernel(i, 7);
        r.kind = i == count / 3 ? MOCK_BROKEN : r.kind;
        launch(&r);
    }
}

/* A hundred kernels a millisecond, until a signal ends it or all are done. */
static volatile sig_atomic_t is_over;
static void end_steady(int signal) { (void)signal, is_over = 1; }

static void run_steady(long count)
{
    signal(SIGTERM, end_steady);
    for (long i = 0; i < count && !is_over; i++) {
        struct mock_record r = kernel(i, 7);
        r.start = now() - 1000, r.end = now();
        launch(&r);
        if (i % 100 == 99)
            nap(1000);
    }
}

/* Few kernels, and after them ranges all the time. */
static void run_beside(long count)
{
    signal(SIGTERM, end_steady);
    run_kernels(count, 7);
    while (!is_over) {
        push("range");
        nap(1000);
        pop();
    }
}

/* One child that starts a driver of its own, one that does nothing, one that becomes another program. */
static void run_fork(long count, char **arguments)
{
    for (int child = 0; child < 3; child++) {
        run_kernels(count, 7);
        if (!fork()) {
            if (child == 1)
                _exit(0);
            if (child == 2) {
                arguments[1] = "threads";
                execv("/proc/self/exe", arguments);
            }
            restart();
            initialize();
            await(10, 1);
            base = now();
            run_kernels(count, 40);
            exit(0);
        }
    }
    while (wait(NULL) > 0)
        ;
    run_kernels(count, 8);
}

static void run(const char *scenario, long count, long threads, char **arguments)
{
    if (!strcmp(scenario, "mixed")) run_mixed(count);
    else if (!strcmp(scenario, "threads")) run_threads(count, threads ? threads : 1);
    else if (!strcmp(scenario, "burst")) run_burst(count, threads);
    else if (!strcmp(scenario, "late")) delay(1), run_kernels(count, 7);
    else if (!strcmp(scenario, "backward")) run_backward(count);
    else if (!strcmp(scenario, "garbage")) run_garbage(count);
    else if (!strcmp(scenario, "dropped")) run_dropped(count);
    else if (!strcmp(scenario, "unfinished")) run_unfinished(count);
    else if (!strcmp(scenario, "names")) run_names(count);
    else if (!strcmp(scenario, "paused")) run_paused(count);
    else if (!strcmp(scenario, "beside")) run_beside(count);
    else if (!strcmp(scenario, "broken")) run_broken(count);
    else if (!strcmp(scenario, "stray")) run_stray(count);
    else if (!strcmp(scenario, "steady")) run_steady(count);
    else if (!strcmp(scenario, "killed")) run_kernels(count, 7), kill(getpid(), SIGKILL);
    else if (!strcmp(scenario, "fork")) run_fork(count, arguments);
    else exit(4);
}

int main(int argc, char **argv)
{
    const char *path = getenv("JOB_TRUTH");
    if (argc < 3)
        return 2;
    for (int i = 0; i < NAMES; i++)
        snprintf(names[i], sizeof names[i], "_Z6kernel%dPfS_", i);
    load();
    truth = path ? fopen(path, "ab") : NULL;
    if (truth)
        setvbuf(truth, NULL, _IONBF, 0);
    initialize();
    await(10, 1);
    base = now();
    run(argv[1], atol(argv[2]), argc > 3 ? atol(argv[3]) : 0, argv);
    printf("%ld %lu %.6f\n", kept, dropped(), (double)(now() - base) / 1e9);
    return 0;
}
