/* A list that only grows, read without a lock, and compared with what is loaded whenever that changes. */
#define _GNU_SOURCE
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "native_modules.h"

enum { MOST_MODULES = 1024, PATH_NBYTES = 1024, MOST_MARKED = 1 << 12, PLACES = 1 << 10 };

static struct native_module modules[MOST_MODULES];
static atomic_int count, is_full;
static atomic_ullong nowhere[PLACES];   /* marks of addresses in code that a program has made, which no library has */
static atomic_ullong changes_before;    /* how many libraries had come and gone when the list was last compared */
static uintptr_t of_interpreter;
static pthread_mutex_t adding = PTHREAD_MUTEX_INITIALIZER;

/* PyTorch has dozens of frames for each operator, of its dispatcher and of templates: the operator says what they do. */
static const char *const HIDDEN[] = {
    "libtorch.", "libtorch_cpu", "libtorch_cuda", "libtorch_hip", "libtorch_xpu", "libtorch_python", "libc10.", "libc10_",
    "libffi", "libc.", "libc-", "libpthread", "ld-linux", "linux-vdso", "libstdc++", "libgcc_s", "libgomp", "libomp",
    "libiomp", "libasan", "libtsan", "libubsan",
};

static enum module_role role_of(const struct native_module *module, const char *path)
{
    if (of_interpreter >= module->begin && of_interpreter < module->end)
        return MODULE_INTERPRETER;
    if ((uintptr_t)modules >= module->begin && (uintptr_t)modules < module->end)
        return MODULE_HIDDEN;
    for (unsigned i = 0; i < sizeof HIDDEN / sizeof *HIDDEN; i++)
        if (!strncmp(module->name, HIDDEN[i], strlen(HIDDEN[i])))
            return MODULE_HIDDEN;
    return strstr(path, "/lib-dynload/") ? MODULE_HIDDEN : MODULE_SHOWN; /* Python's own extensions, as ctypes */
}

static uint64_t mark_bytes(uint64_t mark, const void *bytes, size_t nbytes)
{
    const unsigned char *at = bytes;
    for (nbytes = nbytes < MOST_MARKED ? nbytes : MOST_MARKED; nbytes--; at++)
        mark = (mark ^ *at) * UINT64_C(0x100000001B3);
    return mark;
}

/* Of another file at the same place, or of one that was built again, it is another. */
static uint64_t mark_of(const struct dl_phdr_info *info)
{
    uint64_t mark = mark_bytes(UINT64_C(0xCBF29CE484222325), info->dlpi_name, strlen(info->dlpi_name));
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        mark = mark_bytes(mark, part, sizeof *part);
        if (part->p_type == PT_GNU_EH_FRAME)
            mark = mark_bytes(mark, (const void *)(info->dlpi_addr + part->p_vaddr), part->p_memsz);
    }
    return mark;
}

static void write_name(struct native_module *module, const struct dl_phdr_info *info, char *path)
{
    ssize_t length = info->dlpi_name[0] ? -1 : readlink("/proc/self/exe", path, PATH_NBYTES - 1);
    if (length >= 0)
        path[length] = 0;
    else
        snprintf(path, PATH_NBYTES, "%s", info->dlpi_name);
    const char *file = strrchr(path, '/');
    snprintf(module->name, sizeof module->name, "%.*s", (int)sizeof module->name - 1, file ? file + 1 : path);
}

static struct native_module range_of(const struct dl_phdr_info *info)
{
    struct native_module module = {.base = info->dlpi_addr, .begin = UINTPTR_MAX};
    for (int i = 0; i < info->dlpi_phnum; i++) {
        uintptr_t begin = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr, end = begin + info->dlpi_phdr[i].p_memsz;
        if (info->dlpi_phdr[i].p_type != PT_LOAD)
            continue;
        module.begin = begin < module.begin ? begin : module.begin;
        module.end = end > module.end ? end : module.end;
    }
    return module;
}

struct question { uintptr_t address; struct native_module found; int is_found; };

/* Called under the lock of the loader's list. */
static int find(struct dl_phdr_info *info, size_t size, void *asked)
{
    struct question *question = asked;
    struct native_module module = range_of(info);
    char path[PATH_NBYTES] = "";
    (void)size;
    if (question->address < module.begin || question->address >= module.end)
        return 0;
    module.mark = mark_of(info);
    write_name(&module, info, path);
    module.role = role_of(&module, path);
    question->found = module;
    return question->is_found = 1;
}

static const struct native_module *known(uintptr_t address)
{
    for (int i = atomic_load_explicit(&count, memory_order_acquire); i--;)
        if (address >= modules[i].begin && address < modules[i].end)
            return &modules[i];
    return NULL;
}

static void add(const struct native_module *module)
{
    pthread_mutex_lock(&adding);
    int place = atomic_load(&count);
    if (place < MOST_MODULES && !known(module->begin)) {
        modules[place] = *module;
        atomic_store_explicit(&count, place + 1, memory_order_release);
    }
    if (place == MOST_MODULES)
        atomic_store(&is_full, 1);
    pthread_mutex_unlock(&adding);
}

/* To go through all libraries takes a while. Of what has been loaded since, the mark is another. */
static const struct native_module *look_for(uintptr_t address)
{
    struct question question = {.address = address};
    uint64_t mark = (address ^ atomic_load_explicit(&changes_before, memory_order_acquire) << 48) * UINT64_C(0x9E3779B97F4A7C15);
    atomic_ullong *place = &nowhere[mark >> 54];
    if (atomic_load(place) == mark)
        return NULL;
    if (dl_iterate_phdr(find, &question))
        add(&question.found);
    else
        atomic_store(place, mark);
    return known(address);
}

const struct native_module *module_around(uintptr_t address)
{
    const struct native_module *module = known(address);
    return module ? module : look_for(address);
}

int modules_are_full(void) { return atomic_load_explicit(&is_full, memory_order_relaxed); }

/* ---- whether another has taken the place of one ---- */

static int read_changes(struct dl_phdr_info *info, size_t size, void *changes)
{
    (void)size;
    *(unsigned long long *)changes = info->dlpi_adds + info->dlpi_subs;
    return 1;
}

static int find_another(struct dl_phdr_info *info, size_t size, void *unused)
{
    struct native_module loaded = range_of(info);
    (void)size, (void)unused;
    for (int i = atomic_load_explicit(&count, memory_order_acquire); i--;)
        if (modules[i].begin < loaded.end && loaded.begin < modules[i].end
            && (modules[i].base != loaded.base || modules[i].mark != mark_of(info)))
            return 1;
    return 0;
}

int modules_are_sound(void)
{
    unsigned long long changes = 0;
    dl_iterate_phdr(read_changes, &changes);
    if (changes == atomic_load_explicit(&changes_before, memory_order_acquire))
        return 1;
    if (dl_iterate_phdr(find_another, NULL))
        return 0;
    atomic_store_explicit(&changes_before, changes, memory_order_release);
    return 1;
}

void modules_prepare(uintptr_t interpreter)
{
    of_interpreter = interpreter;
    modules_are_sound();
}

void modules_forget(void) { pthread_mutex_init(&adding, NULL); } /* another thread of the parent may have held it */
