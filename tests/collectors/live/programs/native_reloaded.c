/* A library to be loaded in another's place: -DNAME= what its function is called. */
#define EXPORT __attribute__((visibility("default")))

static void __attribute__((noinline, noclone)) NAME(void (*run)(void))
{
    run();
    __asm__ volatile("");
}

EXPORT void native_run(void (*run)(void))
{
    NAME(run);
    __asm__ volatile("");
}
