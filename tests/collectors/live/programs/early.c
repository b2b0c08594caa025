/* A job of ranges that does what its words say, in their order, and exits as programs do. JOB_LIBRARY: the collector.
 *
 *   start            collect            ranges N   N ranges, one after the other      quiet N   the same, named "quiet"
 *   pause, resume    another profiler   finish     say the last words now             line      "ready", then wait for one
 *   threads N        N threads, each with a thousand ranges, that run beside what follows; joined at the end
 *   passing N        N threads, one after the other, with ten ranges each
 *   idle N           milliseconds without a range
 *   fork             the child does what follows up to `parent`, the parent what follows that
 *   cramped, roomy   no memory for a thread from here on, and again
 * Prints what `start` returned and the milliseconds that `finish` took. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST_THREADS = 64, EACH = 1000 };
static int (*start)(int);
static void (*push)(const char *), (*pop)(void), (*pause_all)(void), (*resume_all)(void), (*finish)(void);
static pthread_t threads[MOST_THREADS];
static int thread_count;

static void *function(void *library, const char *name)
{
    void *found = library ? dlsym(library, name) : NULL;
    if (!found)
        exit(3);
    return found;
}

static void load(void)
{
    void *library = dlopen(getenv("JOB_LIBRARY"), RTLD_NOW);
    *(void **)&start = function(library, "deepprof_operators");
    *(void **)&push = function(library, "deepprof_push");
    *(void **)&pop = function(library, "deepprof_pop");
    *(void **)&pause_all = function(library, "deepprof_pause");
    *(void **)&resume_all = function(library, "deepprof_resume");
    *(void **)&finish = function(library, "deepprof_finish");
}

static void make_ranges(long count, const char *name)
{
    while (count--) {
        push(name);
        pop();
    }
}

static void *make_some(void *unused)
{
    make_ranges(EACH, "range"); /* a name that is there: no memory is taken under a lock while another thread forks */
    return unused;
}

static void start_threads(long count)
{
    for (; count-- && thread_count < MOST_THREADS; thread_count++)
        pthread_create(&threads[thread_count], NULL, make_some, NULL);
}

static void *make_few(void *unused)
{
    make_ranges(10, "range");
    return unused;
}

static void pass_threads(long count)
{
    for (pthread_t thread; count--;) {
        pthread_create(&thread, NULL, make_few, NULL);
        pthread_join(thread, NULL);
    }
}

static void limit_memory(int is_cramped)
{
    struct rlimit limit;
    getrlimit(RLIMIT_AS, &limit);
    limit.rlim_cur = is_cramped ? 1 << 20 : limit.rlim_max;
    setrlimit(RLIMIT_AS, &limit);
}

static void time_finish(void)
{
    struct timespec before, after;
    clock_gettime(CLOCK_MONOTONIC, &before);
    finish();
    clock_gettime(CLOCK_MONOTONIC, &after);
    printf("%ld\n", (after.tv_sec - before.tv_sec) * 1000 + (after.tv_nsec - before.tv_nsec) / 1000000);
}

static void await_line(void)
{
    char line[8];
    puts("ready");
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin))
        exit(4);
}

static void idle(long milliseconds)
{
    struct timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000};
    nanosleep(&time, NULL);
}

/* Returns where to go on. */
static char **part(char **words)
{
    fflush(stdout);
    if (!fork()) {
        thread_count = 0;
        return words;
    }
    while (strcmp(*words++, "parent"))
        ;
    return words;
}

static char **obey(char **words)
{
    const char *word = *words++;
    if (!strcmp(word, "start")) printf("%d\n", start(1));
    else if (!strcmp(word, "ranges")) make_ranges(atol(*words++), "range");
    else if (!strcmp(word, "quiet")) make_ranges(atol(*words++), "quiet");
    else if (!strcmp(word, "threads")) start_threads(atol(*words++));
    else if (!strcmp(word, "passing")) pass_threads(atol(*words++));
    else if (!strcmp(word, "pause")) pause_all();
    else if (!strcmp(word, "resume")) resume_all();
    else if (!strcmp(word, "finish")) time_finish();
    else if (!strcmp(word, "line")) await_line();
    else if (!strcmp(word, "idle")) idle(atol(*words++));
    else if (!strcmp(word, "fork")) words = part(words);
    else if (!strcmp(word, "cramped")) limit_memory(1);
    else if (!strcmp(word, "roomy")) limit_memory(0);
    else if (!strcmp(word, "parent")) exit(0); /* the child's part ends here */
    else exit(2);
    return words;
}

int main(int count, char **words)
{
    load();
    setvbuf(stdin, NULL, _IONBF, 0); /* a line for each process that waits for one */
    for (words += count > 0; *words;)
        words = obey(words);
    while (thread_count)
        pthread_join(threads[--thread_count], NULL);
    for (int status; wait(&status) > 0;)
        if (status)
            return 5;
    return 0;
}
