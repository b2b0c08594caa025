"""kill -9 of a process that appends, at any moment: all that it says it has appended is there, and nothing by half."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

from deepprof.live.agent.spool import Spool
from deepprof.v1.ingest_pb2 import SendRequest
from tests.chance import draw_seed, examples

from .spooling import hello

KILLS = 12
# Appends without an end; after each message the number behind it goes out.
WRITER = """
import os, random, sys
from pathlib import Path
from deepprof.live.agent.spool import Spool
from deepprof.v1.ingest_pb2 import SendRequest
from deepprof.v1.records_pb2 import Batch, Hello, Table
spool = Spool.open(Path(sys.argv[1]), Hello.FromString(bytes.fromhex(sys.argv[2])), segment_nbytes=1 << 18)
random.seed(int(sys.argv[3]))
while True:
    count = random.randrange(1, 50)
    names = [f"name {number}" for number in range(spool.names_count, spool.names_count + random.randrange(3))]
    table = Table(arrow=count.to_bytes(4, "little") * random.randrange(1, 20_000))
    batch = Batch(names=names, first_name=spool.names_count, tables=[table])
    spool.append(SendRequest(batch=batch), count, spool.next + count)
    os.write(1, b"%d\\n" % spool.next)
    spool.trim(spool.next - 2000)
"""


def check(spool: Spool, said: int) -> None:
    """Assert that everything up to `said` is there, in order and whole."""
    assert said <= spool.next == spool.source_next
    expected = spool.first
    for message in spool.read():
        batch = SendRequest.FromString(message.payload).batch
        assert (batch.first, message.first) == (expected, expected)
        assert set(batch.tables[0].arrow[::4]) == {message.count}  # a gap for damage has no table
        expected = message.end
    assert expected == spool.next
    assert spool.names == [f"name {number}" for number in range(spool.names_count)]


def test_kills_leave_whole_messages(tmp_path: Path) -> None:
    seed = draw_seed("spool kills")
    chance, reached = random.Random(seed), 0
    command = [sys.executable, "-c", WRITER, str(tmp_path), hello().SerializeToString().hex()]
    for kill in range(examples(KILLS)):
        process = subprocess.Popen([*command, str(seed + kill)], stdout=subprocess.PIPE)
        assert process.stdout is not None
        first = process.stdout.readline()  # it is at work
        time.sleep(chance.uniform(0, 0.05))  # the moment of the kill, not a wait for anything
        process.kill()
        said = (first + process.stdout.read()).split(b"\n")[-2]
        process.wait()
        process.stdout.close()
        spool = Spool.open(tmp_path, hello())
        check(spool, int(said))
        assert spool.next > reached
        reached = spool.next
        spool.close()
