"""Names are other people's text: how many are searched, and how much of each, is bounded."""

from __future__ import annotations

import polars as pl

from deepprof.metrics.kernels import name_kinds
from deepprof.metrics.kernels.classify import classify_names, find_kernel_kinds
from deepprof.metrics.kernels.kinds import KERNEL_KINDS
from deepprof.metrics.kernels.name_kinds import LONGEST_NAME, MOST_NAMES, MOST_TEXT, cut_names
from tests.tables import event, make_trace


def test_only_the_beginning_of_a_name_is_searched() -> None:
    long = "volta_sgemm_128x64_nn" + "x" * 1_000_000
    late = "x" * LONGEST_NAME + "_softmax_kernel"
    assert cut_names(pl.Series([long])).str.len_chars().to_list() == [LONGEST_NAME]
    assert classify_names(pl.Series([long, late]))["category"].to_list() == ["matmul", "unknown"]


def test_names_beyond_the_most_are_unknown() -> None:
    names = pl.Series([f"softmax_{number}_kernel" for number in range(MOST_NAMES + 5)])
    found = classify_names(names)
    assert found.height == len(names)
    assert found["category"][MOST_NAMES - 1] == "softmax"
    assert found["category"][MOST_NAMES:].to_list() == ["unknown"] * 5


def test_text_beyond_the_most_is_unknown() -> None:
    fit = MOST_TEXT // LONGEST_NAME
    names = pl.Series([f"softmax_{number}_kernel" + "_" * LONGEST_NAME for number in range(fit + 3)])
    assert len(cut_names(names)) == fit
    assert classify_names(names)["category"].tail(3).to_list() == ["unknown"] * 3


def test_the_names_with_most_time_are_searched(monkeypatch) -> None:
    monkeypatch.setattr(name_kinds, "MOST_NAMES", 1)
    trace = make_trace([event(0, 0, 10), event(1, 20, 90)], names=["volta_sgemm_64x64_nn", "softmax_warp_forward"])
    found = find_kernel_kinds(trace)
    assert found.table["category"].gather(found.of_events).to_list() == ["unknown", "softmax"]


def test_what_was_found_is_kept_within_bounds(monkeypatch) -> None:
    monkeypatch.setattr(name_kinds, "MOST_KEPT", 3)
    monkeypatch.setattr(name_kinds, "_FOUND", {})
    for first in range(0, 12, 2):
        found = classify_names(pl.Series([f"softmax_{first}_kernel", f"layer_norm_{first}", f"softmax_{first}_kernel"]))
        assert found["category"].to_list() == ["softmax", "normalization", "softmax"]
        assert len(name_kinds._FOUND) <= 3


def test_names_that_are_missing_empty_or_strange_are_unknown() -> None:
    names = pl.Series([None, "", "\x00", "né", "(((", "日本語"], dtype=pl.String)
    found = classify_names(names)
    assert found.schema == pl.Schema(dict(KERNEL_KINDS))
    assert set(found["category"]) <= {"unknown", "custom"}
    assert not found["sure"].any()
    assert classify_names(pl.Series([], dtype=pl.String)).height == 0
