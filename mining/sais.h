/*
 * Suffix array by induced sorting (SA-IS: Nong, Zhang and Chan, 2009) and the LCP array by the permuted LCP
 * (Karkkainen, Manzini and Puglisi, 2009).  A template: the includer defines SYMBOL, an unsigned integer type, and
 * NAMED(name), which gives every function a name of its own for that type.
 *
 * Words: a suffix is S when it is smaller than the next one and L when it is larger; an S suffix right after an L one
 * is LMS.  The end of the text counts as smaller than every symbol.  A bucket is the part of the suffix array whose
 * suffixes start with one symbol: L suffixes stand at its front, S suffixes at its back.
 */

/* Look this many entries ahead: the array is read in order, but what its entries point at is not. */
#ifndef AHEAD
#define AHEAD 64
#endif

/* heads[c]: where the bucket of c starts. */
static void NAMED(bucket_heads)(const int32_t *counts, int32_t *heads, int32_t alphabet)
{
    int32_t sum = 0;
    for (int32_t c = 0; c < alphabet; c++) {
        heads[c] = sum;
        sum += counts[c];
    }
}

/* tails[c]: one past where the bucket of c ends. */
static void NAMED(bucket_tails)(const int32_t *counts, int32_t *tails, int32_t alphabet)
{
    int32_t sum = 0;
    for (int32_t c = 0; c < alphabet; c++) {
        sum += counts[c];
        tails[c] = sum;
    }
}

/* Left to right: every sorted suffix puts the L suffix before it at the front of that one's bucket. */
static void NAMED(induce_larger)(const SYMBOL *text, int32_t *array, int32_t length, int32_t *heads)
{
    array[heads[text[length - 1]]++] = length - 1;
    for (int32_t i = 0; i < length; i++) {
        if (i < length - 2 * AHEAD) {
            PREFETCH(&array[i + 2 * AHEAD]);
            int32_t soon = array[i + AHEAD];
            if (soon > 0) PREFETCH(&text[soon - 1]);
        }
        int32_t j = array[i];
        if (j > 0 && text[j - 1] >= text[j]) array[heads[text[j - 1]]++] = j - 1;
    }
}

/*
 * Right to left: the same for S suffixes, from the back.  An entry at or behind its bucket's tail is an S suffix, which
 * tells equal neighbours apart.  With collect the LMS suffixes, in sorted order, move to the back of the array.
 */
static void NAMED(induce_smaller)(const SYMBOL *text, int32_t *array, int32_t length, int32_t *tails, int collect)
{
    int32_t kept = length;
    for (int32_t i = length - 1; i >= 0; i--) {
        if (i >= 2 * AHEAD) {
            PREFETCH(&array[i - 2 * AHEAD]);
            int32_t soon = array[i - AHEAD];
            if (soon > 0) PREFETCH(&text[soon - 1]);
        }
        int32_t j = array[i];
        if (j <= 0) continue;
        SYMBOL before = text[j - 1], own = text[j];
        if (before < own || (before == own && i >= tails[own])) array[--tails[before]] = j - 1;
        else if (collect && before > own && i >= tails[own]) array[--kept] = j;
    }
}

static void NAMED(induce)(const SYMBOL *text, int32_t *array, int32_t length, int32_t alphabet, const int32_t *counts,
                          int32_t *buckets, int collect)
{
    NAMED(bucket_heads)(counts, buckets, alphabet);
    NAMED(induce_larger)(text, array, length, buckets);
    NAMED(bucket_tails)(counts, buckets, alphabet);
    NAMED(induce_smaller)(text, array, length, buckets, collect);
}

/* The LMS suffix below `position`, going down, or 0 (the first suffix is never LMS); *smaller carries the type. */
static int32_t NAMED(next_lms)(const SYMBOL *text, int32_t position, int *smaller)
{
    for (int32_t i = position; i-- > 0;) {
        SYMBOL own = text[i], next = text[i + 1];
        int now = own < next || (own == next && *smaller);
        int lms = *smaller && !now;
        *smaller = now;
        if (lms) return i + 1;
    }
    return 0;
}

/* Puts every LMS suffix at the back of its bucket, unsorted; returns how many there are. */
static int32_t NAMED(place_lms)(const SYMBOL *text, int32_t *array, int32_t length, int32_t *tails)
{
    int32_t count = 0;
    int smaller = 0;
    for (int32_t p = length - 1; (p = NAMED(next_lms)(text, p, &smaller)) > 0; p--) {
        /* next_lms looked at p - 1 already: start it there, one below. */
        array[--tails[text[p]]] = p;
        count++;
    }
    return count;
}

/* Writes the LMS positions, ascending, into the last entries of the array. */
static void NAMED(list_lms)(const SYMBOL *text, int32_t *array, int32_t length)
{
    int32_t at = length;
    int smaller = 0;
    for (int32_t p = length - 1; (p = NAMED(next_lms)(text, p, &smaller)) > 0; p--) array[--at] = p;
}

/* array[p / 2] = length of the LMS substring at p; two LMS positions are never neighbours, so p / 2 is free. */
static void NAMED(measure_lms)(const SYMBOL *text, int32_t *array, int32_t length)
{
    int32_t next = length;
    int smaller = 0;
    for (int32_t p = length - 1; (p = NAMED(next_lms)(text, p, &smaller)) > 0; p--) {
        array[p >> 1] = next - p + 1;
        next = p;
    }
}

/* Names the sorted LMS substrings (the last `count` entries) 1, 2, ... in array[p / 2]; equal ones alike. */
static int32_t NAMED(name_lms)(const SYMBOL *text, int32_t *array, int32_t length, int32_t count)
{
    int32_t name = 0, previous = 0, previous_size = 0;
    for (int32_t i = length - count; i < length; i++) {
        if (i < length - AHEAD) {
            PREFETCH(&text[array[i + AHEAD]]);
            PREFETCH(&array[array[i + AHEAD] >> 1]);
        }
        int32_t p = array[i], size = array[p >> 1];
        /* The last LMS substring reaches one past the text and equals no other. */
        int same = name > 0 && size == previous_size && size <= length - p && size <= length - previous &&
                   !memcmp(text + p, text + previous, sizeof(SYMBOL) * (size_t)size);
        if (!same) name++;
        previous = p;
        previous_size = size;
        array[p >> 1] = name;
    }
    return name;
}

/* Sorts the LMS suffixes into array[0 .. count): by their names at once, or by the suffix array of the names. */
static int NAMED(sort_lms)(const SYMBOL *text, int32_t *array, int32_t length, int32_t count)
{
    memset(array, 0, sizeof *array * (size_t)(length - count));
    NAMED(measure_lms)(text, array, length);
    int32_t names = NAMED(name_lms)(text, array, length, count);
    int32_t *reduced = array + (length - count);
    if (names == count) {
        memmove(array, reduced, sizeof *array * (size_t)count);
        return DP_OK;
    }
    for (int32_t i = length - count - 1, at = length; i >= 0; i--)
        if (array[i] > 0) array[--at] = array[i] - 1;
    int status = suffix_array_of_names((const uint32_t *)reduced, array, count, names);
    if (status != DP_OK) return status;
    NAMED(list_lms)(text, array, length);
    for (int32_t i = 0; i < count; i++) array[i] = reduced[array[i]];
    return DP_OK;
}

/* Spreads the sorted LMS suffixes from the front of the array to the backs of their buckets. */
static void NAMED(spread_lms)(const SYMBOL *text, int32_t *array, int32_t length, int32_t count, int32_t *tails)
{
    for (int32_t i = count; i < length; i++) array[i] = -1;
    for (int32_t i = count - 1; i >= 0; i--) {
        if (i >= AHEAD) PREFETCH(&text[array[i - AHEAD]]);
        int32_t p = array[i];
        array[i] = -1;
        array[--tails[text[p]]] = p;
    }
}

static int NAMED(sort_suffixes)(const SYMBOL *text, int32_t *array, int32_t length, int32_t alphabet,
                                int32_t *counts, int32_t *buckets)
{
    for (int32_t i = 0; i < length; i++) counts[text[i]]++;
    memset(array, 0xff, sizeof *array * (size_t)length);
    NAMED(bucket_tails)(counts, buckets, alphabet);
    int32_t count = NAMED(place_lms)(text, array, length, buckets);
    if (count > 0) {
        NAMED(induce)(text, array, length, alphabet, counts, buckets, 1);
        int status = NAMED(sort_lms)(text, array, length, count);
        if (status != DP_OK) return status;
        NAMED(bucket_tails)(counts, buckets, alphabet);
        NAMED(spread_lms)(text, array, length, count, buckets);
    }
    NAMED(induce)(text, array, length, alphabet, counts, buckets, 0);
    return DP_OK;
}

/* Symbols below `alphabet`.  Time O(length + alphabet); the recursion at least halves the length: 31 levels at most. */
static int NAMED(suffix_array)(const SYMBOL *text, int32_t *array, int32_t length, int32_t alphabet)
{
    if (length < 2) {
        if (length == 1) array[0] = 0;
        return DP_OK;
    }
    int32_t *counts = calloc((size_t)alphabet, sizeof *counts);
    int32_t *buckets = malloc(sizeof *buckets * (size_t)alphabet);
    int status = counts && buckets ? NAMED(sort_suffixes)(text, array, length, alphabet, counts, buckets) : DP_NO_MEMORY;
    free(counts);
    free(buckets);
    return status;
}

/* permuted[i] = common prefix of suffix i and the one before it in the array; drops by one at most from i to i + 1. */
static void NAMED(permuted_lcp)(const SYMBOL *text, int32_t *permuted, int32_t length)
{
    int32_t common = 0;
    for (int32_t i = 0; i < length; i++) {
        if (i < length - AHEAD && permuted[i + AHEAD] >= 0 && common < length - permuted[i + AHEAD])
            PREFETCH(&text[permuted[i + AHEAD] + common]);
        int32_t j = permuted[i];
        int32_t most = j < 0 ? 0 : length - (i > j ? i : j);
        if (j < 0) common = 0;
        while (common < most && text[i + common] == text[j + common]) common++;
        permuted[i] = common;
        if (common > 0) common--;
    }
}

/* lcp[i] = common prefix of the suffixes i - 1 and i of the array; `permuted` is scratch of the same length. */
static void NAMED(lcp_array)(const SYMBOL *text, const int32_t *array, int32_t *permuted, int32_t *lcp, int32_t length)
{
    for (int32_t i = 0; i < length; i++) {
        if (i < length - AHEAD) PREFETCH(&permuted[array[i + AHEAD]]);
        permuted[array[i]] = i ? array[i - 1] : -1;
    }
    NAMED(permuted_lcp)(text, permuted, length);
    for (int32_t i = 0; i < length; i++) {
        if (i < length - AHEAD) PREFETCH(&permuted[array[i + AHEAD]]);
        lcp[i] = permuted[array[i]];
    }
}
