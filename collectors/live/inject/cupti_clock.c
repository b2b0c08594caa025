/* CUPTI's clock and ours. Worker thread only.
 *
 * CUPTI gives times on CLOCK_REALTIME unless some client has registered a clock of its own: torch.profiler registers the
 * processor's cycle counter at each of its sessions, and it stays registered for every client after them. To register
 * another one would be worse: with each change CUPTI gives one more kernel of the next session, ours or the user's, a
 * time of the wrong clock (pytorch#192021). So whatever clock there is is measured, and its times are converted here.
 *
 * Our clock is nanoseconds: CUPTI's own one as long as it counts nanoseconds, and goes on evenly when CUPTI's is changed. */
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "cupti_parts.h"
#include "parts.h"

/* A clock is measured over so long: the two readings are each sure to a microsecond or so, which makes 2e-5. The agent
 * follows what remains. */
static const int64_t MEASURED_NS = 50000000;
static const double SAME_RATE = 2e-3; /* nanoseconds, slewed at the most as NTP does it; cycle counters differ by more */
static const double SLOWEST = 1e-3, FASTEST = 20; /* counters: 1 MHz and 20 GHz */
static const int64_t SAME_NS = 5000000, NEAR_UNIX_NS = 3600000000000; /* of readings on a busy machine; of two hosts' clocks */

struct reading { int64_t mono_ns, unix_ns; uint64_t device; };

static struct {
    enum { UNREAD, MEASURING, KNOWN } state;
    struct reading first, last; /* where measuring began; when the clock was found to be the same the last time */
    double ratio;               /* our nanoseconds in one of its units */
    uint64_t device;            /* this time of its */
    int64_t ours_ns;            /* is that of ours */
    int64_t shift_ns;           /* ours less CLOCK_MONOTONIC, at the last reading */
    int has_shift, is_told;
    unsigned cycles;            /* how often a clock that counts no nanoseconds was found */
} c;

/* The clocks are read between two readings of one of them, and the closest of three tries is taken. */
static int take_reading(struct reading *reading)
{
    int64_t closest = DP_NEVER;
    for (int i = 0; i < 3; i++) {
        int64_t before = dp_now_ns();
        uint64_t device = session_timestamp();
        int64_t unix_ns = clock_ns(CLOCK_REALTIME), took = dp_now_ns() - before;
        if (!device || took >= closest)
            continue;
        closest = took;
        *reading = (struct reading){before + took / 2, unix_ns, device};
    }
    return closest < DP_NEVER ? 0 : -1;
}

static int64_t convert(uint64_t device)
{
    int64_t units = (int64_t)(device - c.device);
    return c.ours_ns + (c.ratio == 1 ? units : (int64_t)((double)units * c.ratio));
}

static void note(const struct reading *now)
{
    c.last = *now;
    c.shift_ns = convert(now->device) - now->mono_ns;
    c.has_shift = 1;
}

/* Ours goes on where it would be now. The first one that counts nanoseconds is ours. */
static void begin(const struct reading *now, double ratio)
{
    int is_ours = !c.has_shift && ratio == 1;
    c.state = KNOWN;
    c.is_told = 0;
    c.cycles += ratio != 1;
    c.ratio = ratio;
    c.device = now->device;
    c.ours_ns = is_ours ? (int64_t)now->device : now->mono_ns + c.shift_ns;
    note(now);
}

static void begin_measuring(const struct reading *now)
{
    c.state = MEASURING;
    c.first = *now;
}

/* It has gone on as one of the host's clocks has: CLOCK_REALTIME may have been set meanwhile. */
static int is_same(const struct reading *now)
{
    int64_t passed = convert(now->device) - convert(c.last.device);
    int64_t by_mono = now->mono_ns - c.last.mono_ns, by_unix = now->unix_ns - c.last.unix_ns;
    int64_t most = SAME_NS + (int64_t)(SAME_RATE * (double)by_mono);
    return llabs(passed - by_mono) <= most || llabs(passed - by_unix) <= most;
}

static int is_nanoseconds(double rate) { return rate > 1 - SAME_RATE && rate < 1 + SAME_RATE; }

/* Whether it went on as some clock does since measuring began; two readings at one moment say nothing. */
static int is_plausible(const struct reading *now, int64_t passed_ns)
{
    double units = (double)(int64_t)(now->device - c.first.device);
    return passed_ns < SAME_NS ? units >= 0 && units <= FASTEST * SAME_NS
                               : units > SLOWEST * (double)passed_ns && units < FASTEST * (double)passed_ns;
}

static enum clock_news measure(const struct reading *now)
{
    int64_t passed_ns = now->mono_ns - c.first.mono_ns;
    if (!is_plausible(now, passed_ns)) {
        begin_measuring(now);
        return CLOCK_CHANGED;
    }
    if (passed_ns < MEASURED_NS)
        return CLOCK_UNKNOWN;
    double rate = (double)(int64_t)(now->device - c.first.device) / (double)passed_ns;
    begin(now, is_nanoseconds(rate) ? 1 : 1 / rate);
    return CLOCK_SAME;
}

enum clock_news clock_look(void)
{
    struct reading now;
    if (take_reading(&now))
        return CLOCK_UNKNOWN;
    if (c.state == MEASURING)
        return measure(&now);
    if (c.state == KNOWN && is_same(&now)) {
        note(&now);
        return CLOCK_SAME;
    }
    enum clock_news news = c.state == KNOWN ? CLOCK_CHANGED : CLOCK_UNKNOWN;
    if (c.state == UNREAD && llabs((int64_t)now.device - now.unix_ns) < NEAR_UNIX_NS) {
        begin(&now, 1); /* CUPTI's own; a cycle counter that is so near is found out at the next look */
        return CLOCK_SAME;
    }
    begin_measuring(&now);
    return news;
}

/* Whoever has to know at once waits: the end of a job that has just begun. A clock that stands still is never known. */
int clock_settle(void)
{
    struct timespec while_measuring = {0, MEASURED_NS / 10};
    int64_t until_ns = dp_now_ns() + 4 * MEASURED_NS;
    while (clock_look() != CLOCK_SAME && c.state == MEASURING && dp_now_ns() < until_ns)
        nanosleep(&while_measuring, NULL);
    return c.state == KNOWN ? 0 : -1;
}

unsigned clock_cycles(void) { return c.cycles; }

void clock_untell(void) { c.is_told = 0; }

int clock_is_told(void) { return c.state == KNOWN && c.is_told; }

int64_t clock_to_ours(uint64_t device) { return convert(device); }

int64_t clock_from_mono(int64_t mono_ns) { return mono_ns + c.shift_ns; }

static uint64_t to_device(int64_t ours_ns)
{
    int64_t ns = ours_ns - c.ours_ns;
    int64_t device = (int64_t)c.device + (c.ratio == 1 ? ns : (int64_t)((double)ns / c.ratio));
    return device > 0 ? (uint64_t)device : 1;
}

struct window clock_window(int64_t earliest_ns, int64_t latest_ns)
{
    return (struct window){to_device(earliest_ns), to_device(latest_ns)};
}

int clock_read(struct dp_tick *tick)
{
    struct reading now;
    if (c.state != KNOWN || take_reading(&now) || !is_same(&now))
        return -1;
    tick->device_ns = convert(now.device);
    tick->mono_ns = now.mono_ns;
    tick->unix_ns = now.unix_ns;
    c.is_told = 1;
    return 0;
}

void clock_forget(void) { memset(&c, 0, sizeof c); }
