"""Names that include what XLA's kernels are for: `fusion.12` becomes `fusion.12 [mlp/dot_general]`.

They are for readers only. The miner's alphabet, and all that is compared between recordings, keeps the names that the
recorder wrote.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import islice

import polars as pl
from msgspec.structs import replace

from deepprof.collectors.importers.xla.name_scopes import split_scopes
from deepprof.collectors.trace import Trace

SCOPES = 2  # the innermost ones are named
SCOPE_CHARS = 40
ALIASES = 10_000  # only artificial traces have more instructions
PLAIN = r"[^A-Za-z0-9]+"
# Scopes that JAX adds: how a function was called, not what it is for.
ADDED = re.compile(
    r"main|while|body|cond|branch_\d+(?:_fun)?|closed_call|core_call|pjit|shard_map|remat\d?|checkpoint"
    r"|rematted_computation|custom_(?:jvp|vjp)_call(?:_jaxpr)?|jvp|transpose|vmap|jit|lambda|"
)
TRANSFORMED = re.compile(r"(?:jit|pjit|jvp|vmap|transpose|remat|checkpoint|linearize|xla_call)\((.*)\)")
PARAMETERS = re.compile(r"\[.*", re.DOTALL)
MARKS = re.compile(r"[<>(){}\[\]:;,\s]+")  # they would end, or begin, a part of a C++ name


def name_instructions(trace: Trace) -> Trace:
    """Return the trace with readable names, under new ids, for the kernels that XLA generated.

    A kernel has one where the instruction that it ran is known and has its name. Kernels of one name that ran different
    programs have different ones. Other tables keep their names.
    """
    links = trace.event_instructions.filter(
        (pl.col("event") < trace.device_events.height) & (pl.col("instruction") < trace.instructions.height)
    ).unique("event", keep="last", maintain_order=True)
    if links.is_empty():
        return trace
    links = links.with_columns(name_id=trace.device_events["name_id"].gather(links["event"]))
    pairs = _write_names(trace, links.select("name_id", "instruction").unique(maintain_order=True).head(ALIASES))
    names = pl.concat([trace.names, pairs["alias"].unique(maintain_order=True).rename(trace.names.name)])
    numbers = pl.DataFrame({"alias": names.slice(len(trace.names))}).with_row_index("own", offset=len(trace.names))
    pairs = pairs.join(numbers, on="alias", how="left", maintain_order="left")
    own = links.join(pairs, on=["name_id", "instruction"], how="inner").select("event", pl.col("own").cast(pl.UInt32))
    events = trace.device_events.with_row_index("event").join(own, on="event", how="left", maintain_order="left")
    events = events.with_columns(name_id=pl.coalesce("own", "name_id")).select(trace.device_events.columns)
    return replace(trace, names=names, device_events=events)


def _write_names(trace: Trace, pairs: pl.DataFrame) -> pl.DataFrame:
    """Return those of the pairs `name_id`, `instruction` that have an `alias`, with it."""
    instruction = pl.col("instruction").cast(pl.UInt32)
    known = trace.instructions.select("program", "program_id", "op_name", "opcode", "target", of="name").with_row_index(
        "at"
    )
    rows = pairs.with_columns(instruction, name=trace.names.gather(pairs["name_id"]))
    rows = rows.join(known.rename({"at": "instruction"}), on="instruction", how="left", maintain_order="left")
    own, of = (pl.col(column).str.replace_all(PLAIN, "_") for column in ("name", "of"))
    rows = rows.filter(own == of)
    called = pl.when(pl.col("opcode") == "custom-call").then("target")
    told = rows.select(pl.col("op_name").fill_null(""), called.fill_null("")).rows()
    texts = [_write_purpose(op_name, target) for op_name, target in told]
    rows = rows.with_columns(purpose=pl.Series(texts, dtype=pl.String))
    program = pl.col("program").fill_null("").str.replace_all(MARKS.pattern, "_")
    number = pl.format("{} {}", program, pl.col("program_id").cast(pl.String).fill_null("?"))
    one_program = pl.col("program").n_unique().over("name_id", "purpose") == 1
    one_number = pl.col("program_id").n_unique().over("name_id", "purpose", "program") == 1
    origin = pl.when(one_program & one_number).then(pl.lit("")).when(one_number).then(program).otherwise(number)
    text = pl.concat_str(origin, "purpose", separator=" ").str.strip_chars()
    rows = rows.with_columns(text=text).filter(pl.col("text") != "")
    return rows.select("name_id", "instruction", alias=pl.format("{} [{}]", "name", "text"))


@lru_cache(maxsize=ALIASES)
def _write_purpose(op_name: str, target: str) -> str:
    """Return the innermost scopes of an operation, else what its custom call calls, else an empty text."""
    scopes = (_unwrap(scope) for scope in reversed(split_scopes(op_name)))
    named = list(islice((scope[:SCOPE_CHARS] for scope in scopes if not ADDED.fullmatch(scope)), SCOPES))
    return "/".join(reversed(named)) or MARKS.sub("_", target)[:SCOPE_CHARS]


def _unwrap(scope: str) -> str:
    """Return a scope without the transformations of JAX around it, and without parameters."""
    while found := TRANSFORMED.fullmatch(scope):
        scope = found[1]
    return MARKS.sub("_", PARAMETERS.sub("", scope)).strip("_")
