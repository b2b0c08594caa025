"""As much of Helm's templates as the chart uses, for machines without it; whatever else is in one is an error.

Actions: `if` with `else`, `with`, `define`, comments, and pipelines of paths, texts in quotes and `FUNCTIONS`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

__all__ = ["TemplateError", "render_chart"]

TOKEN = re.compile(r"\{\{(-?)\s*(/\*.*?\*/|.*?)\s*(-?)\}\}", re.DOTALL)
WORD = re.compile(r'\s*("(?:[^"\\]|\\.)*"|\.[A-Za-z0-9_.]*|[A-Za-z][A-Za-z0-9]*|\||\d+)')

Node = tuple[str, Any, Any, Any]


class TemplateError(ValueError):
    """A template that Helm would refuse, or that uses what this renderer does not know."""


def render_chart(chart: Path, values: Mapping[str, Any], *, name: str, namespace: str) -> dict[str, str]:
    """Return the text of every template of a chart, by file name; `values` are laid over the chart's own."""
    about = yaml.safe_load((chart / "Chart.yaml").read_text())
    root = {
        "Values": overlay(yaml.safe_load((chart / "values.yaml").read_text()), values),
        "Release": {"Name": name, "Namespace": namespace, "Service": "Helm"},
        "Chart": {"Version": about["version"], "AppVersion": about["appVersion"]},
    }
    files = {path.name: parse(path.read_text()) for path in sorted((chart / "templates").iterdir())}
    named = {node[1]: node[2] for nodes in files.values() for node in nodes if node[0] == "define"}
    renderer = Renderer(named)
    return {file: renderer.render(nodes, root) for file, nodes in files.items() if not file.startswith("_")}


def overlay(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of both, those of `above` where both have one."""
    merged = dict(below)
    for key, value in above.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = overlay(merged[key], value) if both else value
    return merged


def parse(text: str) -> list[Node]:
    """Return the nodes of a template."""
    nodes, end = parse_block(tokens(text))
    if end is not None:
        raise TemplateError(f"{end} without a beginning")
    return nodes


def tokens(text: str) -> Iterator[tuple[str, str]]:
    """Yield `text` and `action` pieces, white space cut off where an action reports it."""
    at, cut = 0, False
    for found in TOKEN.finditer(text):
        before = text[at : found.start()]
        before = before.lstrip() if cut else before
        yield "text", before.rstrip() if found[1] else before
        yield "action", found[2]
        at, cut = found.end(), bool(found[3])
    rest = text[at:]
    if "{{" in rest or "}}" in rest:
        raise TemplateError("an action that is not closed")
    yield "text", rest.lstrip() if cut else rest


def parse_block(pieces: Iterator[tuple[str, str]]) -> tuple[list[Node], str | None]:
    """Return the nodes up to the `end` or `else` that closes the block, and which it was."""
    nodes: list[Node] = []
    for kind, content in pieces:
        if kind == "text":
            nodes.append(("text", content, None, None))
        elif content in {"end", "else"}:
            return nodes, content
        elif not content.startswith("/*"):
            nodes.append(parse_action(content, pieces))
    return nodes, None


def parse_action(content: str, pieces: Iterator[tuple[str, str]]) -> Node:
    """Return the node of one action with all that belongs to it."""
    word, _, rest = content.partition(" ")
    if word not in {"if", "with", "define"}:
        return "print", split_words(content), None, None
    then, end = parse_block(pieces)
    other: list[Node] = []
    if end == "else":
        other, end = parse_block(pieces)
    if end != "end":
        raise TemplateError(f"{content} is not closed")
    return word, rest.strip().strip('"') if word == "define" else split_words(rest), then, other


def split_words(text: str) -> list[str]:
    """Return the words of a pipeline."""
    words, at = [], 0
    while at < len(text.rstrip()):
        found = WORD.match(text, at)
        if found is None:
            raise TemplateError(f"cannot read {text!r}")
        words.append(found[1])
        at = found.end()
    return words


class Renderer:
    """Renders nodes with the named templates at hand."""

    def __init__(self, named: Mapping[str, list[Node]]) -> None:
        self.named = named

    def render(self, nodes: list[Node], dot: Any) -> str:
        """Return the text of `nodes`, where `.` is `dot`."""
        return "".join(self.render_node(node, dot) for node in nodes)

    def render_node(self, node: Node, dot: Any) -> str:
        """Return the text of one node."""
        kind, what, then, other = node
        if kind == "text":
            return str(what)
        if kind == "define":
            return ""
        value = self.evaluate(what, dot)
        if kind == "print":
            return show(value)
        return self.render(then, value if kind == "with" else dot) if value else self.render(other, dot)

    def evaluate(self, words: list[str], dot: Any) -> Any:
        """Return the value of a pipeline; what is before a bar is the last argument of what is behind it."""
        value: list[Any] = []
        for call in split_at_bars(words):
            value = [self.call(call, dot, value)]
        return value[0]

    def call(self, words: list[str], dot: Any, last: list[Any]) -> Any:
        """Return the value of one word, or of a function of the words behind it."""
        head, *rest = words
        if head[0] in '."' or head.isdigit():
            if rest or last:
                raise TemplateError(f"{head} is no function")
            return look_up(head, dot)
        arguments = [look_up(word, dot) for word in rest] + last
        if head == "include":
            return self.include(*arguments)
        if head not in FUNCTIONS:
            raise TemplateError(f"{head} is not known here")
        return FUNCTIONS[head](*arguments)

    def include(self, name: str, dot: Any) -> str:
        """Return the text of a named template."""
        if name not in self.named:
            raise TemplateError(f"no template {name}")
        return self.render(self.named[name], dot)


def split_at_bars(words: list[str]) -> list[list[str]]:
    """Return the calls of a pipeline."""
    calls: list[list[str]] = [[]]
    for word in words:
        if word == "|":
            calls.append([])
        else:
            calls[-1].append(word)
    if not all(calls):
        raise TemplateError("an empty call")
    return calls


def look_up(word: str, dot: Any) -> Any:
    """Return a text, a number, or what a path leads to; unlike Helm, a path that leads nowhere is an error."""
    if word.startswith('"'):
        return json.loads(word)
    if word.isdigit():
        return int(word)
    if not word.startswith("."):
        raise TemplateError(f"{word} is no value")
    for key in filter(None, word.split(".")):
        if not isinstance(dot, Mapping) or key not in dot:
            raise TemplateError(f"{word}: nothing is called {key}")
        dot = dot[key]
    return dot


def show(value: Any) -> str:
    """Return a value as Go prints it."""
    if value is None or isinstance(value, Mapping | list):
        raise TemplateError(f"{value!r} is printed as it is; say toYaml")
    return str(value).lower() if isinstance(value, bool) else str(value)


def indent(width: int, text: str) -> str:
    """Return `text` on a new line, every line of it indented."""
    return "\n" + "\n".join(" " * width + line for line in text.split("\n"))


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "and": lambda *values: next((value for value in values if not value), values[-1]),
    "nindent": indent,
    "quote": lambda value: json.dumps(show(value)),
    "sha256sum": lambda text: hashlib.sha256(text.encode()).hexdigest(),
    "toYaml": lambda value: yaml.safe_dump(value, sort_keys=True, default_flow_style=False).rstrip("\n"),
}
