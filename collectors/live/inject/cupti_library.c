/* Finds libcupti: the one that this process has, since a second one would see nothing, or else one that fits. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cupti_parts.h"

enum { ANCHORS = 4, NEWEST_MAJOR = 15, OLDEST_MAJOR = 11 };

/* The environment, as it was when the driver loaded us: getenv beside a setenv of the job is a race. */
static char given[PATH_MAX], homes[2][PATH_MAX];

static void keep(char *text, const char *variable)
{
    const char *value = getenv(variable);
    snprintf(text, PATH_MAX, "%s", value && strlen(value) < PATH_MAX ? value : "");
}

void cupti_library_prepare(void)
{
    keep(given, "DEEPPROF_CUPTI");
    keep(homes[0], "CUDA_HOME");
    keep(homes[1], "CUDA_PATH");
}

/* What the list of loaded objects shows. It is looked at under the loader's lock, so that nothing is opened there. */
struct seen {
    char cupti[PATH_MAX];
    char anchors[ANCHORS][PATH_MAX]; /* directories of libraries that CUPTI lies beside */
    int anchor_count, other_profiler;
};

static int starts(const char *text, const char *start) { return !strncmp(text, start, strlen(start)); }

static void add_anchor(struct seen *seen, const char *path)
{
    char *directory = seen->anchors[seen->anchor_count];
    if (seen->anchor_count == ANCHORS)
        return;
    snprintf(directory, PATH_MAX, "%s", path);
    directory[strrchr(path, '/') - path] = 0;
    seen->anchor_count++;
}

static int look_at(struct dl_phdr_info *object, size_t size, void *argument)
{
    struct seen *seen = argument;
    const char *path = object->dlpi_name, *slash = path ? strrchr(path, '/') : NULL, *file = slash ? slash + 1 : path;
    (void)size;
    if (!slash || strlen(path) >= PATH_MAX)
        return 0;
    if (starts(file, "libcupti.so") || starts(file, "libcupti-")) /* the second: renamed by a wheel */
        strcpy(seen->cupti, path);
    else if (starts(file, "libToolsInjection") || starts(file, "libcuda-injection") || starts(file, "libnsys"))
        seen->other_profiler = 1;
    else if (starts(file, "libcudart") || starts(file, "libtorch_cuda") || starts(file, "libc10_cuda"))
        add_anchor(seen, path);
    return 0;
}

static struct seen *look(void)
{
    struct seen *seen = calloc(1, sizeof *seen);
    if (seen)
        dl_iterate_phdr(look_at, seen);
    return seen;
}

int cupti_sees_other_profiler(void)
{
    struct seen *seen = look();
    int is = seen && seen->other_profiler;
    free(seen);
    return is;
}

/* Takes every function of `library`, which is kept open for good. */
static int take(void *library, struct cupti *api)
{
#define TAKE(name) *(void **)&api->name = dlsym(library, "cupti" #name)
    if (!library)
        return -1;
    TAKE(ActivityRegisterCallbacks), TAKE(ActivityEnable), TAKE(ActivityDisable), TAKE(ActivityFlushAll);
    TAKE(ActivityGetNextRecord), TAKE(ActivityGetNumDroppedRecords), TAKE(ActivitySetAttribute), TAKE(GetTimestamp);
    TAKE(GetVersion), TAKE(Subscribe), TAKE(Unsubscribe), TAKE(GetResultString), TAKE(ActivityGetEnabledKinds);
    TAKE(Subscribe_v2), TAKE(ActivityRegisterCallbacks_v2), TAKE(ActivityEnable_v2), TAKE(ActivityDisable_v2);
    TAKE(ActivityGetNextRecord_v2), TAKE(ActivityGetNumDroppedRecords_v2), TAKE(GetTimestamp_v2);
#undef TAKE
    int whole = api->ActivityRegisterCallbacks && api->ActivityEnable && api->ActivityDisable && api->ActivityFlushAll
        && api->ActivityGetNextRecord && api->ActivityGetNumDroppedRecords && api->ActivitySetAttribute
        && api->GetTimestamp && api->GetVersion && api->Subscribe && api->Unsubscribe;
    return whole ? 0 : -1;
}

static int try_path(struct cupti *api, const char *path, int flags)
{
    return take(dlopen(path, RTLD_NOW | RTLD_LOCAL | flags), api);
}

/* A libcupti is of no use with an older driver. Returns the driver's major version, or the newest we know. */
static int driver_major(void)
{
    int version = 0;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    int (*get)(int *) = NULL;
    if (driver)
        *(void **)&get = dlsym(driver, "cuDriverGetVersion");
    if (!get || get(&version) || version < 1000 * OLDEST_MAJOR)
        return NEWEST_MAJOR;
    return version / 1000;
}

static int try_directory(struct cupti *api, const char *directory, const char *below, const char *file)
{
    char path[2 * PATH_MAX];
    snprintf(path, sizeof path, "%s%s%s", directory, below, file);
    return try_path(api, path, 0);
}

/* Where wheels put it: beside the runtime, in the runtime's neighbour, or in a neighbour of torch. */
static int try_anchors(struct cupti *api, const struct seen *seen, int major, const char *file)
{
    char unified[64];
    snprintf(unified, sizeof unified, "/../../nvidia/cu%d/lib/", major);
    for (int i = 0; i < seen->anchor_count; i++) {
        const char *directory = seen->anchors[i];
        if (!try_directory(api, directory, "/", file) || !try_directory(api, directory, "/../../cuda_cupti/lib/", file)
            || !try_directory(api, directory, "/../../nvidia/cuda_cupti/lib/", file)
            || !try_directory(api, directory, unified, file))
            return 0;
    }
    return -1;
}

static int try_toolkit(struct cupti *api, const char *file)
{
    for (int i = 0; i < 2; i++)
        if (*homes[i] && !try_directory(api, homes[i], "/extras/CUPTI/lib64/", file))
            return 0;
    return try_directory(api, "/usr/local/cuda", "/extras/CUPTI/lib64/", file);
}

static int find_fresh(struct cupti *api, const struct seen *seen)
{
    char file[32];
    for (int major = driver_major(); major >= OLDEST_MAJOR; major--) {
        snprintf(file, sizeof file, major > 11 ? "libcupti.so.%d" : "libcupti.so.%d.8", major);
        if (!try_anchors(api, seen, major, file) || !try_path(api, file, 0) || !try_toolkit(api, file))
            return 0;
    }
    return try_path(api, "libcupti.so", 0) && try_toolkit(api, "libcupti.so") ? -1 : 0;
}

int cupti_find(struct cupti *api)
{
    if (*given)
        return try_path(api, given, 0);
    struct seen *seen = look();
    if (!seen)
        return -1;
    int failed = *seen->cupti ? try_path(api, seen->cupti, RTLD_NOLOAD) : -1;
    if (failed)
        failed = find_fresh(api, seen);
    free(seen);
    return failed;
}
