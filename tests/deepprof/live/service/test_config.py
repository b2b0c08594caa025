"""The configuration: three layers, every key reachable, everything else refused in one line."""

from __future__ import annotations

import argparse
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepprof.collectors.errors import UsageError
from deepprof.commands import main
from deepprof.live.service.config import (
    Config,
    add_flags,
    describe_config,
    find_store,
    listen_addresses,
    load_config,
    read_flags,
)
from deepprof.live.service.config.conversion import convert
from deepprof.live.service.config.description import write_value
from deepprof.live.service.config.keys import keys
from deepprof.live.service.config.quantities import format_duration, format_nbytes, parse_duration, parse_nbytes
from deepprof.live.wire.limits import WireLimits

ROOT = Path(__file__).resolve().parents[4]

# A value of every key that is not its default and goes with the defaults of the others.
OTHERS = {
    "insecure": "true",
    "listen.addresses": "127.0.0.1:7600, unix:/tmp/a.sock",
    "listen.socket_mode": "0660",
    "listen.socket_group": "gpu",
    "listen.connections": "17",
    "metrics.address": "127.0.0.1:1",
    "metrics.exposed": "true",
    "metrics.hosts": "node7,gpu.example",
    "store.path": "/var/lib/deepprof",
    "tokens.file": "/etc/tokens",
    "tls.scopes": "ingest",
    "limits.message_nbytes": "1 MiB",
    "limits.batch_records": "10",
    "limits.names": "11",
    "limits.name_nbytes": "12",
    "limits.names_nbytes": "13 MiB",
    "limits.streams": "14",
    "limits.jobs": "15",
    "limits.ranks": "16",
    "limits.ranks_total": "16",
    "limits.queue_nbytes": "1 GiB",
    "limits.rank_queue_nbytes": "17 MiB",
    "limits.waiting_nbytes": "2 GiB",
    "journal.segment_nbytes": "32 MiB",
    "journal.total_nbytes": "1 GiB",
    "history.seal_after": "2h",
    "history.merge_contexts_after": "90min",
    "history.keep_for": "7d",
    "share.ranks": "2",
    "share.records_per_s": "3",
    "share.kept_nbytes": "4 MiB",
    "share.jobs": "a-*, b",
    "history.keep_nbytes": "1 GiB",
    "captures.count": "0",
    "captures.nbytes": "5 MiB",
    "examine.every": "90s",
    "examine.ranks": "2",
    "examine.timeout": "10s",
    "examine.memory_nbytes": "1 GiB",
    "exporter.series": "1000",
    "exporter.contexts": "5",
    "exporter.job_ttl": "3min",
    "exporter.model_flops": "a-*=3e15/989e12",
    "log.level": "debug",
    "log.format": "json",
}
WITH_OTHERS = {"tls.cert", "tls.key", "tls.client_ca", "tls.subjects"}  # which need each other


def refusal(
    file: Path | None = None, flags: dict[str, str] | None = None, environ: dict[str, str] | None = None
) -> str:
    """Return the one line with which a configuration is refused."""
    with pytest.raises(UsageError) as caught:
        load_config(file, flags, environ or {})
    line = str(caught.value)
    assert line.isprintable()
    assert len(line) < 600
    return line


def write(folder: Path, text: str) -> Path:
    path = folder / "serve.toml"
    path.write_text(text)
    return path


def value_of(config: Config, path: str) -> object:
    key = keys()[path]
    return getattr(getattr(config, key.section) if key.section else config, key.attribute)


def test_nothing_given_is_the_default() -> None:
    assert load_config(None, {}, {}) == Config()


def test_every_key_has_a_test_value() -> None:
    assert set(OTHERS) | WITH_OTHERS == set(keys())


@pytest.mark.parametrize("path", OTHERS)
def test_every_key_can_be_set_by_each_layer(path: str, tmp_path: Path) -> None:
    key = keys()[path]
    by_flag = load_config(None, {path: OTHERS[path]}, {})
    by_variable = load_config(None, {}, {key.variable: OTHERS[path]})
    value = value_of(by_flag, path)
    section = f"[{key.section}]\n" if key.section else ""
    by_file = load_config(write(tmp_path, f"{section}{key.name} = {write_value(key, value)}\n"), {}, {})
    assert value != key.default
    assert by_flag == by_variable == by_file


def test_flags_win_over_variables_and_these_over_the_file(tmp_path: Path) -> None:
    file = write(tmp_path, "[limits]\njobs = 1\nranks = 1\nstreams = 1\n")
    environ = {"DEEPPROF_SERVE_LIMITS_RANKS": "2", "DEEPPROF_SERVE_LIMITS_STREAMS": "2"}
    limits = load_config(file, {"limits.streams": "3"}, environ).limits
    assert (limits.jobs, limits.ranks, limits.streams) == (1, 2, 3)


def test_a_variable_names_the_file(tmp_path: Path) -> None:
    file = write(tmp_path, "[limits]\njobs = 7\n")
    assert load_config(None, {}, {"DEEPPROF_SERVE_CONFIG": str(file)}).limits.jobs == 7


def test_an_empty_variable_is_not_set() -> None:
    assert load_config(None, {}, {"DEEPPROF_SERVE_LIMITS_JOBS": ""}) == Config()


def test_units(tmp_path: Path) -> None:
    file = write(
        tmp_path, '[journal]\nsegment_nbytes = 33554432\n[history]\nkeep_for = "7 d"\n[examine]\nevery="1500ms"\n'
    )
    config = load_config(file, {}, {})
    assert config.journal.segment_nbytes == 32 << 20
    assert config.history.keep_for_ns == 7 * 86_400 * 10**9
    assert config.examine.every_ns == 1_500_000_000


def test_subjects_come_from_the_file(tmp_path: Path) -> None:
    text = '[tls]\ncert="c"\nkey="k"\nclient_ca="a"\n[tls.subjects]\n"node 7" = ["ingest"]\nops = ["read", "admin"]\n'
    config = load_config(write(tmp_path, text), {}, {})
    assert config.tls.subjects == {"node 7": ("ingest",), "ops": ("read", "admin")}


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("[limits]\njosb = 3", "serve.toml: limits.josb: no such key; did you mean limits.jobs?"),
        ("[limit]\njobs = 3", "serve.toml: limit: no such key; did you mean limits.jobs?"),
        ("qqqqqqqqqqqqqqq = 3", "serve.toml: qqqqqqqqqqqqqqq: no such key; --print-config lists them"),
        ("[limits]\njobs = 0", "serve.toml: limits.jobs: 0 is not a whole number from 1 to 100,000"),
        ("[limits]\njobs = true", "serve.toml: limits.jobs: True is not a whole number from 1 to 100,000"),
        ("[limits]\njobs = 2.5", "serve.toml: limits.jobs: 2.5 is not a whole number from 1 to 100,000"),
        ("limits = 3", "serve.toml: limits: is a section; write [limits] and its keys below"),
        (
            '[limits]\nmessage_nbytes = "16 MB"',
            "serve.toml: limits.message_nbytes: '16 MB' is not a size from 64 KiB to 64 MiB",
        ),
        (
            "[history]\nkeep_for = 30",
            "serve.toml: history.keep_for: 30 has no unit: write 30s, 30min, 30h or 30d, "
            "a time with its unit, in quotes, from 1min to 3650d",
        ),
        (
            '[history]\nkeep_for_ns = "30d"',
            "serve.toml: history.keep_for_ns: no such key; did you mean history.keep_for?",
        ),
        ('[log]\nlevel = "loud"', "serve.toml: log.level: 'loud' is not debug, info, warning or error"),
        ('insecure = "maybe"', "serve.toml: insecure: 'maybe' is not true or false"),
        ('[tls]\nscopes = ["all"]', "serve.toml: tls.scopes: 'all' is not a list of ingest, read, admin"),
        ("[tls]\nscopes = 3", "serve.toml: tls.scopes: 3 is not a list of ingest, read, admin"),
        ("[tls]\nsubjects = 3", "serve.toml: tls.subjects: 3 is not a table of names and lists of ingest, read, admin"),
        ('[store]\npath = "a\\u0000b"', "serve.toml: store.path: 'a\\x00b' is not text"),
        (
            f"[limits]\njobs = 0x{'f' * 5000}",
            "limits.jobs: a number of 20000 bits is not a whole number from 1 to 100,000",
        ),
    ],
)
def test_what_a_file_may_not_say(text: str, line: str, tmp_path: Path) -> None:
    assert refusal(write(tmp_path, text)).endswith(line)


@pytest.mark.parametrize(
    ("content", "problem"),
    [(b"a = \n", "is not TOML"), (b"\xff\xfe", "is not TOML"), (b"a=" + b"[" * 100_000, "is not TOML")],
)
def test_a_file_that_is_no_toml(content: bytes, problem: str, tmp_path: Path) -> None:
    file = tmp_path / "serve.toml"
    file.write_bytes(content)
    assert problem in refusal(file)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    assert "No such file" in refusal(tmp_path / "none.toml")
    assert "s a directory" in refusal(tmp_path)
    assert "null" in refusal(Path("a\0b"))
    (tmp_path / "large.toml").write_bytes(b"#" * ((1 << 20) + 1))
    assert "is larger than 1,048,576 bytes" in refusal(tmp_path / "large.toml")


def test_unknown_variables_and_flags() -> None:
    assert (
        refusal(environ={"DEEPPROF_SERVE_LIMITS_JOB": "3"})
        == "DEEPPROF_SERVE_LIMITS_JOB: no such variable; did you mean DEEPPROF_SERVE_LIMITS_JOBS?"
    )
    assert refusal(flags={"log.levle": "info"}) == "--set log.levle: no such key; did you mean log.level?"
    assert refusal(environ={"DEEPPROF_SERVE_LOG_LEVEL": "x"}).startswith("DEEPPROF_SERVE_LOG_LEVEL: 'x' is not")
    assert load_config(None, {}, {"DEEPPROF_JOBS": "4", "DEEPPROF_DAEMON": "x"}) == Config()  # others' variables


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (
            {"listen.addresses": ",".join(f"127.0.0.1:{port}" for port in range(1, 10))},
            "listen.addresses: 9 are too many",
        ),
        ({"tls.cert": "c"}, "cert and key belong together"),
        ({"tls.key": "k"}, "cert and key belong together"),
        ({"tls.client_ca": "a"}, "clients' certificates need TLS"),
        ({"limits.names_nbytes": "1 KiB"}, "limits.name_nbytes: one name cannot be larger"),
        ({"journal.segment_nbytes": "16 MiB"}, "must be larger than limits.message_nbytes"),
        ({"journal.total_nbytes": "255 MiB"}, "must be at least 256 MiB"),
        (
            {"limits.message_nbytes": "32 MiB", "limits.queue_nbytes": "16 MiB"},
            "must be at least limits.message_nbytes",
        ),
        (
            {"limits.queue_nbytes": "16 MiB", "limits.rank_queue_nbytes": "17 MiB"},
            "limits.rank_queue_nbytes: one rank cannot have more",
        ),
    ],
)
def test_keys_that_contradict_each_other(flags: dict[str, str], problem: str) -> None:
    assert problem in refusal(flags=flags)


def test_subjects_without_client_certificates(tmp_path: Path) -> None:
    assert "tls.subjects: names come from" in refusal(write(tmp_path, '[tls.subjects]\na = ["read"]\n'))


def parse(*words: str) -> dict[str, str]:
    parser = argparse.ArgumentParser()
    add_flags(parser)
    return read_flags(parser.parse_args(words))


def test_flags() -> None:
    assert parse() == {}
    assert parse(
        "--listen", "127.0.0.1:0", "--insecure", "--set", "history.keep_for=7d", "--set", "log.level=error"
    ) == {
        "listen.addresses": "127.0.0.1:0",
        "insecure": "true",
        "history.keep_for": "7d",
        "log.level": "error",
    }
    assert parse("--set", "log.level=error", "--log-level", "debug") == {"log.level": "debug"}
    assert load_config(None, parse("--metrics", "", "--store", "/x"), {}).metrics.address == ""
    with pytest.raises(SystemExit):
        parse("--set", "nothing")


def test_the_description_is_a_file_that_gives_the_same(tmp_path: Path) -> None:
    assert load_config(write(tmp_path, describe_config()), {}, {}) == Config()
    odd = load_config(None, OTHERS, {})
    assert load_config(write(tmp_path, describe_config(odd)), {}, {}) == odd


def test_the_description_names_every_key_in_its_section() -> None:
    content = tomllib.loads(describe_config())
    named = {
        f"{section}.{key}" if isinstance(value, dict) else section
        for section, value in content.items()
        for key in (value if isinstance(value, dict) else [section])
    }
    assert named == set(keys())


def test_the_page_lists_every_key() -> None:
    page = (ROOT / "docs" / "configuration.md").read_text()
    rows = [line.split("|")[1:4] for line in page.splitlines() if line.startswith("| `")]
    listed = {path.strip(" `"): (default.strip(" `"), text.strip()) for path, default, text in rows}
    wanted = {key.path: (write_value(key, key.default), key.description) for key in keys().values()}
    assert listed == wanted


def test_the_example_of_the_page_is_a_configuration(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "configuration.md").read_text()
    example = page.split("```toml\n")[1].split("```")[0]
    config = load_config(write(tmp_path, example), {}, {})
    assert config.history.keep_for_ns == 90 * 86_400 * 10**9
    assert len(listen_addresses(config, {})) == 2


def test_where_the_store_is(tmp_path: Path) -> None:
    assert find_store(load_config(None, {"store.path": "/x"}, {}), {"STATE_DIRECTORY": "/y"}) == Path("/x")
    assert find_store(Config(), {"STATE_DIRECTORY": "/y:/z", "XDG_STATE_HOME": "/s"}) == Path("/y")
    assert find_store(Config(), {"XDG_STATE_HOME": "/s"}) == Path("/s/deepprof/store")
    assert find_store(Config(), {}) == Path.home() / ".local/state/deepprof/store"


def test_where_to_listen() -> None:
    assert [str(a) for a in listen_addresses(Config(), {"XDG_RUNTIME_DIR": "/run/user/1"})] == [
        "unix:/run/user/1/deepprof/deepprof.sock"
    ]
    two = load_config(None, {"listen.addresses": "127.0.0.1:0,unix:/a"}, {})
    assert [str(a) for a in listen_addresses(two, {})] == ["127.0.0.1:0", "unix:/a"]
    with pytest.raises(UsageError):
        listen_addresses(load_config(None, {"listen.addresses": "nowhere"}, {}), {})


def test_what_the_wire_is_checked_against() -> None:
    limits = load_config(None, {"limits.names": "5", "limits.message_nbytes": "1 MiB"}, {}).wire_limits()
    assert (limits.names, limits.message_nbytes, limits.batch_records) == (5, 1 << 20, 65_536)
    assert Config().wire_limits() == WireLimits()


@given(st.integers(0, 10**12 - 1))
def test_quantities_come_back(value: int) -> None:
    assert parse_nbytes(format_nbytes(value)) == value
    assert parse_duration(format_duration(value * 10**6)) == value * 10**6


def loads_or_says_why(file: Path | None, flags: dict[str, str], environ: dict[str, str]) -> bool:
    try:
        return isinstance(load_config(file, flags, environ), Config)
    except UsageError as error:
        return str(error).isprintable() and len(str(error)) < 600


@given(st.text(), st.text(), st.sampled_from([*keys(), "x", "x.y"]))
def test_any_text_is_a_value_or_one_line(text: str, other: str, path: str) -> None:
    variable = keys()[path].variable if path in keys() else "DEEPPROF_SERVE_X"
    for flags, environ in (({path: text}, {}), ({}, {variable: text}), ({other: text}, {})):
        assert loads_or_says_why(None, flags, environ)


@given(st.binary() | st.text().map(str.encode) | st.sampled_from([*keys()]).map(lambda p: f"{p} = [1, {{}}]".encode()))
def test_any_file_is_a_configuration_or_one_line(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    file = tmp_path_factory.getbasetemp() / "any.toml"
    file.write_bytes(content)
    assert loads_or_says_why(file, {}, {})


def test_a_value_is_called_by_the_flag_that_stands_for_its_key():
    assert refusal(flags={"log.level": "loud"}).startswith("--log-level: 'loud' is not")
    assert refusal(flags={"history.keep_for": "long"}).startswith("--set history.keep_for: ")


def test_what_is_printed_is_what_would_hold(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(tmp_path, '[history]\nkeep_for = "9d"\n[limits]\njobs = 3\n')
    monkeypatch.setenv("DEEPPROF_SERVE_LIMITS_RANKS", "17")
    words = ["--config", str(file), "--set", "limits.jobs=4", "--metrics", "", "--print-config"]
    assert main(["serve", *words]) == 0
    content = tomllib.loads(capsys.readouterr().out)
    assert content["history"]["keep_for"] == "9d"
    assert (content["limits"]["jobs"], content["limits"]["ranks"]) == (4, 17)
    assert content["metrics"]["address"] == ""


@pytest.mark.parametrize("text", ["7", " 7 ", "007"])
def test_a_time_without_a_unit_is_refused_with_what_to_write(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--set", f"history.keep_for={text}", "--print-config"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "--set history.keep_for" in err
    assert "has no unit: write 7s, 7min, 7h or 7d" in err
    assert err.count("\n") == 1


def test_nothing_needs_no_unit_where_it_is_allowed() -> None:
    key = replace(keys()["history.keep_for"], low=0)
    assert [convert(key, raw) for raw in ("0", 0, "0s")] == [0, 0, 0]
    with pytest.raises(ValueError, match="has no unit"):
        convert(keys()["history.keep_for"], "0")
