/* Which libcupti the collector takes in a process that has loaded the libraries in its arguments, the driver first.
 *
 * Prints the path, or nothing, and the notices on the standard error. Linked with --wrap=dlopen: what the loader would
 * look for on this machine it finds in JOB_ROOT/system, what is in /usr/local it finds in JOB_ROOT/usr/local. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cupti_parts.h"

void *__real_dlopen(const char *path, int flags);

void *__wrap_dlopen(const char *path, int flags)
{
    static const char LOCAL[] = "/usr/local/";
    char inside[4096];
    int is_local = !strncmp(path, LOCAL, sizeof LOCAL - 1);
    if (flags & RTLD_NOLOAD || (strchr(path, '/') && !is_local))
        return __real_dlopen(path, flags);
    snprintf(inside, sizeof inside, "%s%s%s", getenv("JOB_ROOT"), is_local ? "" : "/system/", path);
    return __real_dlopen(inside, flags);
}

void dp_notice(uint32_t code, const char *text)
{
    (void)code;
    fprintf(stderr, "%s\n", text);
}

const char *deepprof_find_cupti(void);

int main(int count, char **paths)
{
    for (int i = 1; i < count; i++)
        if (!dlopen(paths[i], RTLD_NOW)) {
            fprintf(stderr, "%s\n", dlerror());
            return 3;
        }
    const char *found = deepprof_find_cupti();
    printf("%s", found ? found : "");
    return 0;
}
