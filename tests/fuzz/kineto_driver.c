/* Feeds the Kineto scanner text that is nearly JSON, whole and in pieces, from buffers without a byte to spare.
 *
 * usage: kineto_driver SEED INPUTS   or   kineto_driver FILE...   (a file is the text itself)
 */
#include <assert.h>
#include <stdio.h>

#define FIRST_ROOM 3
#define FIRST_CAPACITY 1
#define JSON_LIMIT 900
#include "scan.c"

enum { CAPACITY = 7, LONGEST = 1 << 14 };

static uint64_t state;

static uint32_t choose(uint32_t below)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33) % below;
}

static const char *const TOKENS[] = {
    "{", "}", "[", "]", ",", ":", "\"", "\\", " ", "null", "true", "-", "0", "7", "1234567890123456789", ".5", "1e9", "NaN",
    "\"ph\":\"X\",", "\"cat\":\"kernel\",", "\"name\":\"k\",", "\"name\":\"a\\\"b\",", "\"ts\":12.5,", "\"dur\":1,", "\"pid\":0,",
    "\"tid\":\"stream 7\",", "\"args\":{", "\"External id\":5", "\"correlation\":-3,", "\"Collective name\":\"x\",", "\\u00e9",
    "\"stream\":1e3,", "{\"ph\":\"X\",\"ts\":1626190440563123.456,\"args\":{\"bytes\":3}},", "{},", "[[[],{}]],", "\x01", "\xc3\xa9",
    "{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":\"aten::mm\",\"tid\":\"x-12 \",\"args\":{\"Input Dims\":[[1,2],[]]}},\n",
    "\"Input Dims\":", "\"grid\":[1, 2],", "\"Call stack\":\"a\",", "\"Input type\":[\"float\"],", "\"Concrete Inputs\":null,", "[1],",
    "\"Input Dims\":[[12,34]],", "\"Input Strides\":[[7]],", "\"block\":[3,3],", "\"Input dims\":[[],[5]],",
    "{\"args\":{\"Input Dims\":[1],\"Input type\":[2],\"grid\":[3],\"block\":[4],\"Input Strides\":[[[5]]]}},",
    "{\"args\":{\"Input Dims\":[6],\"Input type\":[7],\"grid\":[8],\"block\":[9],\"Concrete Inputs\":[\"x\", \"y\"]}},",
};

static size_t write_text(Byte *text)
{
    size_t n = 0, pieces = choose(60);
    for (size_t i = 0; i < pieces; i++) {
        const char *token = TOKENS[choose(sizeof TOKENS / sizeof *TOKENS)];
        size_t length = strlen(token);
        if (!choose(8))
            length = choose((uint32_t)length + 1);
        memcpy(text + n, token, length);
        n += length;
        if (n && !choose(12))
            text[n - 1] = (Byte)choose(256);
    }
    return n;
}

typedef struct {
    Row *rows;
    size_t count;
    int32_t status;
    uint64_t consumed;
} Reading;

/* Reads `n` bytes, `piece` more at each turn, each time from a buffer of just that size. */
static Reading read_all(const Byte *text, size_t n, size_t piece)
{
    Scanner *s = dp_kineto_new(255);
    Row *rows = malloc(CAPACITY * sizeof *rows);
    Reading reading = {malloc((n + CAPACITY + 1) * sizeof(Row)), 0, MORE, 0};
    size_t start = 0, end = piece < n ? piece : n;
    for (;;) {
        Byte *buffer = malloc(end - start);
        int64_t consumed, count;
        memcpy(buffer, text + start, end - start);
        reading.status = dp_kineto_scan(s, buffer, (int64_t)(end - start), rows, CAPACITY, &consumed, &count);
        free(buffer);
        assert(consumed >= 0 && consumed <= (int64_t)(end - start) && count >= 0 && count <= CAPACITY);
        for (int64_t i = 0; i < count; i++) {
            assert((uint64_t)rows[i].start + rows[i].length <= end - start);
            if (rows[i].length)
                rows[i].start += (uint32_t)start;
            else
                assert(rows[i].key < s->keys.count && rows[i].name < s->names.count);
            for (int k = 0; k < JSON_TEXTS; k++)
                assert(rows[i].json[k] < FIRST_JSON + s->json.count);
        }
        memcpy(reading.rows + reading.count, rows, (size_t)count * sizeof *rows);
        reading.count += (size_t)count;
        assert(s->json.used + (uint64_t)s->json.count * BESIDE_TEXT <= JSON_LIMIT);
        start += (size_t)consumed;
        reading.consumed = start;
        if (reading.status == FULL)
            continue;
        if (reading.status != MORE || end == n)
            break;
        end = n - end < piece ? n : end + piece;
    }
    free(rows);
    dp_kineto_free(s);
    return reading;
}

/* What an odd row holds besides its place is left over from the attempt to read it. */
static int same_row(const Row *a, const Row *b)
{
    return a->length ? a->length == b->length && a->start == b->start : !memcmp(a, b, sizeof *a);
}

static void try_text(const Byte *text, size_t n)
{
    Reading whole = read_all(text, n, n ? n : 1), pieces = read_all(text, n, 1 + choose(40));
    assert(whole.status == pieces.status && whole.count == pieces.count && whole.consumed == pieces.consumed);
    for (size_t i = 0; i < whole.count; i++)
        assert(same_row(&whole.rows[i], &pieces.rows[i]));
    free(whole.rows);
    free(pieces.rows);
}

static void try_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    assert(file);
    Byte *text = malloc(LONGEST);
    size_t n = fread(text, 1, LONGEST, file);
    try_text(text, n);
    free(text);
    fclose(file);
}

int main(int count, char **arguments)
{
    if (count == 3 && arguments[1][0] >= '0' && arguments[1][0] <= '9') {
        Byte *text = malloc(LONGEST);
        state = strtoull(arguments[1], NULL, 10);
        for (long left = strtol(arguments[2], NULL, 10); left > 0; left--)
            try_text(text, write_text(text));
        free(text);
        return 0;
    }
    for (int i = 1; i < count; i++)
        try_file(arguments[i]);
    return 0;
}
