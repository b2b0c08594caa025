"""Reading a job: in this process or in several, from files, archives and stores; the same traces, the same errors."""

import gzip
import itertools
import json
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import warnings
import zipfile
from pathlib import Path

import pytest
from msgspec.structs import replace

import deepprof
from deepprof import job
from deepprof.collectors.errors import TraceError, UsageError
from deepprof.job import parallel, reader
from deepprof.job.conversion import convert
from deepprof.job.parallel import choose_jobs, explain_end
from deepprof.job.sources import TraceSource, TraceSources, measure_content
from deepprof.simulation import simulate, write
from tests.patience import PATIENCE_S
from tests.widening import slow_unless

RANKS = 3


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    """Three files of one job, as PyTorch would write them."""
    folder = tmp_path_factory.mktemp("ranks")
    for rank in range(RANKS):
        write(simulate("healthy", iterations=4, seed=rank), folder / f"rank{rank}.json.gz")
    return folder


@pytest.fixture
def scratch(tmp_path, monkeypatch):
    """A directory for temporary files, which must be empty at the end."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    assert list(folder.iterdir()) == []


def assert_same(traces, others):
    assert len(traces) == len(others)
    for one, other in zip(traces, others, strict=True):
        for name in one.__struct_fields__:
            a, b = getattr(one, name), getattr(other, name)
            assert a.equals(b) if hasattr(a, "equals") else a == b, name


@pytest.fixture
def started(monkeypatch):
    """The processes that were started, all of which must have ended."""
    processes = []

    class Remembered(subprocess.Popen):
        def __init__(self, *args, **options):
            super().__init__(*args, **options)
            processes.append(self)

    monkeypatch.setattr(parallel.subprocess, "Popen", Remembered)
    yield processes
    assert all(process.returncode is not None for process in processes)


def test_several_processes_read_what_one_does(ranks, scratch, started):
    seen = []
    together = deepprof.read_job(ranks, jobs=2, watch=lambda done, total: seen.append((done, total)))
    assert_same(together, deepprof.read_job(ranks, jobs=1))
    assert len(started) == 2
    assert sorted(seen) == [(1, 3), (2, 3), (3, 3)]
    assert [trace.rank for trace in together] == [0, 1, 2]


def test_a_script_without_a_guard_and_with_modules_of_our_names(ranks, tmp_path):
    for name in ("metrics.py", "json.py", "reader.py"):
        (tmp_path / "elsewhere").mkdir(exist_ok=True)
        (tmp_path / "elsewhere" / name).write_text("raise SystemExit('imported')")
    script = tmp_path / "script.py"
    script.write_text(f"import deepprof\nprint('once', len(deepprof.read_job({str(ranks)!r}, jobs=2)))\n")
    run = [sys.executable, str(script)]
    done = subprocess.run(
        run, capture_output=True, text=True, timeout=PATIENCE_S, check=False, cwd=tmp_path / "elsewhere"
    )
    assert (done.stdout, done.stderr, done.returncode) == ("once 3\n", "", 0)


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_bad_file_is_the_same_error_from_any_number_of_processes(ranks, tmp_path, scratch, jobs):
    files = [*ranks.iterdir(), tmp_path / "bad.json"]
    files[-1].write_text('{"schemaVersion": 1, "traceEvents": [{"ph": "X"')
    with pytest.raises(TraceError) as caught:
        job.read_job(files, jobs=jobs)
    assert str(caught.value).startswith(f"{files[-1]}: is truncated")
    assert str(caught.value).endswith(", or leave it out")


def test_a_process_that_is_killed_is_an_error_that_names_the_file(ranks, scratch, monkeypatch, started):
    ask = parallel.WorkerPool.ask

    def kill(self, process, source, folder):
        if source.index == 1:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
        ask(self, process, source, folder)

    monkeypatch.setattr(parallel.WorkerPool, "ask", kill)
    with pytest.raises(TraceError, match=r"rank1\.json\.gz: could not be read: .*SIGKILL.*--jobs 1"):
        job.read_job(ranks, jobs=2)


def test_what_a_processes_end_means():
    assert "exit code 3" in str(explain_end(TraceSource(0, Path("x")), 3))
    assert "signal 99" in str(explain_end(TraceSource(0, Path("x")), -99))


def test_a_bug_in_a_process_keeps_its_traceback(ranks, scratch, monkeypatch):
    check = parallel.WorkerPool.check
    monkeypatch.setattr(
        parallel.WorkerPool, "check", lambda self, source, told: check(self, source, told | {"bug": "line 7"})
    )
    with pytest.raises(RuntimeError, match="line 7"):
        job.read_job(ranks, jobs=2)


def test_a_full_disk_is_an_os_error(ranks, scratch, monkeypatch):
    check, error = parallel.WorkerPool.check, {"os_error": [28, "No space left on device", "device_events.parquet"]}
    monkeypatch.setattr(parallel.WorkerPool, "check", lambda self, source, told: check(self, source, told | error))
    with pytest.raises(OSError, match="No space left") as caught:
        job.read_job(ranks, jobs=2)
    assert caught.value.filename == "device_events.parquet"


def test_an_interrupt_ends_the_processes_and_leaves_nothing(ranks, scratch, monkeypatch, started):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(parallel, "wait", interrupt)
    with pytest.raises(KeyboardInterrupt):
        job.read_job(ranks, jobs=2)


def test_a_warning_of_several_processes_comes_once(ranks, scratch, monkeypatch):
    check, told_of = parallel.WorkerPool.check, {"warnings": ["an odd plug-in"]}
    monkeypatch.setattr(parallel.WorkerPool, "check", lambda self, source, told: check(self, source, told | told_of))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        job.read_job(ranks, jobs=2)
    assert [str(warning.message) for warning in caught] == ["an odd plug-in"]


def test_the_reader_answers_with_what_happened(ranks, tmp_path, monkeypatch):
    def ask(path, **more):
        return reader.answer({"path": str(path), "shown": None, "folder": str(tmp_path / "out")} | more)

    assert ask(ranks / "rank0.json.gz") == {"warnings": []}
    assert (tmp_path / "out" / "deepprof.json").exists()
    assert ask(ranks / "rank0.json.gz")["os_error"][0] == 17  # exists
    assert ask(tmp_path / "absent")["trace_error"][1] == "no such file"

    def warn(path, **_):
        warnings.warn("odd", stacklevel=1)
        raise MemoryError

    monkeypatch.setattr(reader, "read", warn)
    told = ask("x")
    assert (told["warnings"], told["trace_error"][1]) == (["odd"], "needs more memory than there is")
    monkeypatch.setattr(reader, "read", lambda path, **_: 1 / 0)
    assert "ZeroDivisionError" in ask("x")["bug"]


BIG = 600 * 1024**2


def test_how_many_processes(monkeypatch):
    monkeypatch.delenv("DEEPPROF_JOBS", raising=False)
    monkeypatch.setattr(parallel, "count_cpus", lambda: 8)
    monkeypatch.setattr(parallel, "free_nbytes", lambda: 3 * 4 * BIG + 100)
    assert choose_jobs(None, [BIG]) == 1
    assert choose_jobs(None, [100] * 50) == 1
    assert choose_jobs(None, [BIG] * 2) == 2
    assert choose_jobs(None, [BIG] * 8) == 3  # as many as the memory bears
    assert choose_jobs(5, [100] * 50) == 5
    assert choose_jobs(5, [100] * 2) == 2
    assert choose_jobs(5, [100]) == 1
    monkeypatch.setenv("DEEPPROF_JOBS", "4")
    assert choose_jobs(None, [100] * 50) == 4
    assert choose_jobs(1, [100] * 50) == 1
    monkeypatch.setattr(sys, "executable", "/opt/blender")
    assert choose_jobs(4, [100] * 50) == 1


def test_the_content_of_a_compressed_file_is_what_it_states(tmp_path):
    file = tmp_path / "trace"
    file.write_bytes(gzip.compress(b"ab" * 5000))
    assert TraceSources([file, file]).measure() == [10_000, 10_000]
    packed = file.read_bytes()
    file.write_bytes(packed[:-4] + b"\xff" * 4)  # what cannot be true
    assert measure_content(file) == 20 * len(packed)
    file.write_bytes(b"\x1f\x8b")
    assert measure_content(file) == 2
    assert measure_content(tmp_path / "absent") == 0


def test_free_memory_counts_what_the_system_keeps_of_files(tmp_path):
    assert 0 < parallel.free_nbytes() < 1 << 60
    if Path("/proc/meminfo").exists():
        bounds = parallel.read_available(), parallel.read_limit()
        assert parallel.free_nbytes() == pytest.approx(min(bounds), rel=0.5)


@pytest.mark.parametrize(("text", "nbytes"), [("1048576\n", 2**20), ("max\n", 1 << 60), ("\xb2", 1 << 60)])
def test_a_container_s_limit_bounds_the_free_memory(tmp_path, monkeypatch, text, nbytes):
    file = tmp_path / "memory.max"
    file.write_text(text, encoding="latin-1")
    monkeypatch.setattr(parallel, "CONTAINER_LIMITS", (str(tmp_path / "absent"), str(file)))
    monkeypatch.setattr(parallel, "read_available", lambda: 2**40)
    assert parallel.free_nbytes() == min(nbytes, 2**40)


@pytest.mark.parametrize("text", ["many", "-1", "0", "65", "٣", "9" * 30])
def test_a_variable_that_is_no_number_of_processes(monkeypatch, text):
    monkeypatch.setenv("DEEPPROF_JOBS", text)
    with pytest.raises(UsageError, match="1 to 64"):
        choose_jobs(None, [BIG] * 2)


def pack_tar(path, files, mode="w:gz"):
    with tarfile.open(path, mode) as tar:
        for name, file in files.items():
            tar.add(file, name)
    return path


def pack_zip(path, files):
    with zipfile.ZipFile(path, "w") as archive:
        for name, file in files.items():
            archive.write(file, name)
    return path


ARCHIVES = ["job.tar.gz", "job.tgz", "job.tar", "job.zip"]
READINGS = list(itertools.product(ARCHIVES, [1, 2]))  # several processes see no archive, only what is in it


@pytest.mark.parametrize(("name", "jobs"), slow_unless(lambda one: one[1] == 1 or one[0] == "job.tar.gz", READINGS))
@pytest.mark.usefixtures("scratch")
def test_an_archive_of_ranks_is_a_job(ranks, tmp_path, started, name, jobs):
    notes = tmp_path / "README"
    notes.write_text("about this job")
    files = {"run/README": notes} | {f"run/{file.name}": file for file in sorted(ranks.iterdir())}
    path = tmp_path / name
    pack_zip(path, files) if name.endswith("zip") else pack_tar(path, files, "w" if name.endswith("tar") else "w:gz")
    traces = job.read_job(path, jobs=jobs)
    assert len(started) == (0 if jobs == 1 else jobs)
    assert [trace.path for trace in traces] == [f"{path}:run/rank{rank}.json.gz" for rank in range(RANKS)]
    plain = [replace(trace, path="") for trace in deepprof.read_job(ranks, jobs=1)]
    assert_same([replace(trace, path="") for trace in traces], plain)


def test_an_archive_without_a_trace_and_a_damaged_one(ranks, tmp_path, scratch):
    notes = tmp_path / "README"
    notes.write_text("about this job")
    path = pack_zip(tmp_path / "job.zip", {"README": notes})
    with pytest.raises(TraceError, match=r"job\.zip: is an archive that holds no trace"):
        job.read_job(path)
    whole = pack_tar(tmp_path / "job.tar.gz", {file.name: file for file in ranks.iterdir()})
    whole.write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])
    with pytest.raises(TraceError, match=r"job\.tar\.gz: is truncated"):
        job.read_job(whole)


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_damaged_member_is_called_by_its_name_in_the_archive(ranks, tmp_path, scratch, jobs):
    bad = tmp_path / "bad.json"
    bad.write_text('{"schemaVersion": 1, "traceEvents": [{"ph": "X"')
    path = pack_zip(tmp_path / "job.zip", {"a/rank0.json": bad, "a/rank1.json.gz": ranks / "rank1.json.gz"})
    with pytest.raises(TraceError) as caught:
        job.read_job(path, jobs=jobs)
    assert str(caught.value).startswith(f"{path}:a/rank0.json: is truncated")
    assert "scratch" not in str(caught.value)


def test_members_that_lead_out_are_refused(ranks, tmp_path, scratch):
    path = pack_tar(tmp_path / "job.tar", {"../rank0.json.gz": ranks / "rank0.json.gz"}, "w")
    with pytest.raises(TraceError, match="outside"):
        job.read_job(path)


def test_one_member_is_on_the_disk_at_a_time(ranks, tmp_path, scratch):
    path = pack_tar(tmp_path / "job.tar", {file.name: file for file in sorted(ranks.iterdir())}, "w")
    sources = TraceSources([path])
    for source in sources:
        assert len([file for file in scratch.rglob("*") if file.is_file()]) == 1
        source.forget()
    assert sources.total == RANKS
    sources.close()


def test_a_store_is_read_as_the_files_are_and_in_their_order(ranks, tmp_path):
    odd = tmp_path / "odd"
    odd.mkdir()
    for name, rank in (("b.json.gz", 0), ("a.json.gz", 1), ("rank1.json.gz", 2)):
        (odd / name).write_bytes((ranks / f"rank{rank}.json.gz").read_bytes())
    convert(odd, tmp_path / "job.deepprof")
    assert_same(job.read_job(tmp_path / "job.deepprof"), job.read_job(odd))
    assert_same(job.read_job(f"{tmp_path}/*.deepprof"), job.read_job(odd))


def test_processes_write_the_store_that_one_does(ranks, tmp_path):
    for jobs in (1, 2):
        convert(ranks, tmp_path / f"{jobs}.deepprof", jobs=jobs)
    one, two = (
        sorted(p.relative_to(tmp_path / d) for p in (tmp_path / d).rglob("*")) for d in ("1.deepprof", "2.deepprof")
    )
    assert one == two
    assert_same(job.read_job(tmp_path / "1.deepprof"), job.read_job(tmp_path / "2.deepprof"))


def test_clocks_of_real_documents_are_aligned_by_their_collectives(tmp_path):
    for rank, ahead in ((0, 0.0), (1, 2500.5)):
        args = {"Collective name": "allreduce", "Process Group Name": "0", "stream": 7, "device": rank}
        events = [
            {
                **{
                    "ph": "X",
                    "cat": "kernel",
                    "name": "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
                    "pid": rank,
                    "tid": 7,
                },
                **{"ts": 1000.0 * i + ahead + 3 * rank, "dur": 500 - 3 * rank, "args": {**args, "Seq": i}},
            }
            for i in range(12)
        ]
        header = {"schemaVersion": 1, "baseTimeNanoseconds": 17 * 10**17, "distributedInfo": {"rank": rank}}
        (tmp_path / f"{rank}.json").write_text(json.dumps({**header, "traceEvents": events}))
    first, second = job.read_job(tmp_path)
    assert "rank 1 +2,500,500 ns (spread 0 ns, 12 matched)" in first.notes[-1]
    assert first.device_events["end_ns"].equals(second.device_events["end_ns"])


def test_a_range_of_time_from_files_and_from_a_store(ranks, tmp_path):
    convert(ranks, tmp_path / "job.deepprof")
    span = 10**6, 20 * 10**6
    parts = job.read_job(ranks, between=span)
    assert_same(job.read_job(tmp_path / "job.deepprof", between=span), parts)
    zero = min(trace.device_events["start_ns"].min() for trace in job.read_job(ranks))
    for part in parts:
        assert part.device_events["start_ns"].max() < zero + span[1]
        assert part.device_events["end_ns"].min() > zero + span[0]
        assert part.accounting.dropped["out-of-range"] > 0
        assert "records outside of it" in " ".join(part.notes)
    assert_same(job.read_job(ranks, between=(None, 10**15)), job.read_job(ranks))


def test_a_range_that_ends_before_it_starts_is_told_in_units():
    with pytest.raises(UsageError, match=r"from 2 s to 1\.5 s"):
        job.read_job(["x"], between=(2 * 10**9, 1_500_000_000))


@pytest.mark.parametrize("between", [(5, 5), (7, 5), (-1, None), (10**15, None)])
def test_a_range_that_holds_nothing_is_refused(ranks, between):
    with pytest.raises(UsageError, match="range"):
        job.read_job(ranks, between=between)


INTERRUPTED = """
import glob, os, sys, time
from deepprof.commands import main
from deepprof.job import parallel

def wait(futures, **_):
    while not glob.glob(os.environ["TMPDIR"] + "/*/*"):
        time.sleep(0.01)
    print("ranks are read", flush=True)
    while True:
        time.sleep(0.01)

parallel.wait = wait
sys.exit(main())
"""


def test_ctrl_c_at_the_command_line_leaves_no_process_and_no_file(ranks, tmp_path):
    """It comes while ranks are read and their files are there: the command cannot end before."""
    many = tmp_path / "many"
    many.mkdir()
    for rank in range(40):
        (many / f"rank{rank}.json.gz").write_bytes((ranks / "rank0.json.gz").read_bytes())
    own = tmp_path / "tmp"
    own.mkdir()
    command = [sys.executable, "-c", INTERRUPTED, "diagnose", str(many), "--jobs", "2"]
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, env=os.environ | {"TMPDIR": str(own)}
    ) as process:
        assert process.stdout.readline() == b"ranks are read\n"
        assert list(own.glob("*/*"))
        process.send_signal(signal.SIGINT)
        try:
            out, err = process.communicate(timeout=PATIENCE_S)
        finally:
            process.kill()
    assert (process.returncode, out, err) == (130, b"", b"")
    assert list(own.iterdir()) == []
