"""The live view: what is told of jobs and ranks, in any width and height."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepprof.live.client.watch_view import LiveScene, draw_scene
from deepprof.live.wire.figures import (
    Account,
    CollectorStatus,
    ContextFigures,
    DeviceState,
    JobState,
    LeadingFigures,
    RankState,
    StageFigures,
)

NOW_NS = 1_700_000_000_000_000_000
S = 1_000_000_000


def device(**changes):
    known = {"device": 0, "state": "locked", "period": 335, "iterations": 1234, "last_iteration_ns": 50_000_000}
    return DeviceState(**(known | {"last_interval_ns": 5_000_000, "median_iteration_ns": 48_000_000} | changes))


def rank(number=0, **changes):
    known = {"connected": True, "host": "node-1", "last_record_unix_ns": NOW_NS - 2 * S, "devices": (device(),)}
    return RankState("job", number, **(known | changes))


def scene(ranks, **changes):
    known = {"ranks": len(ranks), "connected": sum(each.connected for each in ranks), "iterations": 1234}
    return LiveScene("unix:/d", [JobState("job", **(known | changes))], {"job": ranks}, NOW_NS)


def text(lines):
    return "\n".join(line for line, _ in lines)


def test_a_job_at_work():
    assert text(draw_scene(scene([rank()]), 80)).splitlines() == [
        "unix:/d · 1 job · 1 of 1 rank connected",
        "",
        "job",
        "  1 rank · 1,234 iterations",
        "  rank   state  iterations     last   median  interval   heard  not seen    host",
        "     0  locked       1,234  50.0 ms  48.0 ms    10.0 %  2.00 s         0  node-1",
    ]


@pytest.mark.parametrize(
    ("counts", "told"),
    [
        ([150, 150], "2 ranks · 150 iterations each"),
        ([148, 150, 149], "3 ranks · 148 to 150 iterations each"),
        ([1], "1 rank · 1 iteration"),
        ([0, 0], "2 ranks · 0 iterations each"),
    ],
)
def test_iterations_are_those_of_each_rank(counts, told):
    ranks = [rank(number, devices=(device(iterations=count),)) for number, count in enumerate(counts)]
    assert text(draw_scene(scene(ranks, iterations=sum(counts)), 80)).splitlines()[3] == f"  {told}"


def test_devices_of_one_rank_run_the_same_iterations():
    both = rank(devices=(device(iterations=150), device(device=1, iterations=150)))
    assert "1 rank · 150 iterations\n" in text(draw_scene(scene([both], iterations=300), 80))


def test_a_jobs_line_has_the_iterations_of_a_rank():
    several = [JobState(name, ranks=2, connected=2, iterations=300) for name in ("a", "b")]
    ranks = {"a": [rank(number, devices=(device(iterations=149 + number),)) for number in range(2)]}
    lines = text(draw_scene(LiveScene("unix:/d", several, ranks, NOW_NS), 80, 6)).splitlines()
    assert "149 to 150" in lines[-2]
    assert " 150 " in lines[-1]


def test_findings_and_losses_are_told():
    job = scene([rank()], active_findings=("copy-bound", "drift"), account=Account(10, 7, 1, 0, {"late": 2}, 1, 9))
    shown = text(draw_scene(job, 80))
    assert "  ▲ copy-bound, drift\n" in shown
    assert "2 dropped · 1 invalid · 9 lost on the way" in shown


STAGES = (
    StageFigures("data loading", 0, 0, 9_000_000),
    StageFigures("forward", 11_000_000, 1_000_000, 14_000_000, 0.9),
    StageFigures("backward", 30_000_000, 0, None, 0.6),
    StageFigures("optimizer", 2_000_000, 0, None, 1.0),
)


@pytest.mark.parametrize(
    ("width", "told"),
    [
        (80, "  stages: forward 12.0 ms · backward 30.0 ms (0.60 sure) · optimizer 2.00 ms"),
        (60, "  stages: forward 12.0 ms · backward 30.0 ms (0.60 sure)"),
        (45, "  stages: backward 30.0 ms (0.60 sure)"),
        (30, "  stages: backward 30.0 ms (0…"),
    ],
)
def test_stages_are_told_as_far_as_they_fit(width, told):
    assert draw_scene(scene([rank(stages=STAGES)]), width)[-3] == (told, "")


def test_of_several_ranks_the_first_that_has_stages_is_named():
    ranks = [rank(), rank(1, stages=STAGES[:1]), rank(2, stages=STAGES[1:2]), rank(3, stages=STAGES)]
    assert "\n  stages of rank 2: forward 12.0 ms\n" in text(draw_scene(scene(ranks), 80))
    assert "stages" not in text(draw_scene(scene(ranks[:2]), 80))


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        ({}, "locked"),
        ({"connected": False}, "away"),
        ({"connected": False, "ended": True}, "ended"),
        ({"devices": ()}, "no events"),
        ({"devices": (device(state="lost"),)}, "lost"),
        ({"last_record_unix_ns": NOW_NS - 299 * S}, "locked"),
        ({"last_record_unix_ns": NOW_NS - 300 * S}, "silent"),
        ({"last_record_unix_ns": NOW_NS - 420 * S, "ended": True}, "ended"),
        ({"last_record_unix_ns": NOW_NS - 420 * S, "connected": False}, "away"),
        ({"devices": (device(state="learning", iterations=0, last_iteration_ns=0),)}, "learning"),
    ],
)
def test_every_state_has_its_word(changes, state):
    row = draw_scene(scene([rank(**changes)]), 80)[-1][0]
    assert f" {state} " in row


def held_back(level, **changes):
    return rank(1, status=CollectorStatus(level, "overhead", duty_ratio=0.25), **changes)


@pytest.mark.parametrize("level", ["duty", "off"])
def test_a_collector_that_holds_back_is_told(level):
    *_, title, usual, other = draw_scene(scene([rank(), held_back(level)]), 90)
    assert title[0].split()[:3] == ["rank", "state", "level"]
    assert usual[0].split()[:3] == ["0", "locked", "full"]
    assert other[0].split()[:3] == ["1", "locked", level]
    assert (usual[1], other[1]) == ("", "yellow")


@pytest.mark.parametrize(
    "calm",
    [held_back("full"), held_back("unknown"), held_back("duty", connected=False), held_back("off", ended=True)],
)
def test_one_that_does_not_is_not(calm):
    assert "level" not in text(draw_scene(scene([rank(), calm]), 90))


def test_ranks_that_hold_back_are_shown_before_others():
    ranks = [*(rank(number) for number in range(20)), held_back("off")]
    assert " off " in text(draw_scene(scene(ranks), 90, 14))


def test_a_rank_that_sent_nothing_shows_no_figures():
    row = draw_scene(scene([rank(devices=(), last_record_unix_ns=0)]), 120)[-1][0]
    assert row.split() == ["0", "no", "events", "-", "-", "-", "-", "-", "0", "node-1"]


def test_a_clock_that_is_ahead_shows_no_time_before_now():
    assert "0 ns" in draw_scene(scene([rank(last_record_unix_ns=NOW_NS + S)]), 80)[-1][0]


def test_devices_have_a_column_where_a_rank_has_several():
    rows = draw_scene(scene([rank(devices=(device(), device(device=1)))]), 80)[-3:]
    assert [row.split()[:2] for row, _ in rows] == [["rank", "device"], ["0", "0"], ["0", "1"]]


@pytest.mark.parametrize("width", [30, 40, 60, 80, 200])
def test_a_narrow_terminal_leaves_out_the_least(width):
    titles = draw_scene(scene([rank()]), width)[-2][0].split()
    assert titles[:2] == ["rank", "state"]
    assert ("host" in titles) == (width >= 80)
    assert ("last" in titles) == (width >= 40)


def test_where_not_all_ranks_fit_those_that_deserve_a_look_do():
    ranks = [rank(number, connected=number != 700) for number in range(1000)]
    lines = draw_scene(scene(ranks), 80, 24)
    assert len(lines) <= 24
    assert any(line.split()[:2] == ["700", "away"] for line, _ in lines)
    assert any("and 98" in line and "more" in line for line, _ in lines)
    assert len(draw_scene(scene(ranks), 80)) == 5 + 1000


def test_nothing_to_see_is_said():
    assert "no job has sent anything yet" in text(draw_scene(LiveScene("unix:/d"), 80))


def test_a_daemon_that_is_away_is_said():
    away = LiveScene("unix:/d", scene([rank()]).jobs, {"job": [rank()]}, NOW_NS, "nothing listens there; trying again")
    lines = draw_scene(away, 80)
    assert lines[1] == ("nothing listens there; trying again", "bold red")
    assert "locked" in text(lines)


NUMBERS = st.integers(0, 2**62)
DEVICE_STATES = st.builds(
    DeviceState,
    device=st.integers(0, 65535),
    state=st.sampled_from(["unknown", "learning", "locked", "lost"]),
    iterations=NUMBERS,
    last_iteration_ns=NUMBERS,
    last_interval_ns=NUMBERS,
    median_iteration_ns=NUMBERS,
)
RANKS = st.builds(
    RankState,
    st.just("job"),
    st.integers(0, 999_999),
    host=st.text(max_size=256),
    connected=st.booleans(),
    ended=st.booleans(),
    last_record_unix_ns=NUMBERS,
    devices=st.lists(DEVICE_STATES, max_size=3).map(tuple),
    stages=st.lists(st.builds(StageFigures, st.text(max_size=30), NUMBERS, NUMBERS), max_size=9).map(tuple),
)


@given(st.lists(RANKS, max_size=12), st.text(min_size=1, max_size=128), st.integers(30, 200), st.integers(5, 60))
def test_no_line_is_wider_and_no_scene_higher_than_the_screen(ranks, name, width, height):
    shown = LiveScene("unix:/d", [JobState(name, len(ranks))], {name: ranks}, NOW_NS)
    for limit in (height, None):
        lines = draw_scene(shown, width, limit)
        assert all(len(line) <= width for line, _ in lines)
        assert limit is None or len(lines) <= limit


def jobs(number, **changes):
    return [JobState(f"job-{at}", ranks=2, **({"connected": 1, "iterations": at} | changes)) for at in range(number)]


def test_a_head_that_is_too_long_takes_two_lines():
    shown = draw_scene(scene([rank()]), 30)
    assert [line for line, _ in shown[:2]] == ["unix:/d", "1 job · 1 of 1 rank connected"]


def test_many_jobs_have_a_line_each():
    many = LiveScene("unix:/d", jobs(200), {}, NOW_NS)
    lines = draw_scene(many, 80, 24)
    assert len(lines) == 24
    assert lines[2][0].split() == ["job", "state", "connected", "iterations", "heard", "not", "seen", "findings"]
    assert lines[3][0].split() == ["job-0", "running", "1", "of", "2", "0", "-", "0", "-"]
    assert lines[-1][0] == "  and 180 more; --job NAME shows one"
    assert len(draw_scene(many, 80)) == 3 + 200


def test_jobs_that_fit_have_blocks_and_else_all_have_a_line():
    few = LiveScene("unix:/d", jobs(3), {f"job-{at}": [rank()] for at in range(3)}, NOW_NS)
    assert text(draw_scene(few, 80, 24)).count("locked") == 3
    low = text(draw_scene(few, 80, 8))
    assert "locked" not in low
    assert [name in low for name in ("job-0", "job-1", "job-2")] == [True] * 3
    assert "more" not in low


def test_into_a_pipe_jobs_without_details_follow_as_a_table():
    some = LiveScene("unix:/d", jobs(3), {"job-1": [rank()]}, NOW_NS)
    lines = text(draw_scene(some, 80)).splitlines()
    assert lines[2:4] == ["job-1", "  2 ranks · 1,234 iterations each"]
    assert [line.split()[0] for line in lines[-3:]] == ["job", "job-0", "job-2"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, ["running", "-"]),
        ({"connected": 0}, ["away", "-"]),
        ({"connected": 0, "ended": 2}, ["ended", "-"]),
        ({"active_findings": ("drift",)}, ["running", "drift"]),
        ({"active_findings": ("drift", "straggler", "logging")}, ["running", "drift +2"]),
    ],
)
def test_the_line_of_a_job(changes, words):
    line = draw_scene(LiveScene("unix:/d", jobs(1, **changes), {}, NOW_NS), 80)[-1][0]
    assert line.split()[1] == words[0]
    assert line.endswith(f"  {words[1]}")


@given(st.integers(0, 30), st.integers(0, 30), st.integers(30, 200), st.integers(5, 40))
def test_jobs_never_take_more_than_the_screen(number, detailed, width, height):
    known = {f"job-{at}": [rank()] * (at % 4) for at in range(min(detailed, number))}
    lines = draw_scene(LiveScene("unix:/d", jobs(number), known, NOW_NS), width, height)
    assert len(lines) <= height
    assert all(len(line) <= width for line, _ in lines)


LEADING = LeadingFigures(
    (
        ContextFigures("step train.py:7", 9, 9, 60, 5),
        ContextFigures("load data.py:3", 9, 9, 25, 0),
        ContextFigures("log train.py:44", 9, 9, 10, 0),
        ContextFigures("save train.py:50", 9, 9, 1, 0),
        ContextFigures("idle train.py:60", 9, 9, 0, 0),
    ),
    ContextFigures("", 9, 9, 4, 15),
    60 * S,
)


def test_lines_of_code_that_lead_are_shown_by_their_share():
    ranks = [rank(0), rank(1, contexts=LEADING)]
    lines = text(draw_scene(scene(ranks), 100)).splitlines()
    assert lines[4] == "  device time of rank 1: step train.py:7 25.0 %"
    host = LeadingFigures(tuple(ContextFigures(each.context, 0, 0, each.latest_host_ns) for each in LEADING.lines))
    lines = text(draw_scene(scene([rank(contexts=host)]), 100)).splitlines()
    assert lines[4] == "  host time: step train.py:7 62.5 % · load data.py:3 26.0 % · log train.py:44 10.4 %"
    narrow = text(draw_scene(scene([rank(contexts=host)]), 60)).splitlines()
    assert narrow[4] == "  host time: step train.py:7 62.5 % · load data.py:3 26.0 %"
    others = LeadingFigures((), ContextFigures("", 0, 0, 4, 0))
    assert "time:" not in text(draw_scene(scene([rank(contexts=others)]), 100))
    assert "time:" not in text(draw_scene(scene([rank(contexts=LeadingFigures())]), 100))


def test_a_line_of_code_cannot_draw():
    figures = LeadingFigures((ContextFigures("a\x1b[2J\nb" + "c" * 99, 0, 0, 1, 0),))
    (line,) = [each for each, _ in draw_scene(scene([rank(contexts=figures)]), 80) if "host time" in each]
    assert line.isprintable()
    assert len(line) < 80
