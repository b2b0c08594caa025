"""`--range`, `--grid`, `--iterations FIRST:LAST` and `--layer`: every command that analyses a job takes them."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

from deepprof.collectors.errors import UsageError
from deepprof.commands import COMMANDS, Command, inputs, main
from deepprof.commands.arguments import NumberRange, parse_iterations, parse_numbers

GIVEN = ["--range", "a*", "--grid", "3:", "--iterations", "2:6", "--layer", "fc"]
SELECTED = {"range": "a*", "grid": (3, None), "iterations": (2, 6), "layer": "fc"}


class SelectedError(Exception):
    """Says what reached the analysis."""


def parser_of(kind: type[Command]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser()
    kind().prepare_parser(parser)
    return parser


ANALYSING = [kind for kind in COMMANDS if "--same-device" in parser_of(kind)._option_string_actions]


def test_the_commands_are_those_that_analyse() -> None:
    assert {"Diagnose", "Report", "Diff", "View", "Flame", "Export", "Roofline"} <= {
        each.__name__ for each in ANALYSING
    }


@pytest.mark.parametrize("kind", ANALYSING, ids=lambda kind: kind.__name__)
def test_every_command_that_analyses_a_job_analyses_the_part(
    kind: type[Command], recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reach(_: object, args: argparse.Namespace, *_more: object) -> None:
        raise SelectedError(inputs.find_selection(args))

    monkeypatch.setattr(inputs, "analyze_selected", reach)
    monkeypatch.setattr("deepprof.commands.tool.select_part", reach)
    parser = parser_of(kind)
    words = [str(recorded)] * (2 if kind.__name__ == "Diff" else 1)
    options = {"-o": str(tmp_path / "out"), "--to": "perfetto"}
    for action in parser._actions:
        if action.required and action.option_strings:
            words += [action.option_strings[0], options[action.option_strings[0]]]
    first = {"Locate": "longest", "RunTool": "kernel-frequency"}.get(kind.__name__)
    words = words if first is None else [first, *words]
    with pytest.raises(SelectedError) as found:
        kind().run(parser.parse_args([*words, *GIVEN]))
    assert found.value.args == (SELECTED,)


def test_a_part_is_shown_with_a_note_and_the_rest_is_counted(
    recorded: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["diagnose", str(recorded), "--iterations", "3:9", "--format", "json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["trace"]["notes"][0].startswith("only a part is looked at: iterations 3:9; ")
    counted = report["trace"]["accounting"]
    assert counted["read"] == counted["kept"] + sum(counted["dropped"].values())
    assert counted["dropped"]["not-selected"] > 0
    assert main(["diagnose", str(recorded), "--iterations", "3:9"]) == 0
    assert "only a part is looked at: iterations 3:9" in capsys.readouterr().out.replace("\n", " ").replace("  ", " ")


def test_counts_and_a_part_can_be_given_together(recorded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--iterations", "14", "--iterations", "3:9", "--format", "json"]
    assert main(["diagnose", str(recorded), *given]) == 0
    (loop,) = json.loads(capsys.readouterr().out)["loops"]
    assert len(loop["iterations"]) == 6


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["--range", "nothing"], "range 'nothing': there is none of this name; there are "),
        (["--iterations", "50:60"], "iterations 50:60: there is no such iteration; there are 0 to "),
        (["--iterations", "6:3"], "'6:3' holds nothing"),
        (["--grid", ":"], "':' is not FIRST:LAST"),
        (["--grid", "a:b"], "'a:b' is not FIRST:LAST"),
        (
            ["--layer", "a", "--cluster", "local"],
            "--layer is for traces that are read here; leave it out with --cluster",
        ),
        (["--iterations", "3:", "--cluster", "local"], "--iterations 3: is for traces that are read here"),
    ],
)
def test_what_selects_nothing_is_one_line(
    recorded: Path, capsys: pytest.CaptureFixture[str], given: list[str], told: str
) -> None:
    assert main(["diagnose", str(recorded), *given]) == 2
    shown = capsys.readouterr()
    assert told in shown.err
    assert (shown.out, shown.err.count("\n")) == ("", 1)


@pytest.mark.parametrize(
    ("text", "value"),
    [("3:7", (3, 7)), (":7", (None, 7)), ("0:", (0, None)), ("5", (5,)), ("5,6", (5, 6))],
)
def test_a_colon_tells_which_from_how_many(text: str, value: Any) -> None:
    found = parse_iterations(text)
    assert found == value
    assert isinstance(found, NumberRange) == (":" in text)


@pytest.mark.parametrize("text", ["", "3", "-1:3", "3:3", "3:2", "1:2:3", "٣:٤", "1:" + "9" * 10])
def test_other_numbers_are_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        parse_numbers(text)


def test_the_cluster_reads_elsewhere() -> None:
    args = argparse.Namespace(range=None, grid=None, chosen=None, layer=None)
    inputs.refuse_selection(args, "traces")
    args.grid = NumberRange(1, 2)
    with pytest.raises(UsageError, match="--grid is for traces"):
        inputs.refuse_selection(args, "traces")
