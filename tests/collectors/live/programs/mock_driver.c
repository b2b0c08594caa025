/* A CUDA driver without a device, for tests: as the real one does, its cuInit loads CUDA_INJECTION64_PATH.
 *
 * MOCK_VERSION: of the driver, 12090; MOCK_INIT: the result of cuInit and of what follows it; MOCK_DEVICES: their number. */
#include <dlfcn.h>
#include <stdlib.h>

#define API __attribute__((visibility("default")))
enum { NOT_STARTED = 3 };
static int result = NOT_STARTED;

static int number(const char *name) { return getenv(name) ? atoi(getenv(name)) : 0; }

API int cuDriverGetVersion(int *version)
{
    *version = number("MOCK_VERSION");
    return 0;
}

API int cuInit(unsigned flags)
{
    const char *path = getenv("CUDA_INJECTION64_PATH");
    void *library = path ? dlopen(path, RTLD_NOW) : NULL;
    int (*initialize)(void) = NULL;
    if (library)
        *(void **)&initialize = dlsym(library, "InitializeInjection");
    if (initialize)
        initialize();
    (void)flags;
    return result = number("MOCK_INIT");
}

API int cuDeviceGetCount(int *count)
{
    *count = number("MOCK_DEVICES");
    return result;
}
