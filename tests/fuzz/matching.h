/* A matcher on one stream: cut anywhere, interrupted anywhere and with rows for few, it must say the same. */

enum { LONGEST_TEMPLATE = 40, LONGEST_STREAM = 2000, MOST_ROWS = LONGEST_STREAM, MOST_CYCLIC = 4 * LONGEST_TEMPLATE };

/* What anchors.py prepares of a template. */
struct plan {
    uint32_t symbols[MOST_CYCLIC];
    void *cyclic;
    int32_t width, length, parameters[PARAMETERS], anchors[LONGEST_TEMPLATE], anchor_count;
};

enum { PERIOD, INSERTIONS, DELETIONS, CONFIRM, ANCHOR, HISTORY };

static int same_gram(const struct plan *plan, int32_t a, int32_t b, int32_t k)
{
    int32_t period = plan->parameters[PERIOD];
    for (int32_t i = 0; i < k; i++)
        if (plan->symbols[(a + i) % period] != plan->symbols[(b + i) % period]) return 0;
    return 1;
}

/* Phases whose k-gram no other phase has; with `first`, none before it. */
static void list_anchors(struct plan *plan, int32_t k, int first)
{
    int32_t period = plan->parameters[PERIOD];
    plan->anchor_count = 0;
    for (int32_t a = 0; a < period; a++) {
        int alone = 1;
        for (int32_t b = 0; b < (first ? a : period); b++) alone &= b == a || !same_gram(plan, a, b, k);
        if (alone) plan->anchors[plan->anchor_count++] = a;
    }
}

/* k doubled while no k-gram is unique; in a template that repeats itself, the first of each. */
static void find_anchors(struct plan *plan, int32_t k)
{
    int32_t period = plan->parameters[PERIOD], longer = k;
    for (list_anchors(plan, longer, 0); !plan->anchor_count && longer < period; list_anchors(plan, longer, 0))
        longer = 2 * longer < period ? 2 * longer : period;
    plan->parameters[ANCHOR] = plan->anchor_count ? longer : k;
    if (!plan->anchor_count) list_anchors(plan, k, 1);
}

static int32_t at_most(int32_t number, int32_t most) { return number < most ? number : most; }

static void make_plan(struct bytes *in, struct plan *plan, uint32_t alphabet)
{
    int32_t period = 1 + take(in, LONGEST_TEMPLATE), most = period / 2 > 2 ? period / 2 : 2;
    for (int32_t i = 0; i < period; i++) plan->symbols[i] = take_byte(in) % alphabet;
    int32_t numbers[PARAMETERS] = {period, take(in, 20), at_most(take(in, 12), period - 1),
                                   at_most(1 + take(in, 9), most), 0, period - 1};
    memcpy(plan->parameters, numbers, sizeof numbers);
    find_anchors(plan, at_most(1 + take(in, 13), most));
    plan->length = period + plan->parameters[DELETIONS] + plan->parameters[CONFIRM] + plan->parameters[ANCHOR] + 1;
    CHECK(plan->length <= MOST_CYCLIC);
    for (int32_t i = period; i < plan->length; i++) plan->symbols[i] = plan->symbols[i - period];
    plan->width = take(in, 2) ? 2 : 4;
    plan->cyclic = narrowed(plan->symbols, plan->length, plan->width);
}

/* Stretches of the template, some foreign symbols and some jumps between them. */
static int32_t make_stream(struct bytes *in, const struct plan *plan, uint32_t *stream)
{
    int32_t length = 0, phase = 0, period = plan->parameters[PERIOD];
    while (in->next < in->end) {
        int32_t kind = take(in, 8), size = take_byte(in);
        if (kind == 0) phase += size;
        if (length + size > LONGEST_STREAM) break;
        for (int32_t i = 0; i < size && kind != 0; i++, phase += kind > 1)
            stream[length++] = kind > 1 ? plan->symbols[phase % period] : take_byte(in);
        if (kind == 1) length -= size - size % 30;
    }
    return length;
}

/* A matcher and all that it has said. */
struct listener {
    const struct plan *plan;
    struct matcher *matcher;
    int64_t *hits, *relocks, *rows, capacity, report[4];
    int64_t heard[MOST_ROWS][4], count, foreign;
};

static struct matcher *new_matcher(const struct plan *plan, int64_t *hits, int64_t *relocks)
{
    return dp_matcher_new(plan->width, plan->cyclic, plan->length, plan->parameters, plan->anchors, plan->anchor_count,
                          hits, relocks);
}

static void set_up(struct listener *to, const struct plan *plan, int64_t capacity)
{
    memset(to, 0, sizeof *to);
    to->plan = plan;
    to->hits = room(plan->parameters[PERIOD] + 1, 8);
    to->relocks = room(plan->parameters[PERIOD], 8);
    to->rows = room(4 * capacity, 8);
    to->capacity = capacity;
    to->matcher = new_matcher(plan, to->hits, to->relocks);
    dp_matcher_output(to->matcher, to->rows, capacity, to->report);
}

static void tear_down(struct listener *to)
{
    dp_matcher_free(to->matcher);
    free(to->hits);
    free(to->relocks);
    free(to->rows);
}

/* Another matcher takes the place of this one. */
static void interrupt(struct listener *to)
{
    int64_t place[PLACE], again[PLACE];
    dp_matcher_place(to->matcher, place);
    dp_matcher_free(to->matcher);
    to->matcher = new_matcher(to->plan, to->hits, to->relocks);
    CHECK(dp_matcher_resume(to->matcher, place) == DP_OK);
    dp_matcher_place(to->matcher, again);
    CHECK(!memcmp(place, again, sizeof place));
    dp_matcher_output(to->matcher, to->rows, to->capacity, to->report);
}

static void write_down(struct listener *to)
{
    for (int64_t row = 0; row < to->report[0]; row++, to->count++) {
        CHECK(to->count < MOST_ROWS);
        for (int column = 0; column < 4; column++)
            to->heard[to->count][column] = to->rows[column * to->capacity + row];
    }
    to->foreign += to->report[2];
}

/* Symbols [from, end) of the stream; returns from where on they are needed again. */
static int64_t hear(struct listener *to, const uint32_t *stream, int64_t from, int64_t end, int final)
{
    do {
        void *window = narrowed(stream + from, end - from, to->plan->width);
        dp_matcher_feed(to->matcher, window, end - from, final);
        free(window);
        CHECK(to->report[1] >= 0 && to->report[1] <= end - from);
        from += to->report[1];
        write_down(to);
    } while (to->report[0] == to->capacity);
    return from;
}

static void hear_in_pieces(struct bytes *cuts, struct listener *to, const uint32_t *stream, int32_t length)
{
    int64_t from = 0;
    for (int32_t end = 0; end < length;) {
        end = at_most(end + take_byte(cuts), length);
        from = hear(to, stream, from, end, 0);
        CHECK(end - from < LONGEST_TEMPLATE + 2 * LONGEST_TEMPLATE);
        if (take(cuts, 3) == 0) interrupt(to);
        if (cuts->next == cuts->end) end = length;
    }
    hear(to, stream, from, length, 1);
}

static void check_account(const struct listener *said, int32_t length)
{
    int64_t end = 0, within = 0, matched = 0, hits = 0, open = 0;
    for (int64_t i = 0; i < said->count; i++) {
        const int64_t *row = said->heard[i];
        CHECK(row[0] >= end && row[1] > row[0] && row[2] >= 0 && row[2] <= row[1] - row[0]);
        CHECK(row[3] >= row[1] - row[0] - row[2]);
        end = row[1];
        within += row[1] - row[0];
        matched += row[2];
    }
    for (int32_t i = 0; i <= said->plan->parameters[PERIOD]; i++) hits += open += said->hits[i];
    CHECK(end <= length && within + said->foreign == length && matched == hits && open == 0);
}

static void check_same(const struct listener *a, const struct listener *b)
{
    size_t period = (size_t)a->plan->parameters[PERIOD];
    CHECK(a->count == b->count && a->foreign == b->foreign);
    CHECK(!memcmp(a->heard, b->heard, sizeof a->heard[0] * (size_t)a->count));
    CHECK(!memcmp(a->hits, b->hits, 8 * (period + 1)));
    CHECK(!memcmp(a->relocks, b->relocks, 8 * period));
}

/* A number near 0, near the stream's or the template's length, or anything. */
static int64_t take_number(struct bytes *in)
{
    int32_t kind = take(in, 8);
    if (kind == 0) return take_int64(in);
    return kind == 1 ? ((int64_t)1 << (20 + take(in, 43))) - take(in, 3) : take(in, 60) - (kind == 2);
}

/* Any ten numbers are refused, or are a place to go on from without harm. */
static void try_places(struct bytes *in, struct listener *to, const uint32_t *stream, int32_t length)
{
    int64_t place[PLACE];
    dp_matcher_place(to->matcher, place);
    place[FINISHED] = take(in, 4) == 0;
    for (int32_t changes = 1 + take(in, 4); changes > 0; changes--) place[take(in, PLACE)] = take_number(in);
    if (dp_matcher_resume(to->matcher, place) != DP_OK) return;
    for (int32_t from = 0, end; from < length; from = end) {
        end = at_most(from + 1 + take_byte(in), length);
        to->count = 0;
        to->foreign = 0;
        hear(to, stream, from, end, 0);
    }
    to->count = 0;
    to->foreign = 0;
    hear(to, stream, 0, length, 1);
}

static void try_starved(const struct plan *plan, int patience)
{
    int64_t hits[LONGEST_TEMPLATE + 1] = {0}, relocks[LONGEST_TEMPLATE] = {0};
    allocations_left = patience;
    struct matcher *matcher = new_matcher(plan, hits, relocks);
    allocations_left = -1;
    CHECK((matcher != NULL) == (patience >= 4));
    dp_matcher_free(matcher);
}

static void try_matching(struct bytes *in)
{
    static struct plan plan;
    static struct listener whole, pieces;
    static uint32_t stream[LONGEST_STREAM + 256];
    struct bytes cuts = *in;
    make_plan(in, &plan, 1 + (uint32_t)take_byte(in) % (1u << take(in, 9)));
    int32_t capacity = 1 + take(in, 4), length = make_stream(in, &plan, stream);
    set_up(&whole, &plan, MOST_ROWS);
    set_up(&pieces, &plan, capacity);
    hear(&whole, stream, 0, length, 1);
    hear_in_pieces(&cuts, &pieces, stream, length);
    check_account(&whole, length);
    check_same(&whole, &pieces);
    try_places(&cuts, &pieces, stream, length);
    try_starved(&plan, take(&cuts, 6));
    tear_down(&whole);
    tear_down(&pieces);
    free(plan.cyclic);
}
