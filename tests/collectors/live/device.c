/* See device.h. JOB_LIBRARY, DEEPPROF_CUPTI: the two libraries; JOB_ALONE: do not wait for an agent. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include "device.h"

char names[NAMES][64];
int (*is_enabled)(int), (*emit)(const struct mock_record *), (*stray)(const struct mock_record *), (*other_is_whole)(void);
void *(*begin_record)(const struct mock_record *);
void (*end_record)(void *, uint64_t, uint64_t), (*capture)(uint32_t);
void (*refuse)(int), (*delay)(int), (*restart)(void), (*torch_profiler)(int), (*proton)(int), (*monitor)(int);
unsigned long (*dropped)(void), (*walked)(void), (*other_count)(void), (*refused_count)(void);
int (*initialize)(void);
void (*pause_all)(void), (*resume_all)(void), (*push)(const char *), (*pop)(void);
uint64_t base;
long kept;
static FILE *truth;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

uint64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return MOCK_CLOCK_NS + (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

void nap(long microseconds)
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
#define TAKE(pointer, library, name) *(void **)&pointer = function(library, name)
    TAKE(is_enabled, mock, "mock_is_enabled"), TAKE(emit, mock, "mock_emit"), TAKE(begin_record, mock, "mock_launch");
    TAKE(end_record, mock, "mock_end"), TAKE(capture, mock, "mock_capture"), TAKE(refuse, mock, "mock_refuse");
    TAKE(delay, mock, "mock_delay"), TAKE(stray, mock, "mock_stray"), TAKE(dropped, mock, "mock_dropped");
    TAKE(walked, mock, "mock_walked"), TAKE(restart, mock, "mock_restart");
    TAKE(torch_profiler, mock, "mock_torch_profiler"), TAKE(proton, mock, "mock_proton"), TAKE(monitor, mock, "mock_monitor");
    TAKE(other_count, mock, "mock_other_count"), TAKE(refused_count, mock, "mock_refused_count"),
    TAKE(other_is_whole, mock, "mock_other_is_whole");
    TAKE(pause_all, library, "deepprof_pause"), TAKE(resume_all, library, "deepprof_resume");
    TAKE(push, library, "deepprof_push"), TAKE(pop, library, "deepprof_pop"), TAKE(initialize, library, "InitializeInjection");
#undef TAKE
}

void await(int kind, int wanted)
{
    for (int i = 0; i < PATIENCE_MS && is_enabled(kind) != wanted && !getenv("JOB_ALONE"); i++)
        nap(1000);
}

static void write_truth(const struct mock_record *r)
{
    struct truth row = {(int64_t)r->start, (int64_t)r->end, r->nbytes, r->graph_node, r->kind, r->device, r->context,
                        r->stream, r->correlation, r->graph, r->type, 0};
    row.name = r->name ? (uint32_t)((r->name - names[0]) / (long)sizeof *names) : NAMES;
    fwrite(&row, sizeof row, 1, truth);
}

void tell(const struct mock_record *record)
{
    pthread_mutex_lock(&lock);
    kept++;
    if (truth)
        write_truth(record);
    pthread_mutex_unlock(&lock);
}

int launch(const struct mock_record *record)
{
    int is = emit(record);
    if (is)
        tell(record);
    return is;
}

struct mock_record kernel(long i, uint32_t stream)
{
    return (struct mock_record){.kind = 10, .start = base + 10 * (uint64_t)i, .end = base + 10 * (uint64_t)i + 7,
                                .name = names[i * 7 % NAMES], .device = 1, .context = 2, .stream = stream,
                                .correlation = (uint32_t)i + 1};
}

static void prepare(void)
{
    const char *path = getenv("JOB_TRUTH");
    for (int i = 0; i < NAMES; i++)
        snprintf(names[i], sizeof names[i], "_Z6kernel%dPfS_", i);
    load();
    truth = path ? fopen(path, "ab") : NULL;
    if (truth)
        setvbuf(truth, NULL, _IONBF, 0);
}

void start(void)
{
    prepare();
    initialize();
    await(10, 1);
    base = now();
}

void start_after(void (**client)(int))
{
    prepare();
    (*client)(1);
    initialize();
    base = now();
}

void finish(void) { printf("%ld %lu %.6f\n", kept, dropped(), (double)(now() - base) / 1e9); }
