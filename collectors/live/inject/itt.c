/* Intel's Instrumentation and Tracing Technology API, as the collector that INTEL_LIBITTNOTIFY64 names.
 *
 * A program that uses ITT has a small static part linked in: PyTorch has one, oneDNN inside it another. At its first call
 * that part loads the collector and hands over its table of functions, `struct itt_global`; the collector writes its own
 * functions into the table. Layouts are facts of the public binary interface on Linux, checked here as far as they can be.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include "contexts.h"
#include "hooks.h"
#include "labels.h"
#include "ranges.h"

struct itt_api {
    const char *name;
    void **function;
    void *init_function, *null_function;
    int group;
};

struct itt_domain {
    volatile int flags;     /* 0: the static part does not call us */
    const char *name;
    void *wide;
    int is_pytorch;         /* this and the next are "reserved to the runtime", which we are */
    struct itt_domain *own; /* ours of that name: one that the static part had made before we came has another address */
    struct itt_domain *next;
};

struct itt_id { unsigned long long words[3]; };

struct itt_global {
    unsigned char magic[8];
    unsigned long version[3];
    volatile long state[3];
    pthread_mutex_t mutex;
    void *library, *error_handler, *path;
    struct itt_api *apis;
    struct itt_global *next;
    void *threads;
    struct itt_domain *domains;
};

#if defined(__x86_64__)
_Static_assert(offsetof(struct itt_global, apis) == 120 && offsetof(struct itt_global, domains) == 144, "ITT's global");
#endif
_Static_assert(offsetof(struct dp_label, owner) == 3 * sizeof(void *), "ITT's string handle");

enum { DOMAINS = 64, MOST_APIS = 1000, STRANGE = 35 };
static const unsigned char MAGIC[8] = {0xED, 0xAB, 0xAB, 0xEC, 0x0D, 0xEE, 0xDA, 0x30};
static struct itt_domain domains[DOMAINS]; /* the last stands for all that do not fit */
static int domain_count;
static pthread_mutex_t adding = PTHREAD_MUTEX_INITIALIZER;

static int is_pytorch(const char *name) { return name && !strcmp(name, "PyTorch"); }

/* A domain only has to be told from others; its name is its label's text. */
static struct itt_domain *domain_of(const char *name)
{
    const char *text = dp_label(name)->text;
    int place = 0;
    pthread_mutex_lock(&adding);
    while (place < domain_count && domains[place].name != text)
        place++;
    if (place == domain_count && place < DOMAINS - 1)
        domain_count++;
    if (!domains[place].flags)
        domains[place] = (struct itt_domain){.flags = 1, .name = text, .is_pytorch = is_pytorch(text),
                                             .own = &domains[place]};
    pthread_mutex_unlock(&adding);
    return &domains[place];
}

void dp_domains_forget(void) { pthread_mutex_init(&adding, NULL); } /* a thread of the parent may have held it */

/* Handles that were made before the collector came are the static part's: they remember the label in a field of ours. */
static struct dp_label *label_of(struct dp_label *handle)
{
    struct dp_label *label = __atomic_load_n(&handle->owner, __ATOMIC_RELAXED);
    if (!label)
        __atomic_store_n(&handle->owner, label = dp_label(handle->text), __ATOMIC_RELAXED);
    return label;
}

static const struct itt_domain *owner_of(const struct itt_domain *domain) { return domain->own ? domain->own : domain; }

static void task_begin(const struct itt_domain *domain, struct itt_id task, struct itt_id parent, struct dp_label *handle)
{
    (void)task, (void)parent;
    if (!(dp_ranges_wanted() | dp_contexts_wanted()) || !domain || !handle)
        return;
    struct dp_label *label = label_of(handle);
    int is_pytorch = owner_of(domain)->is_pytorch;
    uint8_t category = !is_pytorch ? DP_ANNOTATION : label->is_operator ? 0 : DP_BY_NAME;
    if (!is_pytorch || dp_operators_wanted())
        dp_range_begin((uintptr_t)owner_of(domain), dp_label_name(label), category, DP_FROM_ITT);
    if (is_pytorch && dp_contexts_wanted())
        dp_context_begin(label);
}

static void task_end(const struct itt_domain *domain)
{
    if (domain && owner_of(domain)->is_pytorch)
        dp_context_end();
    if (domain)
        dp_range_end((uintptr_t)owner_of(domain));
}

static const struct { const char *name; void *function; } OURS[] = {
    {"__itt_domain_create", (void *)(uintptr_t)domain_of},
    {"__itt_string_handle_create", (void *)(uintptr_t)dp_label},
    {"__itt_task_begin", (void *)(uintptr_t)task_begin},
    {"__itt_task_end", (void *)(uintptr_t)task_end},
};
enum { FUNCTIONS = sizeof OURS / sizeof *OURS };

/* All that we want or nothing: a domain of ours with tasks of somebody else's would be worse than silence. */
static int find_functions(const struct itt_api *apis, void **places[FUNCTIONS])
{
    int found = 0;
    for (int i = 0; i < MOST_APIS && apis[i].name; i++)
        for (int k = 0; k < FUNCTIONS; k++)
            if (!strcmp(apis[i].name, OURS[k].name) && apis[i].function) {
                places[k] = apis[i].function;
                found |= 1 << k;
            }
    return found == (1 << FUNCTIONS) - 1;
}

DP_API void __itt_api_init(struct itt_global *global, int groups)
{
    void **places[FUNCTIONS];
    (void)groups;
    if (!global || memcmp(global->magic, MAGIC, sizeof MAGIC) || !global->apis || !find_functions(global->apis, places)) {
        dp_notice(STRANGE, "a library in this process speaks an ITT that is not known: its ranges are not collected");
        return;
    }
    for (struct itt_domain *domain = global->domains; domain; domain = domain->next)
        domain->own = domain_of(domain->name);
    for (int k = 0; k < FUNCTIONS; k++)
        __atomic_store_n(places[k], OURS[k].function, __ATOMIC_RELEASE);
}

DP_API const char *__itt_api_version(void) { return "deepprof " DP_LIBRARY_VERSION; }
