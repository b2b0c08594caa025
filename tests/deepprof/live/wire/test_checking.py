"""The daemon's door: a sound message passes, everything else is one printable line that names the field."""

import polars as pl
import pytest

from deepprof.collectors.trace import (
    COLLECTIVES,
    CONTEXT_SUMS,
    DEVICES,
    HOST_EVENTS,
    LAUNCH_SHAPES,
    MEMORY_EVENTS,
    OPERANDS,
    STACKS,
    empty_table,
)
from deepprof.live.wire import (
    WireError,
    WireLimits,
    check_batch,
    check_end,
    check_gap,
    check_hello,
    check_status,
    count_records,
)
from deepprof.live.wire.records import KINDS, CheckedRecords
from deepprof.v1 import records_pb2 as pb
from tests.deepprof.live.wire.messages import device_rows, make_batch, write_stream
from tests.deepprof.live.wire.test_streams import RANGES, STREAM
from tests.tables import launch, make_nodes, make_sum, table

LIMITS = WireLimits()


def refusal(check, *arguments):
    with pytest.raises(WireError) as caught:
        check(*arguments)
    assert str(caught.value).isprintable()
    return str(caught.value)


def hello(**other):
    sound = {"job": "run-7/a.b:c", "rank": 3, "world_size": 8, "collector": "send-1", "clock": pb.CLOCK_UNIX}
    return pb.Hello(**sound | other)


def edges(word, most):
    return [word, word[0] * most, *(f"a{sign}b" for sign in "-_.:/")]


@pytest.mark.parametrize("job", edges("a", 128))
def test_sound_names_of_jobs_pass(job):
    check_hello(hello(job=job), LIMITS)


@pytest.mark.parametrize("job", ["", "a" * 129, "-a", "a-", "a b", "ä", "a\n", "\0", "/etc", "a/", "..", "a\x1b[0mb"])
@pytest.mark.parametrize("field", ["job", "collector"])
def test_what_names_nothing_is_refused(field, job):
    assert refusal(check_hello, hello(**{field: job}), LIMITS).startswith(f"{field}: ")


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("rank", [8, 2**32 - 1]),
        ("world_size", [1_000_001]),
        ("clock", [pb.CLOCK_UNSPECIFIED, 77]),
        ("epoch_unix_ns", [2**62, -(2**62)]),
        ("clock_offset_ns", [24 * 3600 * 10**9 + 1, -(2**63)]),
        ("host", ["h" * 257, "a\tb"]),
        ("format", ["f" * 65, "a\nb"]),
        ("source", ["s" * 4097]),
        ("notes", [["n" * 1025], ["n"] * 65]),
    ],
)
def test_what_cannot_be_said_of_a_rank_is_refused(field, values):
    for value in values:
        assert field in refusal(check_hello, hello(**{field: value}), LIMITS).partition(": ")[0]


def test_the_highest_rank_is_taken():
    check_hello(hello(rank=999_999, world_size=0), LIMITS)
    assert refusal(check_hello, hello(rank=1_000_000, world_size=0), LIMITS) == "rank: 1000000, at most 999999"


def test_gaps_with_impossible_numbers_are_refused():
    check_gap(pb.Gap(first=5, lost=0), LIMITS)
    check_gap(pb.Gap(first=5, lost=7, reason="buffer-full"), LIMITS)
    assert refusal(check_gap, pb.Gap(first=2**63), LIMITS).startswith("first: ")
    assert refusal(check_gap, pb.Gap(first=2**61, lost=2**62), LIMITS).startswith("lost: ")
    check_gap(pb.Gap(first=5, lost=2**32 - 1), LIMITS)
    assert refusal(check_gap, pb.Gap(first=5, lost=2**32), LIMITS).startswith("lost: ")  # no frame could state it
    assert refusal(check_gap, pb.Gap(reason="r" * 65), LIMITS).startswith("reason: 65 characters")
    assert refusal(check_gap, pb.Gap(reason="\x1b[2J"), LIMITS).startswith("reason: ")


def test_ends_with_impossible_counts_are_refused():
    check_end(pb.End(dropped={"flow": 3}, flagged={"unlinked": 2}), LIMITS)
    many = {f"r{i}": 1 for i in range(65)}
    assert refusal(check_end, pb.End(dropped=many), LIMITS) == "the number of reasons in dropped: 65, at most 64"
    assert "flagged" in refusal(check_end, pb.End(flagged={"x" * 65: 1}), LIMITS)
    assert "the sum of dropped" in refusal(check_end, pb.End(dropped={"a": 2**62, "b": 1}), LIMITS)


def status(**other):
    return pb.Status(**{"level": pb.COLLECTOR_LEVEL_DUTY, "reason": "overhead", "duty_ratio": 0.25} | other)


def test_what_a_collector_can_be_passes():
    check_status(status())
    check_status(pb.Status(level=pb.COLLECTOR_LEVEL_FULL))
    check_status(status(duty_ratio=1.0, overhead_ratio=1024.0, notice="n" * 256, lost=2**62))


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("level", [pb.COLLECTOR_LEVEL_UNSPECIFIED, 77]),
        ("reason", ["r" * 65, "a\nb"]),
        ("notice", ["n" * 257, "\x1b[2J"]),
        ("duty_ratio", [-0.1, 1.01, float("nan"), float("inf")]),
        ("overhead_ratio", [-0.1, 1025.0, float("nan"), float("-inf")]),
        ("since_unix_ns", [-1, 2**63 - 1]),
        ("spool_nbytes", [2**64 - 1]),
        ("lost", [2**62 + 1]),
        ("level_changes", [2**63]),
    ],
)
def test_what_no_collector_can_be_is_refused(field, values):
    for value in values:
        assert refusal(check_status, status(**{field: value})).startswith(f"{field}: ")


def test_a_status_is_small_whatever_stands_in_it():
    stuffed = pb.Status.FromString(
        status().SerializeToString() + b"\xfa\x7f\x80\x20" + b"x" * 4096
    )  # of a later version
    assert refusal(check_status, stuffed).startswith("the status: 41")


def test_a_sound_batch_passes_with_all_its_parts():
    host = table([launch(i, i, i + 1) for i in range(3)], HOST_EVENTS)
    sides = {
        "collectives": table([{"event": 4}], COLLECTIVES),
        "launch_shapes": table([{"event": 4}], LAUNCH_SHAPES),
        "operands": table([{"event": 0}, {"event": 2}], OPERANDS),
        "stacks": table([{"stack_id": 4, "frames": "f"}], STACKS),
        "devices": empty_table(DEVICES),
    }
    message = make_batch(7, ["x"], 77, 1000, device_events=device_rows(), host_events=host, annotations=RANGES, **sides)
    records = check_batch(message, LIMITS, 7)
    assert (records.first, records.count, records.names, records.first_name) == (1000, 5 + 3 + 9, ("x",), 7)
    assert records.complete_until_ns == 77
    assert set(records.tables) == {"device_events", "host_events", "annotations", *sides} - {"devices"}
    assert records.tables["device_events"].equals(device_rows())
    assert count_records(message) == records.count


def test_a_batch_without_tables_keeps_a_promise():
    records = check_batch(pb.Batch(complete_until_ns=5), LIMITS, 0)
    assert (records.count, records.complete_until_ns, dict(records.tables)) == (0, 5, {})


DEVICE = device_rows()
HOST = table([launch(1, 0, 1), launch(2, 5, 6)], HOST_EVENTS)
MEMORY = table([{"time_ns": 3, "device": -1, "nbytes": 1}], MEMORY_EVENTS)


def with_value(rows, column, value, row=0):
    values = rows[column].to_list()
    values[row] = value
    return rows.with_columns(pl.Series(column, values, dtype=rows.schema[column]))


@pytest.mark.parametrize(
    ("tables", "words"),
    [
        ({"device_events": DEVICE.reverse()}, "tables[0]: device_events: not sorted by start_ns"),
        ({"device_events": with_value(DEVICE, "start_ns", None)}, "tables[0]: device_events: nulls in start_ns"),
        ({"device_events": with_value(DEVICE, "stream", None)}, "tables[0]: device_events: nulls in stream"),
        ({"device_events": with_value(DEVICE, "activity", None)}, "tables[0]: device_events: nulls in activity"),
        ({"device_events": with_value(DEVICE, "name_id", 3)}, "tables[0]: device_events: a name_id beyond the 3 names"),
        ({"device_events": with_value(DEVICE, "name_id", 2**32 - 1)}, "a name_id beyond the 3 names"),
        ({"device_events": with_value(DEVICE, "start_ns", -(2**62))}, f"tables[0].start_ns: {-(2**62)} is beyond"),
        ({"device_events": with_value(DEVICE, "end_ns", 2**63 - 1)}, "tables[0].end_ns: 9223372036854775807 is beyond"),
        ({"device_events": with_value(DEVICE, "end_ns", -1)}, "tables[0].end_ns: 1 rows end before they start"),
        ({"device_events": with_value(DEVICE, "end_ns", None)}, "tables[0].end_ns: 1 rows have none"),
        ({"device_events": with_value(DEVICE, "nbytes", 2**64 - 1)}, "tables[0].nbytes: 18446744073709551615 is"),
        ({"host_events": with_value(HOST, "end_ns", None)}, "tables[0].end_ns: 1 rows have none"),
        ({"host_events": with_value(HOST, "category", None)}, "tables[0]: host_events: nulls in category"),
        ({"annotations": with_value(RANGES, "end_ns", -5, 3)}, "tables[0].end_ns: 1 rows end before they start"),
        ({"memory_events": with_value(MEMORY, "time_ns", 2**62)}, "tables[0].time_ns: "),
        ({"memory_events": with_value(MEMORY, "nbytes", -(2**63))}, "tables[0].nbytes: "),
        ({"devices": table([{"device": None}], DEVICES)}, "tables[0]: devices: nulls in device"),
        ({"collectives": table([{"event": 0}], COLLECTIVES)}, "tables[0].event: refers to a row beyond the 0 of"),
        (
            {"device_events": DEVICE, "collectives": table([{"event": 5}], COLLECTIVES)},
            "tables[1].event: refers to a row beyond the 5 of this batch",
        ),
        ({"host_events": HOST, "operands": table([{"event": None}], OPERANDS)}, "tables[1].event: refers to a row"),
        ({"device_events": STREAM[:-7]}, "tables[0].arrow: the Arrow stream breaks off"),
        ({"host_events": STREAM}, "tables[0].arrow: 12 columns, host_events has 15"),
        ({"host_events": HOST, "device_events": b""}, "tables[1].arrow: does not begin with a schema"),
    ],
)
def test_tables_that_lie_are_refused(tables, words):
    assert words in refusal(check_batch, make_batch(**tables), LIMITS, 0)


SUMS = table([make_sum(5, 3), make_sum(5, 4, host_ns=2**60)], CONTEXT_SUMS)


@pytest.mark.parametrize(
    ("tables", "words"),
    [
        ({"context_sums": SUMS}, "tables[0]: sums of a context that is no node"),
        ({"context_sums": SUMS, "context_nodes": make_nodes({3: 0})}, "tables[1]: sums of a context that is no node"),
        ({"context_nodes": make_nodes({3: 0, 4: 9})}, "tables[0]: a node without its parent"),
        ({"context_nodes": make_nodes({3: 4, 4: 3})}, "tables[0]: a path of more than 4096 nodes"),
        ({"context_nodes": pl.concat([make_nodes({3: 0}), make_nodes({3: 0})])}, "tables[0]: a context that is the"),
        ({"context_nodes": make_nodes({3: 0}, name=3)}, "context_nodes: a name_id beyond the 3 names"),
        (
            {"context_sums": with_value(SUMS, "host_ns", 2**60), "context_nodes": make_nodes({3: 0, 4: 3})},
            f"tables[1]: host_ns below 0, or above {2**61} in all",
        ),
        ({"context_sums": with_value(SUMS, "time_ns", 2**62), "context_nodes": make_nodes({3: 0, 4: 3})}, "time_ns"),
    ],
)
def test_contexts_that_are_no_tree_are_refused(tables, words):
    assert words in refusal(check_batch, make_batch(**tables), LIMITS, 0)


def test_contexts_pass_with_their_sums_and_without():
    whole = check_batch(make_batch(context_sums=SUMS, context_nodes=make_nodes({3: 0, 4: 3})), LIMITS, 0)
    assert whole.count == 2
    assert whole.tables["context_sums"].equals(SUMS)
    bare = check_batch(make_batch(context_nodes=make_nodes({3: 0, 4: 3})), LIMITS, 0)
    assert bare.count == 0
    assert bare.tables["context_nodes"].height == 2


def test_a_range_that_was_never_closed_is_taken():
    records = check_batch(make_batch(annotations=with_value(RANGES, "end_ns", None)), LIMITS, 0)
    assert records.tables["annotations"]["end_ns"].null_count() == 1


def test_tables_of_no_kind_or_twice_are_refused():
    part = pb.Table(kind=KINDS["device_events"], arrow=STREAM)
    assert refusal(check_batch, pb.Batch(tables=[pb.Table(arrow=STREAM)]), LIMITS, 0) == ("tables[0].kind: 0 is none")
    assert "tables[0].kind: 99 is none" in refusal(check_batch, pb.Batch(tables=[pb.Table(kind=99)]), LIMITS, 0)
    twice = pb.Batch(tables=[part, part], names="abc")
    assert "tables[1].kind: 1 comes twice" in refusal(check_batch, twice, LIMITS, 0)


@pytest.mark.parametrize(
    ("message", "limits", "words"),
    [
        (make_batch(first=2**62), LIMITS, "first: "),
        (make_batch(first=2**64 - 1), LIMITS, "first: "),
        (make_batch(complete_until_ns=2**62), LIMITS, "complete_until_ns: "),
        (make_batch(complete_until_ns=-(2**63)), LIMITS, "complete_until_ns: "),
        (make_batch(first_name=1), LIMITS, "first_name: 1, at most 0"),
        (make_batch(names=["a"] * 5), WireLimits(names=4), "the number of the rank's names: 5, at most 4"),
        (make_batch(names=["a"] * 5), WireLimits(batch_names=4), "the number of names: 5, at most 4"),
        (make_batch(names=["é" * 5]), WireLimits(name_nbytes=9), "a name: 10 bytes, at most 9"),
        (make_batch(names=["aa", "bb"]), WireLimits(names_nbytes=3), "the rank's names: 4 bytes, at most 3"),
        (make_batch(device_events=device_rows()), WireLimits(message_nbytes=1000), "the message: "),
        (
            make_batch(device_events=device_rows(9)),
            WireLimits(batch_records=8),
            "the rows up to tables[0]: 9, at most 8",
        ),
        (
            make_batch(device_events=device_rows(5), host_events=HOST),
            WireLimits(batch_records=6),
            "the rows up to tables[1]: 7, at most 6",
        ),
    ],
)
def test_what_is_too_much_is_refused(message, limits, words):
    assert refusal(check_batch, message, limits, 0).startswith(words)


def test_texts_that_views_repeat_are_counted_in_full():
    many = pl.concat([RANGES] * 4000).sort("start_ns").with_columns(domain=pl.lit("x" * 1000))
    message = make_batch(annotations=write_stream(many, views=True))
    assert message.ByteSize() < 3 * 1024**2
    assert "the texts up to tables[0]: 36000000 bytes" in refusal(check_batch, message, LIMITS, 0)


def test_names_sent_again_count_once():
    limits = WireLimits(names=4, names_nbytes=8)
    records = check_batch(make_batch(first_name=1, names=["bb", "cc", "dd"]), limits, 3, 6)
    assert (records.first_name, records.names) == (1, ("bb", "cc", "dd"))
    message = make_batch(first_name=1, names=["b", "c", "ddd"])
    assert "the rank's names: 9 bytes" in refusal(check_batch, message, limits, 3, 6)


def test_names_of_the_batch_itself_and_of_those_before_are_known():
    message = make_batch(first_name=1, names=["b", "c"], device_events=device_rows())
    assert check_batch(message, LIMITS, 1).count == 5
    assert check_batch(make_batch(names=[], device_events=device_rows()), LIMITS, 3).count == 5


def test_an_error_is_one_short_printable_line_whatever_is_quoted():
    rows = device_rows().rename({"end_ns": "\x1b[2J\n" * 100})
    text = refusal(check_batch, make_batch(device_events=rows), LIMITS, 0)
    assert "\\x1b[2J\\n" in text
    assert len(text) < 2000


def test_records_of_refused_batches_are_counted_as_far_as_they_are_there():
    part = pb.Table(kind=KINDS["device_events"], arrow=STREAM)
    torn = pb.Table(kind=KINDS["host_events"], arrow=STREAM[:-50])
    assert count_records(pb.Batch(tables=[part, torn, pb.Table(kind=99)])) == 5
    assert count_records(pb.Batch(tables=[part] * 9), WireLimits(batch_records=20)) == 20
    assert count_records(pb.Batch()) == 0


def test_a_batch_that_miscounts_itself_cannot_be_made():
    with pytest.raises(ValueError, match="a batch of 6 records holds 5"):
        CheckedRecords(0, 6, {"device_events": device_rows()}, (), 0, 0)
