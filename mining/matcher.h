/*
 * The locking matcher: follows a stream along a cyclic template.  A template: the includer defines SYMBOL, an unsigned
 * integer type, and NAMED(name); the symbol-free half (struct matcher, emit, skip, take_up) stands in native.c.
 *
 * Locked, it compares runs of memory.  At a difference it looks a little ahead for the nearest place where both agree
 * again.  Failing that it is lost, and rolls a hash over the stream until a k-gram turns up that stands only once in
 * the template.  No decision looks past `lookahead` symbols or back more than `history`, so that any chunking of the
 * stream gives the same rows.
 */

static int NAMED(equal)(const SYMBOL *a, const SYMBOL *b, int64_t count)
{
    return !memcmp(a, b, sizeof(SYMBOL) * (size_t)count);
}

/* How many leading symbols of a and b are equal, up to limit: memcmp first, as most runs go to the end. */
static int64_t NAMED(equal_run)(const SYMBOL *a, const SYMBOL *b, int64_t limit)
{
    int64_t x = 0;
    if (limit >= 64 && NAMED(equal)(a, b, limit)) return limit;
    while (x + 256 <= limit && NAMED(equal)(a + x, b + x, 256)) x += 256;
    while (x + 32 <= limit && NAMED(equal)(a + x, b + x, 32)) x += 32;
    while (x < limit && a[x] == b[x]) x++;
    return x;
}

static const SYMBOL *NAMED(stream_at)(const struct matcher *m, int64_t position)
{
    return (const SYMBOL *)m->window + (position - m->base);
}

static uint64_t NAMED(hash)(const SYMBOL *gram, int32_t count)
{
    uint64_t hash = 0;
    for (int32_t i = 0; i < count; i++) hash = hash * HASH_BASE + ((uint64_t)gram[i] + 1);
    return hash;
}

/* The phase whose k-gram this is, -1 for none; equal hashes are compared symbol by symbol. */
static int32_t NAMED(find_phase)(const struct matcher *m, uint64_t hash, const SYMBOL *gram)
{
    uint64_t key = mix(hash);
    for (uint64_t slot = key & m->mask; m->phases[slot] >= 0; slot = (slot + 1) & m->mask)
        if (m->keys[slot] == key && NAMED(equal)((const SYMBOL *)m->cyclic + m->phases[slot], gram, m->anchor))
            return m->phases[slot];
    return -1;
}

static void NAMED(fill_table)(struct matcher *m, const int32_t *anchors, int32_t count)
{
    for (int32_t i = 0; i < count; i++) {
        uint64_t key = mix(NAMED(hash)((const SYMBOL *)m->cyclic + anchors[i], m->anchor));
        uint64_t slot = key & m->mask;
        while (m->phases[slot] >= 0) slot = (slot + 1) & m->mask;
        m->phases[slot] = anchors[i];
        m->keys[slot] = key;
    }
}

/* Goes on while stream and template agree, to the end of the pass at most; true when the pass is complete. */
static int NAMED(follow)(struct matcher *m)
{
    int64_t limit = m->period - m->phase;
    if (limit > m->stop - m->at) limit = m->stop - m->at;
    int64_t run = NAMED(equal_run)(NAMED(stream_at)(m, m->at), (const SYMBOL *)m->cyclic + m->phase, limit);
    m->hits[m->phase]++;
    m->hits[m->phase + run]--;
    m->at += run;
    m->matched += run;
    m->phase += (int32_t)run;
    if (m->phase < m->period) return 0;
    emit(m, m->at);
    begin(m, m->at, 0);
    m->phase = 0;
    return 1;
}

/* Do stream and template agree for `confirm` symbols once `inserted` and `deleted` symbols are skipped? */
static int NAMED(agrees)(const struct matcher *m, int32_t inserted, int32_t deleted)
{
    if (inserted + (int64_t)m->confirm > m->stop - m->at) return 0;
    const SYMBOL *stream = NAMED(stream_at)(m, m->at) + inserted;
    const SYMBOL *pattern = (const SYMBOL *)m->cyclic + m->phase + deleted;
    return stream[0] == pattern[0] && NAMED(equal)(stream, pattern, m->confirm);
}

/* The nearest place where both agree again: a substitution first, then the fewest symbols skipped; else lost. */
static void NAMED(resynchronise)(struct matcher *m)
{
    if (NAMED(agrees)(m, 1, 1)) {
        skip(m, 1, 1);
        return;
    }
    for (int32_t total = 1; total <= m->insertions + m->deletions; total++) {
        int32_t most = total < m->deletions ? total : m->deletions;
        for (int32_t deleted = total > m->insertions ? total - m->insertions : 0; deleted <= most; deleted++)
            if (NAMED(agrees)(m, total - deleted, deleted)) {
                skip(m, total - deleted, deleted);
                return;
            }
    }
    m->locked = 0;
    m->lost_at = m->scan = m->at;
}

/* Locks again at a k-gram found, walked back while the symbols before it agree too. */
static void NAMED(relock)(struct matcher *m, int64_t start, int32_t phase)
{
    int64_t least = start - m->history > m->lost_at ? start - m->history : m->lost_at;
    while (start > least && phase > 0 &&
           *NAMED(stream_at)(m, start - 1) == ((const SYMBOL *)m->cyclic)[phase - 1]) {
        start--;
        phase--;
    }
    take_up(m, start, phase);
}

/* Looks for the first k-gram of the stream that is an anchor of the template; true when found. */
static int NAMED(find_anchor)(struct matcher *m)
{
    if (m->stop - m->scan < m->anchor) return 0;
    const SYMBOL *gram = NAMED(stream_at)(m, m->scan);
    uint64_t hash = NAMED(hash)(gram, m->anchor - 1);
    for (int64_t start = m->scan; start + m->anchor <= m->stop; start++, gram++) {
        hash = hash * HASH_BASE + ((uint64_t)gram[m->anchor - 1] + 1);
        int32_t phase = NAMED(find_phase)(m, hash, gram);
        if (phase >= 0) {
            NAMED(relock)(m, start, phase);
            return 1;
        }
        hash -= m->leaving * ((uint64_t)gram[0] + 1);
    }
    m->scan = m->stop - m->anchor + 1;
    return 0;
}

/* Reads the window until it ends, more of the stream is needed to decide, or the rows are full. */
static void NAMED(advance)(struct matcher *m)
{
    while (m->at < m->stop && m->row_count < m->row_capacity) {
        if (!m->locked) {
            if (!NAMED(find_anchor)(m)) return;
            continue;
        }
        if (NAMED(follow)(m)) continue;
        if (m->at == m->stop || (!m->final && m->stop - m->at < m->lookahead)) return;
        NAMED(resynchronise)(m);
    }
}
