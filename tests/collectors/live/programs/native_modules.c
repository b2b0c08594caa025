/* Prints how often all libraries are gone through for code that is in none, before and after one comes: native_modules LIBRARY. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>

static int looks;

static int iterate(int (*each)(struct dl_phdr_info *, size_t, void *), void *data)
{
    looks++;
    return dl_iterate_phdr(each, data);
}

#define dl_iterate_phdr iterate
#include "../../../../deepprof/collectors/live/inject/native_modules.c"

static int count_looks(void)
{
    looks = 0;
    if (module_around(4096))
        return -1;
    return looks;
}

int main(int words, char **word)
{
    modules_prepare(0);
    int first = count_looks(), second = count_looks();
    if (words < 2 || !dlopen(word[1], RTLD_NOW) || !modules_are_sound())
        return 1;
    int third = count_looks();
    printf("%d %d %d %d\n", first, second, third, count_looks());
    return 0;
}
