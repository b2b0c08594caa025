"""A command under us behaves as without us: exit codes, signals, files, arguments, its terminal."""

from __future__ import annotations

import contextlib
import os
import pty
import select
import signal
import subprocess
import sys
import time

import pytest

from deepprof.live.agent.running import explain, is_for_us, signals_blocked, wait
from tests.patience import PATIENCE_S

UNDER = """
import os, sys
from deepprof.live.agent.running import CannotRunError, leave, signals_blocked, spawn, wait
try:
    with signals_blocked() as mask:
        sys.exit(leave(wait(spawn(sys.argv[1:], os.environ, mask), lambda ended: None)))
except CannotRunError as error:
    print(error, file=sys.stderr)
    sys.exit(error.status)
"""
# A signal that comes while the last line is made.
LATE = """
def late(status):
    os.kill(os.getpid(), NUMBER)
    return leave(status)
try:
"""
BECOME = """
import os, sys
from deepprof.live.agent.running import CannotRunError, replace
try:
    replace(sys.argv[1:], os.environ)
except CannotRunError as error:
    print(error, file=sys.stderr)
    sys.exit(error.status)
"""
# What a shell does with a job: its own group in the foreground, continued when it stops.
SHELL = """
import os, signal, subprocess, sys
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
job = subprocess.Popen([sys.executable, "-c", *sys.argv[1:]], process_group=0, start_new_session=False)
os.tcsetpgrp(0, job.pid)
while True:
    pid, status = os.waitpid(job.pid, os.WUNTRACED)
    if not os.WIFSTOPPED(status):
        break
    print("stopped", flush=True)
    os.killpg(job.pid, signal.SIGCONT)
    print("continued", flush=True)
"""
# Says each signal that it hears, and ends at USR2 or at the end of its input.
LISTENER = """
import os, signal, sys
def hear(number, _):
    os.write(1, f"{signal.Signals(number).name}\\n".encode())
    if number == signal.SIGUSR2:
        os._exit(7)
for name in ("SIGTERM", "SIGHUP", "SIGINT", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGCONT"):
    signal.signal(getattr(signal, name), hear)
os.write(1, f"ready {os.getpid()}\\n".encode())
while True:
    signal.pause()
"""
BOTH = pytest.mark.parametrize("how", [UNDER, BECOME], ids=["under", "become"])


@pytest.fixture(autouse=True)
def nothing_is_ignored():
    """Signals that a runner in the background of a shell ignores, as we would from it."""
    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGQUIT: signal.SIG_DFL, signal.SIGHUP: signal.SIG_DFL}
    before = {each: signal.signal(each, handler) for each, handler in usual.items()}
    yield
    for each, handler in before.items():
        signal.signal(each, handler)


def run(*command, how=UNDER, **options):
    words = [sys.executable, "-c", how, *map(str, command)]
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=PATIENCE_S, **options)


def start(*command, **options):
    words = [sys.executable, "-c", UNDER, *map(str, command)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, **options)


@BOTH
@pytest.mark.parametrize("status", [0, 1, 42, 255])
def test_the_exit_code_is_the_commands(status, how):
    assert run("sh", "-c", f"exit {status}", how=how).returncode == status


@BOTH
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV, signal.SIGINT, signal.SIGPIPE])
def test_of_what_the_command_dies_we_die(number, how):
    assert run("sh", "-c", f"kill -{int(number)} $$", how=how).returncode == -number


@BOTH
def test_a_command_that_is_not_there(how):
    done = run("no-such-command-of-ours", how=how)
    assert (done.returncode, done.stderr) == (127, "no-such-command-of-ours: command not found\n")
    assert run("/no/such/file", how=how).returncode == 127


@BOTH
def test_a_file_of_this_folder_is_no_command(how, tmp_path):
    path = tmp_path / "train.py"
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    done = run("train.py", how=how, cwd=tmp_path)
    advice = "it is a file of this folder: python train.py, or ./train.py"
    assert (done.returncode, done.stderr) == (127, f"train.py: command not found; {advice}\n")


@BOTH
def test_a_command_that_cannot_be_executed(how, tmp_path):
    path = tmp_path / "script"
    path.write_text("echo hi\n")
    done = run(path, how=how)
    assert (done.returncode, done.stderr) == (126, f"{path}: Permission denied\n")
    assert run(tmp_path, how=how).returncode == 126


@BOTH
def test_a_script_whose_interpreter_is_not_there(how, tmp_path):
    path = tmp_path / "script"
    path.write_text("#!/no/such/python\n")
    path.chmod(0o755)
    done = run(path, how=how)
    assert done.returncode == 126
    assert done.stderr == f"{path}: the interpreter that its first line names is not there\n"


@BOTH
def test_a_script_without_a_first_line_runs_as_under_a_shell(how, tmp_path):
    path = tmp_path / "script"
    path.write_text('echo "$0 $1"\nexit 3\n')
    path.chmod(0o755)
    done = run(path, "a b", how=how)
    assert (done.returncode, done.stdout) == (3, f"{path} a b\n")


def test_arguments_input_and_both_outputs_are_untouched():
    code = "import sys; sys.stdout.write(repr(sys.argv[1:]) + sys.stdin.read()); sys.stderr.write('e')"
    done = run(sys.executable, "-c", code, "", "a b", "--", "-x", "é", input="in\0\n")
    assert (done.stdout, done.stderr) == (repr(["", "a b", "--", "-x", "é"]) + "in\0\n", "e")


@BOTH
def test_files_that_the_shell_opened_stay_open(how):
    read, write = os.pipe()
    with os.fdopen(read) as reader:
        assert run("sh", "-c", f"echo through >/dev/fd/{write}", how=how, pass_fds=[write]).returncode == 0
        os.close(write)
        assert reader.read() == "through\n"


@BOTH
def test_signals_are_as_they_were(how):
    """What Python changes for itself is not the command's: masks, and what is ignored."""
    show = ("grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status")
    plain = subprocess.run(show, capture_output=True, text=True, check=True).stdout
    assert read_sets(run(*show, how=how).stdout) == read_sets(plain)


def read_sets(text):
    """The sets of signals; 32 and 33 are the C library's own."""
    return [int(line.split()[1], 16) & ((1 << 31) - 1) for line in text.splitlines()]


def test_what_is_ignored_stays_ignored():
    """As under nohup."""
    code = "trap '' HUP INT; exec " + " ".join(f"'{word}'" for word in (sys.executable, "-c", UNDER, "sh", "-c"))
    command = code + " 'kill -HUP $$; kill -HUP $PPID; kill -INT $$; echo lives'"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert (done.returncode, done.stdout) == (0, "lives\n")


@pytest.fixture
def listener():
    process = start(sys.executable, "-c", LISTENER, process_group=0)
    pid = int(process.stdout.readline().split()[1])
    yield process, pid
    process.kill()
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()


PASSED = ["SIGTERM", "SIGHUP", "SIGINT", "SIGQUIT", "SIGUSR1", "SIGCONT"]


@pytest.mark.parametrize("name", PASSED)
def test_a_signal_to_us_alone_reaches_the_command_once(listener, name):
    process, _ = listener
    process.send_signal(getattr(signal, name))
    assert process.stdout.readline() == f"{name}\n".encode()
    process.send_signal(signal.SIGUSR2)
    assert process.stdout.read() == b"SIGUSR2\n"
    assert process.wait(PATIENCE_S) == 7


def test_a_signal_to_the_command_is_its_own(listener):
    process, pid = listener
    os.kill(pid, signal.SIGUSR1)
    assert process.stdout.readline() == b"SIGUSR1\n"
    os.kill(pid, signal.SIGKILL)
    assert process.wait(PATIENCE_S) == -signal.SIGKILL


def read_until(terminal, wanted):
    got = b""
    until_s = time.monotonic() + PATIENCE_S
    while wanted not in got and time.monotonic() < until_s:
        if select.select([terminal], [], [], 1)[0]:
            try:
                got += os.read(terminal, 4096)
            except OSError:  # no one has it open any more
                break
    return got


@pytest.mark.parametrize(("key", "name"), [(b"\x03", b"SIGINT"), (b"\x1c", b"SIGQUIT")])
def test_a_key_of_the_terminal_reaches_the_command_once(key, name):
    pid, terminal = pty.fork()
    if not pid:
        os.execv(sys.executable, [sys.executable, "-c", UNDER, sys.executable, "-c", LISTENER])  # noqa: S606
    try:
        assert b"ready" in read_until(terminal, b"ready")
        os.write(terminal, key)
        heard = read_until(terminal, name)
        os.kill(pid, signal.SIGUSR2)  # to us: everything before it has been passed on by then
        heard += read_until(terminal, b"SIGUSR2")
        assert heard.count(name) == 1
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    finally:
        os.close(terminal)


def test_a_command_that_was_stopped_goes_on_when_we_are_told_to(listener):
    process, pid = listener
    os.kill(pid, signal.SIGSTOP)
    process.send_signal(signal.SIGCONT)
    assert process.stdout.readline() == b"SIGCONT\n"
    process.send_signal(signal.SIGUSR2)
    assert process.wait(PATIENCE_S) == 7


def test_the_terminals_stop_reaches_both():
    """Ctrl-Z: the shell sees that we stopped, and continues the whole group."""
    pid, terminal = pty.fork()
    if not pid:
        os.execv(sys.executable, [sys.executable, "-c", SHELL, UNDER, sys.executable, "-c", LISTENER])  # noqa: S606
    try:
        assert b"ready" in read_until(terminal, b"ready")
        os.write(terminal, b"\x1a")
        heard = read_until(terminal, b"continued")
        assert b"stopped" in heard
        assert b"SIGCONT" in heard or b"SIGCONT" in read_until(terminal, b"SIGCONT")
        os.write(terminal, b"\x03")
        assert b"SIGINT" in read_until(terminal, b"SIGINT")
    finally:
        os.close(terminal)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def info(number=signal.SIGTERM, code=0, pid=1):
    return signal.struct_siginfo((number, code, 0, pid, 0, 0, 0))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_after_the_end_of_the_command_changes_no_exit_code(number):
    late = UNDER.replace("leave(wait(", "late(wait(").replace("try:\n", LATE, 1)
    assert run("sh", "-c", "exit 7", how=late.replace("NUMBER", str(int(number)))).returncode == 7


def test_a_command_that_may_not_be_signalled_is_waited_for(monkeypatch):
    """As one behind sudo, which is root's."""
    child, told = subprocess.Popen(["sh", "-c", "read x; exit 7"], stdin=subprocess.PIPE, text=True), []

    def refuse(pid, number):
        told.append((pid, number))
        child.stdin.close()
        raise PermissionError(1, "Operation not permitted")

    with signals_blocked():
        monkeypatch.setattr("deepprof.live.agent.running.is_for_us", lambda *_: True)
        signal.raise_signal(signal.SIGUSR1)
        monkeypatch.setattr(os, "kill", refuse)
        assert os.waitstatus_to_exitcode(wait(child.pid, lambda ended: None)) == 7
    assert told == [(child.pid, signal.SIGUSR1)]
    child.returncode = 7


def test_who_is_meant(monkeypatch):
    names = {5: "slurmstepd", 6: "bash"}
    monkeypatch.setattr("deepprof.live.agent.running.read_name", lambda pid: names.get(pid, ""))
    child = 77
    assert is_for_us(info(pid=6), child)
    assert is_for_us(info(pid=0), child)  # from outside of the container
    assert is_for_us(info(code=-6, pid=6), child)  # tgkill
    assert not is_for_us(info(code=0x80, pid=0), child)  # the terminal's
    assert not is_for_us(info(pid=child), child)
    assert not is_for_us(info(pid=5), child)  # it shows the command by itself


def test_other_reasons_are_said_with_the_systems_words():
    error = explain("x", OSError(7, "Argument list too long"))
    assert (str(error), error.status) == ("x: Argument list too long", 126)


def test_no_core_of_ours_is_left(tmp_path):
    done = run("sh", "-c", "ulimit -c 0; kill -ABRT $$", cwd=tmp_path)
    assert done.returncode == -signal.SIGABRT
    assert list(tmp_path.iterdir()) == []
