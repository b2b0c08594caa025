/* Suffix array, LCP array and nodes of one short text, each held against its definition. */

enum { LONGEST_TEXT = 255 };

/* Random symbols, or a block of them over and over: repeats are what the recursion lives on. */
static int32_t make_text(struct bytes *in, uint32_t *text, uint32_t alphabet)
{
    int32_t length = take_byte(in), block = 1 + take(in, 40), repeats = take(in, 3);
    for (int32_t i = 0; i < length; i++) {
        int fresh = !repeats || i < block || take(in, 30) == 0;
        text[i] = fresh ? take_byte(in) % alphabet : text[i - block];
    }
    return length;
}

static int32_t common_prefix(const uint32_t *text, int32_t length, int32_t a, int32_t b)
{
    int32_t common = 0;
    while (a + common < length && b + common < length && text[a + common] == text[b + common]) common++;
    return common;
}

/* A permutation in ascending order, neighbours sharing what lcp says. */
static void check_suffixes(const uint32_t *text, int32_t length, const int32_t *array, const int32_t *lcp)
{
    uint8_t seen[LONGEST_TEXT] = {0};
    for (int32_t i = 0; i < length; i++) {
        CHECK(array[i] >= 0 && array[i] < length && !seen[array[i]]);
        seen[array[i]] = 1;
        int32_t before = i ? array[i - 1] : 0, common = i ? common_prefix(text, length, before, array[i]) : 0;
        CHECK(lcp[i] == common);
        if (i > 0 && before + common < length) CHECK(text[before + common] < text[array[i] + common]);
        if (i > 0) CHECK(array[i] + common < length);
    }
}

/* Is entry i the first of its interval to be as small as the interval's depth? */
static int opens_interval(const int32_t *lcp, int32_t i)
{
    for (int32_t j = i - 1; j > 0 && lcp[j] >= lcp[i]; j--)
        if (lcp[j] == lcp[i]) return 0;
    return lcp[i] > 0;
}

/* A node's leaves share its depth, some no more than that, and no leaf beside them does. */
static void check_node(const int32_t *lcp, int32_t length, int32_t depth, int32_t count, int32_t left)
{
    CHECK(left >= 0 && count >= 2 && left + count <= length);
    int32_t least = lcp[left + 1];
    for (int32_t i = left + 2; i < left + count; i++) least = lcp[i] < least ? lcp[i] : least;
    CHECK(least == depth);
    CHECK(left == 0 || lcp[left] < depth);
    CHECK(left + count == length || lcp[left + count] < depth);
}

static void check_nodes(const int32_t *lcp, int32_t length)
{
    int32_t *depth = room(length, 4), *count = room(length, 4), *left = room(length, 4);
    int32_t nodes = dp_nodes(lcp, length, depth, count, left), expected = length > 0;
    for (int32_t i = 1; i < length; i++) expected += opens_interval(lcp, i);
    CHECK(nodes == expected);
    for (int32_t i = 0; i + 1 < nodes; i++) check_node(lcp, length, depth[i], count[i], left[i]);
    if (length) CHECK(depth[nodes - 1] == 0 && count[nodes - 1] == length && left[nodes - 1] == 0);
    free(depth);
    free(count);
    free(left);
}

static int sort_text(const void *text, int32_t width, int32_t *array, int32_t length, int32_t alphabet)
{
    if (width == 2) return dp_suffix_array_u16(text, array, length, alphabet);
    return dp_suffix_array_u32(text, array, length, alphabet);
}

static void try_arrays(struct bytes *in)
{
    uint32_t symbols[LONGEST_TEXT];
    int32_t alphabet = 1 + take_byte(in) % (1 << take(in, 9)), width = take(in, 2) ? 2 : 4;
    int starved = take(in, 8) == 0;
    int32_t patience = take(in, 6), length = make_text(in, symbols, (uint32_t)alphabet);
    int32_t *array = room(length, 4), *scratch = room(length, 4), *lcp = room(length, 4);
    void *text = narrowed(symbols, length, width);
    allocations_left = starved ? patience : -1;
    int status = sort_text(text, width, array, length, alphabet);
    allocations_left = -1;
    CHECK(status == DP_OK || (starved && status == DP_NO_MEMORY));
    if (status == DP_OK) {
        if (width == 2) dp_lcp_array_u16(text, array, scratch, lcp, length);
        else dp_lcp_array_u32(text, array, scratch, lcp, length);
        check_suffixes(symbols, length, array, lcp);
        check_nodes(lcp, length);
    }
    free(text);
    free(array);
    free(scratch);
    free(lcp);
}
