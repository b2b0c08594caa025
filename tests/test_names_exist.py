"""What documents, docstrings and comments name exists: every path, every file and every dotted name of ours."""

from __future__ import annotations

import importlib
import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TRACKED = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
FILES = [file for file in TRACKED if file and (ROOT / file).is_file()]
HOMES = {file.split("/")[0] for file in FILES if "/" in file}
OURS = r"(?:deepprof|collectors|mining|metrics|benchmarks|tests)"
DOTTED = re.compile(rf"^{OURS}(?:\.[A-Za-z_]\w*)+$")
PATH = re.compile(r"^[\w.-]+(?:/[\w.*-]+)+/?$")
FILE = re.compile(r"^(?:[\w-]+/)*[\w-]+\.(?:py|pyi|c|h|proto)$")
CODE = re.compile(r"`([^`\n]+)`")
NOT_NAMES = {  # files, formats, entry points and settings that are called alike
    "deepprof.conf",
    "deepprof.importers",
    "deepprof.kernels",
    "deepprof.json",
    "deepprof.rules",
    "deepprof.service",
    "deepprof.sock",
    "deepprof.toml",
    "deepprof.xplane",
    "metrics.address",
    "metrics.annotations",
    "metrics.exposed",
    "metrics.hosts",
}
ELSEWHERE = {"cuda.h", "cupti.h", "cupti_activity.h", "cupti_callbacks.h", "metrics.py", "rpd2tracing.py", "train.py"}
"""Files of users and of other tools."""
PLACEHOLDER = re.compile(r"(?:^|/)[A-Z]+(?:-[A-Z]+)*(?:[./]|$)")


def texts(file: str) -> str:
    """Return what is written for people: a document, or the strings and comments of a module."""
    content = (ROOT / file).read_text()
    if file.endswith(".md"):
        return content
    tokens = tokenize.generate_tokens(io.StringIO(content).readline)
    prose = [each.string for each in tokens if each.type in (tokenize.STRING, tokenize.COMMENT)]
    return "\n".join(each for each in prose if each.startswith(('"""', "#")))


def exists(name: str, file: str) -> bool:
    """Whether a name leads to something, seen from the file that it is in."""
    if PLACEHOLDER.search(name) or name in ELSEWHERE:
        return True
    if DOTTED.match(name):
        return name in NOT_NAMES or resolves(name)
    if FILE.match(name):
        return any(f"/{each}".endswith(f"/{name}") for each in FILES)
    if PATH.match(name) and name.split("/", maxsplit=1)[0] in HOMES:
        return any(ROOT.glob(name.rstrip("/"))) or any((ROOT / file).parent.glob(name.rstrip("/")))
    return True


def resolves(name: str) -> bool:
    """Whether a dotted name is a module, or something in one."""
    parts = name.split(".")
    parts = parts if parts[0] in ("deepprof", "tests", "benchmarks") else ["deepprof", *parts]
    if (ROOT / "/".join(parts)).with_suffix(".py").is_file():
        return True  # also one whose imports are not installed
    for count in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:count]))
        except ModuleNotFoundError:
            continue
        for part in parts[count:]:
            if not hasattr(found, part) and part not in getattr(found, "__annotations__", {}):
                return False
            found = getattr(found, part, None)
        return True
    return False


def missing(file: str) -> Iterator[str]:
    for code in CODE.findall(texts(file)):
        name = code.strip().removesuffix("()").split("::")[0].split("#")[0]
        if not exists(name, file):
            yield name


DOCUMENTS = [file for file in FILES if file.endswith(".md")]
PACKAGES = sorted({file.rsplit("/", 1)[0] for file in FILES if file.endswith(".py") and "/v1/" not in file})


@pytest.mark.parametrize("document", DOCUMENTS)
def test_what_a_document_names_exists(document: str) -> None:
    assert list(missing(document)) == []


@pytest.mark.parametrize("package", PACKAGES)
def test_what_docstrings_and_comments_name_exists(package: str) -> None:
    modules = [file for file in FILES if file.endswith(".py") and file.rsplit("/", 1)[0] == package]
    assert {file: found for file in modules if (found := list(missing(file)))} == {}


def test_names_that_do_not_exist_are_found(tmp_path: Path) -> None:
    wrong = ["deepprof.nothing", "deepprof.analysis.nobody", "collectors/importers/nothing.py", "no_such.py"]
    assert [name for name in wrong if not exists(name, "README.md")] == wrong
    right = ["deepprof.analyze", "metrics.spans.union", "mining/online/miner.py", "native.c", "a/b", "docs/*.md"]
    assert [name for name in right if exists(name, "README.md")] == right
