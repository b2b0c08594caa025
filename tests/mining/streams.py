"""Templates, streams that repeat them with every kind of damage, and all that a matcher states about one."""

import numpy as np
from hypothesis import strategies as st

from deepprof.mining.matching import Matcher, Matches

TEMPLATE = np.array([3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3, 8, 4, 6, 2, 6, 4, 3, 3])
FOREIGN = 77


def rows(matches):
    columns = (matches.first, matches.end, matches.matched, matches.edits)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def outcome(template, stream, cuts=(), **options):
    """Everything a matcher states about a stream cut at these places."""
    matcher = Matcher(template, **options)
    parts = [matcher.feed(part) for part in np.split(np.asarray(stream), sorted(cuts))]
    parts.append(matcher.feed([], final=True))
    matches = Matches.join(parts)
    return rows(matches), matches.foreign, matcher.hits.tolist(), matcher.relocks.tolist(), matcher.lost


@st.composite
def noisy_streams(draw):
    """A template, and a stream that repeats it with every kind of damage."""
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    template = random.integers(0, draw(st.integers(1, 9)), draw(st.integers(1, 40)))
    stream = []
    for _ in range(draw(st.integers(0, 12))):
        stream += damaged(template.tolist(), random)
    scale = draw(st.sampled_from([1, 1, 1, 7000, 70_000]))
    return template * scale, np.array(stream[draw(st.integers(0, 9)) :], np.int64) * draw(st.sampled_from([scale, 1]))


def damaged(symbols, random):
    at, size = int(random.integers(0, len(symbols) + 1)), int(random.integers(1, 9))
    kind = random.integers(0, 9)
    if kind == 0:
        return symbols[:at] + symbols[at + size :]
    if kind == 1:
        return symbols[:at] + random.integers(0, 12, size).tolist() + symbols[at:]
    if kind == 2:
        return [int(random.integers(0, 12)) if place == at else symbol for place, symbol in enumerate(symbols)]
    if kind == 3:
        return symbols + random.integers(0, 12, int(random.integers(1, 150))).tolist()
    return symbols


options = st.one_of(
    st.just({}),
    st.fixed_dictionaries(
        {
            "insertions": st.integers(0, 20),
            "deletions": st.integers(0, 10),
            "confirm": st.integers(1, 9),
            "anchor": st.integers(1, 13),
        }
    ),
)
