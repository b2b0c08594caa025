/*
 * The plain data in a pickle as a table of items, without making any object: plain C11 without Python.h.
 *
 * The pickle is data from anywhere. Only what dictionaries, lists and texts are made of is understood; whatever names,
 * calls or builds something is refused. No length in it is used before it is checked, nothing is allocated for what is
 * not there, and no code here calls itself. pickle_machine.py does the same in Python.
 * The instructions are described in Python's Lib/pickletools.py.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(_WIN32)
#define EXPORT __declspec(dllexport)
#else
#define EXPORT __attribute__((visibility("default")))
#endif

#if !defined(SLOT_BITS)
#define SLOT_BITS 20
#endif

enum { DP_VERSION = 2 };
enum status { DONE, TRUNCATED, FORBIDDEN, MALFORMED, TOO_MANY, NO_MEMORY };
enum kind { OTHER, INTEGER, TEXT, LIST, DICT, ESCAPED };
enum { NO_KEY = -1, NO_CONTAINER = -1, LAST_PROTOCOL = 5, MOST_DIGITS = 18, STACK = 1 << 22 };

/* Changes with every change of a signature or a structure below; unpickling.py refuses a library of another version. */
EXPORT int32_t dp_unpickle_version(void) { return DP_VERSION; }

struct value {
    int64_t number; /* of a text: where it begins; of a container: its number */
    uint32_t length; /* of a text */
    int16_t key;     /* of a text: its place among the wanted keys */
    uint8_t kind;
};

/* What lies in a dictionary under one of the wanted keys. */
struct item {
    int64_t number;
    uint32_t owner;
    uint32_t length;
    int16_t key;
    uint8_t kind;
};

/* The members of a run were added to a list. */
struct fill {
    uint32_t owner, run;
};

struct output {
    struct item *items;
    struct fill *fills;
    uint32_t *run_ends; /* where the members of each run end */
    uint32_t *members;  /* numbers of containers; whatever else lies in a list is NO_CONTAINER */
    uint8_t *kinds;     /* of the containers */
    int64_t count;
    int64_t fill_count;
    int64_t run_count;
    int64_t member_count;
    int64_t containers;
    int64_t at; /* where the reading ended */
    int64_t root;
    int32_t root_kind;
};

struct machine {
    const uint8_t *start, *at, *end;
    const uint8_t *keys;
    const uint32_t *key_ends;
    int32_t key_count;
    int64_t most;
    int64_t listed; /* members of all lists */
    struct value *stack, *memo;
    uint32_t *marks, *slots;
    size_t depth, stack_room, remembered, memo_room, mark_count, mark_room;
    size_t item_room, fill_room, run_room, member_room, kind_room;
    struct output *out;
};

static enum status make_room(void **array, size_t *room, size_t used, size_t nbytes)
{
    if (used < *room) return DONE;
    size_t wider = *room ? *room * 2 : 1024;
    void *moved = realloc(*array, wider * nbytes);
    if (!moved) return NO_MEMORY;
    *array = moved;
    *room = wider;
    return DONE;
}

static enum status push(struct machine *m, struct value value)
{
    if (m->depth >= STACK) return TOO_MANY;
    enum status status = make_room((void **)&m->stack, &m->stack_room, m->depth, sizeof *m->stack);
    if (status == DONE) m->stack[m->depth++] = value;
    return status;
}

static enum status push_number(struct machine *m, int64_t number)
{
    return push(m, (struct value){number, 0, NO_KEY, INTEGER});
}

static enum status push_other(struct machine *m) { return push(m, (struct value){0, 0, NO_KEY, OTHER}); }

static enum status push_container(struct machine *m, enum kind kind)
{
    struct output *out = m->out;
    if (out->containers >= m->most) return TOO_MANY;
    enum status status = make_room((void **)&out->kinds, &m->kind_room, (size_t)out->containers, sizeof *out->kinds);
    if (status != DONE) return status;
    out->kinds[out->containers] = (uint8_t)kind;
    return push(m, (struct value){out->containers++, 0, NO_KEY, (uint8_t)kind});
}

/* Returns the first place of the stack that an instruction may take: what lies below the last mark is not its own. */
static size_t floor_of(const struct machine *m) { return m->mark_count ? m->marks[m->mark_count - 1] : 0; }

static int has(const struct machine *m, size_t values) { return m->depth - floor_of(m) >= values; }

static enum status put_mark(struct machine *m)
{
    if (m->mark_count >= STACK) return TOO_MANY;
    enum status status = make_room((void **)&m->marks, &m->mark_room, m->mark_count, sizeof *m->marks);
    if (status == DONE) m->marks[m->mark_count++] = (uint32_t)m->depth;
    return status;
}

/* Reads a number of `nbytes` bytes, the lowest first. */
static enum status read_number(struct machine *m, int nbytes, uint64_t *number)
{
    if (m->end - m->at < nbytes) return TRUNCATED;
    *number = 0;
    for (int i = 0; i < nbytes; i++) *number |= (uint64_t)m->at[i] << (8 * i);
    m->at += nbytes;
    return DONE;
}

/* Reads the length of what follows, in `nbytes` bytes; all of it must be there. */
static enum status read_length(struct machine *m, int nbytes, uint64_t *length)
{
    enum status status = read_number(m, nbytes, length);
    return status == DONE && *length > (uint64_t)(m->end - m->at) ? TRUNCATED : status;
}

/* Reads up to the end of the line; `length` is without it. */
static enum status read_line(struct machine *m, const uint8_t **line, size_t *length)
{
    const uint8_t *stop = memchr(m->at, '\n', (size_t)(m->end - m->at));
    if (!stop) return TRUNCATED;
    *line = m->at;
    *length = (size_t)(stop - m->at);
    m->at = stop + 1;
    return DONE;
}

static int16_t find_key(const struct machine *m, const uint8_t *text, uint64_t length)
{
    uint32_t begin = 0;
    for (int32_t key = 0; key < m->key_count; begin = m->key_ends[key++])
        if (m->key_ends[key] - begin == length && !memcmp(m->keys + begin, text, length)) return (int16_t)key;
    return NO_KEY;
}

static enum status push_text(struct machine *m, const uint8_t *text, uint64_t length, enum kind kind)
{
    if (length > INT32_MAX) return TOO_MANY;
    return push(m, (struct value){text - m->start, (uint32_t)length, find_key(m, text, length), (uint8_t)kind});
}

static enum status load_text(struct machine *m, int nbytes)
{
    uint64_t length;
    enum status status = read_length(m, nbytes, &length);
    if (status != DONE) return status;
    m->at += length;
    return push_text(m, m->at - length, length, TEXT);
}

static enum status load_line_text(struct machine *m)
{
    const uint8_t *line;
    size_t length;
    enum status status = read_line(m, &line, &length);
    return status == DONE ? push_text(m, line, length, ESCAPED) : status;
}

static enum status skip_line(struct machine *m)
{
    const uint8_t *line;
    size_t length;
    enum status status = read_line(m, &line, &length);
    return status == DONE ? push_other(m) : status;
}

static enum status skip_bytes(struct machine *m, int nbytes)
{
    uint64_t length;
    enum status status = read_length(m, nbytes, &length);
    if (status != DONE) return status;
    m->at += length;
    return push_other(m);
}

/* Reads a line of decimal digits; `fits` is whether the number has at most MOST_DIGITS of them. */
static enum status read_decimal(struct machine *m, int is_long, int64_t *number, int *fits)
{
    const uint8_t *line;
    size_t length, at = 0;
    enum status status = read_line(m, &line, &length);
    if (status != DONE) return status;
    if (is_long && length && line[length - 1] == 'L') length--;
    int negative = length && line[0] == '-';
    at += (size_t)negative;
    if (at == length) return MALFORMED;
    *fits = length - at <= MOST_DIGITS;
    *number = 0;
    for (; at < length; at++) {
        if (line[at] < '0' || line[at] > '9') return MALFORMED;
        if (*fits) *number = *number * 10 + (line[at] - '0');
    }
    if (negative) *number = -*number;
    return DONE;
}

static enum status load_decimal(struct machine *m, int is_long)
{
    int64_t number;
    int fits, is_truth = !is_long && m->end - m->at >= 3 && m->at[0] == '0' && m->at[1] != '\n' && m->at[2] == '\n';
    enum status status = read_decimal(m, is_long, &number, &fits);
    if (status != DONE) return status;
    return fits && !is_truth ? push_number(m, number) : push_other(m);
}

/* A number in `length` bytes, the lowest first; one of 64 bits without sign keeps its bits. */
static enum status load_long(struct machine *m, int nbytes)
{
    uint64_t length, low = 0;
    enum status status = read_length(m, nbytes, &length);
    if (status != DONE) return status;
    const uint8_t *bytes = m->at;
    m->at += length;
    if (length > 9 || (length == 9 && bytes[8])) return push_other(m);
    for (uint64_t i = 0; i < length && i < 8; i++) low |= (uint64_t)bytes[i] << (8 * i);
    if (length && length < 8 && bytes[length - 1] & 0x80) low |= ~(uint64_t)0 << (8 * length);
    return push_number(m, (int64_t)low);
}

static enum status load_integer(struct machine *m, int nbytes)
{
    uint64_t number;
    enum status status = read_number(m, nbytes, &number);
    if (status != DONE) return status;
    return push_number(m, nbytes == 4 ? (int32_t)(uint32_t)number : (int64_t)number);
}

static enum status skip(struct machine *m, int nbytes)
{
    if (m->end - m->at < nbytes) return TRUNCATED;
    m->at += nbytes;
    return push_other(m);
}

/* Numbers of the memo follow each other, as every writer of pickles gives them: the memo is no longer than the file. */
static enum status put(struct machine *m, uint64_t place)
{
    if (!m->depth || place > m->remembered) return MALFORMED;
    if (place == m->remembered) {
        if ((int64_t)m->remembered >= m->most) return TOO_MANY;
        enum status status = make_room((void **)&m->memo, &m->memo_room, m->remembered, sizeof *m->memo);
        if (status != DONE) return status;
        m->remembered++;
    }
    m->memo[place] = m->stack[m->depth - 1];
    return DONE;
}

static enum status get(struct machine *m, uint64_t place)
{
    return place < m->remembered ? push(m, m->memo[place]) : MALFORMED;
}

static enum status use_memo(struct machine *m, int nbytes, enum status (*use)(struct machine *, uint64_t))
{
    uint64_t place;
    int64_t number = 0;
    int fits = 1;
    enum status status = nbytes ? read_number(m, nbytes, &place) : read_decimal(m, 0, &number, &fits);
    if (status != DONE) return status;
    if (!nbytes) place = fits ? (uint64_t)number : UINT64_MAX;
    return use(m, place);
}

static enum status store(struct machine *m, struct value owner, int16_t key, struct value value)
{
    struct output *out = m->out;
    if (out->count >= m->most) return TOO_MANY;
    enum status status = make_room((void **)&out->items, &m->item_room, (size_t)out->count, sizeof *out->items);
    if (status != DONE) return status;
    struct item item = {value.number, (uint32_t)owner.number, value.length, key, value.kind};
    memset(&out->items[out->count], 0, sizeof item);
    out->items[out->count++] = item;
    return DONE;
}

static uint32_t member_of(struct value value)
{
    return value.kind == LIST || value.kind == DICT ? (uint32_t)value.number : (uint32_t)NO_CONTAINER;
}

static uint32_t slot_of(const struct value *values, size_t count)
{
    uint64_t mixed = count;
    for (size_t i = 0; i < count; i++) mixed = (mixed ^ member_of(values[i])) * 0x9E3779B97F4A7C15u;
    return (uint32_t)(mixed >> (64 - SLOT_BITS));
}

static int is_run(const struct output *out, uint32_t run, const struct value *values, size_t count)
{
    uint32_t begin = run ? out->run_ends[run - 1] : 0;
    if (out->run_ends[run] - begin != count) return 0;
    for (size_t i = 0; i < count; i++)
        if (out->members[begin + i] != member_of(values[i])) return 0;
    return 1;
}

static enum status add_run(struct machine *m, const struct value *values, size_t count)
{
    struct output *out = m->out;
    enum status status = make_room((void **)&out->run_ends, &m->run_room, (size_t)out->run_count, sizeof *out->run_ends);
    if (status != DONE) return status;
    for (size_t i = 0; i < count; i++) {
        status = make_room((void **)&out->members, &m->member_room, (size_t)out->member_count, sizeof *out->members);
        if (status != DONE) return status;
        out->members[out->member_count++] = member_of(values[i]);
    }
    out->run_ends[out->run_count++] = (uint32_t)out->member_count;
    return DONE;
}

/*
 * Finds the run of these values, which is added unless the last one in its slot is it. Other runs of the slot are
 * forgotten: a run may be there several times, but no file makes the search take longer.
 */
static enum status find_run(struct machine *m, const struct value *values, size_t count, uint32_t *run)
{
    if (!m->slots && !(m->slots = calloc((size_t)1 << SLOT_BITS, sizeof *m->slots))) return NO_MEMORY;
    uint32_t *slot = &m->slots[slot_of(values, count)];
    if (!*slot || !is_run(m->out, *slot - 1, values, count)) {
        enum status status = add_run(m, values, count);
        if (status != DONE) return status;
        *slot = (uint32_t)m->out->run_count;
    }
    *run = *slot - 1;
    return DONE;
}

static enum status store_members(struct machine *m, struct value owner, const struct value *values, size_t count)
{
    struct output *out = m->out;
    uint32_t run;
    if (!count) return DONE;
    if ((int64_t)count > m->most - m->listed) return TOO_MANY;
    m->listed += (int64_t)count;
    enum status status = find_run(m, values, count, &run);
    if (status != DONE) return status;
    status = make_room((void **)&out->fills, &m->fill_room, (size_t)out->fill_count, sizeof *out->fills);
    if (status != DONE) return status;
    out->fills[out->fill_count++] = (struct fill){(uint32_t)owner.number, run};
    return DONE;
}

/* Stores the values from `at` on as pairs in the dictionary. */
static enum status store_pairs(struct machine *m, struct value owner, size_t at)
{
    for (; at < m->depth; at += 2) {
        int16_t key = m->stack[at].key;
        enum status status = key == NO_KEY ? DONE : store(m, owner, key, m->stack[at + 1]);
        if (status != DONE) return status;
    }
    return DONE;
}

/* Stores the values from `first` on in the list, or as pairs in the dictionary, below them, and takes them away. */
static enum status fill(struct machine *m, size_t first, enum kind kind)
{
    if (first <= floor_of(m) || m->stack[first - 1].kind != kind) return MALFORMED;
    size_t count = m->depth - first;
    if (kind == DICT && count % 2) return MALFORMED;
    struct value owner = m->stack[first - 1];
    enum status status =
        kind == DICT ? store_pairs(m, owner, first) : store_members(m, owner, m->stack + first, count);
    if (status != DONE) return status;
    m->depth = first;
    return DONE;
}

static enum status fill_marked(struct machine *m, enum kind kind)
{
    if (!m->mark_count) return MALFORMED;
    return fill(m, m->marks[--m->mark_count], kind);
}

/* Makes a list or a dictionary of the values after the last mark. */
static enum status gather(struct machine *m, enum kind kind)
{
    if (!m->mark_count) return MALFORMED;
    size_t first = m->marks[--m->mark_count];
    enum status status = push_container(m, kind);
    if (status != DONE) return status;
    struct value made = m->stack[m->depth - 1];
    memmove(m->stack + first + 1, m->stack + first, (m->depth - 1 - first) * sizeof made);
    m->stack[first] = made;
    return fill(m, first + 1, kind);
}

/* Takes the values after the last mark; a tuple of them is nothing that anybody asks for. */
static enum status drop_marked(struct machine *m, int is_tuple)
{
    if (!m->mark_count) return MALFORMED;
    m->depth = m->marks[--m->mark_count];
    return is_tuple ? push_other(m) : DONE;
}

static enum status drop(struct machine *m, size_t values, int is_tuple)
{
    if (!has(m, values)) return MALFORMED;
    m->depth -= values;
    return is_tuple ? push_other(m) : DONE;
}

static enum status check_protocol(struct machine *m)
{
    uint64_t protocol;
    enum status status = read_number(m, 1, &protocol);
    return status == DONE && protocol > LAST_PROTOCOL ? MALFORMED : status;
}

static enum status check_frame(struct machine *m)
{
    uint64_t length;
    return read_length(m, 8, &length);
}

static enum status run_one(struct machine *m, uint8_t code)
{
    switch (code) {
    case 0x80: return check_protocol(m);
    case 0x95: return check_frame(m);
    case '(': return put_mark(m);
    case '0': return drop(m, 1, 0);
    case '1': return drop_marked(m, 0);
    case '2': return has(m, 1) ? push(m, m->stack[m->depth - 1]) : MALFORMED;
    case 'N': case 0x88: case 0x89: case ')': return push_other(m);
    case 'I': return load_decimal(m, 0);
    case 'L': return load_decimal(m, 1);
    case 'J': return load_integer(m, 4);
    case 'K': return load_integer(m, 1);
    case 'M': return load_integer(m, 2);
    case 0x8a: return load_long(m, 1);
    case 0x8b: return load_long(m, 4);
    case 'F': case 'S': return skip_line(m);
    case 'G': return skip(m, 8);
    case 0x8c: return load_text(m, 1);
    case 'X': return load_text(m, 4);
    case 0x8d: return load_text(m, 8);
    case 'V': return load_line_text(m);
    case 'C': case 'U': return skip_bytes(m, 1);
    case 'B': case 'T': return skip_bytes(m, 4);
    case 0x8e: case 0x96: return skip_bytes(m, 8);
    case ']': return push_container(m, LIST);
    case '}': return push_container(m, DICT);
    case 'l': return gather(m, LIST);
    case 'd': return gather(m, DICT);
    case 'a': return has(m, 2) ? fill(m, m->depth - 1, LIST) : MALFORMED;
    case 's': return has(m, 3) ? fill(m, m->depth - 2, DICT) : MALFORMED;
    case 'e': return fill_marked(m, LIST);
    case 'u': return fill_marked(m, DICT);
    case 't': return drop_marked(m, 1);
    case 0x85: return drop(m, 1, 1);
    case 0x86: return drop(m, 2, 1);
    case 0x87: return drop(m, 3, 1);
    case 'p': return use_memo(m, 0, put);
    case 'q': return use_memo(m, 1, put);
    case 'r': return use_memo(m, 4, put);
    case 0x94: return put(m, m->remembered);
    case 'g': return use_memo(m, 0, get);
    case 'h': return use_memo(m, 1, get);
    case 'j': return use_memo(m, 4, get);
    case 'c': case 'R': case 'b': case 'i': case 'o': case 'P': case 'Q': return FORBIDDEN;
    case 0x81: case 0x82: case 0x83: case 0x84: return FORBIDDEN;
    case 0x8f: case 0x90: case 0x91: case 0x92: case 0x93: case 0x97: case 0x98: return FORBIDDEN;
    default: return MALFORMED;
    }
}

static enum status run(struct machine *m)
{
    while (m->at < m->end) {
        m->out->at = m->at - m->start;
        uint8_t code = *m->at++;
        if (code == '.') {
            if (!has(m, 1)) return MALFORMED;
            m->out->root = m->stack[m->depth - 1].number;
            m->out->root_kind = m->stack[m->depth - 1].kind;
            return DONE;
        }
        enum status status = run_one(m, code);
        if (status != DONE) return status;
    }
    m->out->at = m->end - m->start;
    return TRUNCATED;
}

/*
 * Reads the pickle of `nbytes` at `data` and returns a status; `out` is what was found, to be freed in any case.
 * `keys` are the wanted keys of dictionaries, the end of each in `key_ends`; others are left out. There are at most
 * `most` items, members of lists, containers, and remembered values each.
 */
EXPORT int32_t dp_unpickle(const uint8_t *data, int64_t nbytes, const uint8_t *keys, const uint32_t *key_ends,
                           int32_t key_count, int64_t most, struct output *out)
{
    struct machine m = {.start = data, .at = data, .end = data + nbytes, .keys = keys, .key_ends = key_ends,
                        .key_count = key_count, .most = most, .out = out};
    memset(out, 0, sizeof *out);
    enum status status = run(&m);
    free(m.stack);
    free(m.memo);
    free(m.marks);
    free(m.slots);
    return status;
}

EXPORT void dp_unpickle_free(struct output *out)
{
    free(out->items);
    free(out->fills);
    free(out->run_ends);
    free(out->members);
    free(out->kinds);
    memset(out, 0, sizeof *out);
}
