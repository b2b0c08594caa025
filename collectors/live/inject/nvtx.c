/* NVTX version 3, as the library that NVTX_INJECTION64_PATH names.
 *
 * Each user of NVTX has a header compiled in that, at its first call, loads the injection and gives it a table of places
 * where functions go, by module and number. The numbers and layouts are facts of the public binary interface.
 */
#include <stddef.h>
#include <stdint.h>
#include "core.h"
#include "hooks.h"
#include "labels.h"
#include "ranges.h"

enum { TABLE_OF_CALLBACKS = 1, CORE = 1, CORE2 = 5 };
enum { ASCII = 1, REGISTERED = 3 };

typedef void (*function)(void);

struct callbacks {
    size_t nbytes;
    int (*find_module)(int module, function ***table, unsigned *size);
};

/* What is to be said of a range; older headers have shorter ones, all hold the message. */
struct attributes {
    uint16_t version, nbytes;
    uint32_t category;
    int32_t color_type;
    uint32_t color;
    int32_t payload_type, reserved;
    uint64_t payload;
    int32_t message_type;
    const void *message;
};

_Static_assert(offsetof(struct attributes, message) == 40, "NVTX's event attributes");

static uint32_t name_of_text(const char *text) { return dp_label_name(dp_label(text)); }

/* Wide texts have one name: they are rare, and what a character is differs between systems. */
static uint32_t name_of(const struct attributes *about)
{
    if (!about || about->nbytes < sizeof *about)
        return name_of_text("(NVTX)");
    if (about->message_type == REGISTERED && about->message)
        return dp_label_name((struct dp_label *)about->message);
    if (about->message_type == ASCII && about->message)
        return name_of_text(about->message);
    return name_of_text("(NVTX)");
}

static int begin(void *domain, uint32_t name) { return dp_range_begin((uintptr_t)domain, name, DP_ANNOTATION, DP_FROM_NVTX); }
static uint64_t open(uint32_t name) { return dp_range_open(name, DP_ANNOTATION, DP_FROM_NVTX); }
static void mark(uint32_t name) { dp_range_mark(name, DP_ANNOTATION, DP_FROM_NVTX); }

static void mark_ex(const struct attributes *about)
{
    if (dp_ranges_wanted())
        mark(name_of(about));
}

static void mark_ascii(const char *text)
{
    if (dp_ranges_wanted())
        mark(name_of_text(text));
}

static uint64_t start_ex(const struct attributes *about) { return dp_ranges_wanted() ? open(name_of(about)) : 0; }
static uint64_t start_ascii(const char *text) { return dp_ranges_wanted() ? open(name_of_text(text)) : 0; }
static uint64_t start_wide(const void *text) { return (void)text, start_ex(NULL); }
static int push_ex(const struct attributes *about) { return dp_ranges_wanted() ? begin(NULL, name_of(about)) : 0; }
static int push_ascii(const char *text) { return dp_ranges_wanted() ? begin(NULL, name_of_text(text)) : 0; }
static int push_wide(const void *text) { return (void)text, push_ex(NULL); }
static int pop(void) { return dp_range_end(0); }

static void domain_mark(void *domain, const struct attributes *about) { (void)domain, mark_ex(about); }
static uint64_t domain_start(void *domain, const struct attributes *about) { return (void)domain, start_ex(about); }
static void domain_stop(void *domain, uint64_t id) { (void)domain, dp_range_close(id); }
static int domain_pop(void *domain) { return dp_range_end((uintptr_t)domain); }

static int domain_push(void *domain, const struct attributes *about)
{
    return dp_ranges_wanted() ? begin(domain, name_of(about)) : 0;
}

/* Domains and registered texts are both a label: one has to be told from another, nothing else. */
static void *register_ascii(void *domain, const char *text) { return (void)domain, dp_label(text); }
static void *register_wide(void *domain, const void *text) { return (void)domain, (void)text, dp_label("(NVTX)"); }
static void *create_ascii(const char *name) { return dp_label(name); }
static void *create_wide(const void *name) { return (void)name, dp_label("(NVTX domain)"); }

struct place {
    int module;
    unsigned number;
    function function;
};

static const struct place PLACES[] = {
    {CORE, 1, (function)mark_ex},        {CORE, 2, (function)mark_ascii},     {CORE, 4, (function)start_ex},
    {CORE, 5, (function)start_ascii},    {CORE, 6, (function)start_wide},     {CORE, 7, (function)dp_range_close},
    {CORE, 8, (function)push_ex},        {CORE, 9, (function)push_ascii},     {CORE, 10, (function)push_wide},
    {CORE, 11, (function)pop},           {CORE2, 1, (function)domain_mark},   {CORE2, 2, (function)domain_start},
    {CORE2, 3, (function)domain_stop},   {CORE2, 4, (function)domain_push},   {CORE2, 5, (function)domain_pop},
    {CORE2, 10, (function)register_ascii}, {CORE2, 11, (function)register_wide}, {CORE2, 12, (function)create_ascii},
    {CORE2, 13, (function)create_wide},
};

static void fill(const struct callbacks *callbacks, const struct place *place)
{
    function **table = NULL;
    unsigned size = 0;
    if (callbacks->find_module(place->module, &table, &size) && table && place->number < size && table[place->number])
        *table[place->number] = place->function;
}

/* 1: taken. Ranges are kept once something starts the worker: CUPTI, or the hook. */
DP_API int InitializeInjectionNvtx2(const void *(*get_table)(uint32_t))
{
    const struct callbacks *callbacks = get_table ? get_table(TABLE_OF_CALLBACKS) : NULL;
    if (!callbacks || callbacks->nbytes < sizeof *callbacks || !callbacks->find_module)
        return 0;
    for (unsigned i = 0; i < sizeof PLACES / sizeof *PLACES; i++)
        fill(callbacks, &PLACES[i]);
    return 1;
}
