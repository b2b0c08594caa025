import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deepprof.mining import native
from deepprof.mining.anchors import FOREIGN_U16, find_anchors, plan_match
from deepprof.mining.matching import Matcher, Matches, match
from deepprof.mining.symbols import MAX_SYMBOL, as_symbols
from tests.chance import examples
from tests.mining.streams import FOREIGN, TEMPLATE, noisy_streams, options, outcome, rows


@pytest.mark.usefixtures("engine")
class TestAnyStream:
    @settings(max_examples=examples(200))
    @given(noisy_streams(), options, st.data())
    def test_any_chunking_gives_the_same(self, case, chosen, data):
        template, stream = case
        cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=30))
        assert outcome(template, stream, cuts, **chosen) == outcome(template, stream, **chosen)

    @settings(max_examples=examples(25))
    @given(noisy_streams())
    def test_one_symbol_at_a_time(self, case):
        template, stream = case
        assert outcome(template, stream, range(len(stream))) == outcome(template, stream)

    @settings(max_examples=examples(200))
    @given(noisy_streams(), options)
    def test_rows_and_foreign_symbols_account_for_every_symbol(self, case, chosen):
        template, stream = case
        found, foreign, hits, *_ = outcome(template, stream, **chosen)
        at = covered = 0
        for first, end, matched, edits in found:
            assert at <= first < end
            assert 0 <= matched <= min(end - first, len(template))
            assert end - first - matched <= edits
            at, covered = end, covered + end - first
        assert covered + foreign == len(stream)
        assert at <= len(stream)
        assert sum(hits) == sum(row[2] for row in found)
        assert all(0 <= count <= len(found) for count in hits)


@pytest.mark.skipif(native.library() is None, reason="no compiled library here")
@settings(max_examples=examples(400))
@given(noisy_streams(), options, st.lists(st.integers(0, 500), max_size=9))
def test_the_numpy_twin_says_the_same_as_the_library(case, chosen, cuts):
    template, stream = case
    ours = outcome(template, stream, cuts, **chosen)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "library", lambda: None)
        assert outcome(template, stream, cuts, **chosen) == ours


@pytest.mark.usefixtures("engine")
class TestExactStreams:
    @pytest.mark.parametrize("times", [1, 2, 5, 3000])
    def test_whole_passes(self, times):
        p = len(TEMPLATE)
        found, foreign, hits, relocks, lost = outcome(TEMPLATE, np.tile(TEMPLATE, times))
        assert found == [(i * p, i * p + p, p, 0) for i in range(times)]
        assert (foreign, lost) == (0, 0)
        assert hits == [times] * p
        assert relocks == [0] * p

    @pytest.mark.parametrize("template", [[5], [5, 5], [5, 6], [1, 1, 2], [5] * 20, [1, 2] * 9])
    def test_short_and_repetitive_templates(self, template):
        p = len(template)
        found, foreign, *_ = outcome(template, template * 10)
        assert found == [(i * p, i * p + p, p, 0) for i in range(10)]
        assert foreign == 0

    def test_the_template_starts_the_passes_wherever_the_stream_starts(self):
        p = len(TEMPLATE)
        found = match(np.tile(TEMPLATE, 4)[10:-5], TEMPLATE)
        assert rows(found) == [
            (0, p - 10, p - 10, 0),
            *((i * p - 10, (i + 1) * p - 10, p, 0) for i in (1, 2)),
            (3 * p - 10, 4 * p - 15, p - 5, 0),
        ]

    @pytest.mark.parametrize("symbols", [[], [FOREIGN], [FOREIGN] * 500])
    def test_a_stream_without_the_template_has_no_pass(self, symbols):
        assert outcome(TEMPLATE, symbols)[:2] == ([], len(symbols))

    def test_twice_as_long_a_template_than_anchors_are_unique_in(self):
        template = [1] * 20 + [2] + [1] * 21 + [2]
        found, foreign, *_ = outcome(template, template * 6)
        assert [row[2] for row in found] == [43] * 6
        assert foreign == 0


@pytest.mark.usefixtures("engine")
class TestDamage:
    p = len(TEMPLATE)

    def passes(self, middle):
        return rows(match(np.concatenate([TEMPLATE, middle, TEMPLATE]), TEMPLATE))

    def test_a_substitution(self):
        middle = TEMPLATE.copy()
        middle[10] = FOREIGN
        assert self.passes(middle)[1] == (self.p, 2 * self.p, self.p - 1, 1)

    def test_an_insertion(self):
        middle = np.insert(TEMPLATE, 9, [FOREIGN] * 40)
        assert self.passes(middle)[1] == (self.p, 2 * self.p + 40, self.p, 40)

    def test_a_deletion(self):
        middle = np.delete(TEMPLATE, [9, 10, 11])
        assert self.passes(middle)[1] == (self.p, 2 * self.p - 3, self.p - 3, 3)

    def test_an_insertion_between_two_passes_belongs_to_none(self):
        stream = np.concatenate([TEMPLATE, [FOREIGN] * 5, TEMPLATE])
        found = match(stream, TEMPLATE)
        assert rows(found) == [(0, self.p, self.p, 0), (self.p + 5, 2 * self.p + 5, self.p, 0)]
        assert found.foreign == 5

    def test_a_substituted_last_symbol_stays_in_its_pass(self):
        middle = TEMPLATE.copy()
        middle[-1] = FOREIGN
        assert self.passes(middle) == [
            (0, self.p, self.p, 0),
            (self.p, 2 * self.p, self.p - 1, 1),
            (2 * self.p, 3 * self.p, self.p, 0),
        ]

    def test_a_deletion_over_the_end_of_a_pass_is_shared_out(self):
        stream = np.concatenate([TEMPLATE[:-2], TEMPLATE[3:]])
        assert rows(match(stream, TEMPLATE)) == [
            (0, self.p - 2, self.p - 2, 2),
            (self.p - 2, 2 * self.p - 5, self.p - 3, 3),
        ]

    def test_a_long_foreign_stretch_breaks_the_pass_off(self):
        stream = np.concatenate([TEMPLATE[:15], [FOREIGN] * 300, TEMPLATE, TEMPLATE])
        found, foreign, _, relocks, _ = outcome(TEMPLATE, stream)
        assert found == [(0, 15, 15, 0), *((315 + i * self.p, 315 + (i + 1) * self.p, self.p, 0) for i in (0, 1))]
        assert foreign == 300
        assert relocks == [1] + [0] * (self.p - 1)

    def test_a_stream_that_ends_lost_keeps_the_pass_it_was_in(self):
        found, foreign, _, _, lost = outcome(TEMPLATE, [*TEMPLATE, *TEMPLATE[:15], *[FOREIGN] * 300])
        assert found == [(0, self.p, self.p, 0), (self.p, self.p + 15, 15, 0)]
        assert (foreign, lost) == (300, 300)

    def test_a_pass_that_begins_late_is_walked_back_over_ambiguous_symbols(self):
        template = np.array([1, 2] * 50 + [3, 4, 5])
        found = match(np.concatenate([[FOREIGN] * 7, template, template]), template)
        assert rows(found) == [(7, 110, 103, 0), (110, 213, 103, 0)]

    def test_hits_tell_which_phases_are_missing(self):
        without = np.delete(TEMPLATE, [9, 10, 11])
        hits = outcome(TEMPLATE, np.tile(without, 50))[2]
        assert hits[9:12] == [0, 0, 0]
        assert min(hits[:9] + hits[12:]) >= 49

    def test_more_rows_than_the_first_buffer_holds(self):
        found, foreign, *_ = outcome([1, 2], [1, 2] * 200_000)
        assert (len(found), foreign) == (200_000, 0)
        assert found[-1] == (399_998, 400_000, 2, 0)


@pytest.mark.usefixtures("engine")
class TestSymbols:
    @pytest.mark.parametrize("outside", [65_534, 65_535, 65_536, MAX_SYMBOL])
    def test_what_the_template_lacks_never_matches(self, outside):
        stream = np.concatenate([TEMPLATE, [outside], TEMPLATE])
        found = match(stream, TEMPLATE)
        assert found.matched.tolist() == [len(TEMPLATE)] * 2
        assert found.foreign == 1

    @pytest.mark.parametrize("largest", [65_534, 65_535, 65_536, MAX_SYMBOL])
    @pytest.mark.parametrize("dtype", [np.uint16, np.uint32])
    def test_templates_of_large_symbols(self, largest, dtype):
        template = np.append(TEMPLATE, largest)
        stream = np.concatenate([template, template])
        if largest < 2**16:
            stream = stream.astype(dtype)
        assert match(stream, template).matched.tolist() == [27, 27]

    def test_chunks_of_different_types_make_one_stream(self):
        chunks = [TEMPLATE.astype(np.uint16), TEMPLATE.tolist(), TEMPLATE.astype(np.uint32), np.array([MAX_SYMBOL])]
        matcher = Matcher(TEMPLATE)
        matches = Matches.join([*map(matcher.feed, chunks), matcher.feed(TEMPLATE[::-1][::-1], final=True)])
        assert matches.matched.tolist() == [26] * 4
        assert matches.foreign == 1


def test_columns_are_int64_and_own_their_memory():
    matcher = Matcher(TEMPLATE)
    earlier = matcher.feed(np.tile(TEMPLATE, 3))
    kept = rows(earlier)
    matcher.feed(np.tile(TEMPLATE, 3))
    assert rows(earlier) == kept
    assert len(earlier) == len(kept)
    assert {column.dtype for column in (earlier.first, earlier.end, earlier.matched, earlier.edits)} == {np.dtype("i8")}


def test_the_memory_kept_does_not_grow_with_the_stream():
    matcher = Matcher(np.arange(5000))
    for _ in range(30):
        matcher.feed(np.full(4096, 6000))
        assert matcher._tail.size <= 4096 + 12


def test_a_finished_stream_takes_no_more():
    matcher = Matcher(TEMPLATE)
    matcher.feed([], final=True)
    with pytest.raises(ValueError, match="ended"):
        matcher.feed(TEMPLATE)


@pytest.mark.parametrize(
    ("template", "chosen", "message"),
    [
        ([], {}, "empty"),
        ([-1], {}, "negative"),
        ([1, 2], {"insertions": -1}, "negative"),
        ([1, 2], {"deletions": -1}, "negative"),
        ([1, 2], {"confirm": 0}, "at least 1"),
        ([1, 2], {"anchor": 0}, "at least 1"),
        ([1, 2], {"insertions": 1025}, "at most 1024"),
        ([1, 2], {"deletions": 2**40}, "at most 1024"),
    ],
)
def test_bad_templates_and_options_are_refused(template, chosen, message):
    with pytest.raises(ValueError, match=message):
        Matcher(template, **chosen)


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("size", [1, 5, 3000, 20_000])
@pytest.mark.parametrize("dtype", [np.uint16, ">u2", np.uint8, np.int64, ">u4"])
def test_chunks_of_any_memory_are_read_right(size, dtype):
    stream = np.resize(TEMPLATE, 2 * size)
    memory = np.zeros(stream.size * np.dtype(dtype).itemsize + 1, np.uint8)
    unaligned = memory[1:].view(dtype)
    unaligned[:] = stream
    for chunk in (unaligned, stream.astype(dtype)[::-1][::-1], np.repeat(stream, 2).astype(dtype)[::2]):
        assert rows(match(chunk, TEMPLATE)) == rows(match(stream, TEMPLATE))


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("bad", [[-1], [2**32], [0.5], [True], [[1]], 1, ["a"], [None]])
def test_a_chunk_refused_leaves_the_matcher_as_it_was(bad):
    matcher = Matcher(TEMPLATE)
    matcher.feed(TEMPLATE[:20])
    before = matcher.save()
    with pytest.raises(ValueError, match="symbols must"):
        matcher.feed(bad)
    assert matcher.save() == before
    assert rows(matcher.feed(TEMPLATE[20:])) == [(0, len(TEMPLATE), len(TEMPLATE), 0)]


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("final", [1, np.True_, "yes"])
def test_anything_true_ends_the_stream(final):
    matcher = Matcher(TEMPLATE)
    assert len(matcher.feed(TEMPLATE[:-1], final=final)) == 1


@pytest.mark.usefixtures("engine")
def test_large_options_are_fitted_to_the_template():
    assert outcome([1, 2], [1, 2] * 4, confirm=2**70, anchor=2**70, deletions=1024)[0][-1] == (6, 8, 2, 0)


@given(st.lists(st.integers(0, 2), min_size=1, max_size=30), st.integers(1, 5))
def test_anchors_stand_once_in_the_cyclic_template(template, k):
    length, phases = find_anchors(as_symbols(template), k)
    grams = [tuple(np.resize(template[phase:] + template[:phase], length).tolist()) for phase in range(len(template))]
    unique = [phase for phase, gram in enumerate(grams) if grams.count(gram) == 1]
    firsts = sorted({gram: phase for phase, gram in reversed(list(enumerate(grams)))}.values())
    assert phases.tolist() == (unique or firsts)
    assert phases.size > 0


def test_the_plan_leaves_one_value_that_no_16_bit_template_has():
    plan = plan_match([1, 65_534], 64, 32, 8, 12)
    assert plan.cyclic.dtype == np.uint16
    assert plan.fit(np.array([65_534, 70_000, 1], np.uint32)).tolist() == [65_534, FOREIGN_U16, 1]
    assert plan_match([1, 65_535], 64, 32, 8, 12).cyclic.dtype == np.uint32
