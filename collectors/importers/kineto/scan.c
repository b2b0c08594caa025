/* Reads the events of a Kineto document: JSON text in, rows of numbers out. Plain C11, no allocation per event.
 *
 * Only what nearly every event is gets read here. An event that is anything else - an escape in a place that matters,
 * a number with an exponent, a list where an object belongs, a collective's arguments - is "odd": its place is noted
 * and Python reads it with a full JSON decoder, which is also who says that it is none. So this file can be strict and
 * small, and both ways give the same values. Nothing is written outside the caller's rows; text may end anywhere.
 */
#include "json_text.h"
#include "text_ids.h"

#if defined(_WIN32)
#define API __declspec(dllexport)
#else
#define API __attribute__((visibility("default")))
#endif

enum { VERSION = 1, INTEGERS = 22, LONGEST_KEY = 120 };
enum { MORE, CLOSED, FULL, DAMAGED, NO_MEMORY }; /* why a scan ended */
enum { PID, TID, FIRST_ARGUMENT };               /* places in Row.integers */

/* One event; native.py declares the same layout. */
typedef struct {
    double ts, dur;             /* NaN where absent */
    int64_t integers[INTEGERS]; /* pid, tid, and the arguments in the order of ARGUMENTS; MISSING where absent */
    uint32_t key, name;         /* ids of the texts "ph\0cat" and name */
    uint32_t start, length;     /* place of an odd event in the text; the length is 0 of all others */
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
};

typedef struct {
    Texts keys, names;
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

static int read_arguments(Cursor *c, Row *row)
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
        int place = argument_place(&key);
        how = place < 0 ? skip_value(c, 2) : read_argument(c, place, row);
        if (how)
            return how;
    }
}

static int read_member(Cursor *c, const Text *key, Row *row, Words *words)
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
    return read_arguments(c, row);
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
    for (int first = 1, closed = 0;; first = 0) {
        int how = next_key(c, &key, first, &closed);
        if (closed)
            return number_words(s, &words, row);
        how = how ? how : read_member(c, &key, row, &words);
        if (how)
            return how;
    }
}

static int note_odd(Cursor *c, const Byte *text, Row *row)
{
    const Byte *start = c->at;
    int how = skip_roughly(c);
    row->key = row->name = 0;
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
    free(s);
}

API Scanner *dp_kineto_new(void)
{
    Scanner *s = calloc(1, sizeof *s);
    if (s && texts_begin(&s->keys) && texts_begin(&s->names))
        return s;
    dp_kineto_free(s);
    return NULL;
}

/* Gives where the texts stand (0: keys, 1: names) and returns how many there are. */
API uint32_t dp_kineto_texts(const Scanner *s, int32_t names, const Byte **arena, const uint64_t **ends)
{
    const Texts *t = names ? &s->names : &s->keys;
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
