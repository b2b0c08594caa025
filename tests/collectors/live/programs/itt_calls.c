/* Opens and closes ranges of ITT in several domains, through Intel's own header and the static part that PyTorch has. */
#include <dlfcn.h>
#include <stdlib.h>
#include <ittnotify.h>

static void collect(void)
{
    void *library = dlopen(getenv("INTEL_LIBITTNOTIFY64"), RTLD_NOW);
    int (*start)(int) = NULL;
    if (library)
        *(void **)&start = dlsym(library, "deepprof_operators");
    if (!start || start(0))
        exit(3);
}

static void begin(__itt_domain *domain, const char *text)
{
    __itt_task_begin(domain, __itt_null, __itt_null, __itt_string_handle_create(text));
}

int main(void)
{
    __itt_string_handle *early = __itt_string_handle_create("made before");
    collect();
    __itt_domain *mine = __itt_domain_create("mine"), *pytorch = __itt_domain_create("PyTorch");
    __itt_task_begin(mine, __itt_null, __itt_null, early);
    begin(mine, "inner");
    __itt_task_end(mine);
    __itt_task_end(mine);
    __itt_task_end(mine); /* of nothing */

    begin(mine, "first of mine");
    begin(pytorch, "aten::add");
    begin(pytorch, "aten::inside");
    __itt_task_end(mine); /* it crosses those of the other domain */
    begin(pytorch, "no operator");
    for (int i = 0; i < 3; i++)
        __itt_task_end(pytorch);
    begin(pytorch, "Optimizer.step");
    __itt_task_end(pytorch);
    __itt_domain *again = __itt_domain_create("mine"); /* it was made before the collector came */
    begin(mine, "by two names");
    __itt_task_end(again);
    begin(again, "after");
    __itt_task_end(mine);
    return 0;
}
