"""What the doctor states of machines: made-up ones, and this one."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepprof.live.agent.asking import NoAnswerReason, NotAnsweredError
from deepprof.live.agent.doctor import CheckState, DoctorReport, examine_machine
from deepprof.live.agent.doctor.devices import examine_devices, judge_cupti, read_branch, read_release
from deepprof.live.agent.doctor.file_tree import FileTree
from deepprof.live.agent.doctor.findings import DoctorFinding, note, ok, wrong
from deepprof.live.agent.doctor.machine import examine_agent, examine_library
from deepprof.live.agent.summary import AWAY
from deepprof.live.client import errors

from .fake_agent import process
from .made_up import CUPTI, DRIVER, around, loads, put

PACKAGES = "/venv/lib/python3.11/site-packages"


@pytest.fixture
def tree(tmp_path):
    return FileTree(tmp_path / "root")


def look(tree, variables=None, *, is_root=False):
    return {each.what: each for each in examine_devices(tree, variables or {}, [PACKAGES], is_root=is_root)}


def nvidia(tree, version="570.86.15", *, device=True, cuda=True):
    put(tree.root, "/proc/driver/nvidia/version", DRIVER.format(version))
    if device:
        put(tree.root, "/dev/nvidia0")
    if cuda:
        loads(tree.root, "/usr/lib/x86_64-linux-gnu/libcuda.so.1")


def test_a_machine_without_a_gpu(tree):
    assert {what: each.state for what, each in look(tree).items()} == {"GPU": CheckState.NOTE}


def test_a_gpu_with_everything(tree):
    nvidia(tree)
    put(tree.root, CUPTI)
    found = look(tree)
    assert {what: each.state for what, each in found.items()} == {
        "NVIDIA driver": CheckState.OK,
        "CUPTI": CheckState.OK,
    }
    assert (found["NVIDIA driver"].why, found["CUPTI"].why) == ("570.86", CUPTI)


def test_a_container_that_was_given_no_gpu(tree):
    nvidia(tree, device=False)
    assert look(tree)["NVIDIA device"].state is CheckState.WRONG
    assert "--gpus" in look(tree)["NVIDIA device"].advice


def test_a_gpu_without_the_drivers_libraries(tree):
    nvidia(tree, cuda=False)
    assert look(tree)["libcuda.so.1"].state is CheckState.WRONG
    put(tree.root, "/usr/local/nvidia/lib64/libcuda.so.1")
    assert "libcuda.so.1" not in look(tree, {"LD_LIBRARY_PATH": "relative:/usr/local/nvidia/lib64"})


def test_a_device_that_this_user_may_not_use(tree, monkeypatch):
    nvidia(tree)
    monkeypatch.setattr(FileTree, "may_use", lambda *_: False)
    assert look(tree)["NVIDIA device"].why == "/dev/nvidia0 may not be used by this user"


def test_a_device_whose_driver_says_nothing(tree):
    put(tree.root, "/dev/nvidia0")
    assert look(tree)["NVIDIA driver"].state is CheckState.NOTE
    put(tree.root, "/proc/driver/nvidia/version", "garbage \xff")
    assert look(tree)["NVIDIA driver"].state is CheckState.NOTE


@pytest.mark.parametrize(
    "path",
    [
        CUPTI,
        f"{PACKAGES}/nvidia/cu13/lib/libcupti.so.13",
        "/usr/local/cuda-12.4/extras/CUPTI/lib64/libcupti.so.12",
        "/usr/local/cuda/targets/x86_64-linux/lib/libcupti.so",
        "/mine/extras/CUPTI/lib64/libcupti.so.2024.1.0",
    ],
)
def test_where_cupti_may_be(tree, path):
    nvidia(tree, "580.65.06")
    assert look(tree)["CUPTI"].state is CheckState.WRONG
    put(tree.root, path)
    assert look(tree, {"CUDA_HOME": "/mine"})["CUPTI"] == ok("CUPTI", path)


def test_a_cupti_that_the_loader_knows(tree):
    nvidia(tree)
    loads(tree.root, "/lib/libcuda.so.1", "/lib/libcupti.so.12", "/lib/libcupti_static.a")
    assert look(tree)["CUPTI"] == ok("CUPTI", "/lib/libcupti.so.12")


def test_a_cupti_that_is_too_new_for_the_driver(tree):
    nvidia(tree, "550.54.14")
    put(tree.root, f"{PACKAGES}/nvidia/cu13/lib/libcupti.so.13")
    assert "is of CUDA 13, which asks for driver 580 or later; this one is 550" in look(tree)["CUPTI"].why
    put(tree.root, CUPTI)  # which of the two a job loads is the job's
    assert look(tree)["CUPTI"].state is CheckState.OK


def test_which_releases_go_with_which_drivers():
    for release, branch, state in [(13, 580, "OK"), (13, 579, "NOTE"), (12, 525, "OK"), (12, 524, "NOTE")]:
        assert judge_cupti({"x": release}, branch).state is CheckState[state]
    for release, branch in [(11, 450), (10, 300), (14, 580), (None, 1), (13, None)]:
        assert judge_cupti({"x": release}, branch).state is CheckState.OK


def test_releases_in_paths():
    releases = {
        "/a/libcupti.so.12": 12,
        "/a/libcupti.so.13": 13,
        "/a/libcupti.so.11.8": 11,
        "/usr/local/cuda-12.4/lib64/libcupti.so.2024.1.0": 12,
        "/p/nvidia/cu13/lib/libcupti.so": 13,
        "/a/libcupti.so": None,
        "/a/libcupti.so.2024.1.0": None,
    }
    assert {path: read_release(path) for path in releases} == releases


def test_drivers_words():
    assert read_branch(DRIVER.format("570.86.15")) == (570, 86)
    line = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build  (x)  Sun Jul\n"
    assert read_branch(line) == (580, 65)
    assert read_branch("") is None


@given(st.text())
def test_no_words_of_a_driver_break_us(text):
    read_branch(text)
    read_release(text)


def test_profiling_for_administrators_alone(tree):
    nvidia(tree)
    put(tree.root, "/proc/driver/nvidia/params", "X: 1\nRmProfilingAdminOnly: 1\n")
    assert look(tree)["profiling permission"].state is CheckState.NOTE
    assert "profiling permission" not in look(tree, is_root=True)


def test_amd(tree, monkeypatch):
    put(tree.root, "/dev/kfd")
    put(tree.root, "/opt/rocm-6.4/lib/librocprofiler-sdk.so.0")
    found = look(tree)
    assert list(found) == ["AMD GPU"]
    assert "/opt/rocm-6.4/lib/librocprofiler-sdk.so.0" in found["AMD GPU"].why
    monkeypatch.setattr(FileTree, "may_use", lambda *_: False)
    assert look(tree)["AMD device"].state is CheckState.WRONG


def test_the_library(tree, tmp_path):
    (found,) = examine_library(None, tree.at("/hook"))
    assert (found.what, found.state) == ("library", CheckState.WRONG)
    (tmp_path / "x.so").write_text("no library")
    library, hook = examine_library(tmp_path / "x.so", tmp_path)
    assert (library.state, hook.state) == (CheckState.WRONG, CheckState.WRONG)


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_a_library_that_loads_is_ours_or_not(tmp_path):
    put(tmp_path, "sitecustomize.py")
    for name, state in (("deepprof_version", CheckState.OK), ("other", CheckState.WRONG)):
        (tmp_path / "x.c").write_text(f"int {name}(void) {{ return 0; }}\n")
        subprocess.run(["cc", "-shared", "-fPIC", "-o", tmp_path / f"{name}.so", tmp_path / "x.c"], check=True)
        (found,) = examine_library(tmp_path / f"{name}.so", tmp_path)
        assert found.state is state


def agent(tree, said, **more):
    return {each.what: each for each in examine_agent(around(tree, said, **more))}


def test_an_agent_that_is_well(tree):
    found = agent(tree, {"processes": []})
    assert {what: each.state for what, each in found.items()} == dict.fromkeys(
        ["agent", "daemon", "spool"], CheckState.OK
    )
    assert found["spool"].why == "0 of 1,024 MiB wait on disk"


def test_no_agent(tree):
    absent = NotAnsweredError(NoAnswerReason.ABSENT)
    assert [each.state for each in agent(tree, absent).values()] == [CheckState.NOTE, CheckState.OK]
    found = agent(tree, absent, daemon=lambda _: "nobody answers at unix:/d")
    assert (found["daemon"].state, found["daemon"].why) == (CheckState.WRONG, "nobody answers at unix:/d")


@pytest.mark.parametrize("why", [NoAnswerReason.FORBIDDEN, NoAnswerReason.SILENT, NoAnswerReason.FOREIGN])
def test_an_agent_that_gives_no_answer(tree, why):
    assert agent(tree, NotAnsweredError(why))["agent"].state is CheckState.WRONG


def test_an_agent_whose_daemon_is_away(tree):
    found = agent(tree, {"connected": False, "problem": "connection refused"})
    assert found["daemon"].why == "unix:/d: connection refused"
    assert found["daemon"].state is CheckState.WRONG


def test_an_agent_that_has_had_nothing_to_send(tree):
    found = agent(tree, {"connected": False, "problem": None})
    assert (found["daemon"].state, found["daemon"].why) == (CheckState.OK, "unix:/d answers")
    found = agent(tree, {"connected": False}, daemon=lambda address: f"nobody at {address}")
    assert (found["daemon"].state, found["daemon"].why) == (CheckState.WRONG, "nobody at unix:/d")


def test_a_daemon_that_has_come_back_since_the_agent_tried(tree):
    said = "daemon at unix:/d: there is no such socket; start it with deepprof serve"
    found = agent(tree, {"connected": False, "problem": said})["daemon"]
    assert (found.state, found.advice) == (CheckState.NOTE, "it tries again within some seconds")
    assert found.why == "unix:/d answers now; when the agent tried last, there is no such socket"
    said = "daemon at unix:/d: its token is not known; check --token-file"
    found = agent(tree, {"connected": False, "problem": said})["daemon"]
    assert (found.state, found.why) == (CheckState.WRONG, "unix:/d: its token is not known")
    assert found.advice == "check --token-file"


def test_the_words_for_a_daemon_that_is_away_are_those_of_the_client():
    texts = Path(errors.__file__).read_text()
    assert all(f'"{text}"' in texts for text in AWAY)


def test_a_daemon_at_which_this_user_may_not_look(tree):
    """The agent, which may be root's, can all the same."""

    def forbid(address):
        raise PermissionError(13, "Permission denied", "unix:/d")

    found = agent(tree, {"connected": False}, daemon=forbid)["daemon"]
    assert (found.state, "may not be looked at" in found.why) == (CheckState.NOTE, True)
    found = agent(tree, {"connected": False, "problem": "no route"}, daemon=forbid)["daemon"]
    assert (found.state, found.why) == (CheckState.WRONG, "unix:/d: no route")
    found = agent(tree, NotAnsweredError(NoAnswerReason.ABSENT), daemon=forbid)["daemon"]
    assert (found.state, found.why) == (CheckState.WRONG, "unix:/d may not be used by this user")


def test_a_spool_that_is_full(tree):
    assert agent(tree, {"spool": {"nbytes": 1 << 30, "limit_nbytes": 1 << 30}})["spool"].state is CheckState.WRONG
    assert agent(tree, {"spool": {"nbytes": (1 << 30) - 1, "limit_nbytes": 1 << 30}})["spool"].state is CheckState.OK
    assert agent(tree, {"spool": {"nbytes": 1, "limit_nbytes": 1 << 30}})["spool"].why.startswith("less than 1 of 1,0")
    assert agent(tree, {"spool": {}})["spool"].state is CheckState.OK


def test_a_disk_that_is_full(tree):
    """It is so long before what may wait."""
    full = process(ended=False, level="duty", reason="spool-full")
    found = agent(tree, {"processes": [full], "spool": {"nbytes": 1, "limit_nbytes": 1 << 30}})["spool"]
    assert (found.state, "its disk" in found.advice) == (CheckState.WRONG, True)
    for well in ({**full, "ended": True}, {**full, "level": "full"}, {**full, "reason": "overhead"}):
        assert agent(tree, {"processes": [well]})["spool"].state is CheckState.OK


def test_processes_that_were_refused(tree):
    found = agent(tree, {"refused": [{"pid": 9, "why": "rank 0 of job x is another's"}]})
    assert (found["process 9"].state, found["process 9"].why) == (
        CheckState.WRONG,
        "refused: rank 0 of job x is another's",
    )


def test_a_process_that_was_refused_and_is_over_stands_in_nobodys_way(tree):
    refused = [{"pid": 9, "why": "rank 0 of job x is another's"}]
    over = process(pid=9, rank=None, ended=True)
    assert agent(tree, {"refused": refused, "processes": [over]})["process 9"].state is CheckState.NOTE
    again = process(pid=9, rank=None, ended=False, session="b")
    assert agent(tree, {"refused": refused, "processes": [over, again]})["process 9"].state is CheckState.WRONG


def test_the_advice_is_that_of_the_daemons_problem(tree):
    said = {"connected": False, "problem": "daemon at unix:/d: its host name is not known; see how it is written"}
    found = agent(tree, said, daemon=lambda address: "nobody answers")["daemon"]
    assert (found.state, found.why) == (CheckState.WRONG, "unix:/d: its host name is not known")
    assert found.advice == "see how it is written"
    said = {"connected": False, "problem": "daemon at unix:/d: there is no such socket; start it"}
    assert "deepprof serve" in agent(tree, said, daemon=lambda address: "nobody answers")["daemon"].advice


def test_sources_beside_the_processes(tree):
    lost = {"source": "rpd", "path": "/t.rpd", "notices": ["/t.rpd: is not there yet"]}
    found = agent(tree, {"sources": [lost, {"source": "kineto", "address": "@dynolog", "processes": 2}]})
    assert (found["rpd /t.rpd"].state, found["rpd /t.rpd"].why) == (CheckState.NOTE, "/t.rpd: is not there yet")
    assert (found["kineto @dynolog"].state, found["kineto @dynolog"].why) == (CheckState.OK, "2 processes")
    for processes, said in ((1, "1 process"), ("many", "followed"), (None, "followed")):
        source = {"source": "kineto", "address": "@dynolog", "processes": processes}
        assert agent(tree, {"sources": [source]})["kineto @dynolog"].why == said


def test_the_whole_machine(tree):
    report = examine_machine(tree, around(tree))
    assert [each.what for each in report.findings] == ["library", "agent", "daemon", "GPU"]
    assert not report.is_healthy
    assert report.verdict.startswith("one thing stands in the way of collecting on this machine: library: it is not")


def test_the_report():
    report = DoctorReport((ok("a", "fine"), note("b", "so \x1b[31m\n it is"), wrong("c", "bad " * 30, "do this")))
    lines = report.write_text(60).splitlines()
    assert lines[0] == "one thing stands in the way of collecting on this machine:"
    assert "✓ a · fine" in lines
    assert "– b · so \\x1b[31m it is" in lines
    assert max(map(len, lines)) <= 60
    assert "do this" in report.write_text(60)
    assert DoctorReport((ok("ä", "fine"),)).write_text(80, plain=True).splitlines()[1] == "+ ? - fine"
    assert DoctorReport(()).is_healthy
    assert DoctorReport((note("a", "b"),), 5).verdict == "nothing stands in the way of collecting from process 5"
    two = DoctorReport((wrong("a", "b", "c"), wrong("d", "e", "f")), 5)
    assert two.verdict == "2 things stand in the way of collecting from process 5: a: b"


def test_the_report_as_json():
    said = json.loads(json.dumps(DoctorReport((wrong("a", "b", "c"),), 5).to_json()))
    assert said == {
        "schema": "deepprof.doctor/1",
        "healthy": False,
        "verdict": "one thing stands in the way of collecting from process 5: a: b",
        "pid": 5,
        "findings": [{"state": "wrong", "what": "a", "why": "b", "advice": "c"}],
    }


@given(
    st.lists(st.builds(DoctorFinding, st.sampled_from(CheckState), st.text(), st.text(), st.text())),
    st.integers(-5, 300),
)
def test_whatever_is_found_can_be_shown(findings, width):
    report = DoctorReport(tuple(findings))
    text = report.write_text(width)
    assert all(char.isprintable() or char == "\n" for char in text)
    assert report.write_text(width, plain=True).isascii()
    assert report.is_healthy == all(each.state is not CheckState.WRONG for each in findings)


def test_this_machine_can_be_looked_at():
    """Whatever is found here, looking does not fail."""
    found = examine_devices(FileTree(), {}, [str(Path(__file__).parent)], is_root=False)
    assert found
