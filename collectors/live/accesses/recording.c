/* The recording: a line of JSON per launch, allocation and release; collectors/importers/accesses reads it.
 *
 * Each line goes out at once, so that a job that is killed loses none of them but the last, which counts losses. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "parts.h"

#define COUNT "%llu"
enum { MAX_PROBLEMS = 20, MAX_NAME = 8192 };
static const char *const REASONS[LOSSES] = {"skipped", "launch-limit", "other-name", "graph-kernel", "unpatched",
                                            "no-table", "unread", "copy", "memset"};

static struct {
    pthread_mutex_t mutex;
    const struct settings *settings;
    int sees_tensor_copies, failed, problems;
    pid_t process; /* whose file it is: a forked one leaves it alone */
    FILE *file;
    int64_t unix_offset_ns;
    unsigned long long lost[LOSSES];
} r = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static int64_t read_clock(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

int64_t monotonic_ns(void) { return read_clock(CLOCK_MONOTONIC); }

void recording_open(const struct settings *settings, int sees_tensor_copies)
{
    r.settings = settings;
    r.sees_tensor_copies = sees_tensor_copies;
    r.unix_offset_ns = read_clock(CLOCK_REALTIME) - monotonic_ns();
}

/* A file that is there is another process's of the job: ours gets the process's number behind its name. */
static FILE *create(void)
{
    char beside[4096];
    int file = open(r.settings->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (file < 0 && errno == EEXIST) {
        snprintf(beside, sizeof beside, "%s.%d", r.settings->path, (int)getpid());
        file = open(beside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    }
    return file < 0 ? NULL : fdopen(file, "w");
}

/* Returns whether there is a file to write to; it is made for the first line, as not each process uses a GPU. */
static int is_open(void)
{
    if (r.file || r.failed)
        return r.file && r.process == getpid();
    r.process = getpid();
    r.file = create();
    if (!r.file) {
        r.failed = 1;
        fprintf(stderr, "deepprof: %s cannot be written: %s\n", r.settings->path, strerror(errno));
        return 0;
    }
    const char *rank = getenv("RANK");
    long number = rank && *rank ? strtol(rank, NULL, 10) : -1;
    fprintf(r.file,
            "{\"kind\":\"start\",\"format\":\"deepprof.accesses/1\",\"process\":%d,\"rank\":%ld,\"block_nbytes\":" COUNT
            ",\"slots\":" COUNT ",\"sees_tensor_copies\":%s}\n",
            (int)getpid(), number, r.settings->block_nbytes, r.settings->slots, r.sees_tensor_copies ? "true" : "false");
    return 1;
}

static void write_text(const char *text)
{
    putc('"', r.file);
    for (size_t i = 0; text[i] && i < MAX_NAME; i++) {
        unsigned char character = (unsigned char)text[i];
        if (character < 0x20 || character >= 0x7f || character == '"' || character == '\\')
            fprintf(r.file, "\\u%04x", character);
        else
            putc(character, r.file);
    }
    putc('"', r.file);
}

static void write_counts(const struct access_slot *slot)
{
    fprintf(r.file, COUNT "," COUNT "," COUNT "," COUNT, slot->reads, slot->read_nbytes, slot->writes, slot->write_nbytes);
}

/* Five numbers a block: where it begins and its counts. */
static void write_table(const struct access_table *table)
{
    const struct access_slot *slots = (const struct access_slot *)(table + 1);
    const char *before = "";
    fputs(",\"full\":[", r.file);
    write_counts(&table->full);
    fprintf(r.file, "],\"tensor_copies\":" COUNT ",\"blocks\":[", table->tensor_copies);
    for (unsigned long long i = 0; i <= table->mask; i++) {
        if (!slots[i].block)
            continue;
        fprintf(r.file, "%s" COUNT ",", before, (slots[i].block - 1) << table->shift);
        write_counts(&slots[i]);
        before = ",";
    }
    putc(']', r.file);
}

void recording_launch(const struct launch *launch, const struct access_table *table)
{
    pthread_mutex_lock(&r.mutex);
    if (is_open()) {
        fprintf(r.file, "{\"kind\":\"launch\",\"launch\":" COUNT ",\"name\":", launch->number);
        write_text(launch->name);
        fprintf(r.file,
                ",\"device\":%u,\"context\":%u,\"stream\":" COUNT ",\"grid\":" COUNT ",\"block\":%u,\"start_ns\":%" PRId64
                ",\"end_ns\":%" PRId64,
                launch->device, launch->context, launch->stream, launch->grid, launch->block,
                launch->start_ns + r.unix_offset_ns, launch->end_ns + r.unix_offset_ns);
        write_table(table);
        fputs("}\n", r.file);
        fflush(r.file);
    }
    pthread_mutex_unlock(&r.mutex);
}

void recording_memory(unsigned device, unsigned long long address, long long nbytes)
{
    int64_t time_ns = monotonic_ns();
    pthread_mutex_lock(&r.mutex);
    if (is_open()) {
        fprintf(r.file, "{\"kind\":\"memory\",\"time_ns\":%" PRId64 ",\"device\":%u,\"address\":" COUNT ",\"nbytes\":%lld}\n",
                time_ns + r.unix_offset_ns, device, address, nbytes);
        fflush(r.file);
    }
    pthread_mutex_unlock(&r.mutex);
}

void recording_problem(const char *what, const char *why)
{
    pthread_mutex_lock(&r.mutex);
    if (r.problems++ < MAX_PROBLEMS && is_open()) {
        fputs("{\"kind\":\"problem\",\"what\":", r.file);
        write_text(what);
        fputs(",\"why\":", r.file);
        write_text(why);
        fputs("}\n", r.file);
        fflush(r.file);
    }
    pthread_mutex_unlock(&r.mutex);
}

void recording_lose(enum loss reason)
{
    pthread_mutex_lock(&r.mutex);
    r.lost[reason]++;
    pthread_mutex_unlock(&r.mutex);
}

void recording_close(void)
{
    pthread_mutex_lock(&r.mutex);
    if (r.file && r.process == getpid()) {
        fprintf(r.file, "{\"kind\":\"end\",\"problems\":%d,\"lost\":{", r.problems);
        for (int i = 0; i < LOSSES; i++)
            fprintf(r.file, "%s\"%s\":" COUNT, i ? "," : "", REASONS[i], r.lost[i]);
        fputs("}}\n", r.file);
        fclose(r.file);
        r.file = NULL;
        r.failed = 1; /* what comes now comes after the end */
    }
    pthread_mutex_unlock(&r.mutex);
}
