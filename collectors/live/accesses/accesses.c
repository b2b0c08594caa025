/* Counts what kernels access in global memory, through NVIDIA's Compute Sanitizer; the driver loads us into the job.
 *
 * Each module is patched as it is loaded (patches.cu). A launch that is counted gets a table of its own on the device,
 * and the host waits for it where it was launched: kernels run one after the other, and far slower. Callbacks come on
 * the threads that launch, and may call nothing of CUDA but the functions of the sanitizer. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sanitizer.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "parts.h"

enum { MAX_CONTEXTS = 64, MAX_TABLES = 16, MAX_UNPATCHED = 4096 };
enum { SLOTS = 1 << 15, MAX_SLOTS = 1 << 18, MIN_BLOCK = 1 << 9, BLOCK = 1 << 21, LAUNCHES = 2000 };
#ifdef DEEPPROF_TENSOR_COPIES /* later than CUDA 13.0 */
enum { SEES_TENSOR_COPIES = 1 };
#else
enum { SEES_TENSOR_COPIES = 0 };
#endif

static const struct {
    Sanitizer_InstructionId instruction;
    const char *patch;
} PATCHES[] = {
    {SANITIZER_INSTRUCTION_GLOBAL_MEMORY_ACCESS, "deepprof_access"},
    {SANITIZER_INSTRUCTION_MEMCPY_ASYNC, "deepprof_async_copy"},
    {SANITIZER_INSTRUCTION_BULK_COPY_GLOBAL_TO_SHARED, "deepprof_bulk_read"},
    {SANITIZER_INSTRUCTION_BULK_COPY_SHARED_TO_GLOBAL, "deepprof_bulk_write"},
    {SANITIZER_INSTRUCTION_BULK_REDUCTION_SHARED_TO_GLOBAL, "deepprof_bulk_reduction"},
#ifdef DEEPPROF_TENSOR_COPIES
    {SANITIZER_INSTRUCTION_TMA_LOAD, "deepprof_tensor_copy"},
    {SANITIZER_INSTRUCTION_TMA_STORE, "deepprof_tensor_copy"},
#endif
};
enum { PATCH_COUNT = sizeof PATCHES / sizeof *PATCHES };

struct context {
    CUcontext handle; /* NULL: none, or destroyed */
    int has_patches; /* of `patching` */
    int table_count, free_count;
    struct access_table *free[MAX_TABLES]; /* on the device */
};

static struct settings settings;
/* No lock but `patching` is held while the sanitizer is called: the driver may hold its own around a callback. */
static pthread_mutex_t patching = PTHREAD_MUTEX_INITIALIZER; /* the sanitizer wants one module at a time */
static struct {
    pthread_mutex_t mutex;
    struct context contexts[MAX_CONTEXTS];
    int context_count, unpatched_count;
    CUmodule unpatched[MAX_UNPATCHED];
    unsigned long long seen, counted;
    Sanitizer_SubscriberHandle subscriber;
} a = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static _Thread_local int is_inside; /* a callback: what comes then is the sanitizer's own */
static _Thread_local struct { /* the launch that this thread is in; `table` is NULL where it is not counted */
    struct access_table *table, *copy;
    struct context *context;
    struct launch launch;
    char name[8192];
} going;

static size_t table_nbytes(void) { return sizeof(struct access_table) + settings.slots * sizeof(struct access_slot); }

/* Returns whether a call of the sanitizer went well; says in the recording which one did not. */
static int is_well(SanitizerResult result, const char *what)
{
    const char *why = NULL;
    if (result == SANITIZER_SUCCESS)
        return 1;
    if (sanitizerGetResultString(result, &why) != SANITIZER_SUCCESS || !why)
        why = "unknown error";
    recording_problem(what, why);
    return 0;
}
#define WELL(function, ...) is_well(function(__VA_ARGS__), #function)

/* ---- modules ---- */

/* Returns the context, a new one where it was not seen, or NULL where there are too many. */
static struct context *find_context(CUcontext handle)
{
    struct context *found = NULL;
    pthread_mutex_lock(&a.mutex);
    for (int i = 0; i < a.context_count && !found; i++)
        if (a.contexts[i].handle == handle)
            found = &a.contexts[i];
    if (!found && a.context_count < MAX_CONTEXTS) {
        found = &a.contexts[a.context_count++];
        found->handle = handle;
    }
    pthread_mutex_unlock(&a.mutex);
    return found;
}

static int patch_module(struct context *context, CUmodule module)
{
    if (!context)
        return 0;
    if (!context->has_patches && !WELL(sanitizerAddPatchesFromFile, settings.patches, context->handle))
        return 0;
    context->has_patches = 1;
    for (int i = 0; i < PATCH_COUNT; i++)
        if (!WELL(sanitizerPatchInstructions, PATCHES[i].instruction, module, PATCHES[i].patch))
            return 0;
    return WELL(sanitizerPatchModule, module);
}

static void on_module(const Sanitizer_ResourceModuleData *data)
{
    pthread_mutex_lock(&patching);
    int is_patched = patch_module(find_context(data->context), data->module);
    pthread_mutex_unlock(&patching);
    pthread_mutex_lock(&a.mutex);
    if (!is_patched && a.unpatched_count < MAX_UNPATCHED)
        a.unpatched[a.unpatched_count++] = data->module;
    pthread_mutex_unlock(&a.mutex);
}

/* Its number may come again for another module. */
static void on_unload(const Sanitizer_ResourceModuleData *data)
{
    pthread_mutex_lock(&a.mutex);
    for (int i = 0; i < a.unpatched_count; i++)
        if (a.unpatched[i] == data->module)
            a.unpatched[i--] = a.unpatched[--a.unpatched_count];
    pthread_mutex_unlock(&a.mutex);
}

static int is_unpatched(CUmodule module)
{
    for (int i = 0; i < a.unpatched_count; i++)
        if (a.unpatched[i] == module)
            return 1;
    return 0;
}

/* Its tables go with it. */
static void on_destroy(CUcontext handle)
{
    pthread_mutex_lock(&a.mutex);
    for (int i = 0; i < a.context_count; i++)
        if (a.contexts[i].handle == handle)
            a.contexts[i].handle = NULL;
    pthread_mutex_unlock(&a.mutex);
}

/* ---- launches ---- */

/* Returns a table on the device, or NULL. */
static struct access_table *take_table(struct context *context)
{
    void *taken = NULL;
    pthread_mutex_lock(&a.mutex);
    int makes_one = !context->free_count && context->table_count < MAX_TABLES;
    if (context->free_count)
        taken = context->free[--context->free_count];
    context->table_count += makes_one;
    pthread_mutex_unlock(&a.mutex);
    return !makes_one || WELL(sanitizerAlloc, context->handle, &taken, table_nbytes()) ? taken : NULL;
}

static void give_back(void)
{
    pthread_mutex_lock(&a.mutex);
    if (going.context->free_count < MAX_TABLES)
        going.context->free[going.context->free_count++] = going.table;
    going.table = NULL;
    pthread_mutex_unlock(&a.mutex);
}

static int clear_table(struct access_table *table, Sanitizer_StreamHandle stream)
{
    struct access_table head = {.mask = settings.slots - 1, .shift = settings.shift};
    return WELL(sanitizerMemset, table, 0, table_nbytes(), stream) &&
           WELL(sanitizerMemcpyHostToDeviceAsync, table, &head, sizeof head, stream);
}

/* Returns why a launch is not counted, or LOSSES where it is. Call it with the mutex held. */
static enum loss refuse(const Sanitizer_LaunchData *data)
{
    if (settings.name && (!data->functionName || !strstr(data->functionName, settings.name)))
        return LOST_NAME;
    if (a.seen++ < settings.skip)
        return LOST_SKIPPED;
    if (a.counted >= settings.launches)
        return LOST_LIMIT;
    if (is_unpatched(data->module))
        return LOST_UNPATCHED;
    return LOSSES;
}

/* Returns why a launch is not counted, or LOSSES; then `going` has its cleared table. */
static enum loss admit(const Sanitizer_LaunchData *data)
{
    pthread_mutex_lock(&a.mutex);
    enum loss reason = refuse(data);
    going.launch.number = a.counted;
    a.counted += reason == LOSSES;
    pthread_mutex_unlock(&a.mutex);
    if (reason != LOSSES)
        return reason;
    going.context = find_context(data->context);
    going.table = going.context ? take_table(going.context) : NULL;
    if (!going.table)
        return LOST_NO_TABLE;
    if (clear_table(going.table, data->hStream))
        return LOSSES;
    give_back();
    return LOST_UNREAD;
}

static void note_launch(const Sanitizer_LaunchData *data)
{
    snprintf(going.name, sizeof going.name, "%s", data->functionName ? data->functionName : "");
    going.launch.name = going.name;
    going.launch.device = (unsigned)data->device;
    going.launch.context = (unsigned)(going.context - a.contexts) + 1;
    going.launch.stream = (unsigned long long)(uintptr_t)data->stream;
    going.launch.grid = (unsigned long long)data->gridDim_x * data->gridDim_y * data->gridDim_z;
    going.launch.block = data->blockDim_x * data->blockDim_y * data->blockDim_z;
    going.launch.start_ns = monotonic_ns();
}

static void on_begin(const Sanitizer_LaunchData *data)
{
    going.table = NULL;
    enum loss reason = admit(data);
    int is_set = WELL(sanitizerSetLaunchCallbackData, data->hLaunch, data->function, data->hStream, going.table);
    if (reason == LOSSES && !is_set) {
        give_back();
        reason = LOST_UNREAD;
    }
    if (reason == LOSSES)
        note_launch(data);
    else
        recording_lose(reason);
}

static int read_table(Sanitizer_StreamHandle stream)
{
    if (!going.copy)
        going.copy = malloc(table_nbytes());
    return going.copy && WELL(sanitizerStreamSynchronize, stream) &&
           WELL(sanitizerMemcpyDeviceToHost, going.copy, going.table, table_nbytes(), stream);
}

static void on_end(const Sanitizer_LaunchData *data)
{
    if (!going.table)
        return;
    int is_read = read_table(data->hStream) && going.copy->mask == settings.slots - 1;
    going.launch.end_ns = monotonic_ns();
    if (is_read)
        recording_launch(&going.launch, going.copy);
    else
        recording_lose(LOST_UNREAD);
    give_back();
}

/* ---- callbacks ---- */

static void on_resource(Sanitizer_CallbackId id, const void *data)
{
    const Sanitizer_ResourceMemoryData *memory = data;
    switch (id) {
    case SANITIZER_CBID_RESOURCE_MODULE_LOADED:
        on_module(data);
        break;
    case SANITIZER_CBID_RESOURCE_MODULE_UNLOAD_STARTING:
        on_unload(data);
        break;
    case SANITIZER_CBID_RESOURCE_CONTEXT_DESTROY_STARTING:
        on_destroy(((const Sanitizer_ResourceContextData *)data)->context);
        break;
    case SANITIZER_CBID_RESOURCE_DEVICE_MEMORY_ALLOC:
    case SANITIZER_CBID_RESOURCE_MEMORY_ALLOC_ASYNC:
        recording_memory((unsigned)memory->device, memory->address, (long long)memory->size);
        break;
    case SANITIZER_CBID_RESOURCE_DEVICE_MEMORY_FREE:
    case SANITIZER_CBID_RESOURCE_MEMORY_FREE_ASYNC:
        recording_memory((unsigned)memory->device, memory->address, -(long long)memory->size);
        break;
    default:
        break;
    }
}

static void on_launch(Sanitizer_CallbackId id, const Sanitizer_LaunchData *data)
{
    if (id == SANITIZER_CBID_LAUNCH_BEGIN)
        on_begin(data);
    else if (id == SANITIZER_CBID_LAUNCH_END)
        on_end(data);
}

/* The table of a kernel in a graph is not null where nobody has said so: on an H200 its patches crashed. */
static void on_graph(Sanitizer_CallbackId id, const void *data)
{
    const Sanitizer_GraphNodeLaunchData *node = data;
    const Sanitizer_LaunchData *launch = &node->launchData;
    if (id != SANITIZER_CBID_GRAPHS_NODE_LAUNCH_BEGIN || node->nodeType != CU_GRAPH_NODE_TYPE_KERNEL)
        return;
    (void)WELL(sanitizerSetLaunchCallbackData, launch->hLaunch, launch->function, launch->hStream, NULL);
    if (!node->isGraphUpload)
        recording_lose(LOST_GRAPH);
}

static void dispatch(Sanitizer_CallbackDomain domain, Sanitizer_CallbackId id, const void *data)
{
    if (domain == SANITIZER_CB_DOMAIN_RESOURCE)
        on_resource(id, data);
    else if (domain == SANITIZER_CB_DOMAIN_LAUNCH)
        on_launch(id, data);
    else if (domain == SANITIZER_CB_DOMAIN_GRAPHS)
        on_graph(id, data);
    else if (domain == SANITIZER_CB_DOMAIN_MEMCPY && id == SANITIZER_CBID_MEMCPY_STARTING)
        recording_lose(LOST_COPY);
    else if (domain == SANITIZER_CB_DOMAIN_MEMSET && id == SANITIZER_CBID_MEMSET_STARTING)
        recording_lose(LOST_MEMSET);
}

static void SANITIZERAPI on_event(void *unused, Sanitizer_CallbackDomain domain, Sanitizer_CallbackId id,
                                  const void *data)
{
    (void)unused;
    if (is_inside)
        return;
    is_inside = 1;
    dispatch(domain, id, data);
    is_inside = 0;
}

/* ---- start ---- */

static unsigned long long read_number(const char *variable, unsigned long long otherwise)
{
    const char *text = getenv(variable);
    return text && *text >= '0' && *text <= '9' ? strtoull(text, NULL, 10) : otherwise;
}

/* Returns the power of two in `low` to `high` that a variable names, `otherwise` where it names none. */
static unsigned long long read_power(const char *variable, unsigned long long otherwise, unsigned long long low,
                                     unsigned long long high)
{
    unsigned long long number = read_number(variable, otherwise);
    return number < low || number > high || (number & (number - 1)) ? otherwise : number;
}

static void read_settings(void)
{
    const char *name = getenv("DEEPPROF_ACCESSES_KERNELS");
    settings.path = getenv("DEEPPROF_ACCESSES_OUTPUT");
    settings.patches = getenv("DEEPPROF_ACCESSES_PATCHES");
    settings.name = name && *name ? name : NULL;
    settings.skip = read_number("DEEPPROF_ACCESSES_SKIP", 0);
    settings.launches = read_number("DEEPPROF_ACCESSES_LAUNCHES", LAUNCHES);
    settings.slots = read_power("DEEPPROF_ACCESSES_SLOTS", SLOTS, 1, MAX_SLOTS);
    settings.block_nbytes = read_power("DEEPPROF_ACCESSES_BLOCK", BLOCK, MIN_BLOCK, BLOCK);
    settings.shift = (unsigned)__builtin_ctzll(settings.block_nbytes);
}

static void subscribe(void)
{
    static const Sanitizer_CallbackDomain DOMAINS[] = {SANITIZER_CB_DOMAIN_RESOURCE, SANITIZER_CB_DOMAIN_LAUNCH,
                                                       SANITIZER_CB_DOMAIN_GRAPHS, SANITIZER_CB_DOMAIN_MEMCPY,
                                                       SANITIZER_CB_DOMAIN_MEMSET};
    recording_open(&settings, SEES_TENSOR_COPIES);
    int is_on = WELL(sanitizerSubscribe, &a.subscriber, on_event, NULL);
    for (size_t i = 0; is_on && i < sizeof DOMAINS / sizeof *DOMAINS; i++)
        is_on = WELL(sanitizerEnableDomain, 1, a.subscriber, DOMAINS[i]);
}

/* The driver calls it when it has loaded us. */
__attribute__((visibility("default"))) int InitializeInjection(void)
{
    if (!settings.path) {
        read_settings();
        if (settings.path && settings.patches)
            subscribe();
    }
    return 1; /* whatever came of it, the job goes on */
}

__attribute__((destructor)) static void finish(void) { recording_close(); }
