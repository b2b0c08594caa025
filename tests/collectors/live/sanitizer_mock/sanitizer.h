/* A made-up Compute Sanitizer: the names that collectors/live/accesses uses, with values and members of our own. */
#ifndef SANITIZER_MOCK_H
#define SANITIZER_MOCK_H
#include <stddef.h>
#include <stdint.h>

#define SANITIZERAPI
typedef struct mock_context *CUcontext;
typedef struct mock_module *CUmodule;
typedef struct mock_function *CUfunction;
typedef struct mock_public_stream *CUstream;
typedef struct mock_stream *Sanitizer_StreamHandle;
typedef struct mock_launch *Sanitizer_LaunchHandle;
typedef struct mock_subscriber *Sanitizer_SubscriberHandle;
typedef uint32_t Sanitizer_CallbackId;
typedef enum { SANITIZER_SUCCESS, SANITIZER_ERROR_MOCK = 77 } SanitizerResult;
enum { CU_GRAPH_NODE_TYPE_KERNEL = 70, CU_GRAPH_NODE_TYPE_MEMCPY };

typedef enum {
    SANITIZER_CB_DOMAIN_RESOURCE = 100,
    SANITIZER_CB_DOMAIN_LAUNCH,
    SANITIZER_CB_DOMAIN_GRAPHS,
    SANITIZER_CB_DOMAIN_MEMCPY,
    SANITIZER_CB_DOMAIN_MEMSET,
} Sanitizer_CallbackDomain;

enum {
    SANITIZER_CBID_RESOURCE_MODULE_LOADED = 200,
    SANITIZER_CBID_RESOURCE_MODULE_UNLOAD_STARTING,
    SANITIZER_CBID_RESOURCE_CONTEXT_DESTROY_STARTING,
    SANITIZER_CBID_RESOURCE_DEVICE_MEMORY_ALLOC,
    SANITIZER_CBID_RESOURCE_DEVICE_MEMORY_FREE,
    SANITIZER_CBID_RESOURCE_MEMORY_ALLOC_ASYNC,
    SANITIZER_CBID_RESOURCE_MEMORY_FREE_ASYNC,
    SANITIZER_CBID_LAUNCH_BEGIN,
    SANITIZER_CBID_LAUNCH_END,
    SANITIZER_CBID_GRAPHS_NODE_LAUNCH_BEGIN,
    SANITIZER_CBID_MEMCPY_STARTING,
    SANITIZER_CBID_MEMSET_STARTING,
};

typedef enum {
    SANITIZER_INSTRUCTION_GLOBAL_MEMORY_ACCESS = 300,
    SANITIZER_INSTRUCTION_MEMCPY_ASYNC,
    SANITIZER_INSTRUCTION_BULK_COPY_GLOBAL_TO_SHARED,
    SANITIZER_INSTRUCTION_BULK_COPY_SHARED_TO_GLOBAL,
    SANITIZER_INSTRUCTION_BULK_REDUCTION_SHARED_TO_GLOBAL,
    SANITIZER_INSTRUCTION_TMA_LOAD,
    SANITIZER_INSTRUCTION_TMA_STORE,
} Sanitizer_InstructionId;

typedef struct {
    CUmodule module;
    CUcontext context;
} Sanitizer_ResourceModuleData;
typedef struct {
    CUcontext context;
} Sanitizer_ResourceContextData;
typedef struct {
    int device;
    uint64_t size, address;
} Sanitizer_ResourceMemoryData;
typedef struct {
    const char *functionName;
    CUcontext context;
    CUmodule module;
    CUfunction function;
    CUstream stream;
    Sanitizer_StreamHandle hStream;
    Sanitizer_LaunchHandle hLaunch;
    int device;
    uint32_t gridDim_x, gridDim_y, gridDim_z, blockDim_x, blockDim_y, blockDim_z;
} Sanitizer_LaunchData;
typedef struct {
    int nodeType;
    uint32_t isGraphUpload;
    Sanitizer_LaunchData launchData;
} Sanitizer_GraphNodeLaunchData;

typedef void (*Sanitizer_CallbackFunc)(void *, Sanitizer_CallbackDomain, Sanitizer_CallbackId, const void *);
SanitizerResult sanitizerSubscribe(Sanitizer_SubscriberHandle *subscriber, Sanitizer_CallbackFunc callback, void *data);
SanitizerResult sanitizerEnableDomain(uint32_t on, Sanitizer_SubscriberHandle subscriber, Sanitizer_CallbackDomain domain);
SanitizerResult sanitizerAddPatchesFromFile(const char *path, CUcontext context);
SanitizerResult sanitizerPatchInstructions(Sanitizer_InstructionId instruction, CUmodule module, const char *patch);
SanitizerResult sanitizerPatchModule(CUmodule module);
SanitizerResult sanitizerSetLaunchCallbackData(Sanitizer_LaunchHandle launch, CUfunction function,
                                               Sanitizer_StreamHandle stream, const void *data);
SanitizerResult sanitizerAlloc(CUcontext context, void **made, size_t nbytes);
SanitizerResult sanitizerMemset(void *target, int value, size_t nbytes, Sanitizer_StreamHandle stream);
SanitizerResult sanitizerMemcpyHostToDeviceAsync(void *target, void *source, size_t nbytes, Sanitizer_StreamHandle stream);
SanitizerResult sanitizerMemcpyDeviceToHost(void *target, void *source, size_t nbytes, Sanitizer_StreamHandle stream);
SanitizerResult sanitizerStreamSynchronize(Sanitizer_StreamHandle stream);
SanitizerResult sanitizerGetResultString(SanitizerResult result, const char **text);
#endif
