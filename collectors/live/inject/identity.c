/* Who this process is, as HELLO tells the agent: its place in the job, its command, what collects. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>
#include "parts.h"

enum { COMMAND_LENGTH = 1024, SOCKET_LENGTH = 108 /* sun_path, with its zero */ };

static const char *const PLACES[] = {
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "TORCHELASTIC_RUN_ID", "SLURM_PROCID",
    "SLURM_NTASKS", "SLURM_STEP_NUM_TASKS", "SLURM_JOB_ID", "SLURM_JOB_NAME", "SLURM_STEP_ID",
    "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMI_RANK", "PMI_SIZE", "PMIX_RANK", "MPI_LOCALRANKID", "JOB_COMPLETION_INDEX", "JOB_NAME", "POD_NAME", "HOSTNAME",
    "NODE_RANK", "DEEPPROF_JOB", "DEEPPROF_RANK", "DEEPPROF_WORLD_SIZE", "CUDA_VISIBLE_DEVICES",
};

/* `described` is written before the worker starts; the rest by the thread that starts it, under the core's lock. */
static struct {
    char socket[SOCKET_LENGTH], text[HELLO_NBYTES];
    size_t length;
} self;
static char described[512];

/* Whole lines only: half a value would be another one. */
static void add_line(const char *key, const char *value)
{
    size_t room = sizeof self.text - 32 /* for continues=1 */ - self.length;
    size_t length = strlen(key) + strlen(value) + 2;
    if (length >= room)
        return;
    char *line = self.text + self.length;
    snprintf(line, room, "%s=%s\n", key, value);
    for (char *c = line; c < line + length - 1; c++)
        if ((unsigned char)*c < ' ')
            *c = ' ';
    self.length += length;
}

/* Reads a file of /proc up to `room`, ends it with a zero, and returns its length. */
static size_t read_file(const char *path, char *text, size_t room)
{
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = file < 0 ? -1 : read(file, text, room - 1);
    if (file >= 0)
        close(file);
    text[length > 0 ? length : 0] = 0;
    return length > 0 ? (size_t)length : 0;
}

size_t process_name(char *text, size_t room)
{
    size_t length = read_file("/proc/self/comm", text, room);
    if (length && text[length - 1] == '\n')
        text[--length] = 0;
    return length;
}

static void add_command(void)
{
    char command[COMMAND_LENGTH + 1];
    size_t length = read_file("/proc/self/cmdline", command, sizeof command);
    while (length && !command[length - 1])
        length--;
    for (size_t i = 0; i < length; i++)
        if (!command[i])
            command[i] = ' ';
    command[length] = 0;
    add_line("command", command);
}

/* Field 22 of stat, counted from the last bracket: the command in field 2 may hold spaces and brackets. */
static void add_start(void)
{
    char stat[1024], *field;
    read_file("/proc/self/stat", stat, sizeof stat);
    field = strrchr(stat, ')');
    for (int i = 2; field && i < 22; i++)
        field = strchr(field + 1, ' ');
    if (!field)
        return;
    field[1 + strspn(field + 1, "0123456789")] = 0;
    add_line("start", field + 1);
}

static void add_session(void)
{
    unsigned char bytes[16] = {0};
    char digits[33];
    if (getrandom(bytes, sizeof bytes, GRND_NONBLOCK) < 0) {
        int64_t now = dp_now_ns(), process = getpid();
        memcpy(bytes, &now, 8);
        memcpy(bytes + 8, &process, 8);
    }
    for (int i = 0; i < 16; i++)
        snprintf(digits + 2 * i, 3, "%02x", bytes[i]);
    add_line("session", digits);
}

static void add_places(void)
{
    char key[64];
    for (size_t i = 0; i < sizeof PLACES / sizeof *PLACES; i++) {
        const char *value = getenv(PLACES[i]);
        snprintf(key, sizeof key, "env:%s", PLACES[i]);
        if (value)
            add_line(key, value);
    }
}

static void add_described(void)
{
    char lines[sizeof described], *rest = lines;
    memcpy(lines, described, sizeof lines);
    for (char *line; (line = strsep(&rest, "\n")) && *line;) {
        char *value = strchr(line, '=');
        *value = 0;
        add_line(line, value + 1);
    }
}

void dp_describe(const char *key, const char *value)
{
    char *end = described + strlen(described);
    size_t room = sizeof described - (size_t)(end - described);
    if (strlen(key) + strlen(value) + 3 < room && !strpbrk(value, "\n") && !strpbrk(key, "=\n"))
        stpcpy(stpcpy(stpcpy(stpcpy(end, key), "="), value), "\n");
}

int identity_take(const char *collector)
{
    char number[24];
    const char *path = getenv("DEEPPROF_SOCKET");
    if (!path || !*path)
        return -1;
    if (strlen(path) >= sizeof self.socket) {
        if (!getenv("DEEPPROF_QUIET"))
            fprintf(stderr, "deepprof: not collecting: DEEPPROF_SOCKET is longer than %d characters\n", SOCKET_LENGTH - 1);
        return -1;
    }
    strcpy(self.socket, path);
    self.length = 0;
    snprintf(number, sizeof number, "%d", DP_VERSION);
    add_line("version", number);
    snprintf(number, sizeof number, "%ld", (long)getpid());
    add_line("pid", number);
    add_start();
    add_session();
    add_line("collector", collector);
    add_described();
    add_places(); /* before the command, which is long and matters least */
    add_command();
    return 0;
}

const char *identity_socket(void) { return self.socket; }

size_t identity_hello(char *text, size_t room, int continues)
{
    static const char CONTINUES[] = "continues=1\n";
    size_t length = self.length < room ? self.length : 0;
    memcpy(text, self.text, length);
    if (continues && length + sizeof CONTINUES <= room) {
        memcpy(text + length, CONTINUES, sizeof CONTINUES - 1);
        length += sizeof CONTINUES - 1;
    }
    return length;
}

uint64_t setting(const char *name, uint64_t fallback, uint64_t least, uint64_t most)
{
    const char *text = getenv(name);
    char *end = NULL;
    unsigned long long value = text && *text >= '0' && *text <= '9' ? strtoull(text, &end, 10) : 0;
    if (!end || *end)
        return fallback;
    return value < least ? least : value > most ? most : value;
}

void identity_forget(void) { described[0] = 0; }
