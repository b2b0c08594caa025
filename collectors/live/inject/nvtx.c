/* NVTX version 3, as the library that NVTX_INJECTION64_PATH names.
 *
 * Each user of NVTX has a header compiled in that, at its first call, loads the injection and gives it a table of places
 * where functions go, by module and number. The numbers and layouts are facts of the public binary interface.
 */
#include <stddef.h>
#include <stdint.h>
#include <wchar.h>
#include "core.h"
#include "hooks.h"
#include "labels.h"
#include "ranges.h"

enum { TABLE_OF_CALLBACKS = 1, CORE = 1, CORE2 = 5 };
enum { ASCII = 1, WIDE = 2, REGISTERED = 3 };
enum { TEXT_NBYTES = 1024 }; /* a label holds no more */

typedef void (*function)(void);

struct callbacks {
    size_t nbytes;
    int (*find_module)(int module, function ***table, unsigned *size);
};

/* What is to be said of a range; older headers have shorter ones, all hold the message. Payload, color and category are
 * left out: a record has no place for them, and no question that is asked of ranges needs them. */
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

_Static_assert(sizeof(wchar_t) == 4, "NVTX's wide texts");
_Static_assert(offsetof(struct attributes, message) == 40, "NVTX's event attributes");

/* Writes a character as UTF-8, and returns its length. */
static size_t spell(char *text, uint32_t character)
{
    static const unsigned char LEADS[] = {0, 0xC0, 0xE0, 0xF0};
    if (character > 0x10FFFF || (character >= 0xD800 && character < 0xE000))
        character = 0xFFFD;
    unsigned more = character < 0x80 ? 0 : character < 0x800 ? 1 : character < 0x10000 ? 2 : 3;
    text[0] = (char)(LEADS[more] | character >> 6 * more);
    for (unsigned i = 1; i <= more; i++)
        text[i] = (char)(0x80 | (character >> 6 * (more - i) & 0x3F));
    return more + 1;
}

/* A wide character has 32 bits on Linux. What does not fit is cut off between two of them. */
static struct dp_label *label_of_wide(const wchar_t *wide)
{
    char text[TEXT_NBYTES + 4];
    size_t length = 0, next = 0;
    for (; wide && *wide && (next = length + spell(text + length, (uint32_t)*wide)) < TEXT_NBYTES; wide++)
        length = next;
    text[length] = 0;
    return dp_label(wide ? text : "(NVTX)");
}

static struct dp_label *label_of(const char *text) { return dp_label(text ? text : "(NVTX)"); }
static uint32_t name_of_text(const char *text) { return dp_label_name(label_of(text)); }
static uint32_t name_of_wide(const wchar_t *text) { return dp_label_name(label_of_wide(text)); }

static uint32_t name_of(const struct attributes *about)
{
    if (!about || about->nbytes < sizeof *about || !about->message)
        return name_of_text(NULL);
    switch (about->message_type) {
    case ASCII: return name_of_text(about->message);
    case WIDE: return name_of_wide(about->message);
    case REGISTERED: return dp_label_name((struct dp_label *)about->message);
    default: return name_of_text(NULL);
    }
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

static void mark_wide(const wchar_t *text)
{
    if (dp_ranges_wanted())
        mark(name_of_wide(text));
}

static uint64_t start_ex(const struct attributes *about) { return dp_ranges_wanted() ? open(name_of(about)) : 0; }
static uint64_t start_ascii(const char *text) { return dp_ranges_wanted() ? open(name_of_text(text)) : 0; }
static uint64_t start_wide(const wchar_t *text) { return dp_ranges_wanted() ? open(name_of_wide(text)) : 0; }
static int push_ex(const struct attributes *about) { return dp_ranges_wanted() ? begin(NULL, name_of(about)) : 0; }
static int push_ascii(const char *text) { return dp_ranges_wanted() ? begin(NULL, name_of_text(text)) : 0; }
static int push_wide(const wchar_t *text) { return dp_ranges_wanted() ? begin(NULL, name_of_wide(text)) : 0; }
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
static void *register_ascii(void *domain, const char *text) { return (void)domain, label_of(text); }
static void *register_wide(void *domain, const wchar_t *text) { return (void)domain, label_of_wide(text); }
static void *create_ascii(const char *name) { return label_of(name); }
static void *create_wide(const wchar_t *name) { return label_of_wide(name); }

struct place {
    int module;
    unsigned number;
    function function;
};

static const struct place PLACES[] = {
    {CORE, 1, (function)mark_ex},          {CORE, 2, (function)mark_ascii},       {CORE, 3, (function)mark_wide},
    {CORE, 4, (function)start_ex},         {CORE, 5, (function)start_ascii},      {CORE, 6, (function)start_wide},
    {CORE, 7, (function)dp_range_close},   {CORE, 8, (function)push_ex},          {CORE, 9, (function)push_ascii},
    {CORE, 10, (function)push_wide},       {CORE, 11, (function)pop},
    {CORE2, 1, (function)domain_mark},     {CORE2, 2, (function)domain_start},    {CORE2, 3, (function)domain_stop},
    {CORE2, 4, (function)domain_push},     {CORE2, 5, (function)domain_pop},
    {CORE2, 10, (function)register_ascii}, {CORE2, 11, (function)register_wide},
    {CORE2, 12, (function)create_ascii},   {CORE2, 13, (function)create_wide},
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
