"""All documents of an analysis: what there is, what there is not, and what is left out."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from deepprof.analysis import Analysis
from deepprof.web.package import TOO_LARGE, PageDocuments, write_documents
from deepprof.web.views import MOST_LOOPS, MOST_RANKS, VIEWS
from tests.metrics.annotation.test_layers import train


@pytest.fixture(scope="module")
def trained() -> Analysis:
    """A net of two layers."""
    return train()


def test_all_that_is_listed_can_be_found(trained: Analysis) -> None:
    documents = PageDocuments(trained)
    listed = [entry.key for view in documents.session.views for entry in view.documents]
    assert {"findings", "iterations/0", "timeline", "flame/0/down", "flame/0/up", "memory"} <= set(listed)
    assert all(documents.find(key) is not None for key in (*listed, "session", "states/0"))


FAR = ("states/9", "timeline/0/999", "timeline/9/0", "flame/9/up", "iterations/" + "9" * 30)
WRONG = (
    "",
    "x",
    "states/a",
    "iterations/-1",
    "iterations/٣",
    "timeline/0",
    "flame/0/x",
    "findings/0",
    "../x",
    "a" * 1000,
)


@pytest.mark.parametrize("key", [*FAR, *WRONG])
def test_no_other_key_is_a_document(trained: Analysis, key: str) -> None:
    assert PageDocuments(trained).find(key) is None


def test_a_bug_of_a_writer_is_no_missing_document(trained: Analysis, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise IndexError

    broken = [replace(view, write=fail) if view.name == "memory" else view for view in VIEWS]
    monkeypatch.setattr("deepprof.web.package.VIEWS", tuple(broken))
    with pytest.raises(IndexError):
        PageDocuments(trained).find("memory")


def test_what_does_not_fit_is_not_listed_and_says_so(trained: Analysis) -> None:
    whole = write_documents(trained)
    assert next(iter(whole)) == "session"
    assert write_documents(trained, most_nbytes=10) == {}
    most = len(whole["session"]) + 100 * len(VIEWS) + len(whole["findings"]) + len(whole["memory"])
    kept = write_documents(trained, most_nbytes=most)
    assert sum(map(len, kept.values())) <= most
    views = {view["name"]: view for view in json.loads(kept["session"])["views"]}
    listed = {entry["key"] for view in views.values() for entry in view["documents"]}
    assert listed <= set(kept)
    assert views["timeline"]["problem"] == TOO_LARGE
    assert views["findings"]["problem"] is None


def test_many_ranks_have_documents_of_the_worst(trained: Analysis) -> None:
    loop = trained.loops[0]
    many = replace(trained, loops=tuple(replace(loop, rank=rank) for rank in range(MOST_RANKS + 4)))
    (view,) = [view for view in VIEWS if view.name == "iterations"]
    entries = view.list_documents(many)
    assert len(entries) == MOST_LOOPS
    assert [entry.key for entry in entries] == [f"iterations/{entry.loop}" for entry in entries]


def test_an_analysis_without_traces_says_why(trained: Analysis) -> None:
    documents = PageDocuments(replace(trained, traces=()))
    problems = {view.name: view.problem for view in documents.session.views}
    for name in ("iterations", "timeline", "flame"):
        assert "other machines" in (problems[name] or "")
    assert [key for key, _ in documents.list_all()][:2] == ["session", "findings"]


def test_a_region_is_cut_out_of_what_there_is(trained: Analysis) -> None:
    documents = PageDocuments(trained)
    assert documents.cut(0, 2) is not None
    assert documents.cut(0, 2, -10, 10) is not None
    assert documents.cut(0, 99) is None
    assert documents.cut(9, 0) is None
    assert documents.cut(-1, 0) is None
