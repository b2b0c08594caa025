"""Asking the agent: its answer, and every way of not getting one."""

from __future__ import annotations

import json
import socket

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepprof.collectors.live.packets import HEAD, MAGIC, PAYLOAD_NBYTES, Kind
from deepprof.live.agent.answers import read_answer
from deepprof.live.agent.asking import NoAnswerReason, NotAnsweredError, ask, is_there
from tests.patience import PATIENCE_S

from .fake_agent import answer, answering, pack, process


def refusal(path, patience_s=PATIENCE_S):
    with pytest.raises(NotAnsweredError) as caught:
        ask(path, patience_s)
    return caught.value.why


def test_an_agent_answers(tmp_path):
    path = tmp_path / "s"
    said = answer(processes=[process(durable=990), process(pid=7, rank=None, notices=[{"code": 3, "text": "busy"}])])
    with answering(path, lambda: said) as heard:
        got = ask(path, PATIENCE_S)
    assert np.frombuffer(heard[0], HEAD)[0].item() == (MAGIC, Kind.ASK, 0, 0, 0)
    assert [each.unsent for each in got.processes] == [10, 0]
    assert got.processes[1].rank is None
    assert got.processes[1].notices[0].text == "busy"
    assert (got.connected, got.to, got.spool.limit_nbytes) == (True, "unix:/d", 1 << 30)


def test_what_a_later_agent_says_more_is_left_out():
    assert read_answer(json.dumps(answer(more=1, processes=[process(new="x")])).encode()).processes[0].pid == 2**22 + 1


def test_nobody_there(tmp_path):
    assert refusal(tmp_path / "none") is NoAnswerReason.ABSENT
    assert refusal(tmp_path / ("x" * 200)) is NoAnswerReason.ABSENT
    (tmp_path / "file").write_text("")
    assert refusal(tmp_path / "file") is NoAnswerReason.ABSENT
    assert refusal(tmp_path / "file" / "s") is NoAnswerReason.ABSENT
    assert not is_there(tmp_path / "none")


def test_a_socket_that_was_left_behind(tmp_path):
    with socket.socket(socket.AF_UNIX) as endpoint:
        endpoint.bind(str(tmp_path / "s"))
    assert refusal(tmp_path / "s") is NoAnswerReason.ABSENT
    assert not is_there(tmp_path / "s")


def test_a_door_that_forbids(tmp_path, monkeypatch):
    def forbid(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(socket.socket, "connect", forbid)
    assert refusal(tmp_path / "s") is NoAnswerReason.FORBIDDEN


def test_one_that_never_answers(tmp_path):
    with socket.socket(socket.AF_UNIX) as endpoint:
        endpoint.bind(str(tmp_path / "s"))
        endpoint.listen()
        assert refusal(tmp_path / "s", 0.05) is NoAnswerReason.SILENT
        assert is_there(tmp_path / "s")


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        pack(Kind.ANSWER, b"{}"),
        pack(Kind.ANSWER, b"[1]"),
        pack(Kind.ANSWER, b"\xff\xfe"),
        pack(Kind.WELCOME, b""),
        pack(Kind.ANSWER, b"", magic=1),
        pack(Kind.ANSWER, b"", nbytes=PAYLOAD_NBYTES + 1),
        pack(Kind.ANSWER, b"short", nbytes=100),
        answer(schema="deepprof.agent/9"),
        answer(processes=[{"session": "x"}]),
        answer(processes=[process(records="many")]),
    ],
    ids=range(12),
)
def test_one_that_is_no_agent(tmp_path, said):
    with answering(tmp_path / "s", lambda: said):
        assert refusal(tmp_path / "s") in {NoAnswerReason.FOREIGN, NoAnswerReason.LEFT}


def test_one_that_closes_without_a_word_is_about_to_end(tmp_path):
    with answering(tmp_path / "s", lambda: b""):
        assert refusal(tmp_path / "s") is NoAnswerReason.LEFT


@given(st.binary(max_size=200))
def test_bytes_from_anybody_are_refused_as_values(payload):
    with pytest.raises(ValueError, match=r"\S"):
        read_answer(payload)
