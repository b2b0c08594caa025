"""A process that finds no device (`CUDA_VISIBLE_DEVICES=""`): it has to live, and one line states why nothing comes."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.gpu.programs import Failed, Plan, environment, start, wait_until
from benchmarks.gpu.reader import Reader, Session
from benchmarks.gpu.rows import Row, judge

__all__ = ["check_no_device", "judge_silence"]

NONE_HERE = {"CUDA_VISIBLE_DEVICES": ""}
HIDING = {"MOCK_DRIVER": "-1"}  # the stand-in's driver has no device


def check_no_device(plan: Plan) -> Iterator[Row]:
    """Run a program that searches for a device, finds none and goes on for some seconds, without the hook."""
    socket = plan.folder / "a.sock"
    variables = environment(plan, socket, hook=False) | NONE_HERE
    variables |= HIDING if plan.mock and plan.mock != "quiet" else {}
    end = ""
    with Reader(socket) as reader, start(plan, ["hidden"], variables) as program:
        try:
            program.reach("started")
            wait_until(lambda: reader.main.notices, plan.hidden_s)
            program.go()
            program.result()
        except Failed as failure:
            end = str(failure)
    yield judge_silence(end, reader.sessions)


def judge_silence(end: str, sessions: list[Session]) -> Row:
    """Return whether a process lived (`end` is empty), nothing came of it, and one line stated so."""
    lines = list(dict.fromkeys(notice for session in sessions for notice in session.notices))
    events = sum(session.events for session in sessions)
    said = "; ".join(lines) or ("not a word" if sessions else "the driver did not load the library: nobody to say why")
    ok = not end and not events and (len(lines) == 1 or not sessions)
    figure = f"{end or 'it lived'}; {events:,} records; {said}"
    return judge(
        'no device: CUDA_VISIBLE_DEVICES=""', ok, figure, "the process dies, a record comes, no line or several"
    )
