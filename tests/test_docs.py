"""The documents are true: their commands print what they show, their Python runs, their links lead somewhere."""

from __future__ import annotations

import doctest
import re
import shlex
from pathlib import Path

import pytest

import deepprof.mining
from deepprof.commands import main

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = [
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    *(str(p.relative_to(ROOT)) for p in sorted((ROOT / "docs").rglob("*.md"))),
]
README = (ROOT / "README.md").read_text()
EXAMPLES = README + "".join(
    (ROOT / "docs" / name).read_text()
    for name in (
        "examples.md",
        "contexts.md",
        "anatomy.md",
        "roofline.md",
        "tools.md",
        "memory.md",
        "ranges.md",
        "kernels.md",
    )
)


def blocks(language: str) -> list[str]:
    """Return the fenced blocks of one language in the README and on the pages that are made of examples."""
    return re.findall(rf"^```{language}\n(.*?)^```$", EXAMPLES, re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with the job of `make demo`, and one that keeps memory."""
    folder = tmp_path_factory.mktemp("demo")
    for scenario, name in (("graph-growth", "demo"), ("memory-growth", "leak")):
        assert main(["simulate", scenario, "-o", str(folder / f"{name}.json.gz")]) == 0
    return folder


@pytest.fixture
def folders(demo: Path, traces: Path, tmp_path: Path) -> dict[str, Path]:
    """Return where a command that names a file runs: one directory has the layers of a model next to its trace.

    Files in docs/ are named as from a clone.
    """
    name = "tb-resnet50-nw0"
    (tmp_path / name).symlink_to(traces / name)
    (tmp_path / "resnet50.layers.json").symlink_to(ROOT / "docs" / "resnet50.layers.json")
    return {"docs/": ROOT, "demo.json.gz": demo, "leak.json.gz": demo, ".layers.json": tmp_path, "": traces}


@pytest.mark.parametrize("block", blocks("console"), ids=lambda b: b.splitlines()[0][2:60])
def test_commands_print_what_the_documents_show(
    block: str, folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command, expected = block.split("\n", 1)
    name, *words = shlex.split(command.removeprefix("$ "))
    monkeypatch.chdir(next(folder for name, folder in folders.items() if name in command))
    monkeypatch.setenv("COLUMNS", "80")
    assert (name, main(words)) == ("deepprof", 0)
    assert capsys.readouterr().out.rstrip() == expected.rstrip()


@pytest.mark.parametrize("code", blocks("python"))
def test_python_examples_run(code: str, demo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(demo)
    exec(compile(code, "README.md", "exec"), {})  # noqa: S102 - our own document


def test_the_example_of_the_miner_holds() -> None:
    assert doctest.testmod(deepprof.mining, raise_on_error=True).attempted == 4


def test_the_examples_of_the_mining_page_hold() -> None:
    assert doctest.testfile(str(ROOT / "docs" / "mining.md"), module_relative=False, raise_on_error=True).attempted > 10


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_lead_somewhere(document: str) -> None:
    path = ROOT / document
    for target in re.findall(r"\]\(([^)#]+)", path.read_text()):
        if "://" not in target:
            assert (path.parent / target).exists(), target


def test_every_test_that_the_page_on_hardware_names_exists() -> None:
    named = set(re.findall(r"`(test_\w+)`", (ROOT / "docs" / "hardware.md").read_text()))
    sources = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    assert len(named) > 30
    assert not named - set(re.findall(r"^def (test_\w+)", sources, re.MULTILINE))


def test_make_targets_of_the_readme_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"`?make ([a-z]+)", README):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE) or target == "and", target
