/* The socket to the agent: never waited for, never trusted, given up at the first sign of trouble and tried again.
 *
 * A job may close descriptors that it did not open (daemons do), and the next file it opens then has our number: so
 * ours is put high up, and each write first looks whether it is still the same socket. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include "parts.h"

enum { NAMES_NBYTES = 256 << 10, LOWEST_DESCRIPTOR = 200 };
static const int64_t FIRST_PAUSE_NS = 100000000, LONGEST_PAUSE_NS = 5000000000;

static struct {
    int descriptor, state, level, blocked;
    int times; /* connections so far */
    dev_t device;
    ino_t inode;
    int64_t again_ns, pause_ns;
    uint32_t names_sent;
    unsigned char heard[sizeof(struct dp_head) + 64]; /* a packet of the agent, as far as it has come */
    size_t heard_nbytes;
    unsigned char *text; /* HELLO or NAMES on their way, before the queue's first packet */
    size_t text_nbytes, text_sent;
} c = {.descriptor = -1};

int connection_state(void) { return c.state; }
int connection_level(void) { return c.level; }
uint32_t connection_times(void) { return (uint32_t)c.times; }
int connection_is_blocked(void) { return c.blocked && (queue_head() || c.text_sent < c.text_nbytes); }

static int is_ours(void)
{
    struct stat is;
    return c.descriptor >= 0 && !fstat(c.descriptor, &is) && is.st_dev == c.device && is.st_ino == c.inode;
}

void connection_close(void)
{
    if (is_ours())
        close(c.descriptor);
    c.descriptor = -1;
    c.state = NO_AGENT;
    c.level = DP_OFF;
    c.blocked = 0;
    c.text_nbytes = c.text_sent = c.heard_nbytes = 0;
    c.again_ns = dp_now_ns() + c.pause_ns;
    c.pause_ns = 2 * c.pause_ns < LONGEST_PAUSE_NS ? 2 * c.pause_ns : LONGEST_PAUSE_NS;
    queue_close();
}

/* ---- what we say ---- */

/* Returns how many bytes went, 0 when the socket takes none now, or -1 when the connection is lost. */
static ssize_t give(const unsigned char *bytes, size_t count)
{
    ssize_t given = -1;
    if (is_ours())
        given = send(c.descriptor, bytes, count, MSG_NOSIGNAL | MSG_DONTWAIT);
    else
        errno = EBADF;
    if (given >= 0)
        return given;
    c.blocked = errno == EAGAIN; /* of the others no poll tells when they are over */
    if (errno == EAGAIN || errno == EINTR || errno == ENOBUFS || errno == ENOMEM)
        return 0;
    connection_close();
    return -1;
}

/* Sends the rest of c.text. Returns whether all of it has gone. */
static int push_text(void)
{
    while (c.text_sent < c.text_nbytes) {
        ssize_t given = give(c.text + c.text_sent, c.text_nbytes - c.text_sent);
        if (given <= 0)
            return 0;
        c.text_sent += (size_t)given;
    }
    return 1;
}

static void start_text(enum dp_kind kind)
{
    struct dp_head head = {.magic = DP_MAGIC, .kind = (uint16_t)kind};
    memcpy(c.text, &head, sizeof head);
    c.text_nbytes = sizeof head;
    c.text_sent = 0;
}

static void end_text(void) { ((struct dp_head *)c.text)->nbytes = (uint32_t)(c.text_nbytes - sizeof(struct dp_head)); }

/* Writes the next names into c.text, as many as it holds: at least one, since the longest is a quarter of it. */
static void write_names(void)
{
    start_text(DP_NAMES);
    for (uint32_t count = names_count(); c.names_sent < count; c.names_sent++) {
        struct dp_name_head name = {c.names_sent + 1, (uint32_t)names_length(c.names_sent + 1)};
        if (c.text_nbytes + sizeof name + name.nbytes > NAMES_NBYTES)
            break;
        memcpy(c.text + c.text_nbytes, &name, sizeof name);
        memcpy(c.text + c.text_nbytes + sizeof name, names_text(name.id), name.nbytes);
        c.text_nbytes += sizeof name + name.nbytes;
    }
    end_text();
}

/* Sends what comes before the packet: the names that it needs. Returns whether all of them have gone. */
static int push_names(const struct packet *packet)
{
    while (push_text()) {
        if (packet->sent || packet->names <= c.names_sent)
            return 1;
        write_names();
    }
    return 0;
}

void connection_push(void)
{
    c.blocked = 0;
    if (c.state == NO_AGENT || !push_text())
        return;
    for (struct packet *packet; c.state == WELCOMED && (packet = queue_head());) {
        if (!push_names(packet))
            return;
        ssize_t given = give(packet->bytes + packet->sent, packet->filled - packet->sent);
        if (given <= 0)
            return;
        packet->sent += (uint32_t)given;
        if (packet->sent == packet->filled)
            queue_pop();
    }
}

/* ---- what we hear ---- */

static void obey(enum dp_kind kind, const unsigned char *payload, uint32_t nbytes)
{
    uint32_t words[2] = {0};
    memcpy(words, payload, nbytes < sizeof words ? nbytes : sizeof words);
    if (kind == DP_WELCOME && nbytes >= 8 && words[0] == DP_VERSION) {
        c.state = WELCOMED;
        c.level = words[1] == DP_ON;
        c.pause_ns = FIRST_PAUSE_NS;
    } else if (kind == DP_LEVEL && nbytes >= 4 && c.state == WELCOMED) {
        c.level = words[0] == DP_ON;
    } else if (kind == DP_WELCOME) {
        connection_close(); /* an agent of another version: it may be replaced, so we try again, seldom */
        c.again_ns = dp_now_ns() + LONGEST_PAUSE_NS;
    }
}

/* Takes whole packets out of c.heard. Returns whether what came can be believed. */
static int take_packets(void)
{
    struct dp_head head;
    while (c.heard_nbytes >= sizeof head) {
        memcpy(&head, c.heard, sizeof head);
        if (head.magic != DP_MAGIC || head.nbytes > sizeof c.heard - sizeof head)
            return 0;
        size_t whole = sizeof head + head.nbytes;
        if (c.heard_nbytes < whole)
            return 1;
        obey(head.kind, c.heard + sizeof head, head.nbytes);
        if (c.state == NO_AGENT)
            return 1;
        c.heard_nbytes -= whole;
        memmove(c.heard, c.heard + whole, c.heard_nbytes);
    }
    return 1;
}

static void hear(void)
{
    while (c.state != NO_AGENT) {
        ssize_t came = -1;
        errno = EBADF;
        if (is_ours())
            came = recv(c.descriptor, c.heard + c.heard_nbytes, sizeof c.heard - c.heard_nbytes, MSG_DONTWAIT);
        if (came < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        c.heard_nbytes += came > 0 ? (size_t)came : 0;
        if (came <= 0 || !take_packets())
            connection_close();
    }
}

/* ---- coming and going ---- */

static int is_of(const struct stat *directory, uid_t user)
{
    return directory->st_uid == user && !(directory->st_mode & (S_IWGRP | S_IWOTH)); /* a link has both bits */
}

/* Whether root made the socket's directory for this user, as /run/deepprof for the system's agent. */
static int has_place_from_root(uid_t user)
{
    char path[sizeof ((struct sockaddr_un *)0)->sun_path + sizeof "/.."];
    struct stat directory, above;
    strcpy(path, identity_socket());
    char *name = strrchr(path, '/');
    if (!name || name == path)
        return 0;
    *name = 0;
    if (lstat(path, &directory))
        return 0;
    strcpy(name, "/..");
    return is_of(&directory, user) && !stat(path, &above) && is_of(&above, 0);
}

/* Whether who listens may hear our records. deepprof/ownership.py has the same rule. */
static int is_trusted(int opened)
{
    struct ucred peer;
    socklen_t nbytes = sizeof peer;
    if (getsockopt(opened, SOL_SOCKET, SO_PEERCRED, &peer, &nbytes))
        return 0;
    return peer.uid == geteuid() || !peer.uid || has_place_from_root(peer.uid);
}

static int open_socket(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int opened = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (opened < 0)
        return -1;
    strcpy(address.sun_path, identity_socket()); /* which checked its length */
    int high = fcntl(opened, F_DUPFD_CLOEXEC, LOWEST_DESCRIPTOR);
    if (high >= 0) {
        close(opened);
        opened = high;
    }
    if (!connect(opened, (struct sockaddr *)&address, sizeof address) && is_trusted(opened))
        return opened;
    close(opened);
    return -1;
}

static void greet(void)
{
    start_text(DP_HELLO);
    c.text_nbytes += identity_hello((char *)c.text + c.text_nbytes, HELLO_NBYTES, c.times++ > 0);
    end_text();
    c.state = GREETED;
    c.names_sent = 0;
    notices_again();
}

static void open_connection(void)
{
    struct stat is;
    c.pause_ns = c.pause_ns ? c.pause_ns : FIRST_PAUSE_NS;
    if (!c.text && !(c.text = malloc(NAMES_NBYTES)))
        return;
    c.descriptor = open_socket();
    if (c.descriptor < 0 || fstat(c.descriptor, &is)) {
        connection_close();
        return;
    }
    c.device = is.st_dev;
    c.inode = is.st_ino;
    greet();
}

void connection_follow(int may_open)
{
    if (may_open && c.state == NO_AGENT && dp_now_ns() >= c.again_ns)
        open_connection();
    hear();
}

static void wait_for(short events, int milliseconds)
{
    struct pollfd socket = {.fd = c.descriptor, .events = events};
    poll(&socket, 1, milliseconds);
}

void connection_wait(int milliseconds) { wait_for(POLLOUT | POLLIN, milliseconds); }
void connection_wait_to_hear(int milliseconds) { wait_for(POLLIN, milliseconds); }

void connection_forget(void)
{
    if (is_ours())
        close(c.descriptor);
    memset(&c, 0, sizeof c);
    c.descriptor = -1;
}
