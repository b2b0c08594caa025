/* Finds libcupti: the one that this process has, since a second one would see nothing, or else one that fits.
 *
 * In this order: what is loaded; what lies beside the libraries of a framework that are loaded, of any version that the
 * driver can do; the system's, of the driver's own version first. A library that is newer than the driver refuses most
 * calls: it is taken where there is no other, and a notice says so. A library's name says of which version it is: CUPTI
 * itself must not be called before one is chosen. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cupti_parts.h"
#include "hooks.h"

enum { SEEN = 4, NEWEST_MINOR = 19 };

/* A library's name ends in one of these, the newest first; "" stands for libcupti.so, of which nothing is known. */
static const char *const VERSIONS[] = {"15", "14", "13", "12", "11.8", "11.7", "11.6", "11.5", "11.4", "11.3", "11.2",
                                       "11.1", "11.0", ""};
enum { ALL_VERSIONS = sizeof VERSIONS / sizeof *VERSIONS };

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
    char loaded[SEEN][PATH_MAX];  /* libraries of CUPTI */
    char anchors[SEEN][PATH_MAX]; /* directories of libraries that CUPTI lies beside */
    int loaded_count, anchor_count, runtime_major /* of the CUDA runtime, 0: none is loaded */, other_profiler;
};

static int starts(const char *text, const char *start) { return !strncmp(text, start, strlen(start)); }

/* Returns 12 for libcupti.so.12 and libcupti-0a1b.so.12.1, 0 for libcupti.so. */
static int major_in(const char *file)
{
    const char *version = strstr(file, ".so.");
    return version ? atoi(version + strlen(".so.")) : 0;
}

static void add(char (*list)[PATH_MAX], int *count, const char *path, size_t length)
{
    if (*count < SEEN)
        memcpy(list[(*count)++], path, length); /* the rest is zero */
}

static int look_at(struct dl_phdr_info *object, size_t size, void *argument)
{
    struct seen *seen = argument;
    const char *path = object->dlpi_name, *slash = path ? strrchr(path, '/') : NULL, *file = slash ? slash + 1 : path;
    (void)size;
    if (!slash || strlen(path) >= PATH_MAX)
        return 0;
    if (starts(file, "libcudart"))
        seen->runtime_major = major_in(file);
    if (starts(file, "libcupti.so") || starts(file, "libcupti-")) /* the second: renamed by a wheel */
        add(seen->loaded, &seen->loaded_count, path, strlen(path));
    else if (starts(file, "libToolsInjection") || starts(file, "libcuda-injection") || starts(file, "libnsys"))
        seen->other_profiler = 1;
    else if (starts(file, "libcudart") || starts(file, "libtorch_cuda") || starts(file, "libc10_cuda"))
        add(seen->anchors, &seen->anchor_count, path, (size_t)(slash - path));
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
    TAKE(EnableCallback);
    TAKE(Subscribe_v2), TAKE(ActivityRegisterCallbacks_v2), TAKE(ActivityEnable_v2), TAKE(ActivityDisable_v2);
    TAKE(ActivityGetNextRecord_v2), TAKE(ActivityGetNumDroppedRecords_v2), TAKE(GetTimestamp_v2);
#undef TAKE
    int whole = api->ActivityRegisterCallbacks && api->ActivityEnable && api->ActivityDisable && api->ActivityFlushAll
        && api->ActivityGetNextRecord && api->ActivityGetNumDroppedRecords && api->ActivitySetAttribute
        && api->GetTimestamp && api->GetVersion && api->Subscribe && api->Unsubscribe;
    return whole ? 0 : -1;
}

/* ---- the search ---- */

struct search {
    struct cupti *api;
    const struct seen *seen;
    int driver, newer; /* its major version; whether libraries that are newer are looked for, or the others */
    int found;         /* the major version of what was taken, 0: it does not say */
};

static int is_wanted(const struct search *search, int major)
{
    return !major || (major > search->driver) == search->newer;
}

/* Returns the major version in the name that a library gives itself, whatever its file is called; 0: it has none. */
static int major_of(void *library)
{
    struct link_map *map = NULL;
    uintptr_t names = 0, place = 0;
    if (dlinfo(library, RTLD_DI_LINKMAP, &map))
        return 0;
    for (const ElfW(Dyn) *entry = map->l_ld; entry->d_tag != DT_NULL; entry++) {
        names = entry->d_tag == DT_STRTAB ? entry->d_un.d_ptr : names;
        place = entry->d_tag == DT_SONAME ? entry->d_un.d_val : place;
    }
    names += names < map->l_addr ? map->l_addr : 0; /* some systems leave it as it is in the file */
    return names && place ? major_in((const char *)(names + place)) : 0;
}

static int try_path(struct search *search, const char *path, int flags)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL | flags);
    if (!library)
        return -1;
    search->found = major_of(library);
    if (is_wanted(search, search->found) && !take(library, search->api))
        return 0;
    dlclose(library);
    return -1;
}

static int try_directory(struct search *search, const char *directory, const char *below, const char *version)
{
    char path[2 * PATH_MAX];
    snprintf(path, sizeof path, "%s%slibcupti.so%s%s", directory, below, *version ? "." : "", version);
    return try_path(search, path, 0);
}

static int try_loaded(struct search *search)
{
    int failed = -1;
    for (int i = 0; failed && i < search->seen->loaded_count; i++)
        failed = try_path(search, search->seen->loaded[i], RTLD_NOLOAD);
    return failed;
}

/* Where wheels put it: beside the runtime, in the runtime's neighbour, or in a neighbour of torch. */
static int try_anchors(struct search *search, const char *version)
{
    char unified[64];
    snprintf(unified, sizeof unified, "/../../nvidia/cu%d/lib/", atoi(version));
    for (int i = 0; i < search->seen->anchor_count; i++) {
        const char *directory = search->seen->anchors[i];
        if (!try_directory(search, directory, "/", version)
            || !try_directory(search, directory, "/../../cuda_cupti/lib/", version)
            || !try_directory(search, directory, "/../../nvidia/cuda_cupti/lib/", version)
            || !try_directory(search, directory, unified, version))
            return 0;
    }
    return -1;
}

static const char EXTRAS[] = "/extras/CUPTI/lib64/", TOOLKIT[] = "/usr/local/cuda";

/* Toolkits that say which they are, the newest first. */
static int try_toolkits(struct search *search, const char *version)
{
    char directory[64];
    for (int minor = NEWEST_MINOR; *version && minor >= 0; minor--) {
        snprintf(directory, sizeof directory, "%s-%d.%d", TOOLKIT, atoi(version), minor);
        if (!try_directory(search, directory, EXTRAS, version))
            return 0;
    }
    return -1;
}

/* What the user has named, then the newest that says so, then what the loader knows. */
static int try_system(struct search *search, const char *version)
{
    for (int i = 0; i < 2; i++)
        if (*homes[i] && !try_directory(search, homes[i], EXTRAS, version))
            return 0;
    return try_toolkits(search, version) && try_directory(search, "", "", version)
        && try_directory(search, TOOLKIT, EXTRAS, version) ? -1 : 0;
}

/* Tries all versions, or those of one major version: the nearest to the driver first. */
static int try_versions(struct search *search, int major, int (*try)(struct search *, const char *version))
{
    for (int i = 0; i < ALL_VERSIONS; i++) {
        int is_turned = search->newer && i < ALL_VERSIONS - 1;
        const char *version = VERSIONS[is_turned ? ALL_VERSIONS - 2 - i : i];
        int own = atoi(version);
        if (is_wanted(search, own) && (!major || own == major) && !try(search, version))
            return 0;
    }
    return -1;
}

/* A framework may lie beside libraries of several versions: it uses those of its runtime. */
static int try_all(struct search *search)
{
    int runtime = search->seen->runtime_major;
    return try_loaded(search) && (!runtime || try_versions(search, runtime, try_anchors))
        && try_versions(search, 0, try_anchors) && try_versions(search, 0, try_system) ? -1 : 0;
}

static void tell_newer(const struct search *search)
{
    char text[200];
    snprintf(text, sizeof text, "the only libcupti found is of CUDA %d, newer than the driver (CUDA %d), and may refuse "
             "to work; install one of CUDA %d, or set CUDA_HOME", search->found, search->driver, search->driver);
    dp_notice(DP_CUPTI_NEWER, text);
}

static int driver_major(void)
{
    int version = 0;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    int (*get)(int *) = NULL;
    if (driver)
        *(void **)&get = dlsym(driver, "cuDriverGetVersion");
    return get && !get(&version) && version > 0 ? version / 1000 : INT_MAX; /* not known: none is newer */
}

static int find_best(struct cupti *api, const struct seen *seen)
{
    struct search search = {.api = api, .seen = seen, .driver = driver_major()};
    if (!try_all(&search))
        return 0;
    search.newer = 1;
    if (try_all(&search))
        return -1;
    tell_newer(&search);
    return 0;
}

int cupti_find(struct cupti *api)
{
    if (*given)
        return take(dlopen(given, RTLD_NOW | RTLD_LOCAL), api);
    struct seen *seen = look();
    int failed = seen ? find_best(api, seen) : -1;
    free(seen);
    return failed;
}

/* For a process that counts for itself and collects nothing: the path of what it would take, NULL where none is. */
DP_API const char *deepprof_find_cupti(void)
{
    static struct cupti api;
    Dl_info found;
    void *function;
    cupti_library_prepare();
    if (cupti_find(&api))
        return NULL;
    *(int (**)(int))&function = api.ActivityEnable;
    return dladdr(function, &found) ? found.dli_fname : NULL;
}
