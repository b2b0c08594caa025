/*
 * The compiled half of deepprof.mining: suffix array, LCP array, nodes of the suffix tree, the locking matcher,
 * and nested spans.
 * Plain C11 without Python.h, loaded with ctypes by native.py; numpy gives the same answers without it.
 *
 * Symbols are uint16_t or uint32_t; sais.h and matcher.h are included once for each.  Lengths of texts stay below 2^31.
 * Functions that allocate return DP_NO_MEMORY or NULL when they cannot; nothing here prints or exits.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(_WIN32)
#define EXPORT __declspec(dllexport)
#else
#define EXPORT __attribute__((visibility("default")))
#endif

#if defined(__GNUC__)
#define PREFETCH(address) __builtin_prefetch(address)
#else
#define PREFETCH(address) ((void)0)
#endif

enum { DP_VERSION = 3, DP_OK = 0, DP_NO_MEMORY = -1, DP_BAD_PLACE = -2 };

/* Changes with every change of a signature below; native.py refuses a library of another version. */
EXPORT int32_t dp_version(void) { return DP_VERSION; }

/* ---- suffix array and LCP ---- */

/* Both instances of sais.h sort their reduced text with the uint32_t one. */
static int suffix_array_of_names(const uint32_t *names, int32_t *array, int32_t length, int32_t largest);

#define SYMBOL uint16_t
#define NAMED(name) name##_u16
#include "sais.h"
#undef SYMBOL
#undef NAMED
#define SYMBOL uint32_t
#define NAMED(name) name##_u32
#include "sais.h"
#undef SYMBOL
#undef NAMED

static int suffix_array_of_names(const uint32_t *names, int32_t *array, int32_t length, int32_t largest)
{
    return suffix_array_u32(names, array, length, largest + 1);
}

EXPORT int32_t dp_suffix_array_u16(const uint16_t *text, int32_t *array, int32_t length, int32_t alphabet)
{
    return suffix_array_u16(text, array, length, alphabet);
}

EXPORT int32_t dp_suffix_array_u32(const uint32_t *text, int32_t *array, int32_t length, int32_t alphabet)
{
    return suffix_array_u32(text, array, length, alphabet);
}

EXPORT void dp_lcp_array_u16(const uint16_t *text, const int32_t *array, int32_t *scratch, int32_t *lcp, int32_t length)
{
    lcp_array_u16(text, array, scratch, lcp, length);
}

EXPORT void dp_lcp_array_u32(const uint32_t *text, const int32_t *array, int32_t *scratch, int32_t *lcp, int32_t length)
{
    lcp_array_u32(text, array, scratch, lcp, length);
}

/* ---- nodes of the suffix tree ---- */

/* Moves the open node at `top` to its place among the closed ones; returns its left end. */
static inline int32_t close_node(int32_t end, int32_t top, int32_t node, int32_t *depth, int32_t *count, int32_t *left)
{
    int32_t start = left[top];
    depth[node] = depth[top];
    count[node] = end - start;
    left[node] = start;
    return start;
}

/*
 * Every maximal interval of the suffix array whose suffixes share `depth` symbols is an internal node (Abouelhoda,
 * Kurtz and Ohlebusch, 2004).  Children come before parents, the root last.  The arrays hold `length` entries.  Nodes
 * still open stand as a stack at their back, closed ones at their front: both together are never more than `length`
 * as long as no number in lcp is negative.  Returns the number of nodes.
 */
EXPORT int32_t dp_nodes(const int32_t *lcp, int32_t length, int32_t *depth, int32_t *count, int32_t *left)
{
    if (length == 0) return 0;
    int32_t nodes = 0, top = length - 1;
    depth[top] = left[top] = 0;
    for (int32_t i = 1; i < length; i++) {
        int32_t start = i - 1;
        for (; depth[top] > lcp[i]; top++, nodes++) start = close_node(i, top, nodes, depth, count, left);
        if (depth[top] < lcp[i]) {
            top--;
            depth[top] = lcp[i];
            left[top] = start;
        }
    }
    for (; top < length; top++, nodes++) close_node(length, top, nodes, depth, count, left);
    return nodes;
}

/* ---- the matcher ---- */

/* Symbols of the stream are counted from its start; `window` holds [base, stop) of them. */
struct matcher {
    /* The template and how it is matched: fixed. */
    void *cyclic; /* the template repeated, long enough for every look past its end */
    int32_t width, period, insertions, deletions, confirm, anchor, history, lookahead;
    uint64_t *keys; /* hash table of the anchors: k-gram -> phase, -1 for free */
    int32_t *phases;
    uint64_t mask, leaving;
    int64_t *hits, *relocks; /* the caller's: steps of the hit counts (period + 1), counts of re-locks (period) */
    /* Where it stands. */
    int64_t at, lost_at, scan; /* next symbol; where the lock was lost; next k-gram to look at */
    int32_t locked, phase;
    int64_t first, matched, edits; /* the pass under way; first < 0 before any */
    int64_t covered, foreign;      /* end of the last row; symbols between rows since the last report */
    int finished;
    /* What the call under way gave. */
    const void *window;
    int64_t base, stop;
    int final;
    int64_t row_count;
    /* Where the caller wants the answers. */
    int64_t *rows, *report;
    int64_t row_capacity;
};

enum { PARAMETERS = 6, PLACE = 10 };
enum { AT, SCAN, STOP, PHASE, LOCKED, FINISHED, FIRST, MATCHED, EDITS, COVERED };
/* No stream reaches further, so that no sum of two positions overflows. */
static const int64_t FARTHEST = (int64_t)1 << 62;
static const uint64_t HASH_BASE = 0x9E3779B97F4A7C15u;

static uint64_t mix(uint64_t hash)
{
    hash = (hash ^ (hash >> 32)) * 0xD6E8FEB86659FD93u;
    return hash ^ (hash >> 32);
}

/* Writes the pass under way as a row that ends at `end`, into four columns; a pass without symbols is none. */
static void emit(struct matcher *m, int64_t end)
{
    if (m->first < 0 || end <= m->first) return;
    int64_t *row = m->rows + m->row_count++, column = m->row_capacity;
    row[0] = m->first;
    row[column] = end;
    row[2 * column] = m->matched;
    row[3 * column] = m->edits;
    m->foreign += m->first - m->covered;
    m->covered = end;
}

static void begin(struct matcher *m, int64_t first, int64_t edits)
{
    m->first = first;
    m->matched = 0;
    m->edits = edits;
}

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

/*
 * Skips symbols of the stream and of the template, together larger(inserted, deleted) edits.  Over the end of a pass
 * they are shared out: each pass gets as many stream symbols as it lost template symbols, what is left over between two
 * passes is foreign.
 */
static void skip(struct matcher *m, int64_t inserted, int64_t deleted)
{
    int64_t rest = m->period - m->phase;
    m->at += inserted;
    m->phase += (int32_t)deleted;
    if (deleted >= rest) {
        int64_t own = smaller(inserted, rest);
        m->edits += rest;
        emit(m, m->at - inserted + own);
        m->phase -= m->period;
        begin(m, m->at - smaller(inserted - own, deleted - rest), deleted - rest);
    } else if (m->matched == 0) {
        begin(m, m->at - smaller(inserted, deleted), deleted);
    } else {
        m->edits += larger(inserted, deleted);
    }
}

/* Goes on at `start` with `phase`: in the same pass when that lies ahead and near, else in a new one. */
static void take_up(struct matcher *m, int64_t start, int32_t phase)
{
    int64_t gap = start - m->lost_at;
    int same = m->first >= 0 && phase >= m->phase && gap <= m->period;
    if (same && m->matched > 0) {
        m->edits += larger(gap, phase - m->phase);
    } else {
        if (m->first >= 0 && !same) m->relocks[phase]++;
        emit(m, m->lost_at);
        begin(m, start - smaller(gap, phase), smaller(gap, phase));
    }
    m->at = start;
    m->phase = phase;
    m->locked = 1;
}

#define SYMBOL uint16_t
#define NAMED(name) name##_u16
#include "matcher.h"
#undef SYMBOL
#undef NAMED
#define SYMBOL uint32_t
#define NAMED(name) name##_u32
#include "matcher.h"
#undef SYMBOL
#undef NAMED

EXPORT void dp_matcher_free(struct matcher *m)
{
    if (!m) return;
    free(m->cyclic);
    free(m->keys);
    free(m->phases);
    free(m);
}

static int allocate_tables(struct matcher *m, int64_t cyclic_length, int32_t anchor_count)
{
    /* Mostly free slots: a foreign k-gram is refused at the first look. */
    size_t slots = 16;
    while (slots < 8 * (size_t)anchor_count) slots *= 2;
    m->mask = slots - 1;
    m->cyclic = malloc((size_t)m->width * (size_t)cyclic_length);
    m->keys = malloc(slots * sizeof *m->keys);
    m->phases = malloc(slots * sizeof *m->phases);
    if (!m->cyclic || !m->keys || !m->phases) return DP_NO_MEMORY;
    memset(m->phases, 0xff, slots * sizeof *m->phases);
    return DP_OK;
}

/*
 * cyclic: the template repeated to period + deletions + confirm + anchor symbols at least, `width` (2 or 4) bytes each.
 * parameters: period, insertions, deletions, confirm, anchor, history.  anchors: phases with distinct k-grams.
 * hits and relocks are written to for as long as the matcher lives.  NULL without memory.
 */
EXPORT struct matcher *dp_matcher_new(int32_t width, const void *cyclic, int64_t cyclic_length,
                                      const int32_t *parameters, const int32_t *anchors, int32_t anchor_count,
                                      int64_t *hits, int64_t *relocks)
{
    struct matcher *m = calloc(1, sizeof *m);
    if (!m) return NULL;
    int32_t *fields[PARAMETERS] = {&m->period, &m->insertions, &m->deletions, &m->confirm, &m->anchor, &m->history};
    for (int i = 0; i < PARAMETERS; i++) *fields[i] = parameters[i];
    m->width = width;
    if (allocate_tables(m, cyclic_length, anchor_count) != DP_OK) {
        dp_matcher_free(m);
        return NULL;
    }
    memcpy(m->cyclic, cyclic, (size_t)width * (size_t)cyclic_length);
    m->lookahead = (m->insertions > 1 ? m->insertions : 1) + m->confirm;
    m->leaving = 1;
    for (int32_t i = 1; i < m->anchor; i++) m->leaving *= HASH_BASE;
    m->hits = hits;
    m->relocks = relocks;
    m->first = -1; /* and the rest 0: the start of a stream, not locked */
    if (width == 2) fill_table_u16(m, anchors, anchor_count);
    else fill_table_u32(m, anchors, anchor_count);
    return m;
}

/* At the end of the stream: the pass under way is the last row, complete or not. */
static void finish(struct matcher *m)
{
    emit(m, m->locked ? m->at : m->lost_at);
    m->foreign += m->stop - m->covered;
    m->covered = m->stop;
    m->finished = 1;
}

/* The first symbol that a later call may still look at. */
static int64_t needed_from(const struct matcher *m)
{
    if (m->finished) return m->stop;
    return m->locked ? m->at : larger(m->lost_at, m->scan - m->history);
}

/* Where it stands between two calls, in the order of matcher_state.MatcherPosition. */
EXPORT void dp_matcher_place(const struct matcher *m, int64_t *place)
{
    const int64_t numbers[PLACE] = {m->at, m->locked ? m->at : m->scan, m->stop, m->phase, m->locked,
                                    m->finished, m->first, m->matched, m->edits, m->covered};
    memcpy(place, numbers, sizeof numbers);
}

static int is_place(const struct matcher *m, const int64_t *place)
{
    for (int i = 0; i < PLACE; i++)
        if (place[i] < (i == FIRST ? -1 : 0) || place[i] > FARTHEST) return 0;
    return place[AT] <= place[SCAN] && place[SCAN] <= place[STOP] && place[PHASE] < m->period &&
           place[FIRST] <= place[AT] && place[LOCKED] <= 1 && place[FINISHED] <= 1;
}

/* Goes on from a place that dp_matcher_place told; DP_BAD_PLACE, and nothing done, for numbers that could do harm. */
EXPORT int32_t dp_matcher_resume(struct matcher *m, const int64_t *place)
{
    if (!is_place(m, place)) return DP_BAD_PLACE;
    m->at = m->lost_at = place[AT];
    m->scan = place[SCAN];
    m->stop = place[STOP];
    m->phase = (int32_t)place[PHASE];
    m->locked = (int)place[LOCKED];
    m->finished = (int)place[FINISHED];
    m->first = place[FIRST];
    m->matched = place[MATCHED];
    m->edits = place[EDITS];
    m->covered = place[COVERED];
    m->base = needed_from(m);
    return DP_OK;
}

/*
 * Where dp_matcher_feed writes.  rows: four columns (first, end, matched, edits) of `capacity` integers.  report: rows
 * written, symbols of the window that are done with, foreign symbols found, symbols since the lock was lost (0 while
 * locked).
 */
EXPORT void dp_matcher_output(struct matcher *m, int64_t *rows, int64_t capacity, int64_t *report)
{
    m->rows = rows;
    m->row_capacity = capacity;
    m->report = report;
}

/*
 * Reads `window`, which starts with the symbols that the last call left over.  When the rows are full, call again with
 * the rest of the window.
 */
EXPORT void dp_matcher_feed(struct matcher *m, const void *window, int64_t length, int32_t final)
{
    int64_t base = m->base;
    m->window = window;
    m->stop = base + length;
    m->final = final;
    m->row_count = 0;
    m->foreign = 0;
    if (!m->finished) {
        if (m->width == 2) advance_u16(m);
        else advance_u32(m);
        if (final && m->row_count < m->row_capacity) finish(m);
    }
    m->base = needed_from(m);
    m->report[0] = m->row_count;
    m->report[1] = m->base - base;
    m->report[2] = m->foreign;
    m->report[3] = m->locked ? 0 : m->stop - m->lost_at;
}

/* The same for short windows: arguments that ctypes passes as they are, without conversions that cost more than this. */
EXPORT void dp_matcher_feed_short(struct matcher *m, const void *window, int32_t length, int32_t final)
{
    dp_matcher_feed(m, window, length, final);
}

/* ---- nested spans ---- */

/*
 * Spans in order of track, then start, then descending end: parent[i] becomes the last one that is open when span i
 * starts, -1 for none, and span i ends with it at the latest.  The chain of parents is the stack.
 */
EXPORT void dp_nest(const int64_t *track, const int64_t *start, int64_t *end, int64_t *parent, int64_t count)
{
    int64_t open = -1;
    for (int64_t i = 0; i < count; i++) {
        while (open >= 0 && (track[open] != track[i] || end[open] <= start[i])) open = parent[open];
        parent[i] = open;
        if (open >= 0 && end[i] > end[open]) end[i] = end[open];
        if (end[i] > start[i]) open = i;
    }
}
