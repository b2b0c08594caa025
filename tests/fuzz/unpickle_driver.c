/* Feeds the reader of pickles instructions at random, from buffers without a byte to spare, with small limits.
 *
 * usage: unpickle_driver SEED INPUTS
 */
#include <assert.h>
#include <stdio.h>

#define SLOT_BITS 3 /* so that runs meet in a slot */
#include "unpickle.c"

enum { LONGEST = 200 };

static const uint8_t CODES[] = "((((]]}}NKKMJ\x8a\x8b\x8cXXVIL)0122uueeastdlpqqrghj\x94\x94\x94\x85\x86\x87\x95\x80.GFCB\x8e\x96\x8d";
static const char *const PAIRS[] = {"}\x8c\x01" "aNs", "}(\x8c\x02" "bcK\x07u", "](]K\x05}e", "\x8c\x01" "a",
                                    "}(\x8c\x01" "aN\x8c\x01" "aN\x8c\x01" "aN\x8c\x01" "aNu"};
static const uint8_t KEYS[] = "abcdef";
static const uint32_t ENDS[] = {1, 3, 6};
static uint64_t state;

static uint32_t choose(uint32_t below)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33) % below;
}

static void check(const struct output *out, int64_t nbytes, int64_t most)
{
    assert(out->count <= most && out->member_count <= most && out->containers <= most);
    assert(out->fill_count <= most && out->run_count <= out->fill_count);
    assert(out->at >= 0 && out->at <= nbytes);
    for (int64_t i = 0; i < out->count; i++) {
        const struct item *item = &out->items[i];
        assert(item->key >= 0 && item->key < 3 && item->owner < out->containers);
        if (item->kind == TEXT || item->kind == ESCAPED) assert(item->number + item->length <= nbytes);
        if (item->kind == LIST || item->kind == DICT) assert(out->kinds[item->number] == item->kind);
    }
    for (int64_t i = 0; i < out->fill_count; i++)
        assert(out->kinds[out->fills[i].owner] == LIST && out->fills[i].run < out->run_count);
    for (int64_t i = 0; i < out->run_count; i++) assert(out->run_ends[i] > (i ? out->run_ends[i - 1] : 0));
    assert(out->member_count == (out->run_count ? out->run_ends[out->run_count - 1] : 0));
    for (int64_t i = 0; i < out->member_count; i++)
        assert(out->members[i] == UINT32_MAX || out->members[i] < out->containers);
}

int main(int argc, char **argv)
{
    assert(argc == 3);
    state = strtoull(argv[1], NULL, 10);
    for (long left = strtol(argv[2], NULL, 10); left > 0; left--) {
        size_t nbytes = choose(LONGEST);
        uint8_t *data = malloc(nbytes ? nbytes : 1);
        for (size_t i = 0; i < nbytes; i++) {
            const char *pair = PAIRS[choose(sizeof PAIRS / sizeof *PAIRS)];
            data[i] = choose(4) ? CODES[choose(sizeof CODES - 1)] : (uint8_t)choose(choose(3) ? 4 : 256);
            if (choose(6) || i + strlen(pair) > nbytes) continue;
            memcpy(data + i, pair, strlen(pair));
            i += strlen(pair) - 1;
        }
        struct output out;
        int64_t most = choose(2) ? 1000 : choose(8);
        dp_unpickle(data, (int64_t)nbytes, KEYS, ENDS, 3, most, &out);
        check(&out, (int64_t)nbytes, most);
        dp_unpickle_free(&out);
        free(data);
    }
    return 0;
}
