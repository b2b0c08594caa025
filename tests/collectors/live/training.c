/* Programs as they train on a GPU, for tests: each launches on the device of mock_cupti.c what a real one of its kind does.
 *
 *   training PROGRAM ITERATIONS
 *
 * Its last line is that of job.c. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "device.h"

enum { KERNEL = 10, MEMCPY = 1, MEMSET = 2, SYNC = 38, GRAPH = 51, HTOD = 1, STREAM_SYNC = 3, ON_HOST = 0x7fffffff };
enum { KERNELS = 24, NODES = 40 };

static _Thread_local uint32_t correlation;

static struct mock_record record(uint32_t kind, uint32_t device, uint32_t stream, uint64_t nbytes)
{
    struct mock_record r = {.kind = kind, .device = device, .context = device + 1, .stream = stream, .nbytes = nbytes,
                            .correlation = ++correlation, .start = now()};
    r.end = r.start + 200;
    r.type = kind == SYNC ? STREAM_SYNC : kind == MEMCPY ? HTOD : 0;
    return r;
}

static void run_kernel(int name, uint32_t device, uint32_t stream, uint32_t graph)
{
    struct mock_record r = record(KERNEL, device, stream, 0);
    r.name = names[name % NAMES];
    r.graph = graph;
    r.graph_node = graph ? (uint64_t)name + 1 : 0;
    launch(&r);
}

static void run_other(uint32_t kind, uint32_t device, uint32_t stream, uint64_t nbytes)
{
    struct mock_record r = record(kind, device, stream, nbytes);
    launch(&r);
}

/* Host to device, forward and backward, an optimizer, and a loss that is read. */
static void iterate(uint32_t device)
{
    run_other(MEMCPY, device, 7, 4096);
    run_other(MEMSET, device, 7, 64);
    for (int i = 0; i < KERNELS; i++)
        run_kernel(i, device, 7, 0);
    run_other(SYNC, device, 7, 0);
}

static void iterate_for_a_while(uint32_t device)
{
    iterate(device);
    nap(500);
}

static void replay(uint32_t graph)
{
    if (getenv("DEEPPROF_GRAPHS")) {
        struct mock_record r = record(GRAPH, ON_HOST, 7, 0);
        r.graph = graph, r.end_device = 1;
        launch(&r);
    } else
        for (int i = 0; i < NODES; i++)
            run_kernel(i, 1, 7, graph);
    nap(500);
}

/* ---- programs ---- */

static void run_eager(long count)
{
    for (long i = 0; i < count; i++)
        iterate_for_a_while(1);
}

/* A second graph is captured once JOB_WINDOW is there, while the agent may have switched collecting off; it is replayed when
 * the file, which is gone then, is there again. */
static void run_graphs(long count)
{
    capture(1);
    for (long i = 0; i < count; i++)
        replay(1);
    const char *window = getenv("JOB_WINDOW");
    while (window && access(window, F_OK))
        replay(1);
    capture(2);
    if (window)
        unlink(window);
    while (window && access(window, F_OK))
        replay(1);
    for (long i = 0; i < count; i++)
        replay(2);
}

static long rounds;

static void *run_device(void *device)
{
    for (long i = 0; i < rounds; i++)
        iterate_for_a_while((uint32_t)(uintptr_t)device);
    return NULL;
}

static void run_devices(long count)
{
    pthread_t threads[2];
    rounds = count;
    for (uintptr_t i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, run_device, (void *)i);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
}

/* Processes that were forked before and in the middle of training, and end when they are told to. */
static void run_workers(long count)
{
    int pipes[2];
    if (pipe(pipes))
        exit(8);
    for (long i = 0; i < count; i++) {
        if (i % (count / 4 + 1) == 0 && !fork()) {
            char byte;
            close(pipes[1]);
            _exit(read(pipes[0], &byte, 1) != 0);
        }
        iterate_for_a_while(1);
    }
    close(pipes[1]);
    while (wait(NULL) > 0)
        ;
}

/* torch.profiler three times in the middle; what the hook says of it, it says. */
static void run_profiled(long count)
{
    for (int session = 0; session < 3; session++) {
        run_eager(count);
        pause_all();
        torch_profiler(1);
        run_eager(count);
        if (!other_is_whole())
            exit(10);
        torch_profiler(0);
        resume_all();
        await(KERNEL, 1);
    }
    run_eager(count);
}

static void await_refusals(unsigned long enough)
{
    for (int i = 0; i < PATIENCE_MS && refused_count() < enough; i++)
        nap(1000);
}

/* Beside another client that came after `began`, which must be left alone; and on alone once it has gone, where it is seen
 * not before the collector has: it has asked twice. */
static void run_beside(void (*client)(int), long count, uint64_t began, int is_seen)
{
    const char *patience_ms = getenv("JOB_LEFT_ALONE_MS"); /* where nothing tells that it is still there; else forever */
    uint64_t until = began + 1000000 * (patience_ms ? strtoull(patience_ms, NULL, 10) : 1u << 30);
    unsigned long enough = refused_count() + 2;
    for (int i = 0; i < 100 || (is_seen && refused_count() < enough && i < PATIENCE_MS); i++) {
        iterate_for_a_while(1);
        if (!other_is_whole() && now() < until)
            exit(10);
    }
    client(0);
    await(KERNEL, 1);
    run_eager(count);
}

/* It comes without a word, and stays until we have noticed. */
static void be_displaced(void (*client)(int), long count)
{
    run_eager(count);
    uint64_t began = now();
    client(1);
    run_beside(client, count, began, client == proton);
}

/* And once more: its clock is there already, and only a second's silence tells of it. */
static void be_displaced_again(void (*client)(int), long count)
{
    be_displaced(client, count);
    unsigned long enough = walked() + (unsigned long)count * KERNELS;
    uint64_t began = now();
    run_eager(count);
    for (int i = 0; i < PATIENCE_MS && walked() < enough; i++) /* what there was has come */
        nap(1000);
    client(1);
    run_eager(count);
    if (!other_is_whole() && now() < began + 1000000000)
        exit(10);
    client(0);
    await(KERNEL, 1);
    run_eager(count);
}

/* Where another has subscribed, torch.profiler has nothing of the device, and that one is left alone as before. */
static void run_refused_torch(long count)
{
    await_refusals(1); /* the collector has asked */
    pause_all();
    torch_profiler(1);
    torch_profiler(0);
    unsigned long before = refused_count();
    resume_all();
    await_refusals(before + 1);
    run_beside(proton, count, now(), 1);
}

static void join_it(void (*client)(int), long count)
{
    pause_all();
    client(1);
    resume_all();
    await(KERNEL, 1);
    run_eager(count);
    if (!other_is_whole() || other_count() < (unsigned long)count * KERNELS)
        exit(10);
}

static void run_checkpoints(long count)
{
    for (int checkpoint = 0; checkpoint < 3; checkpoint++) {
        run_eager(count);
        nap(600000);
    }
}

/* A collective that waits for another rank, while the buffer that it stands in fills with others: until JOB_WINDOW is there. */
static void run_waiting(long count)
{
    struct mock_record r = record(KERNEL, 1, 20, 0);
    r.name = "_Z9allReducev";
    r.start = r.end = 0;
    uint64_t began = now();
    void *waiting = begin_record(&r);
    run_eager(count);
    while (getenv("JOB_WINDOW") && access(getenv("JOB_WINDOW"), F_OK))
        iterate_for_a_while(1);
    r.start = began, r.end = now();
    end_record(waiting, r.start, r.end);
    r.name = names[0];
    tell(&r);
}

/* One thread launches without a rest, another now and then: it ends when the file JOB_WINDOW is there. */
static volatile int over;

static void *run_busy(void *unused)
{
    while (!over) {
        for (int i = 0; i < 50; i++)
            run_kernel(i, 1, 7, 0);
        nap(200);
    }
    return unused;
}

static void run_slow_beside_busy(long count)
{
    pthread_t busy;
    pthread_create(&busy, NULL, run_busy, NULL);
    for (long i = 0; i < count; i++)
        run_kernel(0, 1, 99, 0);
    for (int i = 0; i < PATIENCE_MS && access(getenv("JOB_WINDOW"), F_OK); i++)
        nap(1000);
    over = 1;
    pthread_join(busy, NULL);
}

static void run_signalled(long count)
{
    run_eager(count);
    raise(SIGTERM);
}

static int run(const char *program, long count)
{
    if (!strcmp(program, "eager")) run_eager(count);
    else if (!strcmp(program, "graphs")) run_graphs(count);
    else if (!strcmp(program, "devices")) run_devices(count);
    else if (!strcmp(program, "workers")) run_workers(count);
    else if (!strcmp(program, "profiled")) run_profiled(count);
    else if (!strcmp(program, "unannounced")) be_displaced(torch_profiler, count);
    else if (!strcmp(program, "unannounced-again")) be_displaced_again(torch_profiler, count);
    else if (!strcmp(program, "proton-before-torch")) run_refused_torch(count);
    else if (!strcmp(program, "proton-later")) be_displaced(proton, count);
    else if (!strcmp(program, "proton-first")) run_beside(proton, count, now(), 1);
    else if (!strcmp(program, "torch-first")) run_beside(torch_profiler, count, now(), 1);
    else if (!strcmp(program, "monitor-first")) join_it(monitor, count);
    else if (!strcmp(program, "checkpoints")) run_checkpoints(count);
    else if (!strcmp(program, "waiting")) run_waiting(count);
    else if (!strcmp(program, "slow-beside-busy")) run_slow_beside_busy(count);
    else if (!strcmp(program, "signalled")) run_signalled(count);
    else return -1;
    return 0;
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    if (!strcmp(argv[1], "proton-first") || !strcmp(argv[1], "proton-before-torch"))
        start_after(&proton);
    else if (!strcmp(argv[1], "torch-first"))
        start_after(&torch_profiler);
    else
        start();
    if (run(argv[1], atol(argv[2])))
        return 4;
    finish();
    return 0;
}
