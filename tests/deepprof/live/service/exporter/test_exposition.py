"""The text of a scrape: every number where it belongs, in a form that Prometheus takes, of the right ranks."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from deepprof.collectors.errors import UsageError
from deepprof.live.service.config.loading import load_config
from deepprof.live.service.exporter import DaemonSnapshot
from deepprof.live.service.exporter.exposition import SERIES_DROPPED, Exposition, measure_process
from deepprof.live.service.exporter.families import DAEMON, DEVICE, JOB, RANK
from deepprof.live.service.model_flops import read_all, read_model_flops
from deepprof.live.service.views import BUCKETS_S, DeviceView, RankView
from deepprof.live.wire.figures import Account, CollectorStatus, ContextFigures, LeadingFigures, StageFigures
from tests.deepprof.live.service.exporter.jobs import START_NS, S, make_device, make_rank, make_snapshot

Key = tuple[str, tuple[tuple[str, str], ...]]


def draw(snapshot: DaemonSnapshot, *, ttl_s: float = 100, series_cap: int = 10_000) -> str:
    return Exposition(ttl_s=ttl_s, series_cap=series_cap).render(snapshot)


def samples(text: str) -> Iterator[Sample]:
    for family in text_string_to_metric_families(text):
        yield from family.samples


def read(text: str) -> dict[Key, float]:
    """Return the samples by name and labels; none may come twice."""
    found = {(one.name, tuple(sorted(one.labels.items()))): one.value for one in samples(text)}
    assert len(found) == sum(1 for line in text.splitlines() if not line.startswith("#"))
    return found


def value(text: str, name: str, **labels: str) -> float:
    return read(text)[f"deepprof_{name}", tuple(sorted(labels.items()))]


def names(text: str) -> set[str]:
    return {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}


OWN = {"job_id": "a", "rank": "3"}
ON = {**OWN, "device": "1"}


@pytest.fixture(scope="module")
def text() -> str:
    device = make_device(10, device=1, growth_total=2, resets=1, foreign_kernels=9, incomplete_total=1)
    account = Account(received=20, accepted=9, invalid=1, duplicate=2, dropped={"late": 5, "full": 3}, gaps=4, lost=70)
    rank = make_rank(
        "a", 3, START_NS + 5 * S, device, account=account, findings={"copy-bound": "warning"}, clock_offset_ns=-S
    )
    told = CollectorStatus(level="duty", duty_ratio=0.25, overhead_ratio=0.02, spool_nbytes=512, level_changes=7)
    stages = (StageFigures("data loading", 0, 1_000_000), StageFigures("forward", 2_000_000, 500_000, 3_000_000, 0.9))
    rank = replace(rank, status=told, stages=stages)
    return draw(make_snapshot(rank, now_ns=START_NS + 5 * S, refused_messages_total=6))


def test_a_rank_s_numbers_stand_where_they_belong(text: str) -> None:
    expected = {
        "rank_connected": 1,
        "rank_ended": 0,
        "rank_clock_offset_seconds": -1,
        "last_record_timestamp_seconds": 1_700_000_005,
        "last_iteration_timestamp_seconds": 1_700_000_005,
        "records_received_total": 20,
        "records_accepted_total": 9,
        "records_invalid_total": 1,
        "records_duplicate_total": 2,
        "records_lost_total": 70,
        "sequence_gaps_total": 4,
        "queue_bytes": 1024,
        "ingest_lag_seconds": 0.003,
        "collector_duty_ratio": 0.25,
        "collector_overhead_ratio": 0.02,
        "collector_spool_bytes": 512,
        "collector_level_changes_total": 7,
    }
    assert {name: value(text, name, **OWN) for name in expected} == expected
    assert value(text, "records_dropped_total", **OWN, reason="late") == 5
    assert value(text, "records_dropped_total", **OWN, reason="full") == 3
    assert value(text, "rank_info", **OWN, host="node0") == 1
    assert value(text, "diagnosis_active", **OWN, finding="copy-bound", severity="warning") == 1


def test_utilisation_is_that_of_the_first_pattern_of_the_job() -> None:
    # 2e12 FLOP at 1e13 FLOP/s use 0.2 s of the median of 0.5 s.
    device = make_device(3, device=1, median_iteration_ns=500_000_000)
    ranks = [make_rank(job, 3, START_NS, device) for job in ("a", "b")]
    models = read_all(["a*=2e12/1e13", "a=9e12/1e13"])
    drawn = Exposition(ttl_s=100, series_cap=10_000, model_flops=models).render(make_snapshot(*ranks))
    assert value(drawn, "mfu_ratio", **ON) == pytest.approx(0.4)
    assert drawn.count("deepprof_mfu_ratio{") == 1
    assert "deepprof_mfu_ratio{" not in draw(make_snapshot(*ranks))
    early = make_rank("a", 0, START_NS, make_device(0, median_iteration_ns=0))
    assert "mfu_ratio{" not in Exposition(model_flops=models).render(make_snapshot(early))


@pytest.mark.parametrize("text", ["", "a", "a=1", "a=1/0", "a=0/1", "a=x/1", "a=1e99/1", "=1/1", "a=1.2.3/4", "a=1/1e"])
def test_what_is_no_entry_of_model_flops(text: str) -> None:
    assert read_model_flops(text) is None
    with pytest.raises(UsageError, match="model_flops"):
        load_config(flags={"exporter.model_flops": text or "?"}, environ={})


def test_lines_of_code_have_a_counter_each_and_the_others_one() -> None:
    lines = (ContextFigures("step a/train.py:7", 3 * S, 2 * S, 1, 1), ContextFigures('say "x"\n', S // 2))
    rank = replace(make_rank("a", 3, START_NS, make_device(1)), contexts=LeadingFigures(lines, ContextFigures("", S)))
    text = draw(make_snapshot(rank, now_ns=START_NS))
    assert value(text, "context_host_seconds_total", **OWN, context="step a/train.py:7") == 3
    assert value(text, "context_device_seconds_total", **OWN, context="step a/train.py:7") == 2
    assert value(text, "context_host_seconds_total", **OWN, context="(other)") == 1
    assert sum(1 for name, _ in read(text) if name == "deepprof_context_host_seconds_total") == 3
    assert "deepprof_context_host_seconds_total{" not in draw(make_snapshot(replace(rank, contexts=None)))


def test_stages_have_series_where_they_are_known(text: str) -> None:
    assert value(text, "stage_seconds", **OWN, stage="data loading") == 0.001
    assert value(text, "stage_seconds", **OWN, stage="forward") == 0.0025
    assert value(text, "stage_host_seconds", **OWN, stage="forward") == 0.003
    assert value(text, "stage_confidence_ratio", **OWN, stage="forward") == 0.9
    assert sum(1 for name, _ in read(text) if "_stage_" in name) == 4
    assert "_stage_seconds{" not in draw(make_snapshot(make_rank("a", 0, START_NS, make_device(1))))


def test_one_level_holds(text: str) -> None:
    levels = {level: value(text, "collector_level", **OWN, level=level) for level in ("full", "duty", "off")}
    assert levels == {"full": 0, "duty": 1, "off": 0}


@pytest.mark.parametrize("changes", [{"status": None}, {"connected": False}, {"ended": True}])
def test_a_collector_of_which_nothing_is_known_now_has_no_series(changes: dict[str, object]) -> None:
    rank = replace(make_rank("a", 3, START_NS, status=CollectorStatus()), **changes)  # type: ignore[arg-type]
    assert not [name for name, _ in read(draw(make_snapshot(rank))) if "_collector_" in name]


def test_a_device_s_numbers_stand_where_they_belong(text: str) -> None:
    expected = {  # ten iterations of 0.12 s
        "iterations_total": 10,
        "iterations_incomplete_total": 1,
        "iteration_interval_seconds_total": 0.12,
        "interval_copy_seconds_total": 0.06,
        "iteration_confidence_ratio": 0.93,
        "iteration_kernels": 1452,
        "iteration_events": 1600,
        "miner_resets_total": 1,
        "graph_growth_total": 2,
        "foreign_kernels_total": 9,
        "device_events_total": 16_000,
        "busy_seconds_total": 0.96,
        "compute_seconds_total": 0.84,
        "copy_seconds_total": 0.15,
        "copy_exposed_seconds_total": 0.075,
    }
    assert {name: value(text, name, **ON) for name in expected} == expected
    assert value(text, "copied_bytes_total", **ON, kind="HtoD") == 40_960
    states = {state: value(text, "miner_state", **ON, state=state) for state in ("learning", "locked", "lost")}
    assert states == {"learning": 0, "locked": 1, "lost": 0}


def test_the_histogram_is_cumulative(text: str) -> None:
    buckets = {
        one.labels["le"]: one.value for one in samples(text) if one.name == "deepprof_iteration_duration_seconds_bucket"
    }
    assert buckets == {**{str(bound): 10.0 * (bound >= 0.25) for bound in BUCKETS_S}, "+Inf": 10.0}
    assert value(text, "iteration_duration_seconds_count", **ON) == 10
    assert value(text, "iteration_duration_seconds_sum", **ON) == 1.2


def test_the_daemon_and_its_jobs_stand_for_themselves(text: str) -> None:
    assert value(text, "ready") == 1
    assert value(text, "build_info", version="1.2.3") == 1
    assert value(text, "refused_messages_total") == 6
    assert value(text, "start_timestamp_seconds") == 1_700_000_000
    assert value(text, "job_records_received_total", job_id="a") == 20
    assert value(text, "job_ranks", job_id="a") == value(text, "job_ranks_connected", job_id="a") == 1
    assert value(text, "job_world_size", job_id="a") == 2


def test_every_family_that_is_declared_comes_once(text: str) -> None:
    declared = [family.name for family in (*DAEMON, SERIES_DROPPED, *JOB, *RANK, *DEVICE)]
    assert sorted(declared) == sorted(names(text))


def test_an_empty_daemon_has_no_jobs() -> None:
    empty = draw(DaemonSnapshot(now_unix_ns=1))
    assert {one.name for one in samples(empty) if one.labels} == {"deepprof_build_info"}
    assert value(empty, "ready") == 0


@pytest.mark.parametrize(
    "devices", [(), (make_device(0),), (make_device(1),), (make_device(1), make_device(0, device=1))]
)
def test_ranks_without_devices_or_iterations_are_read(devices: tuple[DeviceView, ...]) -> None:
    text = draw(make_snapshot(make_rank("a", 0, START_NS, *devices)))
    found = {name for name, _ in read(text)}
    assert ("deepprof_last_iteration_timestamp_seconds" in found) == any(one.iterations for one in devices)
    assert sum(1 for name, _ in read(text) if name == "deepprof_iterations_total") == len(devices)


def test_promtool_finds_nothing_to_complain_about(text: str) -> None:
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not installed (apt-get install prometheus)")
    whole = text + measure_process()().decode()
    done = subprocess.run(["promtool", "check", "metrics"], input=whole, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


odd = st.text(st.characters(codec=None), max_size=8)


@given(job=odd, host=odd, finding=odd, reason=odd)
def test_no_label_breaks_its_line(job: str, host: str, finding: str, reason: str) -> None:
    account = Account(received=1, dropped={reason: 1})
    rank = make_rank(job, 0, START_NS, make_device(1), host=host, findings={finding: "info"}, account=account)
    text = draw(make_snapshot(rank))
    text.encode()
    plain = draw(
        make_snapshot(
            replace(rank, job="a", host="b", findings={"c": "info"}, account=replace(account, dropped={"d": 1}))
        )
    )
    assert list(read(text).values()) == list(read(plain).values())


def test_labels_are_escaped_as_the_format_says() -> None:
    text = draw(make_snapshot(make_rank('50%s "a"\\b\n', 0, START_NS)))
    assert 'deepprof_rank_connected{job_id="50%s \\"a\\"\\\\b\\\\n",rank="0"} 1\n' in text


views = st.builds(
    make_rank,
    st.sampled_from(["a", "b"]),
    st.integers(0, 2),
    st.just(START_NS),
    st.builds(make_device, st.integers(0, 2), device=st.integers(0, 2)),
    findings=st.dictionaries(st.sampled_from(["x", "y"]), st.sampled_from(["info", "warning"])),
    stages=st.lists(st.builds(StageFigures, st.sampled_from(["loss", "other"]), st.integers(0, 9)), max_size=1).map(
        tuple
    ),
    host=st.sampled_from(["", "h"]),
    account=st.builds(Account, dropped=st.dictionaries(st.sampled_from(["late", "full"]), st.integers(0, 3))),
)
jobs = st.lists(views, max_size=4, unique_by=lambda view: (view.job, view.rank))


@given(st.lists(jobs, min_size=1, max_size=5))
def test_what_was_kept_of_former_scrapes_changes_nothing(scrapes: list[list[RankView]]) -> None:
    kept = Exposition(ttl_s=100, series_cap=10_000)
    for ranks in scrapes:
        assert kept.render(make_snapshot(*ranks)) == draw(make_snapshot(*ranks))


def shown(text: str) -> set[tuple[str, str]]:
    return {(one.labels["job_id"], one.labels["rank"]) for one in samples(text) if "rank" in one.labels}


def test_a_rank_leaves_after_its_time_and_comes_back_with_its_counters() -> None:
    exposition = Exposition(ttl_s=60, series_cap=10_000)
    gone = make_rank("a", 0, START_NS, make_device(5), connected=False)
    stays = make_rank("b", 0, START_NS, connected=True)
    for seconds, there in ((59, True), (60, False), (3600, False)):
        text = exposition.render(make_snapshot(gone, stays, now_ns=START_NS + seconds * S))
        assert shown(text) == {("b", "0")} | ({("a", "0")} if there else set())
        assert ('job_id="a"' in text) == there
    back = make_rank("a", 0, START_NS + 3601 * S, make_device(6))
    text = exposition.render(make_snapshot(back, stays, now_ns=START_NS + 3602 * S))
    assert value(text, "iterations_total", job_id="a", rank="0", device="0") == 6


def test_of_too_many_ranks_the_oldest_stay_whole() -> None:
    ranks = [make_rank("a", rank, START_NS, make_device(1), first_seen_unix_ns=rank + 1) for rank in range(10)]
    whole = draw(make_snapshot(ranks[0]))
    per_rank = sum('rank="0"' in line for line in whole.splitlines())
    exposition = Exposition(ttl_s=1e9, series_cap=len(JOB) + 4 * per_rank + 3)
    for number, order in enumerate((ranks, ranks[::-1]), start=1):
        text = exposition.render(make_snapshot(*order))
        assert shown(text) == {("a", str(rank)) for rank in range(4)}
        assert sum('rank="' in line for line in text.splitlines()) == 4 * per_rank
        assert value(text, "series_dropped_total") == number * 6 * per_rank
        assert value(text, "job_ranks", job_id="a") == 10


def test_no_newer_rank_takes_the_room_that_an_older_one_did_not_fit_in() -> None:
    large = make_rank("a", 0, START_NS, *(make_device(1, device=device) for device in range(8)), first_seen_unix_ns=1)
    small = make_rank("a", 1, START_NS, first_seen_unix_ns=2)
    text = draw(make_snapshot(large, small), series_cap=60)
    assert shown(text) == set()


@pytest.mark.parametrize("cap", [0, 4, 5, 10, 500])
def test_the_cap_holds_for_jobs_too(cap: int) -> None:
    ranks = [make_rank(f"job{number}", 0, START_NS, first_seen_unix_ns=number + 1) for number in range(50)]
    found = read(draw(make_snapshot(*ranks), series_cap=cap))
    assert sum(1 for _, labels in found if any(key == "job_id" for key, _ in labels)) <= cap
    held = {dict(labels)["job_id"] for name, labels in found if name == "deepprof_job_ranks"}
    assert held == {f"job{number}" for number in range(min(50, cap // len(JOB)))}
