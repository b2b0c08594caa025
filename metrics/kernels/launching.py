"""By which operators device events were launched: the innermost one, and those that show the kind of a kernel."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from deepprof.collectors.trace import Trace
from deepprof.metrics.contexts.launches import LaunchSites, find_sites
from deepprof.metrics.contexts.slices import HostSlices, read_slices
from deepprof.metrics.cost.call_links import find_nearest
from deepprof.metrics.kernels.launch_rules import OperatorRule, read_rules
from deepprof.metrics.kernels.name_kinds import classify_names
from deepprof.metrics.kernels.name_matching import search
from deepprof.metrics.kernels.pattern_tables import list_operator_tables

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

LONGEST_OPERATOR = 200  # characters of an operator's name that are searched
MOST_OPERATORS = 20_000  # names of operators that are searched
INNERMOST_SCOPE = "^([^;]*)/(?:;|$)"  # of the frames of a stack; other frames are lines of code and functions
FIRST_TYPES = r'^\["([^"]*)", ?"([^"]*)"'


class LaunchOperators(Struct, frozen=True, eq=False):
    """The names of a trace's operators, their `kinds`, and for every device event the places of some of them or -1.

    `nearest` is the innermost operator, `deciding` the innermost one that a rule is about (with its operands in
    `operands`: 1 for equal types, 2 for different ones, 0 if unknown), `telling` the innermost one of a recognized
    kind. `dtypes` are the types of the operands of the nearest operator of which they are available."""

    names: pl.Series
    kinds: pl.DataFrame
    nearest: Int64s
    deciding: Int64s
    operands: Int64s
    telling: Int64s
    dtypes: pl.Series

    def filter(self, wanted: Bools) -> LaunchOperators:
        """Return the same for some of the device events."""
        arrays = {name: getattr(self, name)[wanted] for name in ("nearest", "deciding", "operands", "telling")}
        return replace(self, **arrays, dtypes=self.dtypes.filter(pl.Series(wanted)))


def find_launch_operators(
    trace: Trace, recorded: Trace | None = None, placed: tuple[HostSlices, LaunchSites] | None = None
) -> LaunchOperators | None:
    """Return by which operators device events were launched; None where none are recorded.

    `recorded` is the trace as it was read, if operators were made its kernels since (CPU fallback). Kernels of compiled
    programs were launched by none: the operation of JAX that the program has for them takes that place. `placed` are
    the slices of its host and where device events were launched, if they are available already.
    """
    source = recorded or trace
    found = None
    if (source.host_events["category"] == "op").any():
        slices = read_slices(source) if placed is None else placed[0]
        sites = find_sites(trace, slices) if placed is None else placed[1]
        found = _find_on_host(source, slices, sites.row)
    return found if trace.event_stacks.is_empty() else _add_scopes(trace, found)


def _add_scopes(trace: Trace, found: LaunchOperators | None) -> LaunchOperators:
    """Return the operators, with the innermost scope of an event's stack as that of events without a telling one."""
    size = trace.device_events.height
    none = np.full(size, -1, np.int64)
    if found is None:
        names, dtypes = pl.Series([], dtype=pl.String), pl.Series([None] * size, dtype=pl.String)
        found = LaunchOperators(names, classify_names(names, ()), none, none, np.zeros(size, np.int64), none, dtypes)
    scope = pl.col("frames").str.extract(INNERMOST_SCOPE, 1).str.slice(0, LONGEST_OPERATOR)
    scopes = trace.event_stacks.join(trace.stacks.select("stack_id", scope=scope), on="stack_id").drop_nulls("scope")
    names = scopes["scope"].unique(maintain_order=True)
    place = scopes["scope"].replace_strict(names, np.arange(len(names)), return_dtype=pl.Int64).to_numpy()
    kinds = classify_names(names, list_operator_tables())
    of_events = none.copy()
    of_events[scopes["event"].to_numpy()] = place
    known = np.append((kinds["category"] != "unknown").to_numpy(), False)[of_events] & (found.telling < 0)
    first = len(found.names)
    return replace(
        found,
        names=pl.concat([found.names, names]),
        kinds=pl.concat([found.kinds, kinds]),
        nearest=np.where(known, first + of_events, found.nearest),
        telling=np.where(known, first + of_events, found.telling),
    )


def _find_on_host(source: Trace, slices: HostSlices, row: Int64s) -> LaunchOperators:
    """Return by which operators on the host device events were launched, those of each at a `row` of the slices."""
    is_operator = (slices.rows["kind"] == "operator").to_numpy()
    name_id = slices.rows["name_id"].to_numpy()
    is_used = np.zeros(len(source.names), np.bool_)
    is_used[name_id[is_operator]] = True
    used = np.flatnonzero(is_used)
    place = np.where(is_operator, (np.cumsum(is_used) - 1)[name_id], -1)
    names = source.names.gather(used).str.slice(0, LONGEST_OPERATOR)
    dtypes, operands = _read_types(source, slices)
    deciding = is_operator & _are_meant(names, read_rules().rules, place, operands)
    kinds = classify_names(names, list_operator_tables())
    telling = is_operator & _look_up((kinds["category"] != "unknown").to_numpy(), place)
    at = {name: _find_at(slices, wanted, row) for name, wanted in (("own", is_operator), ("deciding", deciding))}
    at |= {"telling": _find_at(slices, telling, row), "typed": _find_at(slices, dtypes.is_not_null().to_numpy(), row)}
    places = np.append(place, -1)
    return LaunchOperators(
        names=names,
        kinds=kinds,
        nearest=places[at["own"]],
        deciding=places[at["deciding"]],
        operands=np.append(operands, 0)[at["deciding"]],
        telling=places[at["telling"]],
        dtypes=dtypes.gather(pl.Series(at["typed"]).replace(-1, None)),
    )


def _find_at(slices: HostSlices, wanted: Bools, row: Int64s) -> Int64s:
    """Return for every event, launched at a row of slices, the innermost wanted slice around it, -1 for none."""
    return np.append(find_nearest(slices, wanted), -1)[row]


def _look_up(of_names: Bools, place: Int64s) -> Bools:
    """Return for every slice what holds for its name, false for those of no operator."""
    return np.append(of_names[:MOST_OPERATORS], False)[np.where(place < min(len(of_names), MOST_OPERATORS), place, -1)]


def _are_meant(names: pl.Series, rules: tuple[OperatorRule, ...], place: Int64s, operands: Int64s) -> Bools:
    searched = names.head(MOST_OPERATORS)
    always = [rule.operator for rule in rules if rule.operands is None]
    meant = _look_up(search(searched, always), place)
    typed = [rule.operator for rule in rules if rule.operands is not None]
    return meant | ((operands > 0) & _look_up(search(searched, typed), place)) if typed else meant


def _read_types(source: Trace, slices: HostSlices) -> tuple[pl.Series, Int64s]:
    """Return the types of every slice's operands as text, and whether the first two are equal (1) or not (2)."""
    known = source.operands.unique("event", keep="first", maintain_order=True).select("event", "dtypes")
    if not known.height:
        return pl.Series([None] * slices.rows.height, dtype=pl.String), np.zeros(slices.rows.height, np.int64)
    rows = slices.rows.select("event").cast({"event": known.schema["event"]})
    dtypes = rows.join(known, on="event", how="left", maintain_order="left")["dtypes"]
    pair = dtypes.to_frame("dtypes").select(
        first=pl.col("dtypes").str.extract(FIRST_TYPES, 1), second=pl.col("dtypes").str.extract(FIRST_TYPES, 2)
    )
    both = (pl.col("first").str.len_chars() > 0) & (pl.col("second").str.len_chars() > 0)
    code = pl.when(both & (pl.col("first") == pl.col("second"))).then(1).when(both).then(2).otherwise(0)
    return dtypes, pair.select(code.cast(pl.Int64).fill_null(0)).to_series().to_numpy()
