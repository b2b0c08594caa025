"""The JSON report contains exactly the keys of the contract `deepprof.report/1`."""

import json
import math
import re
from pathlib import Path

import polars as pl
import pytest
from msgspec.structs import replace

from deepprof.collectors.trace import Accounting
from deepprof.metrics.iteration import LOOP_METRICS, Spread
from deepprof.render.json import SCHEMA, encode, report
from deepprof.version import read_version
from tests.deepprof.builders import build_analysis, build_finding, build_loop, build_metrics, build_trace

PAGE = (Path(__file__).parents[3] / "docs" / "report.md").read_text()
KEYS = {
    "": "schema deepprof trace loops no_loop_reason headline work top_work ranks missing_ranks collectives"
    " shared_devices findings unnamed unexamined",
    "trace": "paths format clock ranks span_ns busy_ns idle_ns breakdown events accounting streams notes"
    " matrix_unit_ratio",
    "trace.events": "kernel memcpy memset graph",
    "trace.accounting": "read kept dropped flagged",
    "trace.streams.0": "rank device stream role events busy_ns",
    "loops.0": "rank device stream period confidence evidence boundary_source boundary_confidence annotation_agreement"
    " cycles nested prologue epilogue coverage_ratio iterations whole_iterations metrics anatomy roofline work"
    " matrix_unit_ratio",
    "loops.0.annotation_agreement": "name iterations agreement_ratio",
    "loops.0.cycles.0": "every extra_events kind",
    "loops.0.nested.0": "events repeats",
    "loops.0.iterations.0": "index start_ns end_ns kernels events edits complete interval_ns overlap_ratio htod_bytes"
    " busy_ns idle_ns breakdown mfu_ratio hfu_ratio",
    "loops.0.metrics": "avg_interval_ns max_interval_ns avg_overlap_ratio avg_operation_ns avg_size_bytes iteration_ns"
    " breakdown",
    "loops.0.metrics.iteration_ns": "median p5 p95 ci95 warmup_excluded",
    "findings.0": "rule severity title summary evidence headroom_ns_per_iteration confidence rank iterations location"
    " caused_by advice device stream parts",
}


def load(analysis, **options):
    def refuse(constant):
        raise AssertionError(f"{constant} is no JSON")

    return json.loads(encode(analysis, **options), parse_constant=refuse)


def descend(value, path):
    for key in filter(None, path.split(".")):
        value = value[int(key)] if key.isdigit() else value[key]
    return value


@pytest.mark.parametrize("path", KEYS)
def test_keys_are_those_of_the_contract(path):
    new = set(LOOP_METRICS) if path == "loops.0.metrics" else set()  # each with its row, as the next test checks
    assert set(descend(load(build_analysis()), path)) == set(KEYS[path].split()) | new


def test_the_page_on_the_report_has_a_row_for_each_metric():
    rows = dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", PAGE.partition("| metric |")[2], re.MULTILINE))
    assert {name: each.meaning for name, each in LOOP_METRICS.items()}.items() <= rows.items()
    assert set(descend(load(build_analysis()), "loops.0.metrics")) <= set(rows)


def test_values_come_through_unchanged():
    document = load(build_analysis())
    analysis = build_analysis()
    assert (
        (document["schema"], document["deepprof"]) == (SCHEMA, read_version()) == ("deepprof.report/1", read_version())
    )
    assert document["trace"]["busy_ns"] + document["trace"]["idle_ns"] == document["trace"]["span_ns"]
    first, *_, last = document["loops"][0]["iterations"]
    assert first["start_ns"] == analysis.loops[0].iterations["start_ns"][0]
    assert (last["complete"], last["interval_ns"], last["overlap_ratio"]) == (False, None, None)
    assert document["findings"][0]["iterations"] == [1, 39]
    assert document["findings"][0]["evidence"] == dict(analysis.findings[0].evidence)
    assert document["no_loop_reason"] is None


def test_nulls_stand_where_there_is_no_value():
    nothing = {f"{name}_ns": None for name in ("avg_interval", "max_interval", "avg_operation", "iteration")}
    metrics = build_metrics(**nothing, avg_overlap_ratio=None, avg_size_bytes=None, warmup_excluded=0)
    finding = build_finding(headroom_ns_per_iteration=None, rank=None, iterations=None, location=None)
    loop = build_loop(metrics=metrics, agreement=None, cycles=(), nested=())
    document = load(build_analysis(loops=(loop,), findings=(finding,)))
    assert document["loops"][0]["metrics"]["iteration_ns"] == {
        "median": None,
        "p5": None,
        "p95": None,
        "ci95": None,
        "warmup_excluded": 0,
    }
    assert document["loops"][0]["annotation_agreement"] is None
    assert {document["findings"][0][key] for key in ("rank", "iterations", "location")} == {None}


def test_the_median_has_its_interval():
    spread = Spread(median=5, p5=1, p95=9, low=4, high=6)
    document = load(build_analysis(loops=(build_loop(metrics=build_metrics(iteration_ns=spread)),)))
    assert document["loops"][0]["metrics"]["iteration_ns"]["ci95"] == [4, 6]


def test_main_streams_without_a_loop_are_notes():
    missing = ("rank 1: no iteration found: \udc80",)
    analysis = build_analysis(traces=(build_trace(notes=("a",)),), missing=missing)
    assert load(analysis)["trace"]["notes"] == ["a", "rank 1: no iteration found: ?"]


def test_a_finding_says_where_its_loop_is():
    located = build_finding(device=1, stream=7)
    places = [
        (each["device"], each["stream"])
        for each in load(build_analysis(findings=(located, build_finding())))["findings"]
    ]
    assert places == [(1, 7), (None, None)]


def test_a_job_without_a_loop_says_why():
    document = load(build_analysis(loops=(), findings=()))
    assert (document["loops"], document["findings"]) == ([], [])
    assert document["no_loop_reason"] == "only 2 repetitions were seen; 3 are needed"


def test_nan_and_infinity_become_null():
    loop = build_loop()
    loop = replace(loop, iterations=loop.iterations.with_columns(overlap_ratio=pl.lit(math.nan)))
    finding = build_finding(evidence={"slope": math.inf, "share": 0.5})
    document = load(build_analysis(loops=(loop,), findings=(finding,)))
    assert document["loops"][0]["iterations"][0]["overlap_ratio"] is None
    assert document["findings"][0]["evidence"] == {"slope": None, "share": 0.5}


def test_ranks_are_merged():
    accounts = (
        Accounting(read=5, kept=0, dropped={"flow": 5}),
        Accounting(read=4, kept=0, dropped={"flow": 1, "invalid": 3}, flagged={"unlinked": 2}),
    )
    traces = tuple(
        build_trace(f"rank{rank}.json", rank, accounting=account, notes=("shared", f"own {rank}"), clock=clock)
        for rank, (account, clock) in enumerate(zip(accounts, ("unix", "session"), strict=True))
    )
    trace = load(build_analysis(traces=traces))["trace"]
    assert trace["accounting"] == {
        "read": 9,
        "kept": 0,
        "dropped": {"flow": 6, "invalid": 3},
        "flagged": {"unlinked": 2},
    }
    assert (trace["notes"], trace["ranks"]) == (["shared", "own 0", "own 1"], [0, 1])
    assert (trace["format"], trace["clock"]) == ("kineto", "session")


def test_findings_are_limited_unless_all_are_asked_for():
    analysis = build_analysis(findings=tuple(build_finding(rule=f"rule-{k}") for k in range(7)))
    assert [f["rule"] for f in load(analysis)["findings"]] == [f"rule-{k}" for k in range(5)]
    assert len(report(analysis, limit=None).findings) == 7


def test_text_that_utf_8_cannot_carry_is_replaced():
    analysis = build_analysis(traces=(build_trace("trace-\udcff.json"),), findings=(build_finding(title="\udc80"),))
    document = load(analysis)
    assert (document["trace"]["paths"], document["findings"][0]["title"]) == (["trace-?.json"], "?")


def test_the_document_is_indented_and_ends_with_a_newline():
    text = encode(build_analysis())
    assert text.startswith('{\n  "schema"')
    assert text.endswith("}\n")
