"""packets.h and packets.py describe the same bytes: a compiled program states what the first one has."""

import subprocess

import pytest

from deepprof.collectors.live import packets
from deepprof.collectors.trace import ACTIVITIES, COPY_KINDS

from .building import FLAGS, INJECT, compiler, run

STRUCTS = {
    "dp_head": packets.HEAD,
    "dp_name_head": packets.NAME_HEAD,
    "dp_notice_head": packets.NOTICE_HEAD,
    "dp_records_head": packets.RECORDS_HEAD,
    "dp_event": packets.EVENT,
    "dp_range": packets.RANGE,
    "dp_tick": packets.TICK,
    "dp_memory_change": packets.MEMORY_CHANGE,
    "dp_context": packets.CONTEXT,
    "dp_context_sum": packets.CONTEXT_SUM,
    "dp_launch": packets.LAUNCH,
}
NUMBERS = {
    "DP_VERSION": packets.VERSION,
    "DP_MAGIC": packets.MAGIC,
    "DP_PAYLOAD_NBYTES": packets.PAYLOAD_NBYTES,
    "DP_NO_TIME": packets.NO_TIME,
    "DP_NO_COPY": packets.NO_COPY,
    "DP_NO_TOTAL": packets.NO_TOTAL - 2**64,  # printed as a signed number
    "DP_ANNOTATION": packets.ANNOTATION,
    "DP_BY_NAME": packets.BY_NAME,
    **{f"DP_{kind.name}": int(kind) for kind in packets.Kind if kind < packets.Kind.ASK},
    **{f"DP_{reason.name}": int(reason) for reason in packets.Reason if reason},
    "DP_NO_GAP": int(packets.Reason.NONE),
    "DP_OFF": int(packets.CollectionLevel.OFF),
    "DP_ON": int(packets.CollectionLevel.ON),
    **{f"DP_{name.upper()}": place for place, name in enumerate(ACTIVITIES)},
    **{f"DP_{name.upper()}": place for place, name in enumerate(packets.RECORD_KINDS)},
    "DP_RECORD_KINDS": len(packets.RECORD_KINDS),
    **{f"DP_{name.upper()}": place for place, name in enumerate(COPY_KINDS)},
}


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    fields = [(struct, field) for struct, dtype in STRUCTS.items() for field in dtype.names or ()]
    lines = [f'    printf("{s}.{f} %zu\\n", offsetof(struct {s}, {f}));' for s, f in fields]
    lines += [f'    printf("{s} %zu\\n", sizeof(struct {s}));' for s in STRUCTS]
    lines += [f'    printf("{n} %lld\\n", (long long){n});' for n in NUMBERS]
    head = '#include <stddef.h>\n#include <stdio.h>\n#include "packets.h"\nint main(void)\n{\n'
    folder = tmp_path_factory.mktemp("layout")
    source, program = folder / "layout.c", folder / "layout"
    source.write_text(head + "\n".join(lines) + "\n}\n")
    run([compiler(), *FLAGS, "-I", str(INJECT), str(source), "-o", str(program)])
    printed = subprocess.run([str(program)], capture_output=True, text=True, check=True).stdout
    return {name: int(value) for name, value in (line.split() for line in printed.splitlines())}


@pytest.mark.parametrize("struct", STRUCTS)
def test_structs_have_the_same_size_and_places(said: dict[str, int], struct: str) -> None:
    dtype = STRUCTS[struct]
    places = {name: dtype.fields[name][1] for name in dtype.names or ()}
    assert said[struct] == dtype.itemsize
    assert {name: said[f"{struct}.{name}"] for name in places} == places


def test_numbers_are_the_same(said: dict[str, int]) -> None:
    assert {name: said[name] for name in NUMBERS} == NUMBERS
