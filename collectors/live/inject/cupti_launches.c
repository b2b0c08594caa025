/* Which context launched what: CUPTI's callbacks at the beginning of calls that give the device work.
 *
 * Whoever wants callbacks stays subscribed, and CUPTI takes one subscriber only: with contexts of a GPU, Proton and others
 * that subscribe are refused while we collect. So it is done only where contexts are asked for, and ends as collecting
 * does, also for torch.profiler. Calls of the runtime and the driver's in them both have a number; a record of the device
 * has one of them, so both are told. */
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include "contexts.h"
#include "cupti_parts.h"
#include "parts.h"

enum { ENTER = 0, DRIVER_CALLS = 1, RUNTIME_CALLS = 2, SLOTS = 1 << 16, AT_ONCE = 8192 };
enum { NO_CALLBACKS = 45, LAUNCHES_LOST = 46 }; /* notices */

/* Facts of CUPTI's interface: the beginning of its data of a call, and the numbers of calls. */
struct call {
    int site;
    const char *name;
    const void *parameters;
    void *result;
    const char *symbol;
    void *context;
    uint32_t context_number;
    uint64_t *user;
    uint32_t correlation;
};
_Static_assert(offsetof(struct call, correlation) == 64, "CUpti_CallbackData");

static const uint16_t CALLS_OF_DRIVER[] = {
    307, 442, 477, 478, 480, 514, 515, 652, 653,                         /* kernels and graphs */
    276, 277, 278, 279, 280, 281, 282, 283, 284, 285, 286, 287, 288, 289, 290, 291, 292, 293, 305, 306, 318, 319, 320,
    321, 397, 398, 399, 404, 405, 406, 407, 408, 409, 410, 418, 420, 421, 422, 423, 424, 425, 426, 427, 776, 777, 778,
    779,                                                                /* copies */
    216, 218, 220, 222, 224, 226, 249, 250, 251, 252, 253, 254, 411, 412, 413, 414, 415, 416, 428, 429, 430, 431, 432,
    433,                                                                /* memory that is set */
};
static const uint16_t CALLS_OF_RUNTIME[] = {
    13, 211, 213, 214, 269, 270, 272, 311, 312, 430, 431,
    31, 32, 41, 44, 144, 145, 160, 161, 162, 163, 215, 216, 225, 228, 245, 246, 249, 250, 482, 483, 484, 485,
    49, 50, 51, 52, 142, 143, 233, 234, 235, 236, 243, 244,
};
#define COUNT(numbers) (sizeof(numbers) / sizeof *(numbers))

static _Atomic uint64_t slots[SLOTS]; /* correlation << 32 | context; 0: free, or not written yet */
static _Atomic uint64_t head, tail, lost;
static void *subscriber;              /* of our own; the worker's */

/* On the thread that calls. Another one may be as far: each has its place. */
static void hear(void *unused, int domain, uint32_t number, const void *data)
{
    const struct call *call = data;
    uint32_t context = call && call->site == ENTER ? dp_context_current() : 0;
    (void)unused, (void)domain, (void)number;
    if (!context || !call->correlation)
        return;
    if (atomic_load_explicit(&head, memory_order_relaxed) - atomic_load_explicit(&tail, memory_order_relaxed) >= SLOTS / 2) {
        atomic_fetch_add_explicit(&lost, 1, memory_order_relaxed);
        return;
    }
    uint64_t place = atomic_fetch_add_explicit(&head, 1, memory_order_relaxed);
    atomic_store_explicit(&slots[place % SLOTS], (uint64_t)call->correlation << 32 | context, memory_order_release);
}

static int enable_all(const struct cupti *api, void *of, int domain, const uint16_t *numbers, size_t count)
{
    int some = 0;
    for (size_t i = 0; i < count; i++)
        some += !api->EnableCallback(1, of, domain, numbers[i]); /* a version without the call refuses it */
    return some;
}

void launches_begin(const struct cupti *api, void *joined)
{
    void *of = joined;
    if (!dp_contexts_asked() || subscriber)
        return;
    if (!api->EnableCallback || (!joined && api->Subscribe(&of, hear, NULL))) {
        dp_notice(NO_CALLBACKS, "CUPTI gives no callbacks here: contexts have no time of the device");
        return;
    }
    subscriber = joined ? NULL : of;
    if (!enable_all(api, of, DRIVER_CALLS, CALLS_OF_DRIVER, COUNT(CALLS_OF_DRIVER))
        || !enable_all(api, of, RUNTIME_CALLS, CALLS_OF_RUNTIME, COUNT(CALLS_OF_RUNTIME)))
        dp_notice(NO_CALLBACKS, "CUPTI refuses callbacks of launches: contexts have no time of the device");
}

void launches_end(const struct cupti *api)
{
    if (subscriber)
        api->Unsubscribe(subscriber);
    subscriber = NULL;
}

int launches_subscribed(void) { return subscriber != NULL; }
cupti_callback launches_callback(void) { return hear; }
void launches_forget(void)
{
    subscriber = NULL;
    head = tail = 0;
    for (unsigned i = 0; i < SLOTS; i++)
        atomic_store_explicit(&slots[i], 0, memory_order_relaxed);
}

/* Up to the first that is not written yet. */
static uint32_t take(struct dp_launch *rows, uint32_t most, uint64_t end)
{
    uint64_t at = atomic_load(&tail), value;
    uint32_t count = 0;
    for (; at < end && count < most && (value = atomic_exchange(&slots[at % SLOTS], 0)); at++)
        rows[count++] = (struct dp_launch){(uint32_t)(value >> 32), (uint32_t)value};
    atomic_store(&tail, at);
    return count;
}

uint64_t launches_heard(void) { return atomic_load(&head); }

void launches_put(uint64_t end)
{
    static struct dp_launch rows[AT_ONCE];
    uint32_t count;
    int is_lost = atomic_exchange(&lost, 0) != 0;
    while ((count = take(rows, AT_ONCE, end)))
        is_lost |= queue_put(DP_LAUNCHES, rows, (uint32_t)(count * sizeof *rows)) && queue_is_open();
    if (is_lost)
        dp_notice(LAUNCHES_LOST, "launches came faster than they could be told: some of the device's time has no context");
}
