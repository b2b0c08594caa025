"""Kineto events read batch by batch: nothing is lost between the pieces, in C as in Python, and memory is bounded."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from deepprof.collectors.errors import TraceError
from deepprof.collectors.importers.kineto import Kineto, json_texts
from deepprof.collectors.importers.kineto import native as kineto_native
from deepprof.collectors.importers.kineto import rows as kineto_rows
from deepprof.collectors.importers.kineto import stream as kineto_stream
from deepprof.collectors.importers.kineto.batches import CLOSED, DAMAGED, MORE, PlainReader
from tests.collectors.damage import read_within

TRAP = "}, {" * 9
INNER = st.sampled_from([None, 1, TRAP, [{}, {}], {"a": [{"b": 1}, {}]}, "\\", '"', "x" * 50])
EVENTS = st.lists(st.fixed_dictionaries({"name": st.sampled_from(["k", TRAP, '"},{"']), "args": INNER}), max_size=40)
SMALL_NBYTES = 500  # four texts and a little
READERS = ["plain"] + ["native"] * (kineto_native.library() is not None)


def open_reader(which, wanted=()):
    if which == "plain":
        return PlainReader(texts=bool(wanted))
    return kineto_native.NativeReader(kineto_native.library(), wanted)


def names_of(text, which, piece=100):
    """Return the names of the events in the list `text`, read `piece` bytes at a time, and how many are no events."""
    reader, found, rest, at = open_reader(which), [], b"", 1
    while True:
        batch = reader.read(rest, 0)
        if batch.rows is None:
            found += batch.events
        else:
            odd = dict(zip(batch.odd.tolist(), batch.events, strict=True))
            names = batch.rows["name"].tolist()
            found += [odd[i] if i in odd else json.loads(b'"%b"' % reader.names[name]) for i, name in enumerate(names)]
        rest = rest[batch.consumed :]
        if batch.status == CLOSED:
            names = [getattr(event, "name", event) for event in found]
            return [name for name in names if name is not None], names.count(None)
        if batch.status == MORE:
            assert at < len(text), "the list was not closed"
            rest, at = rest + text[at : at + piece], at + piece


@pytest.mark.parametrize("which", READERS)
@given(EVENTS, st.sampled_from([None, 0, 2]), st.sampled_from([1, 7, 100, 10_000]))
@example([{"name": TRAP, "args": None}] * 30, None, 100)
def test_pieces_hold_the_events_in_order(which, events, indent, piece):
    text = json.dumps(events, indent=indent).encode()
    assert names_of(text, which, piece) == ([event["name"] for event in events], 0)


@pytest.mark.parametrize("which", READERS)
def test_what_is_no_event_is_counted_in_every_piece(which):
    events = [5 if at % 9 == 1 else {"name": f"k{at}", "args": {"x": 7 * "y"}} for at in range(100)]
    names, undecodable = names_of(json.dumps(events).encode(), which)
    assert (names, undecodable) == ([f"k{at}" for at in range(100) if at % 9 != 1], 11)


@pytest.mark.parametrize("which", READERS)
def test_an_event_larger_than_a_piece_is_read(which):
    events = [{"name": "a"}, {"name": "b" * 400}, {"name": "c" * 250}, {"name": "d"}, {"name": "e" * 90}]
    assert names_of(json.dumps(events).encode(), which)[0] == [event["name"] for event in events]


@pytest.mark.parametrize("which", READERS)
def test_a_list_of_anything_is_cut(which):
    assert names_of(json.dumps([1] * 700 + ["a,b" * 99, {"name": "k"}]).encode(), which) == (["k"], 701)


@pytest.mark.parametrize("events", [b"[{}" + b",{}" * 1_500_000 + b"]", b"[1" + b",1" * 1_500_000 + b"]"])
def test_a_million_events_of_nothing_are_refused(tmp_path, events):
    path = tmp_path / "trace.json"
    path.write_bytes(events)
    with pytest.raises(TraceError, match="which is too little"):
        Kineto().read(path)


LITERALS = [b"NaN", b"-NaN", b"nan", b"-nan", b"Infinity", b"-inf", b"   +inf", rb'"\ud83d"', rb'"\ude00"']


@pytest.mark.parametrize("start", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("literal", LITERALS)
@pytest.mark.parametrize("end", [b"", b" " * 100])
def test_what_can_be_repaired_is(tmp_path, start, literal, end):
    path = tmp_path / "trace.json"
    path.write_bytes(start + b'{"traceEvents":[{"name":"a","ts":%b}]%b}' % (literal, end))
    assert Kineto().read(path).accounting.read == 1


SCALARS = [
    *(0, 7, -7, 1.5, -0.0, 1e3, 123456789012.345, 1626190440563123.5, 1626190440563123.456, 0.1, 5e-324, 1e400),
    *(2**53 + 1, 2**63, 2**64 - 1, -(2**63), 10**18, 10**19, 10**30, None, True, False, "7", "stream 7", "x-12  "),
    *("", "é7", "a\\", '"', "\n", "\ud83d\ude00", "9" * 19, "9" * 25, [], {}, [1], {"a": 1}),
]
KEYS = ["ph", "cat", "name", "pid", "tid", "ts", "dur", "id"]
ARGUMENTS = [
    *("External id", "external id", "correlation", "device", "stream", "context", "bytes", "graph node id", "flops"),
    *("Sequence number", "Fwd thread id", "Python id", "Python parent id", "Python module id", "Device Type"),
    *("Device Id", "Bytes", "Addr", "Total Allocated", "Total Reserved", "Collective name", "Seq", "Input Dims", ""),
    *("Input dims", "Input type", "Concrete Inputs", "Input Strides", "grid", "block", "Call stack"),
    *("registers per thread", "shared memory"),
]
TEXTS = {"dims", "old_dims", "dtypes", "values", "strides", "grid", "block", "stack"}
WORDS = ["X", "i", "M", "kernel", "cpu_op", "cuda_runtime", "python_function", "[memory]", "gpu_memcpy", "mtia_x", "a"]
VALUE = st.sampled_from(SCALARS) | st.integers(-(2**65), 2**65) | st.floats(allow_nan=False) | st.text(max_size=4)
EVENT = st.fixed_dictionaries(
    {"ph": st.sampled_from(["X"] * 4 + WORDS), "cat": st.sampled_from(WORDS), "name": st.sampled_from(WORDS)},
    optional={
        **dict.fromkeys(KEYS[3:], VALUE),
        "args": st.dictionaries(st.sampled_from(ARGUMENTS), VALUE, max_size=6) | VALUE,
    },
)


def columns_of(text, which, piece):
    """Return what `EventColumns` makes of the list of events `text`."""
    columns = kineto_rows.EventColumns(details=True, shapes=True)
    window = kineto_stream.TextWindow("path", iter([text[at : at + piece] for at in range(1, len(text), piece)]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kineto_stream, "open_reader", lambda wanted: open_reader(which, wanted))
        kineto_stream.scan(window, columns)
    names, texts = columns.labels.names.series(), columns.json.table()
    frames = {}
    for kind in sorted(columns.heights):
        frame = columns.frame(kind)
        frame = frame.with_columns(texts.gather(frame[name]).alias(name) for name in TEXTS & {*frame.columns})
        named = kind != "memory"  # whose names are not kept; and the ids of names are in another order
        frames[kind] = frame.with_columns(name_id=names.gather(frame["name_id"])) if named else frame.drop("name_id")
        extra = columns.extra_rows(kind)  # of a collective only: C does not search for the rest of its arguments
        frames[kind, "extra"] = extra.drop_nulls("collective") if extra.width > 1 else extra.clear()
    return columns.read, columns.tally.dropped, columns.foreign, frames


def same(left, right):
    assert left[:3] == right[:3]
    assert left[3].keys() == right[3].keys()
    for kind, frame in left[3].items():
        assert frame.equals(right[3][kind], null_equal=True), (kind, frame, right[3][kind])


@pytest.mark.skipif(len(READERS) < 2, reason="the C reader is not built here")
@given(st.lists(EVENT, max_size=8), st.sampled_from([None, 1]), st.booleans(), st.sampled_from([1, 50, 10_000]))
def test_c_and_python_read_the_same(events, indent, ascii_only, piece):
    text = json.dumps(events, indent=indent, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    same(columns_of(text, "native", piece), columns_of(text, "plain", 10_000))


@pytest.mark.skipif(len(READERS) < 2, reason="the C reader is not built here")
@given(st.lists(EVENT, min_size=1, max_size=3), st.data())
def test_c_and_python_agree_on_what_is_damaged(events, data):
    text = bytearray(json.dumps(events).encode())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text) - 1))
        text[at : at + data.draw(st.integers(0, 3))] = data.draw(
            st.sampled_from(
                [b"", b",", b"]", b"}", b'"', b"\\", b"\\u12", b"\x00", b"\xff", b"nan", b"e5", b".", b"0", b"-"]
            )
        )
    results = []
    for which in READERS:
        try:
            results.append(columns_of(b"[" + bytes(text[1:]), which, 10_000))
        except TraceError as error:
            results.append(str(error))
    refused = [isinstance(result, str) for result in results]
    assert refused in ([True, True], [False, False])  # where a list that never ends is damaged, they may disagree
    if not refused[0]:
        same(*results)


@pytest.mark.skipif(len(READERS) < 2, reason="the C reader is not built here")
@given(st.integers(0, 10**19 - 1), st.integers(1, 9), st.sampled_from(["", "-"]), st.sampled_from(["ts", "dur"]))
def test_c_rounds_decimals_as_python_does(digits, fraction, sign, key):
    whole, part = divmod(digits, 10**fraction)
    text = f"{sign}{whole}.{part:0{fraction}d}"
    reader = open_reader("native")
    batch = reader.read(b'{"%s":%s}]' % (key.encode(), text.encode()), 0)
    assert not len(batch.odd)
    assert batch.rows[key][0] == float(text)


@pytest.mark.skipif(len(READERS) < 2, reason="the C reader is not built here")
def test_a_number_that_c_leaves_alone_is_odd():
    reader = open_reader("native")
    batch = reader.read(b'{"ts":1e3},{"ts":12345678901234567890},{"ts":0.12345678901234567},{"ts":1.25}]', 0)
    assert batch.odd.tolist() == [0, 1, 2]
    assert batch.rows["ts"][3] == 1.25


def test_distinct_texts_are_kept_up_to_a_limit(tmp_path, monkeypatch):
    """Each uses 100 bytes next to its own; one that is kept is found however much is left out."""
    monkeypatch.setattr(json_texts, "LIMIT_NBYTES", 2 * (100 + len("[[1]]")) + 50)
    monkeypatch.setattr(kineto_native, "library", lambda: None)
    path = write_operators(tmp_path, [[[1]], [[2]], [[3]], [[2]], [[4]], [[1]]])
    trace = Kineto().read(path)
    assert trace.operands["dims"].to_list() == ["[[1]]", "[[2]]", "[[2]]", "[[1]]"]
    assert trace.operands["event"].to_list() == [0, 1, 3, 5]
    assert trace.notes[-1].endswith("2 shapes, types or values of operators were left out")


@pytest.mark.skipif(len(READERS) < 2 or shutil.which("cc") is None, reason="the C reader is not built here")
@given(st.lists(st.integers(0, 12), max_size=30))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_c_leaves_the_same_texts_out(small_scanner, numbers):
    text = json.dumps([{"ph": "X", "cat": "cpu_op", "args": {"Input Dims": [number]}} for number in numbers]).encode()
    found = []
    for library in (None, small_scanner):
        columns = kineto_rows.EventColumns()
        window = kineto_stream.TextWindow("path", iter([text[1:]]))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(json_texts, "LIMIT_NBYTES", SMALL_NBYTES)
            patch.setattr(kineto_native, "library", lambda library=library: library)
            kineto_stream.scan(window, columns)
        dims = columns.json.table().gather(columns.take("op", "dims")).to_list() if numbers else []
        found.append((columns.left_out, dims))
    assert found[0] == found[1]


@pytest.fixture(scope="module")
def small_scanner(tmp_path_factory):
    """The scanner with a small limit of distinct texts."""
    path = tmp_path_factory.mktemp("scanner") / "scan.so"
    source = Path(kineto_native.__file__).with_name("scan.c")
    command = ["cc", "-std=c11", "-shared", "-fPIC", f"-DJSON_LIMIT={SMALL_NBYTES}", source, "-o", path, "-lm"]
    subprocess.run(command, check=True)
    return kineto_native.load(path)


def write_operators(folder, dims):
    """Write a document with an operator for each of `dims`, and return its path."""
    event = {"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 1, "tid": 1, "dur": 1}
    events = [event | {"ts": 10 * at, "args": {"Input Dims": shape}} for at, shape in enumerate(dims)]
    path = folder / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    return path


@pytest.mark.traces
def test_real_traces_are_the_same_without_c(traces, monkeypatch):
    for name in (
        "hta-negqueue/rank0.json.gz",
        "hta-nccl-parser/nccl_data.json.gz",
        "tb-resnet50-nw0-c/worker0.1623143089861.pt.trace.json.gz",
    ):
        native = Kineto().read(traces / name, details=True)
        with monkeypatch.context() as patch:
            patch.setattr(kineto_native, "library", lambda: None)
            plain = Kineto().read(traces / name, details=True)
        assert native.accounting == plain.accounting
        tables = ("device_events", "host_events", "annotations", "memory_events", "collectives", "operands")
        for table in (*tables, "launch_shapes", "stacks"):
            left, right = (named(trace, getattr(trace, table)) for trace in (native, plain))
            assert left.equals(right, null_equal=True), table


def named(trace, rows):
    """Return `rows` with names for their ids, which are numbered in another order."""
    return rows.with_columns(name_id=trace.names.gather(rows["name_id"])) if "name_id" in rows.columns else rows


def test_an_event_without_an_end_is_refused_before_it_fills_the_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(kineto_stream, "LIMIT_NBYTES", 10_000)
    monkeypatch.setattr(kineto_stream, "PIECE_NBYTES", 1_000)
    for content in (b'{"traceEvents":[{"name":"' + b"x" * 100_000, b'{"x":"' + b"x" * 100_000 + b'","traceEvents":[]}'):
        path = tmp_path / "trace.json"
        path.write_bytes(content)
        with pytest.raises(TraceError, match="one event or its header takes more than 10000 bytes"):
            Kineto().read(path)


def test_events_are_found_where_a_text_looks_like_them(tmp_path):
    trap = '"traceEvents":['
    header = {"a": trap, "b": {"traceEvents": [1, 2]}, "schemaVersion": 1}
    path = tmp_path / "trace.json"
    event = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1.0, "dur": 2.0}
    path.write_text(json.dumps({**header, "traceEvents": [event], "baseTimeNanoseconds": 5_000_000_000, "c": trap}))
    trace = Kineto().read(path)
    assert trace.device_events["start_ns"].to_list() == [5_000_001_000]


def test_two_lists_of_events_are_refused(tmp_path):
    path = tmp_path / "trace.json"
    path.write_text('{"traceEvents":[{"ph":"X"}], "traceEvents":[{"ph":"X"}]}')
    with pytest.raises(TraceError, match="two lists of traceEvents"):
        Kineto().read(path)


def test_damage_behind_the_events_is_placed_in_the_file(tmp_path):
    path = tmp_path / "trace.json"
    content = b'{"traceEvents":[{"ph":"X"},{"ph":"X"}], "a": [1, oops]}'
    path.write_bytes(content)
    with pytest.raises(TraceError, match=f"breaks near byte {content.index(b'oops')}"):
        Kineto().read(path)


def test_memory_follows_the_tables_and_not_the_text(tmp_path):
    """Half a million events in 170 MB of text, most of it arguments that no table holds: less memory than the text."""
    event = (
        '{"ph":"X","cat":"cpu_op","name":"aten::add","pid":1,"tid":1,"ts":%d.125,"dur":1.5,"args":{"Input Dims":"%s"}}'
    )
    path = tmp_path / "trace.json"
    with path.open("w") as file:
        file.write('{"schemaVersion":1,"traceEvents":[')
        file.writelines(event % (ts, "x" * 250) + "," for ts in range(499_999))
        file.write(event % (0, "") + "]}")
    assert path.stat().st_size > 170e6
    assert read_within(path, 160 * 1024**2) == {"kept": 500_000}


@pytest.mark.parametrize("which", READERS)
@pytest.mark.parametrize("event", [b'{"name":"k"}', b'{"ts":1e3}', b'[{"name":"k"}]'])
def test_nothing_but_space_may_stand_between_an_event_and_the_comma(which, event):
    assert names_of(b"[%b \n,%b]" % (event, event), which)[1] == 2 * event.startswith(b"[")
    reader = open_reader(which)
    for text in (b"%b\0,{}]", b"%b{},{}]", b"%b\0]"):
        assert open_reader(which).read(text % event, 0).status == DAMAGED
    assert reader.read(event, 0).status == MORE
