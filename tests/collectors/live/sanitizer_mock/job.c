/* A job, its driver and the made-up sanitizer in one: does what its words say, with the library that it is given.
 *
 * job LIBRARY WORD…, where LIBRARY may be - for that of CUDA_INJECTION64_PATH. The words are: module, bad-module (cannot be patched), unload, launch NAME BLOCKS, graph, copy, memset,
 * alloc ADDRESS NBYTES, free ADDRESS NBYTES, threads COUNT LAUNCHES, destroy, fork, kill. MOCK_FAIL names a function
 * of the sanitizer that fails. A kernel touches BLOCKS blocks from the 16th on: reads 4 bytes of each, writes 8. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <sanitizer.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "access_table.h"

enum { FIRST = 16, GOOD = 1, BAD };
struct mock_launch {
    struct access_table *table;
};

static Sanitizer_CallbackFunc callback;
static struct mock_context *context = (struct mock_context *)0x10;
static uintptr_t module = GOOD;
static char has_patches[1 << 16]; /* by context */

static SanitizerResult judge(const char *function)
{
    const char *failing = getenv("MOCK_FAIL");
    return failing && !strcmp(failing, function) ? SANITIZER_ERROR_MOCK : SANITIZER_SUCCESS;
}
#define JUDGE judge(__func__)

static void tell(Sanitizer_CallbackDomain domain, Sanitizer_CallbackId id, const void *data)
{
    if (callback)
        callback(NULL, domain, id, data);
}

/* ---- the sanitizer ---- */

SanitizerResult sanitizerSubscribe(Sanitizer_SubscriberHandle *subscriber, Sanitizer_CallbackFunc function, void *data)
{
    (void)data;
    if (JUDGE)
        return SANITIZER_ERROR_MOCK;
    callback = function;
    *subscriber = (Sanitizer_SubscriberHandle)1;
    return SANITIZER_SUCCESS;
}

SanitizerResult sanitizerEnableDomain(uint32_t on, Sanitizer_SubscriberHandle subscriber, Sanitizer_CallbackDomain domain)
{
    return on && subscriber && domain >= SANITIZER_CB_DOMAIN_RESOURCE ? JUDGE : SANITIZER_ERROR_MOCK;
}

/* The module of the patches is loaded too, which the sanitizer tells. */
SanitizerResult sanitizerAddPatchesFromFile(const char *path, CUcontext of)
{
    Sanitizer_ResourceModuleData data = {.module = (CUmodule)BAD, .context = of};
    tell(SANITIZER_CB_DOMAIN_RESOURCE, SANITIZER_CBID_RESOURCE_MODULE_LOADED, &data);
    if (access(path, R_OK) || has_patches[(uintptr_t)of])
        return SANITIZER_ERROR_MOCK;
    has_patches[(uintptr_t)of] = 1;
    return JUDGE;
}

SanitizerResult sanitizerPatchInstructions(Sanitizer_InstructionId instruction, CUmodule of, const char *patch)
{
    (void)of;
    return instruction && !strncmp(patch, "deepprof_", 9) ? JUDGE : SANITIZER_ERROR_MOCK;
}

SanitizerResult sanitizerPatchModule(CUmodule of) { return (uintptr_t)of == BAD ? SANITIZER_ERROR_MOCK : JUDGE; }

SanitizerResult sanitizerSetLaunchCallbackData(Sanitizer_LaunchHandle launch, CUfunction function,
                                               Sanitizer_StreamHandle stream, const void *data)
{
    (void)function, (void)stream;
    launch->table = (struct access_table *)data;
    return JUDGE;
}

SanitizerResult sanitizerAlloc(CUcontext of, void **made, size_t nbytes)
{
    Sanitizer_ResourceMemoryData data = {.device = 0, .address = 1, .size = nbytes};
    tell(SANITIZER_CB_DOMAIN_RESOURCE, SANITIZER_CBID_RESOURCE_DEVICE_MEMORY_ALLOC, &data);
    if (!of || JUDGE)
        return SANITIZER_ERROR_MOCK;
    *made = malloc(nbytes);
    memset(*made, 0xff, nbytes);
    return SANITIZER_SUCCESS;
}

SanitizerResult sanitizerMemset(void *target, int value, size_t nbytes, Sanitizer_StreamHandle stream)
{
    (void)stream;
    memset(target, value, nbytes);
    return JUDGE;
}

SanitizerResult sanitizerMemcpyHostToDeviceAsync(void *target, void *source, size_t nbytes, Sanitizer_StreamHandle stream)
{
    (void)stream;
    memcpy(target, source, nbytes);
    return JUDGE;
}

SanitizerResult sanitizerMemcpyDeviceToHost(void *target, void *source, size_t nbytes, Sanitizer_StreamHandle stream)
{
    (void)stream;
    memcpy(target, source, nbytes);
    return JUDGE;
}

SanitizerResult sanitizerStreamSynchronize(Sanitizer_StreamHandle stream) { return stream ? JUDGE : SANITIZER_ERROR_MOCK; }

SanitizerResult sanitizerGetResultString(SanitizerResult result, const char **text)
{
    (void)result;
    *text = "as \"asked\"";
    return SANITIZER_SUCCESS;
}

/* ---- the driver ---- */

static void touch(struct access_table *table, unsigned blocks)
{
    struct access_slot *slots = (struct access_slot *)(table + 1);
    for (unsigned i = 0; i < blocks; i++) {
        struct access_slot *slot = i <= table->mask ? &slots[i] : &table->full;
        if (slot != &table->full)
            slot->block = FIRST + i + 1;
        slot->reads += 1, slot->read_nbytes += 4, slot->writes += 1, slot->write_nbytes += 8;
    }
}

static void launch(const char *name, unsigned blocks)
{
    struct mock_launch going = {(struct access_table *)1};
    Sanitizer_LaunchData data = {.functionName = name, .context = context, .module = (CUmodule)module,
                                 .stream = (CUstream)0x7000, .hStream = (Sanitizer_StreamHandle)1, .hLaunch = &going,
                                 .gridDim_x = 2, .gridDim_y = 3, .gridDim_z = 1, .blockDim_x = 32, .blockDim_y = 1,
                                 .blockDim_z = 1};
    tell(SANITIZER_CB_DOMAIN_LAUNCH, SANITIZER_CBID_LAUNCH_BEGIN, &data);
    if (!callback)
        return;
    if (going.table == (struct access_table *)1)
        exit(3); /* the data of another launch would be counted in */
    if (going.table)
        touch(going.table, blocks);
    tell(SANITIZER_CB_DOMAIN_LAUNCH, SANITIZER_CBID_LAUNCH_END, &data);
}

static void tell_module(Sanitizer_CallbackId id)
{
    Sanitizer_ResourceModuleData data = {.module = (CUmodule)module, .context = context};
    tell(SANITIZER_CB_DOMAIN_RESOURCE, id, &data);
}

static void tell_memory(Sanitizer_CallbackId id, const char *address, const char *nbytes)
{
    Sanitizer_ResourceMemoryData data = {.address = strtoull(address, NULL, 0), .size = strtoull(nbytes, NULL, 0)};
    tell(SANITIZER_CB_DOMAIN_RESOURCE, id, &data);
}

static void *launch_often(void *many)
{
    for (long i = 0; i < (long)many; i++)
        launch("threaded", 3);
    return NULL;
}

static void launch_in_threads(int count, long many)
{
    pthread_t threads[64];
    for (int i = 0; i < count; i++)
        pthread_create(&threads[i], NULL, launch_often, (void *)many);
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
}

static void destroy(void)
{
    Sanitizer_ResourceContextData data = {context};
    tell(SANITIZER_CB_DOMAIN_RESOURCE, SANITIZER_CBID_RESOURCE_CONTEXT_DESTROY_STARTING, &data);
    has_patches[(uintptr_t)context] = 0; /* the next one may have its number */
}

static void launch_graph(void)
{
    struct mock_launch going = {(struct access_table *)1};
    Sanitizer_LaunchData data = {.hLaunch = &going};
    Sanitizer_GraphNodeLaunchData nodes[] = {
        {CU_GRAPH_NODE_TYPE_KERNEL, 1, data}, {CU_GRAPH_NODE_TYPE_KERNEL, 0, data}, {CU_GRAPH_NODE_TYPE_MEMCPY, 0, data}};
    for (int i = 0; i < 3; i++) {
        going.table = (struct access_table *)1;
        tell(SANITIZER_CB_DOMAIN_GRAPHS, SANITIZER_CBID_GRAPHS_NODE_LAUNCH_BEGIN, &nodes[i]);
        if (callback && going.table && nodes[i].nodeType == CU_GRAPH_NODE_TYPE_KERNEL)
            exit(4); /* its patches would take what is there for a table */
    }
}

/* A child that ends as programs do, with a copy of the library and its file. */
static void fork_and_exit(void)
{
    if (!fork()) {
        launch("of a child", 1);
        exit(0);
    }
    wait(NULL);
}

static int obey(char **word)
{
    if (!strcmp(*word, "module") || !strcmp(*word, "bad-module")) {
        module = **word == 'm' ? GOOD : BAD;
        tell_module(SANITIZER_CBID_RESOURCE_MODULE_LOADED);
        return 1;
    }
    if (!strcmp(*word, "unload"))
        return tell_module(SANITIZER_CBID_RESOURCE_MODULE_UNLOAD_STARTING), 1;
    if (!strcmp(*word, "launch"))
        return launch(word[1], (unsigned)atoi(word[2])), 3;
    if (!strcmp(*word, "alloc"))
        return tell_memory(SANITIZER_CBID_RESOURCE_DEVICE_MEMORY_ALLOC, word[1], word[2]), 3;
    if (!strcmp(*word, "free"))
        return tell_memory(SANITIZER_CBID_RESOURCE_DEVICE_MEMORY_FREE, word[1], word[2]), 3;
    if (!strcmp(*word, "threads"))
        return launch_in_threads(atoi(word[1]), atol(word[2])), 3;
    if (!strcmp(*word, "copy"))
        return tell(SANITIZER_CB_DOMAIN_MEMCPY, SANITIZER_CBID_MEMCPY_STARTING, NULL), 1;
    if (!strcmp(*word, "memset"))
        return tell(SANITIZER_CB_DOMAIN_MEMSET, SANITIZER_CBID_MEMSET_STARTING, NULL), 1;
    if (!strcmp(*word, "graph"))
        return launch_graph(), 1;
    if (!strcmp(*word, "destroy"))
        return destroy(), 1;
    if (!strcmp(*word, "fork"))
        return fork_and_exit(), 1;
    if (!strcmp(*word, "kill"))
        raise(SIGKILL);
    fprintf(stderr, "job: %s?\n", *word);
    exit(2);
}

int main(int count, char **words)
{
    const char *path = count > 1 && strcmp(words[1], "-") ? words[1] : getenv("CUDA_INJECTION64_PATH");
    void *library = path ? dlopen(path, RTLD_NOW) : NULL;
    int (*start)(void) = library ? (int (*)(void))dlsym(library, "InitializeInjection") : NULL;
    if (!start)
        return 4;
    start();
    for (int at = 2; at < count;)
        at += obey(words + at);
    return 0;
}
