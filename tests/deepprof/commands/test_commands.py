"""The command line: what it prints, where, and the exit code."""

import io
import json
import os
import subprocess
import sys
import warnings

import pytest

from deepprof import commands
from deepprof.commands import diagnose, inputs, main
from deepprof.simulation import simulate, write
from deepprof.version import read_version
from tests.deepprof.builders import build_analysis, build_finding
from tests.patience import PATIENCE_S
from tests.widening import slow_unless

SEVERITIES = ("info", "warning", "critical")


@pytest.fixture(scope="module")
def capture(tmp_path_factory):
    """A trace whose graph grows."""
    path = tmp_path_factory.mktemp("job") / "growing.json.gz"
    write(simulate("graph-growth", iterations=14), path)
    return str(path)


@pytest.fixture(scope="module")
def short(tmp_path_factory):
    """A trace for tests that examine where the report goes, not at what it states."""
    path = tmp_path_factory.mktemp("job") / "short.json.gz"
    write(simulate("healthy", iterations=3), path)
    return str(path)


@pytest.fixture
def diagnosed(monkeypatch):
    """Makes `diagnose` see a finished analysis, whatever the path."""

    def prepare(**changes):
        monkeypatch.setattr(diagnose, "analyze_paths", lambda args, **_: build_analysis(**changes))

    prepare()
    return prepare


def call(*argv, **options):
    """The command line in its own process."""
    command = [sys.executable, "-m", "deepprof", *argv]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False, **options)


def complaint(capsys, *argv):
    """The one line on stderr of a call that must exit with 2."""
    assert main(argv) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("deepprof: ")
    assert err.count("\n") == 1
    return err


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ([], "COMMAND"),
        (["frobnicate"], "invalid choice: 'frobnicate'"),
        (["diagnose"], "PATH"),
        (["diagnose", "x", "--colour"], "unrecognized arguments: --colour"),
        (["diagnose", "x", "--form", "json"], "unrecognized arguments: --form"),
        (["diagnose", "x", "--format", "html"], "invalid choice: 'html'"),
        (["diagnose", "x", "--iterations", "3,0"], "'0' is not a whole number of at least 1"),
        (["diagnose", "x", "--iterations", "3,,4"], "'' is not"),
        (["diagnose", "x", "--stream", "7"], "'7' is not DEVICE:STREAM"),
        (["diagnose", "x", "--stream", "0:-7"], "is not DEVICE:STREAM"),
        (["diagnose", "x", "--stream", "65536:7"], "a device is below 65536"),
        (["diagnose", "x", "--stream", f"0:{1 << 63}"], "a stream below 2**63"),
        (["diagnose", "x", "--stream", "0:" + "9" * 4200], "'0:99999"),
        (["diagnose", "x", "--stream", "0:\u0667"], "is not DEVICE:STREAM"),
        (["diagnose", "x", "--stream=-1:7"], "a device is not negative"),
        (["diagnose", "x", "--iterations", "9" * 5000], "9 digits at most"),
        (["diagnose", "x", "--iterations", "\u0663"], "is not a whole number"),
        (["diagnose", "x", "--iterations", "³"], "is not a whole number"),
        (["diagnose", "x", "--format", "j" * 5000], "(choose from"),
        (["diagnose", "x", "--" + "j" * 5000], "unrecognized arguments: --jjj"),
        (["diagnose", "x", *["-j"] * 5000], "unrecognized arguments: -j -j"),
        (["diagnose", "x", "--format", "j " * 5000], "(choose from"),
        (["j" * 5000], "invalid choice: 'jjj"),
        (["diagnose", ""], "names nothing"),
        (["diagnose", "x", "-o", ""], "-o names no file"),
        (["simulate", "healthy", "-o", ""], "-o names no file"),
        (["simulate", "healthy", "-o", "-"], "-o names no file"),
        (["diagnose", "x", "--fail-on", "never"], "invalid choice: 'never'"),
        (["simulate", "healthy"], "-o"),
        (["simulate", "sick", "-o", "x.json"], "invalid choice: 'sick'"),
        (["simulate", "healthy", "-o", "x.json", "--iterations", "-1"], "-1"),
        (["simulate", "healthy", "-o", "x.json", "--iterations", "1000000"], "at most 5000"),
        (["simulate", "healthy", "-o", "x.json", "--seed", "lucky"], "'lucky' is not a whole number"),
        (["simulate", "healthy", "-o", "x.json", "--seed", "9" * 5000], "is not a whole number"),
    ],
    ids=lambda value: None if isinstance(value, str) else " ".join(value)[:40],
)
def test_wrong_usage_is_one_line_and_exit_2(capsys, argv, words):
    said = complaint(capsys, *argv)
    assert words in said
    assert len(said) < 350


def test_wrong_usage_says_where_the_help_is(capsys):
    assert complaint(capsys, "diagnose", "x", "--stream", "7").endswith("see deepprof diagnose --help\n")


def test_input_that_cannot_be_read_is_one_line_that_names_it(capsys, tmp_path):
    text = tmp_path / "notes.txt"
    text.write_text("no trace")
    for path in (tmp_path / "absent.json", text, tmp_path):
        assert str(path) in complaint(capsys, "diagnose", str(path))
    assert "no file matches" in complaint(capsys, "diagnose", f"{tmp_path}/*.sqlite")


@pytest.mark.parametrize("command", [["diagnose", "x"], ["simulate", "healthy"]])
def test_an_output_that_has_no_place_is_told_before_any_work(capsys, monkeypatch, tmp_path, command):
    monkeypatch.setattr(diagnose, "analyze_paths", lambda args, **_: pytest.fail("worked first"))
    assert "there is no directory" in complaint(capsys, *command, "-o", f"{tmp_path}/absent/report")
    assert "is a directory" in complaint(capsys, *command, "-o", str(tmp_path))


def test_a_loop_of_links_is_one_line(capsys, tmp_path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    assert "links lead back to themselves" in complaint(capsys, "diagnose", "x", "-o", f"{tmp_path}/a")
    assert f"{tmp_path}/a" in complaint(capsys, "diagnose", "x", "-o", f"{tmp_path}/a/report")
    assert f"{tmp_path}/a" in complaint(capsys, "diagnose", f"{tmp_path}/a")
    assert "holds no trace" in complaint(capsys, "diagnose", str(tmp_path))


def test_a_null_byte_in_a_path_is_one_line(capsys):
    complaint(capsys, "diagnose", "a\0b")
    complaint(capsys, "diagnose", "x", "-o", "a\0b")


@pytest.mark.parametrize(
    "argv", [["no\x1b[31mpe\u202e"], ["x", "-o", "no\x1b[31mpe\u202e/report"], ["x", "--\x1b\u202e"]]
)
def test_a_message_holds_nothing_that_a_terminal_obeys(capsys, argv):
    assert complaint(capsys, "diagnose", *argv).removesuffix("\n").isprintable()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_stderr_that_is_full_leaves_the_exit_code(tmp_path, unbuffered):
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    written = ["simulate", "healthy", "--iterations", "2", "-o", str(tmp_path / "job.json")]
    for argv, code in ((["diagnose", "nope"], 2), (written, 0)):
        with open("/dev/full", "w") as full:
            command = [sys.executable, "-m", "deepprof", *argv]
            done = subprocess.run(command, stderr=full, timeout=PATIENCE_S, check=False, env=environment)
        assert done.returncode == code


def test_a_closed_stderr_leaves_stdout_alone():
    command = ["/bin/sh", "-c", '"$0" -m deepprof diagnose nope 2>&-', sys.executable]
    done = subprocess.run(command, stdout=subprocess.PIPE, timeout=PATIENCE_S, check=False)
    assert (done.returncode, done.stdout) == (2, b"")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("option", ["--help", "--version"])
def test_help_into_a_full_stdout_is_one_line(option, unbuffered):
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    command = [sys.executable, "-m", "deepprof", option]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False, env=environment)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)


@pytest.mark.parametrize("columns", ["0", "1", "9" * 5000, "²"])
def test_any_columns_print_the_report(capsys, diagnosed, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    assert main(["diagnose", "x"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "kernels on stream 7" in " ".join(out.split())


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_a_full_disk_is_one_line(capsys, diagnosed):
    assert "No space left on device" in complaint(capsys, "diagnose", "x", "-o", "/dev/full")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_a_full_stdout_is_one_line(short):
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "deepprof", "diagnose", short]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=PATIENCE_S, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "No space left on device" in done.stderr


def test_a_bug_keeps_its_traceback(monkeypatch):
    monkeypatch.setattr(diagnose, "analyze_paths", lambda args, **_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        main(["diagnose", "x"])


def test_an_interrupt_is_130(monkeypatch):
    def interrupt(args, **_):
        raise KeyboardInterrupt

    monkeypatch.setattr(diagnose, "analyze_paths", interrupt)
    assert main(["diagnose", "x"]) == 130


def test_a_warning_is_one_line(capsys, monkeypatch):
    def warn(args, **_):
        warnings.warn("a plug-in\ndoes not load", stacklevel=1)
        return build_analysis()

    monkeypatch.setattr(diagnose, "analyze_paths", warn)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        assert main(["diagnose", "x"]) == 0
    assert capsys.readouterr().err == "deepprof: warning: a plug-in does not load\n"


@pytest.mark.parametrize(("encoding", "plain"), [("ascii", True), ("utf-8", False)])
def test_progress_is_what_the_terminal_can_show(monkeypatch, encoding, plain):
    shown = io.BytesIO()
    terminal = io.TextIOWrapper(shown, encoding=encoding, errors="backslashreplace")
    terminal.isatty = lambda: True
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", terminal)
    with inputs.progress("reading"):
        pass
    terminal.flush()
    assert b"reading" in shown.getvalue()
    assert b"\\u" not in shown.getvalue()
    assert shown.getvalue().isascii() == plain


def test_json_goes_to_stdout_alone(capsysbinary, diagnosed):
    assert main(["diagnose", "x", "--format", "json"]) == 0
    out, err = capsysbinary.readouterr()
    assert json.loads(out)["schema"] == "deepprof.report/1"
    assert err == b""


def test_all_shows_every_finding(capsysbinary, diagnosed):
    diagnosed(findings=tuple(build_finding(rule=f"rule-{k}") for k in range(7)))
    for extra, expected in (([], 5), (["--all"], 7)):
        main(["diagnose", "x", "--format", "json", *extra])
        assert len(json.loads(capsysbinary.readouterr().out)["findings"]) == expected


@pytest.mark.parametrize("worst", SEVERITIES)
@pytest.mark.parametrize("threshold", SEVERITIES)
def test_fail_on_is_met_by_its_severity_and_above(capsys, diagnosed, worst, threshold):
    diagnosed(findings=(build_finding(severity="info"), build_finding(severity=worst)))
    expected = int(SEVERITIES.index(worst) >= SEVERITIES.index(threshold))
    assert main(["diagnose", "x", "--fail-on", threshold]) == expected


def test_fail_on_counts_findings_that_are_not_shown(capsys, diagnosed):
    diagnosed(findings=(*[build_finding(severity="info")] * 5, build_finding(severity="critical")))
    assert main(["diagnose", "x", "--fail-on", "critical"]) == 1
    error = capsys.readouterr().err
    assert "deepprof: --fail-on critical: 1 finding. A " in error, "the answer of the report follows"
    assert "The largest avoidable loss: " in error


def test_without_findings_fail_on_is_never_met(capsys, diagnosed):
    diagnosed(findings=())
    assert main(["diagnose", "x", "--fail-on", "info"]) == 0


def test_fail_on_says_when_there_was_no_iteration_to_fail_on(capsys, diagnosed):
    diagnosed(findings=(), loops=())
    assert main(["diagnose", "x", "--fail-on", "info"]) == 0
    assert "--fail-on: no iteration was found" in capsys.readouterr().err


def test_a_command_that_is_nearly_one_is_suggested(capsys):
    assert main(["diagnoze", "x"]) == 2
    assert "did you mean diagnose?" in capsys.readouterr().err


def test_output_replaces_a_file_whole_and_keeps_its_mode(capsys, diagnosed, tmp_path):
    target = tmp_path / "report.txt"
    target.write_text("old" * 10_000)
    target.chmod(0o640)
    assert main(["diagnose", "x", "-o", str(target)]) == 0
    assert "1 iteration = 335 kernels" in target.read_text(encoding="utf-8")
    assert "old" not in target.read_text(encoding="utf-8")
    assert target.stat().st_mode & 0o777 == 0o640
    assert [path.name for path in tmp_path.iterdir()] == ["report.txt"]
    assert capsys.readouterr().out == ""


def test_a_dash_is_stdout(capsysbinary, diagnosed, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["diagnose", "x", "--format", "json", "-o", "-"]) == 0
    assert json.loads(capsysbinary.readouterr().out)["loops"]
    assert not list(tmp_path.iterdir())


def test_text_that_stdout_cannot_show_is_replaced(short, tmp_path):
    named = tmp_path / "größe.json.gz"
    os.link(short, named)
    done = call("diagnose", str(named), env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert (done.returncode, done.stderr) == (0, "")
    assert "gr??e.json.gz" in done.stdout.replace("\n", "")


def test_json_is_utf_8_whatever_stdout_says(short, tmp_path):
    named = tmp_path / "größe.json.gz"
    os.link(short, named)
    done = subprocess.run(
        [sys.executable, "-m", "deepprof", "diagnose", str(named), "--format", "json"],
        capture_output=True,
        timeout=PATIENCE_S,
        check=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )
    assert json.loads(done.stdout.decode("utf-8"))["trace"]["paths"] == [str(named)]


@pytest.mark.parametrize("kind", slow_unless(lambda kind: kind == "text", ["text", "json"]))
def test_a_pipe_that_closes_early_is_quiet(short, kind):
    """As in `deepprof diagnose … | head -1`, with a reader that is gone before the first byte."""
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "deepprof", "diagnose", short, "--format", kind]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, timeout=PATIENCE_S, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


def test_a_closed_stdout_is_one_line(short):
    done = subprocess.run(
        ["/bin/sh", "-c", '"$0" -m deepprof diagnose "$1" >&-', sys.executable, short],
        stderr=subprocess.PIPE,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (2, "deepprof: stdout is closed; write to a file with -o FILE\n")


@pytest.mark.parametrize("argv", [["--help"], ["diagnose", "--help"], ["simulate", "--help"], ["--version"]])
def test_help_loads_nothing_heavy_and_is_ascii(argv):
    heavy = "[m for m in ('polars', 'rich', 'numpy', 'msgspec', 'deepprof.simulation') if m in sys.modules]"
    code = f"import sys\nfrom deepprof.commands import main\nprint(main({argv}), {heavy}, file=sys.stderr)"
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stderr == "0 []\n"
    assert done.stdout


def test_help_lists_every_command(capsys):
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    listed = (
        "accesses agent convert diagnose diff doctor export flame fsck jobs kernels layers locate model "
        "peak report roofline run send serve simulate tool view watch"
    )
    names = {getattr(kind, "command", kind.__name__.lower()) for kind in commands.COMMANDS}
    assert names == set(listed.split())
    assert all(f"\n    {name} " in out for name in names)


def test_help_into_a_closed_pipe_is_quiet():
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "deepprof", "--help"]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, timeout=PATIENCE_S, check=False)
    os.close(writer)
    assert done.stderr == b""
    assert done.returncode == 141


def test_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"deepprof {read_version()}\n"


def test_the_growing_graph_is_found_end_to_end(capture):
    done = call("diagnose", capture, "--format", "json", "--fail-on", "warning")
    document = json.loads(done.stdout)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert document["headline"]["text"][0].split(".")[0] in done.stderr
    assert document["findings"][0]["rule"] == "graph-growth"
    accounting = document["trace"]["accounting"]
    assert accounting["read"] == accounting["kept"] + sum(accounting["dropped"].values())


@pytest.mark.parametrize("argv", [["--stream", "0:7"], ["--iterations", "15"]])
def test_the_main_stream_and_the_count_can_be_given(capture, capsys, argv):
    assert main(["diagnose", capture, "--format", "json", *argv]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert json.loads(out)["loops"][0]["stream"] == 7


def test_the_report_names_the_iteration(capture):
    done = call("diagnose", capture)
    assert done.returncode == 0
    assert "1 iteration = 33" in done.stdout
    assert "graph-growth" in done.stdout
    assert "\x1b" not in done.stdout
