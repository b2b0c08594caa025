import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deepprof.mining.paper import find_pattern, match_approximately, mine_with_counts
from deepprof.mining.suffix_tree import SuffixTree
from tests.chance import examples

pytestmark = pytest.mark.usefixtures("engine")

ITERATION = [1, 2, 2, 3, 4, 2, 2, 5, 6, 7]
OTHER = [11, 12, 13, 11, 14, 15, 16]
sequences = st.lists(st.integers(0, 3), max_size=30)


def rows(matches):
    columns = (matches.first, matches.end, matches.matched, matches.edits)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def starts_of(symbols, part):
    return [at for at in range(len(symbols) - len(part) + 1) if symbols[at : at + len(part)] == part]


def without_overlap(starts, length):
    kept = []
    for start in starts:
        if not kept or start >= kept[-1] + length:
            kept.append(start)
    return kept


def brute_pattern(symbols, count, epsilon):
    """The longest substring of both criteria that cannot be prolonged without losing occurrences or criterion 3."""
    longest = max((length for length in range(len(symbols)) if length * count < len(symbols)), default=0)
    for length in range(longest, 0, -1):
        for at in range(len(symbols) - length + 1):
            starts = starts_of(symbols, symbols[at : at + length])
            followers = {symbols[start + length] if start + length < len(symbols) else None for start in starts}
            if length < longest and len(followers) == 1:
                continue
            apart = without_overlap(starts, length)
            if len(starts) > 1 and count - epsilon < len(apart) <= len(starts) <= count:
                return symbols[at : at + length], apart
    return None


@settings(max_examples=examples(200))
@given(sequences, st.integers(2, 6))
def test_the_pattern_is_the_longest_of_both_criteria(symbols, count):
    pattern = find_pattern(SuffixTree.build(symbols), count)
    epsilon = 1
    while (expected := brute_pattern(symbols, count, epsilon)) is None and epsilon < count:
        epsilon *= 2
    if expected is None:
        assert pattern is None
    else:
        assert (pattern.symbols.tolist(), pattern.occurrences.tolist()) == expected
        assert pattern.epsilon == epsilon


@pytest.mark.parametrize("count", [2, 3, 10, 50])
def test_whole_iterations_give_one_symbol_less_than_an_iteration(count):
    pattern = find_pattern(SuffixTree.build(ITERATION * count), count)
    assert pattern.symbols.tolist() == ITERATION[:-1]
    assert pattern.occurrences.tolist() == list(range(0, 10 * count, 10))
    assert pattern.epsilon == 1


def test_epsilon_doubles_until_a_pattern_is_found():
    pattern = find_pattern(SuffixTree.build([*ITERATION * 5, *range(100, 130)]), 8)
    assert pattern.occurrences.size == 5
    assert pattern.epsilon == 4


def test_a_pattern_may_start_inside_the_iteration():
    # What follows differs from iteration to iteration, so that the longest repeat is not cut where iterations start.
    symbols = [symbol for i in range(6) for symbol in (1, 50 + i, 2, 3, 4, 5)]
    assert find_pattern(SuffixTree.build(symbols), 6).symbols.tolist() == [2, 3, 4, 5]


def test_an_overlapping_run_is_no_pattern_of_itself():
    assert find_pattern(SuffixTree.build([0] * 9 + [1, 2, 3]), 8) is None


@pytest.mark.parametrize("symbols", [[], [1], [1, 2, 3, 4]])
def test_nothing_repeats(symbols):
    assert find_pattern(SuffixTree.build(symbols), 2) is None


@pytest.mark.parametrize("count", [1, 0, -1])
def test_a_count_below_two_is_refused(count):
    with pytest.raises(ValueError, match="at least 2"):
        find_pattern(SuffixTree.build([1, 1]), count)


def naive_matches(symbols, pattern, tolerance):
    found, at = [], 0
    while at < len(symbols):
        end = naive_end(symbols, pattern, at, tolerance)
        if end is None:
            at += 1
        else:
            found.append((at, end, len(pattern), end - at - len(pattern)))
            at = end
    return found


def naive_end(symbols, pattern, at, tolerance):
    for phase, wanted in enumerate(pattern):
        while at < len(symbols) and symbols[at] != wanted:
            tolerance -= 1
            at += 1
            if phase == 0:
                return None
        if at == len(symbols) or tolerance < 0:
            return None
        at += 1
    return at


@settings(max_examples=examples(200))
@given(st.lists(st.integers(0, 3), max_size=60), st.lists(st.integers(0, 3), min_size=1, max_size=6), st.integers(0, 5))
def test_algorithm_1_matches_a_naive_scan(symbols, pattern, tolerance):
    found = match_approximately(symbols, pattern, tolerance)
    assert rows(found) == naive_matches(symbols, pattern, tolerance)
    assert found.foreign == len(symbols) - sum(end - first for first, end, *_ in rows(found))


def test_algorithm_1_tolerates_insertions_only():
    inserted = [*ITERATION[:4], 99, *ITERATION[4:]]
    assert rows(match_approximately(inserted, ITERATION)) == [(0, 11, 10, 1)]
    assert len(match_approximately(ITERATION[:4] + ITERATION[5:], ITERATION)) == 0
    assert len(match_approximately([*ITERATION[:4], 99, *ITERATION[5:]], ITERATION)) == 0
    assert len(match_approximately([*ITERATION[:4], 99, 99, *ITERATION[4:]], ITERATION)) == 0


def test_algorithm_1_on_long_patterns():
    pattern = list(range(1000))
    noisy = [*pattern, *pattern[:500], *[2000] * 100, *pattern[500:], *pattern[:500], *[2000] * 101, *pattern[500:]]
    assert rows(match_approximately(noisy, pattern)) == [(0, 1000, 1000, 0), (1000, 2100, 1000, 100)]


@pytest.mark.parametrize(("pattern", "tolerance", "message"), [([], None, "empty"), ([1], -1, "negative")])
def test_algorithm_1_refuses_bad_arguments(pattern, tolerance, message):
    with pytest.raises(ValueError, match=message):
        match_approximately([1, 2], pattern, tolerance)


def test_several_counts_find_several_loops():
    symbols = ITERATION * 20 + [90, 91, 92] + OTHER * 6
    loops = mine_with_counts(symbols, [20, 6])
    assert [loop.count for loop in loops] == [20, 6]
    assert [len(loop.iterations) for loop in loops] == [20, 6]
    assert loops[0].iterations.first.tolist() == list(range(0, 200, 10))
    for loop in loops:
        length = loop.pattern.symbols.size
        for at in loop.pattern.occurrences.tolist():
            assert symbols[at : at + length] == loop.pattern.symbols.tolist()
        for first, end in zip(loop.iterations.first.tolist(), loop.iterations.end.tolist(), strict=True):
            assert end - first >= length
    assert loops[1].iterations.first.min() >= 200


def test_later_loops_do_not_overlap_earlier_ones():
    symbols = np.concatenate([np.concatenate([ITERATION, OTHER]) for _ in range(8)])
    covered = np.zeros(symbols.size, int)
    loops = mine_with_counts(symbols, [8, 8, 8])
    for loop in loops:
        for first, end in zip(loop.iterations.first.tolist(), loop.iterations.end.tolist(), strict=True):
            covered[first:end] += 1
    assert len(loops) >= 1
    assert covered.max() == 1


def test_a_count_without_a_pattern_gives_no_loop():
    assert mine_with_counts([], [3]) == []
    assert mine_with_counts([1, 2, 3], [2]) == []
    assert [loop.count for loop in mine_with_counts(ITERATION * 4, [4, 9])] == [4]
