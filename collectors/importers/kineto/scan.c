/* Reads the events of a Kineto document: JSON text in, rows of numbers out. Plain C11, no allocation per event.
 *
 * Only what nearly every event is gets read here. An event that is anything else - an escape in a place that matters,
 * a number with an exponent, a list where an object belongs, a collective's arguments - is "odd": its place is noted
 * and Python reads it with a full JSON decoder, which is also who says that it is none. So this file can be strict and
 * small, and both ways give the same values. Nothing is written outside the caller's rows; text may end anywhere.
 *
 * Lists such as the shapes of operands are not read: their JSON text is numbered as it is, and Python reads each
 * distinct one once.
 */
#include "json_text.h"
#include "text_ids.h"

#if defined(_WIN32)
#define API __declspec(dllexport)
#else
#define API __attribute__((visibility("default")))
#endif

enum { VERSION = 2, INTEGERS = 24, JSON_TEXTS = 8, LONGEST_KEY = 120 };
enum { MORE, CLOSED, FULL, DAMAGED, NO_MEMORY }; /* why a scan ended */
enum { PID, TID, FIRST_ARGUMENT };               /* places in Row.integers */
enum { NONE, LEFT_OUT, FIRST_JSON };             /* numbers in Row.json: of no text, of one beyond the limit, of the first */
enum { KEYS, NAMES, JSON };                      /* which texts `dp_kineto_texts` returns */

#if !defined(JSON_LIMIT) /* a test has a smaller one */
#define JSON_LIMIT (256u << 20) /* bytes of distinct JSON texts, with what each takes beside its bytes */
#endif
#define BESIDE_TEXT 100

/* One event; native.py declares the same layout. */
typedef struct {
    double ts, dur;             /* NaN where absent */
    int64_t integers[INTEGERS]; /* pid, tid, and the arguments in the order of ARGUMENTS; MISSING where absent */
    uint32_t key, name;         /* ids of the texts "ph\0cat" and name */
    uint32_t start, length;     /* place of an odd event in the text; the length is 0 of all others */
    uint32_t json[JSON_TEXTS];  /* numbers of the arguments in the order of JSON_ARGUMENTS */
} Row;

typedef struct {
    const char *name;
    int is_unsigned; /* a negative value is none */
} Argument;

static const Argument ARGUMENTS[INTEGERS - FIRST_ARGUMENT] = {
    {"External id", 1},      {"external id", 1},     {"correlation", 1},   {"device", 0},
    {"stream", 0},           {"context", 0},         {"bytes", 0},         {"graph node id", 1},
    {"Sequence number", 0},  {"Fwd thread id", 0},   {"flops", 1},         {"Python id", 0},
    {"Python parent id", 0}, {"Python module id", 0}, {"Device Type", 0},  {"Device Id", 0},
    {"Bytes", 0},            {"Addr", 1},            {"Total Allocated", 1}, {"Total Reserved", 1},
    {"registers per thread", 1}, {"shared memory", 1},
};

static const char *const JSON_ARGUMENTS[JSON_TEXTS] = {
    "Input Dims", "Input dims", "Input type", "Concrete Inputs", "Input Strides", "grid", "block", "Call stack",
};

typedef struct {
    Texts keys, names, json;
    uint32_t wanted; /* a bit for each of JSON_ARGUMENTS that is read */
    int after_event; /* a comma or the bracket must follow */
    int any;         /* an event has been seen: no bracket may follow a comma */
} Scanner;

typedef struct {
    Text ph, cat, name;
    int has_arguments;
} Words;

static const Words NO_WORDS = {{(const Byte *)"", 0, 0, 0}, {(const Byte *)"", 0, 0, 0}, {(const Byte *)"", 0, 0, 0}, 0};

static int is(const Text *text, const char *name)
{
    return strlen(name) == text->length && !memcmp(text->start, name, text->length);
}

static int argument_place(const Text *key)
{
    for (int i = 0; i < INTEGERS - FIRST_ARGUMENT; i++)
        if (ARGUMENTS[i].name[0] == (char)key->start[0] && is(key, ARGUMENTS[i].name))
            return i;
    return -1;
}

static int read_argument(Cursor *c, int place, Row *row)
{
    int64_t *value = &row->integers[FIRST_ARGUMENT + place];
    int how = read_integer(c, value);
    if (*value < 0 && ARGUMENTS[place].is_unsigned)
        *value = MISSING;
    return how;
}

static int json_place(const Scanner *s, const Text *key)
{
    for (int i = 0; i < JSON_TEXTS; i++)
        if (s->wanted >> i & 1 && JSON_ARGUMENTS[i][0] == (char)key->start[0] && is(key, JSON_ARGUMENTS[i]))
            return i;
    return -1;
}

/* Numbers the value as it is written; where the distinct ones take too much, only one that is known. */
static int read_json(Scanner *s, Cursor *c, uint32_t *number)
{
    const Byte *start = c->at;
    *number = NONE;
    int how = skip_value(c, 2);
    if (how || *start == 'n')
        return how;
    size_t n = (size_t)(c->at - start);
    uint64_t used = s->json.used + n + (s->json.count + UINT64_C(1)) * BESIDE_TEXT;
    uint32_t id = used > JSON_LIMIT ? *texts_slot(&s->json, start, n) - 1 : texts_id(&s->json, start, n);
    if (id == UINT32_MAX && used <= JSON_LIMIT)
        return NO_ROOM;
    *number = id == UINT32_MAX ? LEFT_OUT : FIRST_JSON + id;
    return FINE;
}

static int read_arguments(Scanner *s, Cursor *c, Row *row)
{
    Text key;
    if (*c->at++ != '{')
        return ODD;
    for (int first = 1, closed = 0;; first = 0) {
        int how = next_key(c, &key, first, &closed);
        if (how || closed)
            return how;
        if (is(&key, "Collective name"))
            return ODD;
        int place = argument_place(&key), json = place < 0 ? json_place(s, &key) : -1;
        if (json >= 0)
            how = read_json(s, c, &row->json[json]);
        else
            how = place < 0 ? skip_value(c, 2) : read_argument(c, place, row);
        if (how)
            return how;
    }
}

static int read_member(Scanner *s, Cursor *c, const Text *key, Row *row, Words *words)
{
    if (is(key, "ph"))
        return read_plain(c, &words->ph);
    if (is(key, "cat"))
        return read_plain(c, &words->cat);
    if (is(key, "name"))
        return read_plain(c, &words->name);
    if (is(key, "pid"))
        return read_integer(c, &row->integers[PID]);
    if (is(key, "tid"))
        return read_integer(c, &row->integers[TID]);
    if (is(key, "ts"))
        return read_double(c, &row->ts);
    if (is(key, "dur"))
        return read_double(c, &row->dur);
    if (!is(key, "args"))
        return skip_value(c, 1);
    if (words->has_arguments)
        return ODD;
    words->has_arguments = 1;
    return read_arguments(s, c, row);
}

static int number_words(Scanner *s, const Words *words, Row *row)
{
    Byte key[LONGEST_KEY];
    const Text *ph = &words->ph, *cat = &words->cat;
    if (ph->escaped || cat->escaped || ph->length >= LONGEST_KEY / 2 || cat->length >= LONGEST_KEY / 2)
        return ODD;
    memcpy(key, ph->start, ph->length);
    key[ph->length] = 0;
    memcpy(key + ph->length + 1, cat->start, cat->length);
    row->key = texts_id(&s->keys, key, ph->length + 1 + cat->length);
    row->name = texts_id(&s->names, words->name.start, words->name.length);
    return row->key == UINT32_MAX || row->name == UINT32_MAX ? NO_ROOM : FINE;
}

static int read_event(Scanner *s, Cursor *c, Row *row)
{
    Words words = NO_WORDS;
    Text key;
    if (*c->at++ != '{')
        return ODD;
    row->ts = row->dur = NAN;
    for (int i = 0; i < INTEGERS; i++)
        row->integers[i] = MISSING;
    row->start = row->length = 0;
    memset(row->json, 0, sizeof row->json);
    for (int first = 1, closed = 0;; first = 0) {
        int how = next_key(c, &key, first, &closed);
        if (closed)
            return number_words(s, &words, row);
        how = how ? how : read_member(s, c, &key, row, &words);
        if (how)
            return how;
    }
}

static int note_odd(Cursor *c, const Byte *text, Row *row)
{
    const Byte *start = c->at;
    int how = skip_roughly(c);
    row->key = row->name = 0;
    memset(row->json, 0, sizeof row->json);
    row->start = (uint32_t)(start - text);
    row->length = (uint32_t)(c->at - start);
    return how;
}

/* ---------------------------------------------------------------- what Python calls */

API int32_t dp_kineto_version(void) { return VERSION; }

API void dp_kineto_free(Scanner *s)
{
    if (!s)
        return;
    texts_end(&s->keys);
    texts_end(&s->names);
    texts_end(&s->json);
    free(s);
}

/* `wanted` has a bit for each of JSON_ARGUMENTS that is to be read. */
API Scanner *dp_kineto_new(uint32_t wanted)
{
    Scanner *s = calloc(1, sizeof *s);
    if (s && texts_begin(&s->keys) && texts_begin(&s->names) && texts_begin(&s->json)) {
        s->wanted = wanted;
        return s;
    }
    dp_kineto_free(s);
    return NULL;
}

/* Gives where the texts of a kind are and returns how many there are. */
API uint32_t dp_kineto_texts(const Scanner *s, int32_t kind, const Byte **arena, const uint64_t **ends)
{
    const Texts *t = kind == JSON ? &s->json : kind == NAMES ? &s->names : &s->keys;
    *arena = t->arena;
    *ends = t->ends;
    return t->count;
}

/* Reads events from `text`, at most `capacity` of them, and returns why it ended.
 * `consumed` is how far the text has been used; the rest must come again, with more behind it. */
API int32_t dp_kineto_scan(Scanner *s, const Byte *text, int64_t n, Row *rows, int64_t capacity, int64_t *consumed,
                           int64_t *count)
{
    Cursor c = {text, text + n};
    for (*count = 0;;) {
        skip_space(&c);
        *consumed = c.at - text;
        if (c.at >= c.end)
            return MORE;
        if (*c.at == ']' && (s->after_event || !s->any)) {
            ++*consumed;
            return CLOSED;
        }
        if (s->after_event) {
            if (*c.at++ != ',')
                return DAMAGED;
            s->after_event = 0;
            continue;
        }
        if (*count == capacity)
            return FULL;
        int how = read_event(s, &c, &rows[*count]);
        if (how == ODD) {
            c.at = text + *consumed;
            how = note_odd(&c, text, &rows[*count]);
        }
        if (how)
            return how == CUT ? MORE : how == ODD ? DAMAGED : NO_MEMORY;
        ++*count;
        s->after_event = s->any = 1;
    }
}
