/* A job on a machine whose driver has no device, or that has no driver: JOB_DRIVER is its libcuda, if it has one.
 *
 * Without a driver nobody loads the collector, so that the job does what the driver would. It ends when it reads a line. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

static void call(const char *path, const char *name)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    void (*function)(unsigned) = NULL;
    if (library)
        *(void **)&function = dlsym(library, name);
    if (!function) {
        fprintf(stderr, "%s: %s\n", path, dlerror());
        exit(3);
    }
    function(0);
}

int main(void)
{
    const char *driver = getenv("JOB_DRIVER");
    if (driver)
        call(driver, "cuInit");
    else
        call(getenv("CUDA_INJECTION64_PATH"), "InitializeInjection");
    getchar();
    return 0;
}
