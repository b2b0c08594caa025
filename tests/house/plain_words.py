"""Words that are more frequent than in any peer: each is a sign of a dialect that a reader has to learn first.

Peers are httpx, pyinstrument, memray, HolisticTraceAnalysis, distributed and ibis. Their frequencies, of November 2026,
are of docstrings and comments; here string literals and the names of functions and variables count as well.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from tests.house.source import FOLDERS, GENERATED, ROOT

# Words of one meaning, and the most frequent peer, per 10,000 words; 0.5 where no peer has them.
PEERS: Mapping[tuple[str, ...], float] = {
    ("whose",): 6,
    ("says", "say", "said"): 0.5,
    ("tell", "tells", "told"): 1,
    ("ask", "asks", "asked"): 4,
    ("hear", "hears", "heard"): 0.5,
    ("look", "looks", "looked"): 5,
    ("takes", "take", "took"): 8,
    ("known", "knows"): 4,
    ("holds", "held"): 5.5,
    ("beside",): 0.5,
    ("stands", "stand"): 0.5,
    ("lies", "lie", "lied"): 0.5,
    ("nobody", "somebody"): 0.5,
    ("bears", "bear"): 0.5,
    ("wanted", "wants"): 6,
    ("so many", "so much"): 1,
    ("of its own", "of their own"): 2,
    ("let go",): 0.5,
    ("given out",): 0.5,
    ("roster",): 0.5,
    ("books",): 1,
    ("reckon", "reckons"): 0.5,
    ("stretch", "stretches"): 0.5,
    ("twin", "twins"): 0.5,
    ("seen",): 6,
    ("each",): 40,
    ("goes", "came", "comes"): 8,
    ("honest",): 0.5,
    ("patience",): 0.5,
    ("stranger", "strangers"): 0.5,
    ("courier",): 0.5,
    ("whereabouts",): 0.5,
}
PARTS = {"product": FOLDERS, "documents": ("docs", "."), "tests": ("tests",)}
SPLIT = re.compile(r"[^a-z0-9'`-]+")
FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)


def count_frequent(root: Path = ROOT) -> dict[str, int]:
    """Return how many entries of `PEERS` are more frequent than in any peer, by part of the repository."""
    return {f"house words of {part}": len(find_frequent(_read_part(root, part))) for part in PARTS}


def find_frequent(texts: Iterable[str]) -> dict[str, float]:
    """Return what is more frequent than in any peer, with its frequency per 10,000 words."""
    counts: Counter[str] = Counter()
    for text in texts:
        words = [word for word in SPLIT.split(text.lower().replace("_", " ")) if word]
        counts.update(words)
        for size in (2, 3):
            counts.update(" ".join(words[at : at + size]) for at in range(len(words) - size + 1))
    total = max(1, sum(count for word, count in counts.items() if " " not in word))
    rates = {words: 1e4 * sum(counts[word] for word in words) / total for words in PEERS}
    return {" ".join(words): rate for words, rate in rates.items() if rate > PEERS[words]}


def _read_part(root: Path, part: str) -> Iterator[str]:
    for path in _list_files(root, part):
        text = path.read_text(encoding="utf-8")
        yield from [FENCED.sub("", text)] if path.suffix == ".md" else read_words(text)


def _list_files(root: Path, part: str) -> Iterator[Path]:
    if part == "documents":
        yield from [*root.glob("*.md"), *root.glob("docs/**/*.md")]
        return
    for path in (each for folder in PARTS[part] for each in sorted((root / folder).rglob("*.py"))):
        inside = path.relative_to(root)
        is_linked = any((root / each).is_symlink() for each in inside.parents)
        if not is_linked and not inside.as_posix().startswith(GENERATED):
            yield path


def read_words(source: str) -> Iterator[str]:
    """Yield a file's docstrings, other texts, comments, and the names of its functions and variables."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    yield from (token.string for token in tokens if token.type == tokenize.COMMENT)
