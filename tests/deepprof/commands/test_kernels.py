"""`deepprof kernels`: kernels by time, and lines for those that no table has."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import msgspec
import polars as pl
import pytest

from deepprof.commands import main
from deepprof.metrics.kernels.name_kinds import classify_names
from deepprof.metrics.kernels.pattern_tables import PatternTable, list_tables, read_table
from deepprof.metrics.kernels.totals import KERNEL_TIMES, sum_kernels
from deepprof.render.kernel_list import write_lines, write_stub
from tests.tables import event, make_trace

PAGE = Path(__file__).resolve().parents[3] / "docs" / "kernels.md"
NAMES = ["ampere_sgemm_128x64_tn", "gate_v2(float*)", 'odd "name" \\ 7\t\x7f', "some_collective_step"]
SPANS = [(0, 0, 500), (1, 500, 700), (0, 700, 900), (2, 900, 950), (3, 950, 1000)]


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """Return a trace with a product of 700 ns, and shorter kernels that no table has."""
    events = [
        {"ph": "X", "cat": "kernel", "name": NAMES[name], "pid": 0, "tid": 7, "ts": start, "dur": end - start}
        | {"args": {"device": 0, "stream": 7, "correlation": place}}
        for place, (name, start, end) in enumerate(SPANS, 1)
    ]
    path = tmp_path / "job.json"
    path.write_text(json.dumps({"traceEvents": events, "deviceProperties": [{"id": 0, "name": "A100"}]}))
    return path


def run(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    assert main(["kernels", *map(str, words)]) == 0
    return capsys.readouterr().out


def test_kernels_of_all_ranks_add_up() -> None:
    trace = make_trace([event(*span) for span in SPANS], names=NAMES)
    found = sum_kernels([trace, trace])
    assert dict(found.schema) == dict(KERNEL_TIMES)
    assert found.select("name", "calls", "time_ns").rows() == [
        (NAMES[0], 4, 1400),
        (NAMES[1], 2, 400),
        (NAMES[2], 2, 100),
        (NAMES[3], 2, 100),
    ]
    assert found["share_ratio"].to_list() == pytest.approx([0.7, 0.2, 0.05, 0.05])
    assert sum_kernels([make_trace()]).height == 0
    assert sum_kernels([make_trace([event(0, 5, 5)])])["share_ratio"].to_list() == [0.0]


def test_text_has_the_kernels_with_most_time(capsys, recording: Path, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    lines = run(capsys, recording, "--top", 2).splitlines()
    assert lines[0].split() == ["calls", "time", "share", "category", "precision", "unit", "library"]
    assert lines[1].split() == [NAMES[0], "2", "700", "µs", "70.0", "%", "matmul", "fp32", "ordinary", "cuBLAS"]
    assert lines[2].split()[-4:] == ["custom?", "-", "-", "-"]
    assert lines[3] == "2 more kernels; --top 4 shows all"


def test_json_has_all_kernels(capsys, recording: Path) -> None:
    found = json.loads(run(capsys, recording, "--format", "json"))
    assert (found["schema"], found["ranks"]) == ("deepprof.kernel_list/1", 1)
    assert [row["name"] for row in found["kernels"]][:2] == NAMES[:2]
    assert set(found["kernels"][0]) == set(KERNEL_TIMES)
    assert len(json.loads(run(capsys, recording, "--format", "json", "--top", 1))["kernels"]) == 1


def test_lines_for_unknown_kernels_can_be_pasted_into_a_table(capsys, recording: Path, tmp_path: Path) -> None:
    lines = run(capsys, recording, "--unknown")
    assert NAMES[0] not in lines
    assert "# 200 µs in 1 call" in lines.splitlines()[0]
    path = tmp_path / "mine.toml"
    path.write_text(f'schema = "deepprof.kernels/1"\nlibrary = "mine"\npriority = 1\npatterns = [\n{lines}]\n')
    mine = read_table(path)
    assert [pattern.example for pattern in mine.patterns] == [NAMES[1], NAMES[2], NAMES[3]]
    assert classify_names(pl.Series(NAMES[1:]), [mine])["library"].to_list() == ["mine"] * 3


def test_nothing_unknown_is_said(capsys, tmp_path: Path) -> None:
    assert write_lines([]) == "# All kernels are in a table of patterns\n"
    path = tmp_path / "none.json"
    path.write_text(
        '{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 1, "tid": 1, "ts": 1, "dur": 1}]}'
    )
    assert run(capsys, path) == "No kernel was recorded\n"


@pytest.mark.parametrize(
    ("name", "stub"),
    [
        ("void mine::kernel_12<float, 4>(float*)", r"mine::kernel_\d+"),
        ("gate.v2", r"gate\.v\d+"),
        ("(anonymous namespace)::f()", r"\("),
        ("a+b", r"a\+b"),
    ],
)
def test_a_stub_is_the_beginning_of_a_name(name: str, stub: str) -> None:
    assert write_stub(name) == stub
    assert pl.Series([name]).str.contains(stub)[0]


def test_the_table_of_the_page_is_valid(tmp_path: Path) -> None:
    blocks = [part.split("```")[0] for part in PAGE.read_text().split("```toml\n")[1:]]
    (table,) = (block for block in blocks if block.startswith("schema"))
    path = tmp_path / "page.toml"
    path.write_text(table)
    found = read_table(path)
    examples = pl.Series([pattern.example for pattern in found.patterns])
    assert classify_names(examples, [found]).select("category", "precision", "unit").rows() == [
        ("elementwise", None, None),
        ("matmul", "bf16", "tensor_core"),
    ]
    assert isinstance(msgspec.convert(tomllib.loads(table), PatternTable), PatternTable)


def test_the_page_has_every_category() -> None:
    page = PAGE.read_text()
    categories = {pattern.category for table in list_tables() for pattern in table.patterns}
    assert [category for category in categories if f"`{category}`" not in page] == []
