"""One declaration per live figure: message, value, metric and row of the documents follow from it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, replace
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from deepprof.live.client.watch_view import COLUMNS
from deepprof.live.service.exporter.exposition import SERIES_DROPPED
from deepprof.live.service.exporter.families import DAEMON, DEVICE, JOB, RANK, MetricFamily, list_single
from deepprof.live.service.exporter.snapshot import DaemonSnapshot
from deepprof.live.service.views import DeviceView, RankView
from deepprof.live.wire import figures
from deepprof.live.wire.checking import check_status
from deepprof.live.wire.declarations import Metric, build, encode, figure, find_figures, gauge, merge
from deepprof.v1 import admin_pb2, query_pb2, records_pb2
from docs.api import METRICS_PAGE, describe_metrics

ROOT = Path(__file__).resolve().parents[4]
LIVE = ROOT / "deepprof" / "live"
SENT: dict[Any, type[Message]] = {
    figures.JobState: query_pb2.Job,
    figures.RankState: query_pb2.Rank,
    figures.DeviceState: query_pb2.DeviceState,
    figures.CollectorStatus: records_pb2.Status,
    figures.Account: records_pb2.Account,
    figures.KindAccount: records_pb2.KindAccount,
    figures.StageFigures: query_pb2.StageMetrics,
    figures.LeadingFigures: query_pb2.LeadingFigures,
    figures.ContextFigures: query_pb2.ContextFigures,
    figures.SenderState: admin_pb2.Sender,
    figures.Share: admin_pb2.Share,
    figures.FollowedLoop: query_pb2.Loop,
    figures.LoopFigures: query_pb2.LoopMetrics,
    figures.ActiveFinding: query_pb2.Finding,
    figures.Capture: query_pb2.Capture,
    figures.WatchState: query_pb2.WatchResponse,
    figures.Findings: query_pb2.GetFindingsResponse,
}
DECLARING = (*SENT, DeviceView, RankView, DaemonSnapshot)
FAMILIES: tuple[MetricFamily[Any], ...] = (*DAEMON, SERIES_DROPPED, *JOB, *RANK, *DEVICE)
NUMBERS = {int: 7, float: 0.5, str: "text", bool: True}


def make(kind: Any) -> Any:
    """Return a value without any default."""
    hints = get_type_hints(kind)
    return kind(**{each.name: make_field(hints[each.name]) for each in fields(kind)})


def make_field(hint: Any) -> Any:
    given = [each for each in get_args(hint) if each not in (type(None), ...)]
    if hint in NUMBERS or hint in SENT:
        return NUMBERS[hint] if hint in NUMBERS else make(hint)
    if isinstance(given[0], str):
        return given[-1]
    if get_origin(hint) is Mapping:
        return {"late": 2}
    return make_field(given[0]) if type(None) in get_args(hint) else (make_field(given[0]),)


@pytest.mark.parametrize(("kind", "message"), SENT.items(), ids=lambda each: each.__name__)
def test_a_message_has_exactly_the_fields_of_its_value(kind: Any, message: type[Message]) -> None:
    assert {each.name for each in fields(kind)} == set(message.DESCRIPTOR.fields_by_name)
    absent = {name for name, hint in get_type_hints(kind).items() if type(None) in get_args(hint)}
    assert absent == {each.name for each in message.DESCRIPTOR.fields if is_optional(each)}


def is_optional(sent: FieldDescriptor) -> bool:
    return sent.containing_oneof is not None


@pytest.mark.parametrize(("kind", "message"), SENT.items(), ids=lambda each: each.__name__)
def test_a_value_is_the_same_after_its_way(kind: Any, message: type[Message]) -> None:
    value = make(kind)
    assert [each.name for each in fields(kind) if getattr(value, each.name) == each.default] == []
    sent = encode(message, value)
    assert build(kind, message.FromString(sent.SerializeToString())) == value


def list_metrics() -> list[tuple[Any, str, Metric]]:
    """Return every metric with the value and the field that declare it; a view inherits those of its value."""
    found = []
    for kind in DECLARING:
        inherited = set(find_figures(kind.__base__)) if kind.__base__ in SENT else set()
        for name, each in find_figures(kind).items():
            metrics = [metric for metric in (each.metric, each.of_job) if metric is not None]
            found += [(kind, name, metric) for metric in metrics if name not in inherited]
    return found


def test_every_metric_is_declared_in_one_place_and_exported() -> None:
    declared = [f"deepprof_{metric.name}" for _, _, metric in list_metrics()]
    assert len(declared) > 60
    assert len(set(declared)) == len(declared)
    by_hand = {"deepprof_job_ranks", SERIES_DROPPED.name}
    assert sorted(declared) == sorted({family.name for family in FAMILIES} - by_hand)
    source = "".join(path.read_text() for path in LIVE.rglob("*.py"))
    for _, _, metric in list_metrics():
        assert len(re.findall(rf'(?:gauge\(|counter\(|name=)\s*"{metric.name}"', source)) == 1, metric.name


def test_every_metric_has_its_row() -> None:
    page = METRICS_PAGE.read_text(encoding="utf-8")
    for _, _, metric in list_metrics():
        assert re.search(
            rf"^\| `deepprof_{metric.name}` \| {metric.type} \| .* \| {re.escape(metric.meaning)} \|$", page, re.M
        )


def test_every_column_is_shown() -> None:
    declared = [each.column for kind in SENT for each in find_figures(kind).values() if each.column is not None]
    assert len(declared) > 3
    assert set(declared) <= {(column.title, column.rank) for column in COLUMNS}


OTHER_MEANINGS = {"level", "reason", "lost", "notice"}  # words that other values have, too


@pytest.mark.parametrize("name", [name for name in find_figures(figures.CollectorStatus) if name not in OTHER_MEANINGS])
def test_nothing_but_the_agent_names_a_figure_of_its_collectors(name: str) -> None:
    naming = list_modules(name)
    assert {each for each in naming if not each.startswith("agent/")} == {"wire/figures.py"}


def list_modules(name: str) -> set[str]:
    return {str(path.relative_to(LIVE)) for path in LIVE.rglob("*.py") if re.search(rf"\b{name}\b", path.read_text())}


def test_the_agent_names_ratios_where_they_are_computed() -> None:
    computed = {"wire/figures.py", "agent/pacing.py", "agent/member.py"}
    assert list_modules("duty_ratio") == computed
    assert list_modules("overhead_ratio") == computed | {"agent/answers.py"}  # the JSON of the agent's own answer


@dataclass(frozen=True, slots=True)
class NewStatus(figures.CollectorStatus):
    """A status with one figure more, which is declared here alone."""

    wasted_ratio: float = figure(0.0, gauge("collector_wasted_ratio", "Share of records sent twice."), merge=max)


def make_message() -> type[Message]:
    """Return the message of a status with the field of the new figure."""
    file = descriptor_pb2.FileDescriptorProto(name="new.proto", package="new", syntax="proto3")
    file.dependency.append("deepprof/v1/records.proto")
    status = file.message_type.add(name="Status")
    records_pb2.Status.DESCRIPTOR.CopyToProto(status)
    status.field.add(name="wasted_ratio", number=10, type=FieldDescriptor.TYPE_DOUBLE, label=1)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(records_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("new.Status"))


def test_a_new_figure_is_its_declaration() -> None:
    status = NewStatus(wasted_ratio=0.25)
    sent = encode(make_message(), status)
    assert build(NewStatus, sent) == status
    check_status(records_pb2.Status.FromString(sent.SerializeToString()))
    assert merge(NewStatus, [status, replace(status, wasted_ratio=0.5)]) == {"wasted_ratio": 0.5}
    family = list_single(RankView, NewStatus, lambda _: status)[-1]
    assert family.samples(RankView(job="a", rank=0)) == (((), 0.25),)
    row = "| `deepprof_collector_wasted_ratio` | gauge | `rank` | 0 to 1 | Share of records sent twice. |"
    assert row in describe_metrics("Ranks", [family], ("rank",))


def test_defaults_of_figures_are_those_of_their_fields() -> None:
    assert fields(NewStatus)[-1].default == 0.0
    assert fields(figures.Account)[-1].default is MISSING
