/* A library whose constructor waits for a thread, which calls the function whose address is in NATIVE_RUN. */
#include <pthread.h>
#include <stdlib.h>

static void *run(void *address)
{
    ((void (*)(void))address)();
    return NULL;
}

__attribute__((constructor)) static void wait_for_thread(void)
{
    pthread_t thread;
    if (!pthread_create(&thread, NULL, run, (void *)strtoull(getenv("NATIVE_RUN"), NULL, 0)))
        pthread_join(thread, NULL);
}
