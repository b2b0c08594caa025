/* Writes down who calls CUPTI for what, and what it answers: preloaded before a program, and named to the collector as its
 * libcupti. CUPTI_CALLS is the file; CUPTI_REAL the library that answers, else the one that the process has loaded. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define API __attribute__((visibility("default")))

static void *find_real(void)
{
    static const char *const NAMES[] = {"libcupti.so.13", "libcupti.so.12", "libcupti.so"};
    const char *given = getenv("CUPTI_REAL");
    void *found = given ? dlopen(given, RTLD_NOW) : NULL;
    for (unsigned i = 0; !found && i < sizeof NAMES / sizeof *NAMES; i++)
        found = dlopen(NAMES[i], RTLD_NOW | RTLD_NOLOAD);
    return found;
}

static void *real(const char *name)
{
    static void *library;
    if (!library)
        library = find_real();
    void *found = library ? dlsym(library, name) : NULL;
    if (!found) {
        fprintf(stderr, "calls: no %s in any libcupti\n", name);
        abort();
    }
    return found;
}

static const char *caller(void *address)
{
    Dl_info info;
    const char *path = dladdr(address, &info) ? info.dli_fname : NULL, *slash = path ? strrchr(path, '/') : NULL;
    return slash ? slash + 1 : path ? path : "?";
}

static void write_down(void *address, int result, const char *format, ...)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static FILE *file;
    struct timespec now;
    va_list values;
    pthread_mutex_lock(&lock);
    if (!file && getenv("CUPTI_CALLS"))
        file = fopen(getenv("CUPTI_CALLS"), "a");
    if (file) {
        clock_gettime(CLOCK_MONOTONIC, &now);
        fprintf(file, "%ld.%06ld %d %s: ", (long)now.tv_sec, now.tv_nsec / 1000, (int)getpid(), caller(address));
        va_start(values, format);
        vfprintf(file, format, values);
        va_end(values);
        fprintf(file, " = %d\n", result);
        fflush(file);
    }
    pthread_mutex_unlock(&lock);
}

/* Forwards a call; `…` is what is written of it. */
#define CALL(name, types, values, ...)                                                                   \
    API int cupti##name types                                                                            \
    {                                                                                                    \
        static int (*call) types;                                                                        \
        if (!call)                                                                                       \
            *(void **)&call = real("cupti" #name);                                                       \
        int result = call values;                                                                        \
        __VA_ARGS__;                                                                                     \
        return result;                                                                                   \
    }
#define SAY(...) write_down(__builtin_return_address(0), result, __VA_ARGS__)

CALL(Subscribe, (void **subscriber, void *callback, void *user), (subscriber, callback, user), SAY("Subscribe"))
CALL(Unsubscribe, (void *subscriber), (subscriber), SAY("Unsubscribe"))
CALL(Finalize, (void), (), SAY("Finalize"))
CALL(ActivityRegisterCallbacks, (void *request, void *complete), (request, complete), SAY("RegisterCallbacks"))
CALL(ActivityRegisterTimestampCallback, (void *clock), (clock), SAY("RegisterTimestampCallback"))
CALL(ActivityEnable, (int kind), (kind), SAY("Enable(%d)", kind))
CALL(ActivityDisable, (int kind), (kind), SAY("Disable(%d)", kind))
CALL(ActivityFlushAll, (uint32_t flag), (flag), SAY("FlushAll(%u)", flag))
CALL(ActivitySetAttribute, (int attribute, size_t *nbytes, void *value), (attribute, nbytes, value),
     SAY("SetAttribute(%d)", attribute))
CALL(ActivityGetNextRecord, (uint8_t *buffer, size_t nbytes, void **record), (buffer, nbytes, record))
CALL(ActivityGetNumDroppedRecords, (void *context, uint32_t stream, size_t *count), (context, stream, count),
     if (*count) SAY("GetNumDroppedRecords: %zu", *count))
CALL(GetTimestamp, (uint64_t *now), (now))
CALL(GetVersion, (uint32_t *version), (version), SAY("GetVersion: %u", *version))
CALL(GetResultString, (int code, const char **text), (code, text))
