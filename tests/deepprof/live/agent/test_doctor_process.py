"""What the doctor states of processes that give no records, each made up for one reason."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepprof.live.agent.asking import NoAnswerReason, NotAnsweredError
from deepprof.live.agent.doctor import CheckState, examine_process
from deepprof.live.agent.doctor.file_tree import FileTree
from deepprof.live.agent.doctor.inspected_process import find_flag, list_files, read_suspect, split

from .fake_agent import process
from .made_up import ABSENT, CUDA, CUPTI, INJECT, LOADER, SOCKET, STARTED, TORCH, add_process, around

LIVING = process(pid=77, ended=False)


@pytest.fixture
def tree(tmp_path):
    (tmp_path / "root").mkdir()
    return FileTree(tmp_path / "root")


@pytest.fixture
def look(tree):
    """Makes a process up, and returns the report and its findings by name."""

    def look(said=ABSENT, pid=77, **how):
        add_process(tree.root, **how)
        report = examine_process(tree, around(tree, said), pid)
        return report, {each.what: each for each in report.findings}

    return look


def test_a_process_that_is_collected_from(look):
    report, found = look({"processes": [LIVING]}, maps=(LOADER, CUDA, CUPTI, INJECT))
    assert report.is_healthy
    assert found["started"].why == "with deepprof run, job demo"
    assert found["library"].why == "loaded into the process"
    assert found["CUPTI"].why == CUPTI
    assert found["records"].why == "job demo, rank 0: 1,000 records, 0 lost, 0 on their way"


def test_the_books_of_a_process_are_shown_by_reason_and_by_kind(look):
    made = {"kernel": 900, "memcpy": 90, "unknown": 10}
    missing = {"late": {"kernel": 3, "memcpy": 1}, "driver-dropped": {"unknown": 10}}
    books = {"made": made, "kept": {"kernel": 890, "memcpy": 89}, "missing": missing, "waiting": 7}
    _, found = look({"processes": [{**LIVING, "account": books}]}, maps=(LOADER, INJECT))
    assert found["records"].why == (
        "job demo, rank 0: 1,000 records, 979 kept by the daemon, 10 driver-dropped, 4 late, 7 on their way"
    )
    assert found["records by kind"].why == (
        "kernel 900 made, 890 kept, 3 late; memcpy 90 made, 89 kept, 1 late; unknown 10 made, 0 kept, 10 driver-dropped"
    )


def test_records_that_the_daemon_refused_are_a_note(look):
    books = {"made": {"kernel": 9}, "kept": {"kernel": 4}, "missing": {"refused": {"kernel": 5}}}
    told = {**LIVING, "account": books, "refusal": "the rows up to tables[0]: 9, at most 4"}
    _, found = look({"processes": [told]}, maps=(LOADER, INJECT))
    assert found["records"].state is CheckState.NOTE
    assert "5 refused (the rows up to tables[0]: 9, at most 4)" in found["records"].why


def test_a_process_that_is_not_there(tree):
    report = examine_process(tree, around(tree), 77)
    assert report.verdict == "one thing stands in the way of collecting from process 77: there is no process 77 here"


def test_a_process_that_has_ended(look):
    report, _ = look(state="Z (zombie)")
    assert "77 (python) has ended" in report.verdict


@pytest.mark.parametrize(
    ("number", "said"), [(13, "77 (python) is user 1000's: Permission denied"), (3, "77 (python) has no memory")]
)
def test_a_process_into_which_we_cannot_look(look, monkeypatch, tmp_path, number, said):
    def forbid(tree, path):
        raise OSError(number, "Permission denied")

    real = FileTree.read_bytes
    monkeypatch.setattr(
        FileTree, "read_bytes", lambda tree, path: (forbid if path.endswith("environ") else real)(tree, path)
    )
    report, _ = look()
    assert said in report.verdict
    report = examine_process(FileTree(tmp_path / "root"), around(FileTree(tmp_path / "root"), is_root=True), 77)
    assert ("sudo" not in report.findings[0].advice, said in report.verdict) == (True, True)


def test_one_that_was_started_without_us(look):
    report, found = look(variables={"HOME": "/h"}, maps=(LOADER, CUDA, TORCH))
    assert report.verdict.endswith("started: without deepprof run: a library cannot be added to a process later")
    assert found["started"].advice == "end it, and start it with: deepprof run -- COMMAND"
    assert "library" not in found


def test_one_that_only_kineto_can_speak_for(look):
    report, found = look(variables={"KINETO_USE_DAEMON": "1"})
    assert report.is_healthy
    assert found["started"].state is CheckState.NOTE
    assert "--kineto" in found["started"].advice


def test_one_that_speaks_by_itself(look):
    report, found = look({"processes": [{**LIVING, "collector": "torch"}]}, variables={})
    assert report.is_healthy
    assert found["started"].why == "without deepprof run; it speaks to the agent by itself (torch)"


def test_another_profilers_injection(look):
    report, found = look(variables={**STARTED, "CUDA_INJECTION64_PATH": "/nsys/libToolsInjection64.so"})
    assert not report.is_healthy
    assert "/nsys/libToolsInjection64.so, another profiler's" in found["CUDA_INJECTION64_PATH"].why


@pytest.mark.parametrize(
    ("library", "name"),
    [
        ("/opt/nsight/libToolsInjection64.so", "Nsight Systems"),
        ("/opt/ncu/libcuda-injection.so", "Nsight Compute"),
    ],
)
def test_another_profiler_in_the_process(look, library, name):
    report, found = look({"processes": [LIVING]}, maps=(LOADER, INJECT, CUDA, library))
    assert not report.is_healthy
    assert found["another profiler"].why == f"{name} is in the process"


@pytest.mark.parametrize(
    ("library", "name"),
    [
        ("/opt/rocm/lib/librocprofiler-sdk-tool.so.0", "rocprofv3"),
        ("/opt/rocm/lib/librpd_tracer.so", "rpd_tracer"),
    ],
)
def test_a_profiler_that_has_no_part_of_the_driver(look, library, name):
    report, found = look({"processes": [LIVING]}, maps=(LOADER, INJECT, CUDA, library))
    assert report.is_healthy
    assert found["another profiler"].why == f"{name} is in the process"


@pytest.mark.parametrize(
    ("maps", "state", "said"),
    [
        ((LOADER, CUDA), CheckState.WRONG, "the driver is in the process and has not loaded it"),
        ((LOADER, TORCH), CheckState.WRONG, "PyTorch is in the process and has not asked for it"),
        ((LOADER,), CheckState.NOTE, "neither the driver nor PyTorch is in it yet"),
        (("/app/trainer",), CheckState.WRONG, "statically linked"),
        (("/lib/ld-musl-x86_64.so.1", TORCH), CheckState.WRONG, "musl"),
    ],
)
def test_why_the_library_is_not_loaded(look, maps, state, said):
    _, found = look(maps=maps)
    assert found["library"].state is state
    assert said in found["library"].why


def test_a_launcher(look):
    _, found = look({}, children="78 79 ")
    assert found["library"].advice == "it may only start others"
    assert found["agent"].advice == "ask for its children: 78, 79"


def test_deepprof_run_itself(look, tree):
    """Its child is collected from; the agent, another child of it, is not."""
    add_process(tree.root, pid=79)
    add_process(tree.root, pid=78, variables={"HOME": "/"})
    report, found = look({}, children="78 79 ", variables={"HOME": "/"}, command=("python", "-m", "deepprof", "run"))
    assert report.is_healthy
    assert (found["started"].state, found["started"].advice) == (CheckState.NOTE, "ask for that: 79")
    assert found["agent"].advice == "ask for its children: 79"


@pytest.mark.parametrize(
    ("words", "flag"),
    [
        ("train.py", None),
        ("-I train.py", "I"),
        ("-u -E train.py", "E"),
        ("-uS train.py", "S"),
        ("-W ignore -I x.py", "I"),
        ("-Wignore::Import -u x.py -I", None),
        ("-X importtime x.py -I", None),
        ("-c import=I -I", None),
        ("-m torch.run -I", None),
        ("-um torch.run -I", None),
        ("- -I", None),
        ("--version -I", None),
        ("", None),
    ],
)
def test_flags_of_python(look, words, flag):
    assert find_flag(words.split()) == flag
    _, found = look(command=("/venv/bin/python3.11", *words.split()))
    assert ("hook" in found) == (flag is not None)


def test_other_programs_have_flags_of_their_own(look):
    _, found = look(command=("./trainer", "-I"), variables={**STARTED, "PYTHONPATH": ""})
    assert "hook" not in found


def test_a_search_path_that_was_replaced(look):
    _, found = look(variables={**STARTED, "PYTHONPATH": "/mine"})
    assert found["hook"].state is CheckState.NOTE
    assert "PYTHONPATH was changed" in found["hook"].why


def test_a_container_that_does_not_see_us(look):
    report, found = look(inside=(), own_namespaces=("mnt", "pid"))
    assert found["socket"].why == f"{SOCKET} is not in its container"
    assert found["library file"].why == f"{INJECT} is not in its container"
    assert "its own: mnt, pid" in found["namespaces"].why
    assert "agent" not in look({}, inside=(), maps=(LOADER, INJECT), own_namespaces=("mnt",))[1]  # that is why
    assert not report.is_healthy


def test_a_container_with_a_socket_of_its_own(look, tree):
    add_process(tree.root, own_namespaces=("mnt",))
    (tree.at(SOCKET)).parent.mkdir(parents=True)
    tree.at(SOCKET).write_text("")
    _, found = look(own_namespaces=("mnt",))
    assert "is not this machine's" in found["socket"].why


def test_a_container_with_this_machines_socket(look, tree):
    add_process(tree.root, own_namespaces=("mnt",))
    tree.at(SOCKET).parent.mkdir(parents=True)
    tree.at(SOCKET).hardlink_to(tree.at(f"/proc/77/root{SOCKET}"))
    report = examine_process(tree, around(tree), 77)
    assert "socket" not in {each.what for each in report.findings}


def test_a_process_in_a_container_has_another_number(look):
    """Its own number there is what it told; a stranger with that number is another one."""
    told = {**LIVING, "pid": 7, "command": "python train.py"}
    _, found = look({"processes": [told]}, inner_pid=7, own_namespaces=("pid",))
    assert found["records"].state is CheckState.OK
    _, found = look({"processes": [{**told, "command": "python other.py"}]}, inner_pid=7, own_namespaces=("pid",))
    assert "records" not in found


def test_an_agent_in_a_container_sees_no_number(look):
    told = {**LIVING, "pid": 0, "command": "python train.py"}
    assert look({"processes": [told]})[1]["records"].state is CheckState.OK
    assert "records" not in look({"processes": [{**told, "command": "python other.py"}]})[1]


def test_an_agent_that_refused_it(look):
    report, found = look({"refused": [{"pid": 77, "why": "rank 0 of job demo is another's"}]})
    assert found["agent"].why == "it refused the process: rank 0 of job demo is another's"
    assert not report.is_healthy


def test_an_agent_that_knows_nothing_of_it(look):
    assert look({}, maps=(LOADER, INJECT))[1]["agent"].state is CheckState.WRONG
    ended = {"processes": [{**LIVING, "ended": True}]}  # another process, which had its number
    assert look(ended, maps=(LOADER, INJECT))[1]["agent"].state is CheckState.WRONG
    assert look({}, maps=(LOADER,))[1]["agent"].state is CheckState.NOTE


def test_one_that_has_said_that_nothing_more_comes(look):
    over = {**LIVING, "ended": True, "command": "python train.py"}
    report, found = look({"processes": [over]}, maps=(LOADER, INJECT))
    assert report.is_healthy
    assert found["records"].why == "job demo, rank 0: 1,000 records, 0 lost, 0 on their way"
    assert found["collector"].why == "it has said that nothing more comes"
    _, found = look({"processes": [{**over, "records": 0}]}, maps=(LOADER, INJECT))
    assert found["records"].why == "none (job demo, rank 0)"


def test_no_agent(look):
    assert look()[1]["agent"].state is CheckState.NOTE
    assert look(NotAnsweredError(NoAnswerReason.SILENT))[1]["agent"].state is CheckState.WRONG


def test_what_the_agent_says_of_it(look):
    silent = {**LIVING, "records": 0, "next": 0, "durable": 0, "rank": None, "level": 0, "reason": "DUTY_CYCLE"}
    silent["notices"] = [{"code": 4, "text": "CUPTI is busy: another profiler has it"}]
    _, found = look({"processes": [silent], "connected": False, "problem": "no route"}, maps=(LOADER, CUDA, INJECT))
    assert found["records"].why == "none yet (job demo, rank not yet known)"
    assert found["level"].why == "collecting is off (DUTY_CYCLE)"
    assert found["cupti says"].why == "CUPTI is busy: another profiler has it"
    assert found["CUPTI"].state is CheckState.NOTE
    assert (found["daemon"].state, found["daemon"].why) == (CheckState.WRONG, "unix:/d: no route")


def test_the_files_that_are_mapped(tree):
    add_process(tree.root, maps=("/a b/x.so", "/deleted.so (deleted)"))
    suspect, problem = read_suspect(tree, 77)
    assert problem is None
    assert list(suspect.maps) == ["/a b/x.so", "/deleted.so"]


@given(st.text(), st.binary(), st.lists(st.text()))
def test_no_process_can_break_us(maps, environ, words):
    list_files(maps)
    split(environ)
    find_flag(words)
