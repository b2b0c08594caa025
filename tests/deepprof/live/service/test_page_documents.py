"""The documents of the page that an examination brings: bounded, of the latest one only, and worth no report."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

import deepprof
from deepprof.live.service import examination
from deepprof.live.service.examination import ExaminationResult
from deepprof.live.service.examiner import examiner
from deepprof.live.service.examiner.examined import LatestExamination
from tests.deepprof.live.service.inside import inside
from tests.deepprof.live.service.traces import gpu_only_trace


@pytest.fixture(scope="module")
def trace() -> deepprof.Trace:
    return gpu_only_trace(iterations=30, kernels=100)


def test_a_job_that_was_examined_has_documents(tmp_path: Path, trace: deepprof.Trace) -> None:
    async def body() -> None:
        async with inside(tmp_path, {}) as daemon:
            await daemon.send(trace, "shown", end=False)
            assert "shown" not in daemon.health.look().examinations
            await daemon.examiner.examine("shown")
            documents = daemon.health.look().examinations["shown"].documents
            session = json.loads(documents["session"])
            keys = {entry["key"] for view in session["views"] for entry in view["documents"]}
            assert keys
            assert keys <= documents.keys()
            known = LatestExamination.decode(daemon.examiner.known["shown"].encode())
            assert known is not None
            assert not known.documents  # which are in no store

    asyncio.run(body())


def test_a_bug_in_the_documents_does_not_cost_the_report(
    trace: deepprof.Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("odd")

    monkeypatch.setattr("deepprof.web.package.write_documents", fail)
    result = examination._examine([trace], 1 << 20)
    assert (result.documents, result.documents_problem) == ({}, "ZeroDivisionError: odd")
    assert json.loads(result.report)
    assert not examination._examine([trace], 0).documents_problem


def test_documents_have_at_most_so_many_bytes(trace: deepprof.Trace) -> None:
    whole = examination._examine([trace], 1 << 24).documents
    most = sum(map(len, whole.values())) - 1
    fitting = examination._examine([trace], most).documents
    assert "session" in fitting
    assert sum(map(len, fitting.values())) <= most


def test_the_jobs_examined_longest_ago_lose_theirs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(examiner, "ALL_DOCUMENTS_NBYTES", 250)

    async def body() -> None:
        async with inside(tmp_path, {}) as daemon:
            for number, job in enumerate(("first", "second", "third")):
                daemon.clock.pass_by(10**9)
                problem = "odd" if number == 0 else ""
                result = ExaminationResult(
                    "{}", [], [], b"", documents={"session": b"1" * 100}, documents_problem=problem
                )
                daemon.examiner.learn(job, result, [])
            assert [bool(daemon.examiner.known[job].documents) for job in ("first", "second", "third")] == [
                False,
                True,
                True,
            ]
            await daemon.engine.order(lambda: None)

    asyncio.run(body())
    assert "documents-failed" in caplog.text
