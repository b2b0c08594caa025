"""The Arrow streams of tables: what polars writes is read, and every are about it is refused by name."""

import struct

import polars as pl
import pytest

from deepprof.collectors.trace import ACTIVITIES, ANNOTATIONS, TABLES, empty_table
from deepprof.live.wire.arrow_messages import DICTIONARY, END, ROWS, SCHEMA
from deepprof.live.wire.arrow_schema import read_layout
from deepprof.live.wire.decoding import decode_table, encode_table, measure_table
from deepprof.live.wire.errors import MalformedArrowError
from tests.deepprof.live.wire.messages import device_rows, element, field, join, lie, message_of, parts_of, write_stream
from tests.tables import span, table

STREAM = encode_table(device_rows())
LONG = "a domain of more than twelve bytes"
RANGES = table([span(0, i, i + 1, domain=LONG if i else None, framework=i % 2 == 0) for i in range(9)], ANNOTATIONS)
LENGTH, NODES, BUFFERS = 0, 1, 2


def decode(data, name="device_events"):
    return decode_table(name, measure_table(name, data))


def refusal(data, name="device_events"):
    with pytest.raises(MalformedArrowError) as caught:
        decode(data, name)
    return str(caught.value)


@pytest.mark.parametrize("views", [False, True])
@pytest.mark.parametrize(("name", "rows"), [("device_events", device_rows()), ("annotations", RANGES)])
def test_what_polars_writes_is_read(name, rows, views):
    assert decode(write_stream(rows, views=views), name).equals(rows)


@pytest.mark.parametrize("views", [False, True])
@pytest.mark.parametrize("name", TABLES)
def test_tables_without_rows_are_read(name, views):
    rows = decode(write_stream(empty_table(TABLES[name]), views=views), name)
    assert rows.schema == TABLES[name]
    assert rows.height == 0


def test_rows_in_several_pieces_are_one_table():
    rows = device_rows(30)
    pieces = pl.concat([rows.slice(a, 10) for a in (0, 10, 20)], rechunk=False)
    assert decode(write_stream(pieces)).equals(rows)
    assert decode(write_stream(pieces)).n_chunks() == 1


def test_a_stream_may_end_without_a_mark():
    assert decode(STREAM.removesuffix(END)).equals(device_rows())


def test_a_slice_of_a_table_takes_only_its_own_texts():
    many = pl.concat([RANGES] * 1000)
    assert len(encode_table(many.slice(500, 5))) < 4000


@pytest.mark.parametrize("method", ["lz4", "zstd"])
def test_compressed_rows_are_refused(method):
    assert "compressed" in refusal(write_stream(device_rows(), compression=method))


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (device_rows().drop("end_ns"), "11 columns, device_events has 12"),
        (device_rows().with_columns(more=1), "13 columns"),
        (device_rows().rename({"end_ns": "end"}), "column 1 is end (int64), device_events has end_ns (int64) there"),
        (device_rows().select("end_ns", "start_ns", pl.exclude("end_ns", "start_ns")), "column 0 is end_ns"),
        (device_rows().cast({"name_id": pl.UInt64}), "column 6 is name_id (uint64)"),
        (device_rows().cast({"start_ns": pl.Float64}), "column 0 is start_ns (Arrow type 3)"),
        (device_rows().cast({"start_ns": pl.Datetime}), "column 0 is start_ns (Arrow type"),
        (device_rows().cast({"activity": pl.String}), "column 5 is activity (large_utf8)"),
        (device_rows().cast({"activity": pl.Categorical}), "column 5 is activity (dictionary of uint32"),
        (device_rows().with_columns(graph_node=pl.lit(None)), "column 11 is graph_node (Arrow type 1)"),
        (device_rows().with_columns(graph_node=[1]), "column 11 is graph_node (a nested type)"),
        (device_rows().with_columns(graph_node=pl.struct("start_ns")), "column 11 is graph_node (a nested type)"),
        (device_rows().cast({"activity": pl.Enum(ACTIVITIES[::-1])}), "a dictionary is not kernel, memcpy"),
        (device_rows().cast({"activity": pl.Enum([*ACTIVITIES, "more"])}), "a dictionary is not kernel, memcpy"),
        (device_rows().cast({"activity": pl.Enum(["kernel", "memcpy"])}), "a dictionary is not kernel, memcpy"),
    ],
)
@pytest.mark.parametrize("views", [False, True])
def test_other_columns_are_refused_by_name(rows, words, views):
    assert words.replace("large_utf8", "utf8_view" if views else "large_utf8") in refusal(
        write_stream(rows, views=views)
    )


@pytest.mark.parametrize(
    ("lied", "words"),
    [
        (lie(STREAM, ROWS, field(LENGTH), "q", 2**40), "claims 1099511627776 rows, and columns of 5 to 5"),
        (lie(STREAM, ROWS, field(LENGTH), "q", -5), "claims -5 rows"),
        (lie(STREAM, ROWS, field(LENGTH), "q", 4), "claims 4 rows"),
        (lie(STREAM, ROWS, element(NODES), "q", 2**62), "claims 5 rows, and columns of 5 to"),
        (lie(STREAM, ROWS, element(NODES), "q", 6, at=1), "more nulls than rows"),
        (lie(STREAM, ROWS, element(NODES), "q", -1, at=1), "more nulls than rows"),
        (lie(STREAM, ROWS, element(NODES), "q", 5, at=1), "column 0 has fewer values"),
        (lie(STREAM, ROWS, element(BUFFERS), "q", -64, at=2), "is not in its body"),
        (lie(STREAM, ROWS, element(BUFFERS), "q", 2**62, at=2), "is not in its body"),
        (lie(STREAM, ROWS, element(BUFFERS), "q", 2**63 - 1, at=3), "is not in its body"),
        (lie(STREAM, ROWS, element(BUFFERS), "q", -1, at=3), "is not in its body"),
        (lie(STREAM, ROWS, element(BUFFERS), "q", 0, at=6), "lies on another one"),
        (lie(STREAM, ROWS, element(BUFFERS), "q", 8, at=3), "column 0 has fewer values than the 5 rows"),
        (lie(STREAM, ROWS, lambda m: m.head.vector(NODES)[0] - 4, "I", 2**32 - 1), "list longer than itself"),
        (lie(STREAM, ROWS, lambda m: m.head.vector(NODES)[0] - 4, "I", 1), "rows of 1 columns, there are 12"),
        (lie(STREAM, ROWS, lambda m: m.head.vector(BUFFERS)[0] - 4, "I", 1), "1 buffers, its columns have 24"),
        (lie(STREAM, DICTIONARY, lambda m: m.head.place(0) or m.head.place(1), "I", 2**31), "outside itself"),
        (lie(STREAM, SCHEMA, element(1), "I", 2**32 - 1), "outside itself"),
    ],
)
def test_lies_about_sizes_are_refused(lied, words):
    assert words in refusal(lied)


def body_length(value):
    """Return the stream with another length of the body of its rows."""
    message, begin = message_of(STREAM, ROWS)
    at = message.raw.index(struct.pack("<q", len(message.body)))
    return STREAM[: begin + at] + struct.pack("<q", value) + STREAM[begin + at + 8 :]


@pytest.mark.parametrize("value", [-8, -(2**63), 2**40, 2**63 - 1])
def test_lies_about_a_body_are_refused(value):
    assert f"a message's body claims {value} bytes" in refusal(body_length(value))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "does not begin with a schema"),
        (END, "does not begin with a schema"),
        (b"\xff" * 7, "breaks off"),
        (b"ARROW1\0\0" + STREAM, "is no Arrow IPC stream"),
        (STREAM + b"\0", "1 bytes stand behind the end"),
        (STREAM + STREAM, "stand behind the end"),
        (STREAM[:100], "a message's head claims"),
        (struct.pack("<II", 2**32 - 1, 2**31 - 8) + STREAM[8:], "a message's head claims 2147483640 bytes"),
        (struct.pack("<II", 2**32 - 1, 2**32 - 8) + STREAM[8:], "a message's head claims 4294967288 bytes"),
    ],
)
def test_what_is_no_stream_is_refused(data, words):
    assert words in refusal(data)


def test_messages_out_of_order_are_refused():
    schema, one, other, rows = parts_of(STREAM)
    assert "does not begin with a schema" in refusal(join([one, schema, other, rows]))
    assert "its messages are not a schema, its dictionaries, and rows" in refusal(join([schema, one, rows]))
    assert "its messages are not" in refusal(join([schema, one, rows, other]))
    assert "its messages are not" in refusal(join([schema, one, other, schema, rows]))
    assert "comes twice" in refusal(join([schema, one, one, other, rows]))
    assert "a dictionary is not" in refusal(join([schema, dictionary_named(one, 1), other, rows]))
    assert "more than 80 messages" in refusal(join([schema, one, other, *[rows] * 100]))


def dictionary_named(part, number):
    """Return the dictionary of copy kinds under the number of another column, or of none."""
    kind, data = parts_of(STREAM)[2]
    assert kind == part[0]
    at = data.index(struct.pack("<q", 1))
    return kind, data[:at] + struct.pack("<q", number - 1) + data[at + 8 :]


def test_categories_that_differ_are_refused():
    assert "a dictionary is not kernel, memcpy" in refusal(STREAM.replace(b"kernelmemcpy", b"memcpykernel"))
    assert "a dictionary is not HtoD" in refusal(STREAM.replace(b"HtoDDtoH", b"\xff\xfe\xfd\xfcDtoH"))


@pytest.mark.parametrize("views", [False, True])
def test_a_code_without_a_word_is_refused(views):
    data = write_stream(device_rows(), views=views)
    message, begin = message_of(data, ROWS)
    numbers = message.head.numbers(BUFFERS, "q", 2)
    at = begin + len(message.raw) + numbers[2 * (2 * 5 + 1)]
    assert data[at : at + 5] == b"\0\0\0\0\1"
    assert "its values make no sense" in refusal(data[:at] + b"\x09" + data[at + 1 :])


@pytest.mark.parametrize("views", [False, True])
def test_a_text_that_is_no_utf8_is_refused(views):
    data = write_stream(RANGES, views=views)
    assert "its values make no sense" in refusal(data.replace(b"twelve", b"\xff\xff\xff\xff\xff\xff"), "annotations")


def test_offsets_of_texts_out_of_order_are_refused():
    data = write_stream(RANGES)
    offset = struct.pack("<q", 3 * len(LONG))
    assert data.count(offset) == 1
    for value in (2**40, -1, 2**63 - 1, 0):
        assert "its values make no sense" in refusal(
            data.replace(
                offset,
                struct.pack(
                    "<q",
                    value,
                ),
            ),
            "annotations",
        )


def test_a_view_out_of_its_bytes_is_refused():
    data = write_stream(RANGES, views=True)
    view = struct.pack("<I4s", len(LONG), LONG.encode()[:4])
    assert "its values make no sense" in refusal(data.replace(view, struct.pack("<I4s", 999, b"a do")), "annotations")


def test_views_are_counted_as_often_as_they_refer_to_a_text():
    rows = RANGES.with_columns(domain=pl.lit("x" * 1000))
    _, pieces = measure_table("annotations", write_stream(rows, views=True))
    assert sum(piece.text_nbytes for piece in pieces) == 9000


def test_parts_of_texts_that_are_not_there_are_refused():
    data, parts = write_stream(RANGES, views=True), 4
    assert "buffers, its columns have" in refusal(lie(data, ROWS, element(parts), "q", 2**40), "annotations")
    assert "in how many parts" in refusal(lie(data, ROWS, element(parts), "q", -1), "annotations")
    count = lie(data, ROWS, lambda message: message.head.vector(parts)[0] - 4, "I", 0)
    assert "in how many parts" in refusal(count, "annotations")


def test_a_message_of_another_kind_or_version_is_refused():
    schema = parts_of(STREAM)[0][1]
    found = set()
    for at in range(8, len(schema)):
        for value in (2, 9):
            data = schema[:at] + bytes([value]) + schema[at + 1 :] + STREAM[len(schema) :]
            try:
                assert decode(data).equals(device_rows())
            except MalformedArrowError as error:
                found.add(str(error))
    assert any("Arrow's version V5" in text for text in found)
    assert any("of the kind 9" in text for text in found)


def test_numbers_of_the_other_endianness_are_refused():
    message, _ = message_of(STREAM, SCHEMA)
    raw = bytearray(message.raw)
    head = next(at for at in range(len(raw)) if message.head.fields[1] - at in range(64) and is_table(raw, at, message))
    index = head - struct.unpack_from("<i", raw, head)[0]
    struct.pack_into("<H", raw, index + 4, message.head.fields[1] - head)  # endianness: the low half of the offset
    assert struct.unpack_from("<h", raw, message.head.fields[1]) != (0,)
    with pytest.raises(MalformedArrowError, match="little-endian"):
        read_layout(bytes(raw), "device_events")


def is_table(raw, at, message):
    """Return whether the schema's table begins at `at`."""
    try:
        index = at - struct.unpack_from("<i", raw, at)[0]
        size, _, _, fields = struct.unpack_from("<4H", raw, index)
    except struct.error:
        return False
    return index >= 0 and size == 8 and at + fields == message.head.fields[1]
