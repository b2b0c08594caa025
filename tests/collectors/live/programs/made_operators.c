/* Operators without PyTorch: a library that plays ITT's static part, for an interpreter to call through ctypes.
 *
 * Called by ctypes.CDLL a function runs without the interpreter's lock, as PyTorch's operators do; by PyDLL with it. */
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))

struct api {
    const char *name;
    void **function;
    void *init_function, *null_function;
    int group;
};
struct global {
    unsigned char magic[8];
    unsigned long version[3];
    volatile long state[3];
    pthread_mutex_t mutex;
    void *library, *error_handler, *path;
    struct api *apis;
    void *next, *threads, *domains;
};
struct id { unsigned long long words[3]; };

static void *(*create_domain)(const char *);
static void *(*create_handle)(const char *);
static void (*begin)(const void *, struct id, struct id, void *);
static void (*end)(const void *);
static struct api apis[] = {
    {"__itt_domain_create", (void **)&create_domain, NULL, NULL, 0},
    {"__itt_string_handle_create", (void **)&create_handle, NULL, NULL, 0},
    {"__itt_task_begin", (void **)&begin, NULL, NULL, 0},
    {"__itt_task_end", (void **)&end, NULL, NULL, 0},
    {NULL, NULL, NULL, NULL, 0},
};
static struct global global = {.magic = {0xED, 0xAB, 0xAB, 0xEC, 0x0D, 0xEE, 0xDA, 0x30}, .apis = apis};
static void *domain;

EXPORT int made_start(const char *path)
{
    void *library = dlopen(path, RTLD_NOW);
    void (*start)(struct global *, int) = library ? (void (*)(struct global *, int))dlsym(library, "__itt_api_init") : NULL;
    if (!start)
        return -1;
    start(&global, 0);
    domain = create_domain ? create_domain("PyTorch") : NULL;
    return domain ? 0 : -1;
}

EXPORT void made_begin(const char *name)
{
    static const struct id NONE = {{0}};
    begin(domain, NONE, NONE, create_handle(name));
}

EXPORT void made_end(void) { end(domain); }

/* An operator with one in it. */
EXPORT void made_run(const char *name, const char *inner)
{
    made_begin(name);
    made_begin(inner);
    made_end();
    made_end();
}

/* One that runs what the interpreter gives it, as a function of autograd does. */
EXPORT void made_call(const char *name, void (*function)(void))
{
    made_begin(name);
    function();
    made_end();
}

static pthread_mutex_t contended = PTHREAD_MUTEX_INITIALIZER;
static atomic_int is_locked, is_wanted;

/* An operator under a lock for which somebody waits. */
EXPORT void made_run_locked(const char *name, const char *inner)
{
    pthread_mutex_lock(&contended);
    atomic_store(&is_locked, 1);
    while (!atomic_load(&is_wanted))
        sched_yield();
    made_run(name, inner);
    atomic_store(&is_wanted, 0);
    atomic_store(&is_locked, 0);
    pthread_mutex_unlock(&contended);
}

EXPORT void made_wait_locked(void)
{
    while (!atomic_load(&is_locked))
        sched_yield();
}

EXPORT void made_contend(void)
{
    atomic_store(&is_wanted, 1);
    pthread_mutex_lock(&contended);
    pthread_mutex_unlock(&contended);
}
