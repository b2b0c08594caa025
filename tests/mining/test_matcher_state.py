import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deepprof.mining import native
from deepprof.mining.matcher_state import FARTHEST, MatcherPosition, MatcherSnapshot
from deepprof.mining.matching import Matcher, Matches
from tests.chance import examples
from tests.mining.states import HEAD, NUMBERS, VERSION, released, sealed, survives
from tests.mining.streams import TEMPLATE, noisy_streams, options, outcome, rows

ENGINES = ["native", "numpy"]


def with_engine(name, work, *arguments):
    with pytest.MonkeyPatch.context() as patch:
        if name == "numpy":
            patch.setattr(native, "library", lambda: None)
        elif native.library() is None:
            pytest.skip("no compiled library here: no C compiler, or DEEPPROF_NATIVE=0")
        return work(*arguments)


def feed(matcher, stream, cuts=()):
    return [matcher.feed(part) for part in np.split(np.asarray(stream), sorted(cuts))]


def interrupted(case, cut, cuts, chosen, engines):
    """The outcome of a matcher that is saved after `cut` symbols and goes on as another one."""
    template, stream = case

    def before():
        matcher = Matcher(template, **chosen)
        return feed(matcher, stream[:cut], [at for at in cuts if at < cut]), matcher.save()

    def after(data):
        matcher = Matcher.restore(data)
        found = feed(matcher, stream[cut:], [at - cut for at in cuts if at > cut])
        found.append(matcher.feed([], final=True))
        return found, matcher

    parts, data = with_engine(engines[0], before)
    further, matcher = with_engine(engines[1], after, data)
    matches = Matches.join([*parts, *further])
    return rows(matches), matches.foreign, matcher.hits.tolist(), matcher.relocks.tolist(), matcher.lost


@pytest.mark.parametrize("engines", [(a, b) for a in ENGINES for b in ENGINES], ids="-".join)
@settings(max_examples=examples(100))
@given(noisy_streams(), options, st.data())
def test_a_restored_matcher_goes_on_as_if_never_interrupted(engines, case, chosen, data):
    template, stream = case
    cut = data.draw(st.integers(0, len(stream)))
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=9))
    assert interrupted(case, cut, cuts, chosen, engines) == outcome(template, stream, **chosen)


@pytest.mark.parametrize("name", ENGINES)
def test_states_that_a_release_saved_are_restored_and_saved_as_the_same_bytes(name):
    for data in released("matcher").values():
        assert with_engine(name, lambda data=data: Matcher.restore(data).save()) == data


@settings(max_examples=examples(100))
@given(noisy_streams(), options, st.booleans(), st.lists(st.integers(0, 500), max_size=5))
def test_both_engines_save_the_same_bytes(case, chosen, final, cuts):
    def saved():
        matcher = Matcher(case[0], **chosen)
        feed(matcher, case[1], cuts)
        matcher.feed([], final=final)
        return matcher.save()

    data = with_engine("numpy", saved)
    assert with_engine("native", saved) == data
    assert with_engine("native", lambda: Matcher.restore(data).save()) == data
    assert with_engine("numpy", lambda: Matcher.restore(data).save()) == data


@pytest.mark.usefixtures("engine")
class TestStart:
    p = len(TEMPLATE)

    def test_positions_count_from_where_the_matcher_starts(self):
        found = Matcher(TEMPLATE, at=10**12).feed(np.tile(TEMPLATE, 2), final=True)
        assert rows(found) == [(10**12 + i * self.p, 10**12 + (i + 1) * self.p, self.p, 0) for i in (0, 1)]
        assert found.foreign == 0

    def test_a_locked_start_needs_no_anchor(self):
        template = [1, 1, 1, 2]
        assert rows(Matcher(template, at=7, locked=True).feed([1, 1], final=True)) == [(7, 9, 2, 0)]
        assert rows(Matcher(template, at=7).feed([1], final=True)) == []

    def test_a_locked_start_is_the_start_of_a_pass(self):
        stream = np.concatenate([np.delete(TEMPLATE, 1), TEMPLATE])
        found = Matcher(TEMPLATE, at=50, locked=True).feed(stream, final=True)
        assert rows(found) == [(50, 49 + self.p, self.p - 1, 1), (49 + self.p, 49 + 2 * self.p, self.p, 0)]

    def test_a_locked_start_may_turn_out_wrong(self):
        matcher = Matcher(TEMPLATE, at=5, locked=True)
        found = matcher.feed([99] * 200)
        assert (rows(found), matcher.lost) == ([], 200)
        found = Matches.join([found, matcher.feed(TEMPLATE, final=True)])
        assert (rows(found), found.foreign) == ([(205, 205 + self.p, self.p, 0)], 200)

    def test_a_start_is_saved(self):
        matcher = Matcher.restore(Matcher(TEMPLATE, at=30, locked=True).save())
        assert rows(matcher.feed(TEMPLATE)) == [(30, 30 + self.p, self.p, 0)]

    @pytest.mark.parametrize("at", [-1, FARTHEST + 1, 2**64])
    def test_a_start_outside_every_stream_is_refused(self, at):
        with pytest.raises(ValueError, match="from 0 to"):
            Matcher(TEMPLATE, at=at)

    @pytest.mark.parametrize("wrong", [{"at": 1.5}, {"at": "1"}, {"insertions": 2.5}, {"anchor": None}])
    def test_what_is_no_integer_is_refused(self, wrong):
        with pytest.raises(TypeError):
            Matcher(TEMPLATE, **wrong)

    def test_a_finished_matcher_stays_finished(self):
        matcher = Matcher(TEMPLATE)
        matcher.feed(TEMPLATE, final=True)
        restored = Matcher.restore(matcher.save())
        assert restored.hits.tolist() == [1] * self.p
        with pytest.raises(ValueError, match="ended"):
            restored.feed(TEMPLATE)

    def test_the_farthest_start_works(self):
        matcher = Matcher.restore(Matcher(TEMPLATE, at=FARTHEST, locked=True).save())
        assert matcher.feed(TEMPLATE, final=True).first.tolist() == [FARTHEST]


@pytest.mark.parametrize("template", [np.arange(5000), np.append(np.zeros(4999, int), 70_000)])
def test_the_size_depends_on_the_template_only(template):
    matcher, sizes = Matcher(template), []
    for chunk in (np.full(4096, 6000), np.tile(template, 3), template[:700], np.full(100, 6000)):
        for _ in range(4):
            matcher.feed(chunk)
            sizes.append(len(matcher.save()))
    assert max(sizes) <= 24 * template.size + 17_000


class TestHostileBytes:
    def saved(self):
        matcher = Matcher(TEMPLATE)
        matcher.feed(np.tile(TEMPLATE, 3)[5:70])
        return matcher.save()

    def with_number(self, index, value):
        body = bytearray(self.saved()[HEAD.size :])
        struct.pack_into("<q", body, 8 * index, value)
        return sealed(bytes(body))

    @pytest.mark.parametrize("data", [b"", b"x", b"DPMATCH", b"\x80\x04]q", bytes(500)])
    def test_other_bytes_are_refused(self, data):
        with pytest.raises(ValueError, match="not the saved state"):
            Matcher.restore(data)

    def test_another_version_is_named(self):
        data = bytearray(self.saved())
        struct.pack_into("<I", data, 8, VERSION + 6)
        with pytest.raises(ValueError, match=f"version {VERSION + 6}; this program reads {VERSION}"):
            Matcher.restore(bytes(data))

    def test_every_truncation_is_refused(self):
        data = self.saved()
        for size in range(len(data)):
            with pytest.raises(ValueError, match="saved state"):
                Matcher.restore(data[:size])
        with pytest.raises(ValueError, match="checksum"):
            Matcher.restore(data + b"\0")

    def test_every_flipped_byte_is_refused(self):
        data = self.saved()
        for at in range(len(data)):
            with pytest.raises(ValueError, match="saved state"):
                Matcher.restore(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])

    def test_sizes_that_the_bytes_do_not_hold_are_refused(self):
        body = self.saved()[HEAD.size :]
        for other in (body[:-1], body[:-8], body + b"\0\0", body[:40], body[: 8 * NUMBERS]):
            with pytest.raises(ValueError, match="truncated or damaged"):
                Matcher.restore(sealed(other))

    @pytest.mark.parametrize("value", [-(2**63), -2, -1, 0, 1, 3, 10**6, 2**31, 2**32, 2**62, 2**62 + 1, 2**63 - 1])
    @pytest.mark.parametrize("index", range(NUMBERS))
    @pytest.mark.usefixtures("engine")
    def test_any_single_number_is_refused_or_harmless(self, index, value):
        survives(self.with_number(index, value))

    @pytest.mark.parametrize(
        ("field", "value", "what"),
        [
            ("at", 0, "its lock"),
            ("at", 70, "its positions"),
            ("stop", FARTHEST + 1, "its positions"),
            ("stop", 66, "what it keeps"),
            ("phase", len(TEMPLATE), "its phase"),
            ("phase", -1, "its phase"),
            ("locked", 2, "its flags"),
            ("finished", -1, "its flags"),
            ("first", -1, "its pass"),
            ("first", -2, "its pass"),
            ("first", 66, "its pass"),
            ("matched", 27, "its pass"),
            ("edits", 2**40, "its pass"),
            ("covered", 60, "its pass"),
        ],
    )
    def test_a_wrong_field_is_named(self, field, value, what):
        data = self.with_number(6 + MatcherPosition._fields.index(field), value)
        with pytest.raises(ValueError, match=f"{what}.* cannot be"):
            Matcher.restore(data)

    def test_more_symbols_than_a_matcher_leaves_unread_are_refused(self):
        kept = MatcherSnapshot.from_bytes(self.saved())
        longer, tail = kept.place._replace(stop=kept.place.stop + 200), np.zeros(200, np.uint16)
        with pytest.raises(ValueError, match="what it has left to read cannot be"):
            Matcher.restore(
                MatcherSnapshot(kept.template, kept.options, longer, tail, kept.hits, kept.relocks).to_bytes()
            )

    @pytest.mark.parametrize(("name", "wrong"), [("hits", -1), ("hits", 1000), ("relocks", -1), ("relocks", 2**62)])
    def test_impossible_counts_are_refused(self, name, wrong):
        kept = MatcherSnapshot.from_bytes(self.saved())
        getattr(kept, name)[3] = wrong
        with pytest.raises(ValueError, match="its counts cannot be"):
            Matcher.restore(kept.to_bytes())

    def test_symbols_of_another_width_than_the_template_needs_are_refused(self):
        kept = MatcherSnapshot.from_bytes(self.saved())
        wide = (kept.template.astype(np.uint32), kept.options, kept.place, kept.tail.astype(np.uint32))
        with pytest.raises(ValueError, match="its symbols cannot be"):
            Matcher.restore(MatcherSnapshot(*wide, kept.hits, kept.relocks).to_bytes())

    @pytest.mark.usefixtures("engine")
    @settings(max_examples=examples(300))
    @given(noisy_streams(), options, st.data())
    def test_any_mutation_is_refused_or_harmless(self, case, chosen, data):
        matcher = Matcher(case[0], **chosen)
        feed(matcher, case[1], data.draw(st.lists(st.integers(0, 200), max_size=2)))
        survives(data.draw(mutated(matcher.save())))


@st.composite
def mutated(draw, data):
    """These bytes with numbers or bytes replaced, cut or lengthened, and a checksum that agrees all the same."""
    body = bytearray(data[HEAD.size :])
    numbers = st.one_of(st.integers(-3, 300), st.integers(-(2**63), 2**63 - 1), st.sampled_from([2**31, 2**62]))
    for index in draw(st.lists(st.integers(0, NUMBERS - 1), max_size=3)):
        struct.pack_into("<q", body, 8 * index, draw(numbers))
    for at in draw(st.lists(st.integers(0, len(body) - 1), max_size=3)):
        body[at] = draw(st.integers(0, 255))
    return sealed(bytes(body[: draw(st.one_of(st.none(), st.integers(0, len(body))))]))
