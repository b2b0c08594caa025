"""Kineto documents that real writers got wrong: what they meant is read, in C as in Python."""

import pytest

from deepprof.collectors.errors import TraceError
from deepprof.collectors.importers.kineto import Kineto
from deepprof.collectors.importers.kineto import native as kineto_native
from deepprof.collectors.importers.kineto import stream as kineto_stream
from deepprof.collectors.importers.kineto.batches import PlainReader
from deepprof.collectors.importers.value_columns import integers

READERS = ["plain"] + ["native"] * (kineto_native.library() is not None)
EVENT = rb'{"ph":"X","cat":"kernel","name":"%b","pid":0,"tid":7,"ts":%d,"dur":2,"args":{"device":0,"stream":7}}'


@pytest.fixture(params=READERS)
def document(request, tmp_path, monkeypatch):
    """A function that reads a document by one of the readers."""
    native = kineto_native.library() if request.param == "native" else None
    monkeypatch.setattr(
        kineto_stream,
        "open_reader",
        lambda wanted: (
            PlainReader(texts=bool(wanted)) if native is None else kineto_native.NativeReader(native, wanted)
        ),
    )

    def read(content):
        path = tmp_path / "trace.json"
        path.write_bytes(content)
        return Kineto().read(path)

    return read


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (rb"C:\Users\x.py(3): f", r"C:\Users\x.py(3): f"),
        (rb"C:\users\udata", r"C:\users\udata"),
        (rb"\\host\share\C", "\\host\\share\\C"),  # the first two are one, as they should be
        (rb"a\u0041\x41", r"aA\x41"),
        (b"a\tb", "a b"),
        (b"a\nb\x00c\x1f", "a b c "),
    ],
)
def test_paths_of_windows_and_control_characters_in_names(document, written, meant):
    """Kineto has copied names and paths into its JSON as they are, without the escapes that JSON requests."""
    events = [EVENT % (written, 10), EVENT % (b"other", 20)]
    trace = document(b'{"schemaVersion":1,"traceEvents":[%b]}' % b",\n".join(events))
    assert [trace.name(number) for number in trace.device_events["name_id"]] == [meant, "other"]
    assert trace.accounting.dropped == {}


@pytest.mark.parametrize("value", [rb"C:\Users\me\trace.json", rb".\log\udd.json", b"a\tb", b"a\x01b"])
@pytest.mark.parametrize("last", [False, True])
def test_paths_of_windows_in_the_header(document, value, last):
    """`traceName` is the file's own path, before or behind the events."""
    name, events = b'"traceName":"%b"' % value, b'"traceEvents":[%b]' % (EVENT % (b"k", 10))
    parts = [b'"schemaVersion":1', *([events, name] if last else [name, events]), b'"distributedInfo":{"rank":3}']
    trace = document(b"{%b}" % b",".join(parts))
    assert (trace.device_events.height, trace.rank) == (1, 3)


def test_a_block_of_zeros_behind_the_document_is_no_damage(document):
    """As a copy leaves it that was made with a file's length fixed in advance."""
    assert document(b'{"traceEvents":[%b]}%b' % (EVENT % (b"k", 10), bytes(4096))).device_events.height == 1


@pytest.mark.parametrize("content", [rb'{"traceEvents":[{"name":"a\q}]}', b'{"traceEvents":[{"name":\t"a"\x01,,}]}'])
def test_what_nobody_can_mean_stays_refused(document, content):
    with pytest.raises(TraceError, match="breaks"):
        document(content)


@pytest.mark.parametrize("beside", ["1", 1, None])
def test_a_number_beyond_int64_does_not_depend_on_what_is_read_with_it(beside):
    """Events are read in batches, and the two readers make different ones."""
    assert integers(["stream 9999999999999999999", beside])[0] == 9999999999999999999 - 2**64
    assert integers(["99999999999999999999", beside])[0] is None
