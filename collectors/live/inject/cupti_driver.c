/* Whether the CUDA driver of this process can be used: CUPTI may be called only then.
 *
 * The driver loads us inside cuInit, which goes on for seconds on another thread, and may end without a device
 * (CUDA_VISIBLE_DEVICES=""). The libcupti of 13.2 crashes in every call that is made without a working driver. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include "cupti_parts.h"

enum { DRIVER_OK = 0, DRIVER_NOT_STARTED = 3 };

static int (*find_count(void))(int *)
{
    static int (*count)(int *);
    if (!count) {
        void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
        if (driver)
            *(void **)&count = dlsym(driver, "cuDeviceGetCount");
    }
    return count;
}

enum driver_state driver_state(void)
{
    int (*count_devices)(int *) = find_count();
    int count = 0, result = count_devices ? count_devices(&count) : DRIVER_NOT_STARTED;
    if (result == DRIVER_OK && count > 0)
        return DRIVER_READY;
    return result == DRIVER_NOT_STARTED ? DRIVER_STARTING : DRIVER_WITHOUT_DEVICE;
}
