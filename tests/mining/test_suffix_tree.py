import bisect
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from suffix_trees import STree

from deepprof.mining import native, suffix_numpy
from deepprof.mining.matching import Matcher
from deepprof.mining.suffix_tree import SuffixTree, lcp_array, suffix_array
from deepprof.mining.symbols import MAX_SYMBOL, as_symbols
from tests.chance import examples

pytestmark = pytest.mark.usefixtures("engine")


def fibonacci(length):
    older, newer = [0], [0, 1]
    while len(newer) < length:
        older, newer = newer, newer + older
    return newer[:length]


def common_prefix(a, b):
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False)))


def brute_suffixes(symbols):
    return sorted(range(len(symbols)), key=lambda start: symbols[start:])


def brute_lcp(symbols, suffixes):
    pairs = itertools.pairwise(suffixes)
    return [0][: len(suffixes)] + [common_prefix(symbols[a:], symbols[b:]) for a, b in pairs]


def brute_nodes(symbols):
    """(depth, count) of every repeated substring that is followed by different symbols, or by the end."""
    n = len(symbols)
    found = {(0, n)} if n else set()
    for length in range(1, n):
        starts = {}
        for start in range(n - length + 1):
            starts.setdefault(tuple(symbols[start : start + length]), []).append(start)
        for gram, at in starts.items():
            followers = {symbols[start + length] if start + length < n else None for start in at}
            if len(followers) > 1:
                found.add((gram, len(at)))
    return sorted((len(gram) if gram else 0, count) for gram, count in found)


short_sequences = st.one_of(
    st.lists(st.integers(0, 3), max_size=40),
    st.lists(st.integers(0, MAX_SYMBOL), max_size=20),
    st.builds(lambda block, times: (block * times)[:60], st.lists(st.integers(0, 2), max_size=9), st.integers(0, 8)),
)

SPECIAL = {
    "empty": [],
    "one": [7],
    "two": [7, 7],
    "all equal": [5] * 100,
    "fibonacci": fibonacci(200),
    "huge symbols": [MAX_SYMBOL, 0, MAX_SYMBOL, 65535, 65536, 0],
    "descending": list(range(300, 0, -1)),
    "random": np.random.default_rng(1).integers(0, 9, 300).tolist(),
    "uint16 edge": [65535, 0, 65535, 0],
}


@pytest.mark.parametrize("name", SPECIAL)
def test_special_sequences(name):
    symbols = SPECIAL[name]
    tree = SuffixTree.build(symbols)
    assert tree.suffixes.tolist() == brute_suffixes(symbols)
    assert tree.lcp.tolist() == brute_lcp(symbols, tree.suffixes.tolist())
    assert (tree.suffixes.dtype, tree.lcp.dtype) == (np.int32, np.int32)


@given(short_sequences)
def test_arrays_match_brute_force(symbols):
    suffixes = suffix_array(symbols)
    assert suffixes.tolist() == brute_suffixes(symbols)
    assert lcp_array(symbols, suffixes).tolist() == brute_lcp(symbols, suffixes.tolist())


@given(short_sequences)
def test_nodes_are_the_branching_substrings(symbols):
    nodes = SuffixTree.build(symbols).nodes()
    found = sorted(zip(nodes.depth.tolist(), nodes.count.tolist(), strict=True))
    assert found == brute_nodes(symbols)


@given(short_sequences)
def test_leaves_of_a_node_share_its_depth(symbols):
    tree = SuffixTree.build(symbols)
    nodes = tree.nodes()
    for depth, count, left in zip(nodes.depth.tolist(), nodes.count.tolist(), nodes.left.tolist(), strict=True):
        leaves = tree.suffixes[left : left + count].tolist()
        assert len(leaves) == count
        assert len({tuple(symbols[start : start + depth]) for start in leaves}) == 1


@given(short_sequences)
def test_children_come_before_parents_and_the_root_last(symbols):
    nodes = SuffixTree.build(symbols).nodes()
    if symbols:
        assert (nodes.depth[-1], nodes.count[-1], nodes.left[-1]) == (0, len(symbols), 0)
    for child in range(len(nodes)):
        end = nodes.left[child] + nodes.count[child]
        around = (nodes.left <= nodes.left[child]) & (nodes.left + nodes.count >= end)
        ancestors = np.flatnonzero(around & (nodes.depth < nodes.depth[child]))
        assert (ancestors > child).all()


@given(short_sequences, st.integers(1, 7))
def test_classes_number_the_k_grams_in_order(symbols, k):
    grams = [tuple(symbols[start : start + k]) for start in range(len(symbols) - k + 1)]
    numbers = {gram: number for number, gram in enumerate(sorted(set(grams)))}
    classes = SuffixTree.build(symbols).classes(k)
    assert classes.dtype == np.int32
    assert classes.tolist() == [numbers[gram] for gram in grams]


@settings(max_examples=examples(50))
@given(st.lists(st.integers(0, 3), min_size=1, max_size=40), st.integers(0, 39), st.integers(1, 6))
def test_agrees_with_the_suffix_trees_package(symbols, start, length):
    word = "".join(chr(ord("a") + symbol) for symbol in symbols)
    theirs, ours = STree.STree(word), SuffixTree.build(symbols)
    assert len(ours.nodes()) == _count_internal(theirs.root)
    part = symbols[start % len(symbols) :][:length]
    ordered = ours.suffixes.tolist()
    low = bisect.bisect_left(ordered, part, key=lambda at: symbols[at : at + len(part)])
    high = bisect.bisect_right(ordered, part, key=lambda at: symbols[at : at + len(part)])
    assert set(ordered[low:high]) == theirs.find_all("".join(chr(ord("a") + symbol) for symbol in part))


def _count_internal(node):
    if node.is_leaf():
        return 0
    return 1 + sum(map(_count_internal, node.transition_links.values()))


@pytest.mark.widens(4)
@pytest.mark.parametrize("length", [1000, 70_000])
@pytest.mark.parametrize("alphabet", [2, 300, 60_000, 2**31])
def test_longer_sequences_match_the_numpy_twin(length, alphabet):
    generator = np.random.default_rng(alphabet)
    block = generator.integers(0, alphabet, length // 8)
    symbols = np.tile(block, 8)
    symbols[generator.integers(0, symbols.size, 20)] = generator.integers(0, alphabet, 20)
    tree = SuffixTree.build(symbols)
    assert np.array_equal(
        tree.suffixes, suffix_numpy.suffix_array(as_symbols(np.unique(symbols, return_inverse=True)[1]))
    )
    assert np.array_equal(tree.lcp, suffix_numpy.lcp_array(tree.symbols, tree.suffixes))
    nodes = tree.nodes()
    for ours, twins in zip((nodes.depth, nodes.count, nodes.left), suffix_numpy.nodes(tree.lcp), strict=True):
        assert np.array_equal(ours, twins)


def test_a_long_run_of_one_symbol_is_no_deep_recursion():
    tree = SuffixTree.build(np.zeros(200_000, np.uint16))
    assert np.array_equal(tree.suffixes, np.arange(200_000)[::-1])
    assert np.array_equal(tree.lcp, np.arange(200_000))
    assert len(tree.nodes()) == 200_000


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64])
def test_any_integer_type_and_stride_is_accepted(dtype):
    symbols = np.array([3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5], dtype)
    for view in (symbols, symbols[::-1], symbols[::2], symbols.astype(symbols.dtype.newbyteorder())):
        assert suffix_array(view).tolist() == brute_suffixes(view.tolist())


def unaligned(symbols):
    """The same numbers at an odd address."""
    memory = np.zeros(symbols.nbytes + 1, np.uint8)
    memory[1:] = symbols.view(np.uint8)
    return memory[1:].view(symbols.dtype)


@pytest.mark.parametrize("dtype", [np.uint16, np.uint32, np.int64])
def test_any_memory_is_accepted(dtype):
    symbols = np.array([3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5], dtype)
    frozen, masked = symbols.copy(), np.ma.masked_array(symbols)
    frozen.setflags(write=False)
    for view in (unaligned(symbols), frozen, memoryview(symbols), masked, np.broadcast_to(dtype(7), 9)):
        assert as_symbols(view).flags.aligned
        assert as_symbols(view).flags.c_contiguous
        assert suffix_array(view).tolist() == brute_suffixes(np.asarray(view).tolist())


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ([1, -1], "negative"),
        ([2**32 - 1], "exceed"),
        (np.array([2**64 - 1], np.uint64), "exceed"),
        ([2**70], "integers"),
        ([1.0, float("nan")], "integers"),
        ([1.5], "integers"),
        (["a"], "integers"),
        ([True, False], "integers"),
        (np.array([1, 2], object), "integers"),
        ([None, 1], "integers"),
        (np.array([1, 2], "M8[s]"), "integers"),
        (np.array([(1, 2)], [("a", "i4"), ("b", "i4")]), "integers"),
        (b"text", "one-dimensional"),
        ([[1, 2], [3, 4]], "one-dimensional"),
        ([[]], "one-dimensional"),
        (np.zeros((2, 0), np.uint16), "one-dimensional"),
        (np.zeros((2, 2), np.uint16), "one-dimensional"),
        (3, "one-dimensional"),
        (np.uint16(3), "one-dimensional"),
        (None, "one-dimensional"),
    ],
)
def test_bad_input_is_refused_in_words(bad, message):
    for function in (as_symbols, suffix_array, SuffixTree.build, Matcher, Matcher([1, 2]).feed):
        with pytest.raises(ValueError, match=message):
            function(bad)


def test_symbols_take_the_smallest_type_and_are_not_copied_without_need():
    symbols = np.arange(5, dtype=np.uint16)
    assert as_symbols(symbols) is symbols
    assert as_symbols([65535]).dtype == np.uint16
    assert as_symbols([65536]).dtype == np.uint32
    assert as_symbols([]).dtype == np.uint16


@pytest.mark.parametrize(
    "suffixes",
    [
        *([0, 0], [0, 2], [-1, 0], [0], [[0, 1]], [], 0, None),
        *([0.0, 1.0], [0.2, 1.7], [float("nan"), 1], [False, True], ["0", "1"]),
        *([2**32, 1], [2**63, 1], np.array([2**64 - 1, 1], np.uint64)),
    ],
)
def test_lcp_array_refuses_what_is_no_suffix_array(suffixes):
    with pytest.raises(ValueError, match="permutation"):
        lcp_array([1, 2], suffixes)


@pytest.mark.parametrize("dtype", [np.uint8, np.int64, ">i4"])
def test_lcp_array_takes_a_permutation_of_any_integer_type_and_stride(dtype):
    suffixes = np.array([9, 0, 9, 3, 9, 1, 9, 2], dtype)[1::2]
    assert lcp_array([1, 1, 1, 1], [3, 2, 1, 0]).tolist() == [0, 1, 2, 3]
    assert lcp_array([1, 2, 2, 1], suffixes).tolist() == lcp_array([1, 2, 2, 1], suffixes.tolist()).tolist()


def arrays(size, dtype=np.int32):
    return np.zeros(size, np.uint16), np.arange(size, dtype=dtype), np.zeros(size, dtype)


def test_a_tree_of_arrays_that_c_cannot_read_is_refused():
    symbols, suffixes, lcp = arrays(6)
    for wrong in (lcp[:5], lcp.astype(np.int64), lcp.astype(np.float32), lcp.astype(">i4"), np.zeros((6, 1), np.int32)):
        for pair in ((suffixes, wrong), (wrong, lcp)):
            with pytest.raises(ValueError, match="contiguous int32"):
                SuffixTree(symbols, *pair)
    with pytest.raises(ValueError, match="contiguous int32"):
        SuffixTree(symbols[:3], suffixes[::2], lcp[::2])


@given(st.lists(st.integers(-3, 9), min_size=1, max_size=40))
def test_nodes_of_any_numbers_are_refused_or_stay_in_bounds(lcp):
    symbols, suffixes, _ = arrays(len(lcp))
    tree = SuffixTree(symbols, suffixes, np.array(lcp, np.int32))
    if min(lcp) < 0:
        with pytest.raises(ValueError, match="negative"):
            tree.nodes()
        return
    assert 1 <= len(tree.nodes()) <= len(lcp)


@pytest.mark.parametrize("k", [0, -3])
def test_classes_refuse_k_below_one(k):
    with pytest.raises(ValueError, match="at least 1"):
        SuffixTree.build([1, 2]).classes(k)


def test_running_out_of_memory_is_an_error(monkeypatch):
    class Starved:
        def dp_suffix_array_u16(self, *_):
            return -1

    monkeypatch.setattr(native, "library", Starved)
    with pytest.raises(MemoryError, match="3 suffixes"):
        suffix_array([1, 2, 3])
