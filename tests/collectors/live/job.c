/* A job for tests: loads the collector as a driver does, and launches on the device of mock_cupti.c.
 *
 *   job SCENARIO COUNT [THREADS, or for a burst records a second]
 *
 * It prints one line: the records that the device kept, those it dropped, and the seconds that launching took. What its
 * environment says: device.c. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "device.h"

static long most;

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

/* As fast as they can be written, with nothing beside; or `rate` a second, a thousand at a time, and later where that is
 * too fast: no kernel runs before it is launched. */
static void run_burst(long count, long rate)
{
    uint64_t late_ns = 0;
    for (long i = 0; i < count; i++) {
        struct mock_record r = kernel(i, 7);
        if (rate) {
            r.start = base + late_ns + (uint64_t)((double)i * 1e9 / (double)rate);
            uint64_t at = i % 1000 ? 0 : now();
            if (at > r.start) {
                late_ns += at - r.start;
                r.start = at;
            }
            r.end = r.start + (uint64_t)(700000000 / rate);
        }
        kept += emit(&r);
        while (rate && i % 1000 == 999 && now() < r.start)
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
        struct mock_record last = kernel(count - 1, 7 + (uint32_t)round);
        run_kernels(count - 1, 7 + (uint32_t)round);
        if (!stray(&last))
            exit(7);
        tell(&last);
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
    if (argc < 3)
        return 2;
    start();
    run(argv[1], atol(argv[2]), argc > 3 ? atol(argv[3]) : 0, argv);
    finish();
    return 0;
}
