"""From the words of AMD's recorders to those of the record table: kinds of work, copy directions, kernel names."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from collections.abc import Callable

# "CopyHostToDevice" (RPD), "MEMORY_COPY_HOST_TO_DEVICE" and "HOST_TO_DEVICE" (rocprofv3), "hipMemcpyHtoD", "H2D"
DIRECTIONS = (
    ("PtoP", re.compile(r"PEER|P(?:TO|2)P")),
    ("HtoD", re.compile(r"HOST(?:TO|2)DEVICE|H(?:TO|2)D")),
    ("DtoH", re.compile(r"DEVICE(?:TO|2)HOST|D(?:TO|2)H")),
    ("DtoD", re.compile(r"DEVICE(?:TO|2)DEVICE|D(?:TO|2)D")),
    ("HtoH", re.compile(r"HOST(?:TO|2)HOST|H(?:TO|2)H")),
)
ACTIVITIES = (
    ("memcpy", re.compile(r"COPY")),
    ("memset", re.compile(r"FILL|MEMSET")),
    ("sync", re.compile(r"^(?:MARKER|BARRIER|SYNC)")),
)
LAUNCHING = re.compile(r"^_*(?:hip|hsa|ocl|cl[A-Z])")  # the runtimes that launch: HIP, HSA, OpenCL


def copy_kind_of(text: str | None) -> str | None:
    """Return the direction that `text` names, or None."""
    letters = re.sub(r"[^A-Z0-9]", "", (text or "").upper())
    return next((kind for kind, pattern in DIRECTIONS if pattern.search(letters)), None)


def activity_of(operation: str | None) -> str:
    """Return the activity of RPD's operation type; one that is neither copy, memset nor barrier is a kernel."""
    return next((name for name, pattern in ACTIVITIES if pattern.search((operation or "").upper())), "kernel")


def copy_name(text: str | None) -> str | None:
    """Return the name of such a copy in other importers ("Memcpy HtoD"), or `text` if it names no direction."""
    kind = copy_kind_of(text)
    return f"Memcpy {kind}" if kind else text


def operation_label(operation: str | None) -> str | None:
    """Return the name of an operation that has only a type."""
    activity = activity_of(operation)
    return {"memcpy": copy_name(operation), "memset": "Memset"}.get(activity, operation)


def call_category(call: str | None) -> str:
    """Return the host category of `call`: "runtime" for the runtimes that launch work."""
    return "runtime" if LAUNCHING.match(call or "") else "other"


def kernel_label(name: pl.Expr) -> pl.Expr:
    """Return `name` without the ending from the code object (".kd", " [clone .kd]"); null if nothing is left."""
    bare = name.str.strip_chars().str.replace(r"(?: \[clone \.kd\]|\.kd)$", "")
    return pl.when(bare != "").then(bare)


def labelled(rows: pl.DataFrame, source: str, **columns: Callable[[str | None], str | None]) -> pl.DataFrame:
    """Return `rows` with text columns computed from the texts in `source`, each distinct text only once."""
    distinct = rows[source].unique()
    made = [pl.Series(name, [make(text) for text in distinct], dtype=pl.String) for name, make in columns.items()]
    return rows.join(pl.DataFrame([distinct, *made]), on=source, how="left", nulls_equal=True, maintain_order="left")


def domain_category(domain: str | None) -> str:
    """Return the host category of an API that rocprofv3 calls `domain` ("HIP_RUNTIME_API_EXT"), or "annotation"."""
    kinds = (("HIP", "runtime"), ("HSA", "runtime"), ("MARKER", "annotation"))
    return next((category for start, category in kinds if (domain or "").upper().startswith(start)), "other")


def copy_columns(target: str, source: str) -> dict[str, pl.Expr]:
    """Return the DEVICE columns of copies with `kind` and `label`; `target` and `source` name the agents' columns.

    A copy belongs to the GPU that takes part in it, a copy between two GPUs to its target.
    """
    kind, agents = pl.col("kind"), (pl.col(target), pl.col(source))
    peer = (kind == "DtoD") & agents[0].ne(agents[1])
    agent = pl.when(kind == "DtoH").then(agents[1]).when(kind.ne_missing("HtoH")).then(agents[0])
    return {
        "activity": pl.lit("memcpy"),
        "copy_kind": pl.when(peer).then(pl.lit("PtoP")).otherwise(kind),
        "name": pl.when(peer).then(pl.lit("Memcpy PtoP")).otherwise("label"),
        "agent": agent,
    }


def add_text(rows: pl.DataFrame, texts: pl.DataFrame, key: str, name: str) -> pl.DataFrame:
    """Return `rows` with the text of the id `key` as the column `name`; null if there is no text or an empty one."""
    table = texts.select(pl.col("id").alias(key), pl.when(pl.col("text") != "").then("text").alias(name))
    return rows.join(table, on=key, how="left", maintain_order="left")
