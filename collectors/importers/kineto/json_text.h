/* JSON read in place, strictly: every function moves the cursor behind what it read, or says why it could not. */
#include <math.h>
#include <stdint.h>
#include <string.h>

typedef unsigned char Byte;

enum { FINE, CUT, ODD, NO_ROOM }; /* how a value ended: read, cut off by the end of the text, not read here */
enum { DEPTH = 64 };

static const int64_t MISSING = INT64_MIN + 1618033; /* stands for no integer: a number that nobody writes */

typedef struct {
    const Byte *at, *end;
} Cursor;

typedef struct {
    const Byte *start;
    size_t length;
    int escaped, foreign;          /* holds a backslash; holds bytes beyond ASCII or \u */
} Text;

typedef struct {
    uint64_t digits;               /* the value without its point */
    int count, fraction;           /* of digits, without leading zeros; of those behind the point */
    int negative, exponent;
} Number;

/* What may stand in a string: 0 goes on, 1 ends it, 2 escapes, 3 is beyond ASCII, 4 is forbidden. */
static const Byte IN_TEXT[256] = {
    [0] = 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4,
    ['"'] = 1, ['\\'] = 2,
    [128] = 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3,
    3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3,
    3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3,
    3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3,
};

static void skip_space(Cursor *c)
{
    while (c->at < c->end && (*c->at == ' ' || *c->at == '\n' || *c->at == '\r' || *c->at == '\t'))
        c->at++;
}

/* Whether four hexadecimal digits stand here. */
static int is_hex(const Byte *p)
{
    for (int i = 0; i < 4; i++)
        if (!memchr("0123456789abcdefABCDEF", p[i], 22))
            return 0;
    return 1;
}

/* Moves behind a string; the cursor stands on its opening quote. */
static int read_text(Cursor *c, Text *text)
{
    const Byte *p = c->at + 1, *end = c->end;
    text->start = p;
    text->escaped = text->foreign = 0;
    for (;;) {
        while (p < end && !IN_TEXT[*p])
            p++;
        if (p >= end)
            return CUT;
        switch (IN_TEXT[*p]) {
        case 1:
            text->length = (size_t)(p - text->start);
            c->at = p + 1;
            return FINE;
        case 2:
            if (end - p < 2)
                return CUT;
            if (!memchr("\"\\/bfnrtu", p[1], 9))
                return ODD;
            text->escaped = 1;
            if (p[1] == 'u') {
                text->foreign = 1;
                if (end - p < 6)
                    return CUT;
                if (!is_hex(p + 2))
                    return ODD;
            }
            p += 2;
            break;
        case 3:
            text->foreign = 1;
            p++;
            break;
        default:
            return ODD;
        }
    }
}

static int is_digit(Byte b) { return b >= '0' && b <= '9'; }

/* Reads digits into `n` and returns how many there were. */
static int read_digits(Cursor *c, Number *n)
{
    const Byte *start = c->at;
    for (; c->at < c->end && is_digit(*c->at); c->at++) {
        n->count += n->count || *c->at != '0';
        if (n->count <= 19)
            n->digits = n->digits * 10 + (uint64_t)(*c->at - '0');
    }
    return c->at - start > INT32_MAX ? INT32_MAX : (int)(c->at - start);
}

static int read_number(Cursor *c, Number *n)
{
    memset(n, 0, sizeof *n);
    n->negative = *c->at == '-';
    c->at += n->negative;
    const Byte *first = c->at;
    int whole = read_digits(c, n);
    if (c->at >= c->end)
        return CUT;
    if (!whole || (whole > 1 && *first == '0'))
        return ODD;
    if (*c->at == '.') {
        c->at++;
        n->fraction = read_digits(c, n);
        if (c->at >= c->end)
            return CUT;
        if (!n->fraction)
            return ODD;
    }
    if (*c->at == 'e' || *c->at == 'E') {
        Number exponent;
        memset(&exponent, 0, sizeof exponent);
        n->exponent = 1;
        c->at++;
        if (c->at < c->end && (*c->at == '+' || *c->at == '-'))
            c->at++;
        if (c->at < c->end && !is_digit(*c->at))
            return ODD;
        read_digits(c, &exponent);
    }
    return c->at < c->end ? FINE : CUT;
}

static int read_word(Cursor *c, const char *word, size_t n)
{
    if ((size_t)(c->end - c->at) <= n)
        return CUT;
    if (memcmp(c->at, word, n))
        return ODD;
    c->at += n;
    return FINE;
}

static int skip_value(Cursor *c, int depth);

/* Moves behind the members of an object or a list; the cursor stands behind its opening bracket. */
static int skip_members(Cursor *c, Byte close, int depth)
{
    Text key;
    for (int first = 1;; first = 0) {
        skip_space(c);
        if (c->at >= c->end)
            return CUT;
        if (first && *c->at == close)
            break;
        if (close == '}') {
            if (*c->at != '"')
                return ODD;
            int how = read_text(c, &key);
            if (how)
                return how;
            skip_space(c);
            if (c->at >= c->end)
                return CUT;
            if (*c->at++ != ':')
                return ODD;
        }
        int how = skip_value(c, depth);
        if (how)
            return how;
        skip_space(c);
        if (c->at >= c->end)
            return CUT;
        if (*c->at == close)
            break;
        if (*c->at++ != ',')
            return ODD;
    }
    c->at++;
    return FINE;
}

static int skip_value(Cursor *c, int depth)
{
    Text text;
    Number number;
    skip_space(c);
    if (c->at >= c->end)
        return CUT;
    switch (*c->at) {
    case '"':
        return read_text(c, &text);
    case '{':
    case '[': {
        if (depth >= DEPTH)
            return ODD;
        Byte close = *c->at++ == '{' ? '}' : ']';
        return skip_members(c, close, depth + 1);
    }
    case 't':
        return read_word(c, "true", 4);
    case 'f':
        return read_word(c, "false", 5);
    case 'n':
        return read_word(c, "null", 4);
    default:
        return read_number(c, &number);
    }
}

/* ---------------------------------------------------------------- numbers */

static const double POWERS[] = {1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11,
                                1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

/* Divides more digits than a double holds by a power of ten, up to 1e9, and rounds once, as strtod does: two bits more
 * than a double has are worked out, and a last one says whether anything is left, which decides a tie. */
static double divide(uint64_t digits, uint64_t power)
{
    uint64_t whole = digits / power, rest = digits % power;
    int extra = 0;
    while (extra < 31 && !(whole >> (54 - extra)))
        extra++;
    uint64_t part = rest << extra;
    uint64_t bits = (whole << extra | part / power) << 1 | (part % power != 0);
    return (double)bits / (double)(UINT64_C(2) << extra);
}

static int to_double(const Number *n, double *value)
{
    if (n->exponent || n->count > 19)
        return ODD;
    if (n->fraction == 0)
        *value = (double)n->digits;
    else if (n->digits <= UINT64_C(1) << 53 && n->fraction <= 22)
        *value = (double)n->digits / POWERS[n->fraction];
    else if (n->fraction <= 9)
        *value = divide(n->digits, (uint64_t)POWERS[n->fraction]);
    else
        return ODD;
    *value = n->negative ? -*value : *value;
    return FINE;
}

static int to_integer(const Number *n, int64_t *value)
{
    if (n->exponent || n->fraction || n->count > 18)
        return ODD;
    *value = n->negative ? -(int64_t)n->digits : (int64_t)n->digits;
    return FINE;
}

/* The integer that a text ends in, as in "stream 7"; MISSING where it ends in none. */
static int trailing_integer(const Text *text, int64_t *value)
{
    if (text->escaped || text->foreign)
        return ODD;
    const Byte *start = text->start, *end = start + text->length;
    while (end > start && end[-1] == ' ')
        end--;
    const Byte *first = end;
    while (first > start && is_digit(first[-1]))
        first--;
    if (first == end)
        return FINE;
    if (end - first > 18)
        return ODD;
    *value = 0;
    for (const Byte *p = first; p < end; p++)
        *value = *value * 10 + (*p - '0');
    if (first > start && first[-1] == '-')
        *value = -*value;
    return FINE;
}

static int read_integer(Cursor *c, int64_t *value)
{
    Text text;
    Number number;
    int how;
    *value = MISSING;
    switch (*c->at) {
    case '"':
        how = read_text(c, &text);
        return how ? how : trailing_integer(&text, value);
    case 'n':
        return read_word(c, "null", 4);
    default:
        how = read_number(c, &number);
        return how ? how : to_integer(&number, value);
    }
}

static int read_double(Cursor *c, double *value)
{
    Number number;
    *value = NAN;
    if (*c->at == 'n')
        return read_word(c, "null", 4);
    int how = read_number(c, &number);
    return how ? how : to_double(&number, value);
}

/* ---------------------------------------------------------------- objects */

/* Reads a text that is kept: one that needs more than a look at its escapes is odd. */
static int read_plain(Cursor *c, Text *text)
{
    if (*c->at != '"')
        return ODD;
    int how = read_text(c, text);
    return how ? how : text->foreign ? ODD : FINE;
}

/* Moves to the value behind the next key, or behind the closing brace; `first` says that no comma is due. */
static int next_key(Cursor *c, Text *key, int first, int *closed)
{
    skip_space(c);
    if (c->at >= c->end)
        return CUT;
    *closed = *c->at == '}';
    if (*closed) {
        c->at++;
        return FINE;
    }
    if (!first) {
        if (*c->at++ != ',')
            return ODD;
        skip_space(c);
        if (c->at >= c->end)
            return CUT;
    }
    int how = read_plain(c, key);
    if (how)
        return how;
    if (key->escaped)
        return ODD;
    skip_space(c);
    if (c->at >= c->end)
        return CUT;
    if (*c->at++ != ':')
        return ODD;
    skip_space(c);
    return c->at < c->end ? FINE : CUT;
}

/* Moves behind an odd value by its quotes and brackets alone. */
static int skip_roughly(Cursor *c)
{
    int64_t depth = 0;
    const Byte *start = c->at;
    for (; c->at < c->end; c->at++) {
        Byte byte = *c->at;
        if (byte == '"') {
            for (c->at++; c->at < c->end && *c->at != '"'; c->at++)
                c->at += *c->at == '\\';
        } else if (byte == '{' || byte == '[') {
            depth++;
        } else if (byte == '}' || byte == ']' || byte == ',') {
            if (!depth)
                return c->at > start ? FINE : ODD;
            depth -= byte != ',';
            if (!depth && (*start == '{' || *start == '[')) {
                c->at++;
                return FINE;
            }
        }
    }
    return CUT;
}
