"""Panels as DeepProf's dashboards draw them: one function per kind, and what all of them have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from grafana_foundation_sdk.builders import (
    common,
    dashboard,
    heatmap,
    prometheus,
    stat,
    statetimeline,
    table,
    timeseries,
)
from grafana_foundation_sdk.models import common as shapes
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

__all__ = [
    "SOURCE",
    "Query",
    "draw_heatmap",
    "draw_lines",
    "draw_number",
    "draw_states",
    "draw_table",
    "make_dashboard",
]

Query = tuple[str, str]
"""An expression in PromQL, and the name of its series in the legend."""

SOURCE = models.DataSourceRef(type_val="prometheus", uid="${datasource}")
FILLED = 40  # per cent of opacity, where lines stand on each other
WIDTH, HEIGHT = 24, 8  # of a row of panels, and of a panel with lines
COLUMNS_OF_PROMETHEUS = ("Time", "__name__", "instance", "job", "Value")


def write_query(number: int, query: Query, *, instant: bool = False, kind: PromQueryFormat | None = None) -> Any:
    expression, legend = query
    written = prometheus.Dataquery().expr(" ".join(expression.split())).legend_format(legend)
    written = written.ref_id(chr(ord("A") + number)).datasource(SOURCE)
    written = written.instant() if instant else written.range()
    return written.format(kind or PromQueryFormat.TIME_SERIES)


def finish(panel: Any, title: str, description: str, unit: str) -> Any:
    panel = panel.title(title).description(description).unit(unit).datasource(SOURCE)
    return panel.span(WIDTH // 2).height(HEIGHT)


def draw_lines(title: str, description: str, unit: str, *queries: Query, top: float = 0, stacked: bool = False) -> Any:
    """Draw lines over time from zero up, or one above the other; `top` is the highest that the unit allows, 0: any."""
    legend = common.VizLegendOptions().display_mode(shapes.LegendDisplayMode.TABLE).show_legend(True)
    legend = legend.placement(shapes.LegendPlacement.BOTTOM).calcs(["mean", "lastNotNull"])
    panel = timeseries.Panel().min(0).line_width(1).fill_opacity(8).show_points(shapes.VisibilityMode.NEVER)
    tooltip = common.VizTooltipOptions().mode(shapes.TooltipDisplayMode.MULTI).sort(shapes.SortOrder.DESCENDING)
    panel = panel.legend(legend).tooltip(tooltip)
    if top:
        panel = panel.max(top)
    if stacked:
        stacking = common.StackingConfig().mode(shapes.StackingMode.NORMAL)
        panel = panel.stacking(stacking).fill_opacity(FILLED)
    for number, query in enumerate(queries):
        panel = panel.with_target(write_query(number, query))
    return finish(panel, title, description, unit)


def draw_number(title: str, description: str, unit: str, query: Query, *, bad_from: float = 0) -> Any:
    """Draw one number as it is now; red from `bad_from` on, 0: never."""
    steps = [models.Threshold(value=None, color="green")]
    if bad_from:
        steps.append(models.Threshold(value=bad_from, color="red"))
    panel = stat.Panel().with_target(write_query(0, query, instant=True)).graph_mode(shapes.BigValueGraphMode.NONE)
    thresholds = dashboard.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(steps)
    panel = panel.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"])).thresholds(thresholds)
    return finish(panel, title, description, unit).span(WIDTH // 6).height(HEIGHT // 2)


def draw_heatmap(title: str, description: str, unit: str, query: Query) -> Any:
    """Draw the buckets of a histogram over time."""
    panel = heatmap.Panel().calculate(False).show_legend()
    panel = panel.with_target(write_query(0, query, kind=PromQueryFormat.HEATMAP))
    axis = heatmap.YAxisConfig().unit(unit)
    return finish(panel.y_axis(axis), title, description, "short")


def draw_table(title: str, description: str, unit: str, query: Query) -> Any:
    """Draw the series as they are now, a row each and a column per label."""
    panel = table.Panel().with_target(write_query(0, query, instant=True, kind=PromQueryFormat.TABLE))
    hidden = {name: True for name in COLUMNS_OF_PROMETHEUS if name != "Value"}
    panel = panel.with_transformation(models.DataTransformerConfig("organize", options={"excludeByName": hidden}))
    return finish(panel, title, description, unit)


def draw_states(title: str, description: str, query: Query, states: Sequence[tuple[str, str]]) -> Any:
    """Draw which of the `states` (text and colour, by number from 0) held when."""
    shown = {
        str(number): models.ValueMappingResult(text=text, color=colour, index=number)
        for number, (text, colour) in enumerate(states)
    }
    legend = common.VizLegendOptions().show_legend(True).display_mode(shapes.LegendDisplayMode.LIST)
    panel = (
        statetimeline.Panel()
        .mappings([models.ValueMap(options=shown)])
        .merge_values(True)
        .show_value(shapes.VisibilityMode.NEVER)
    )
    panel = panel.with_target(write_query(0, query)).legend(legend.placement(shapes.LegendPlacement.BOTTOM))
    return finish(panel, title, description, "none")


def ask_for(name: str, label: str, query: str, *, several: bool) -> Any:
    """Return a variable with the values of a label; `several` of them, or all, may be chosen."""
    variable = dashboard.QueryVariable(name).label(label).datasource(SOURCE).query(query)
    variable = variable.refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
    variable = variable.sort(
        models.VariableSort.NUMERICAL_ASC if name == "rank" else models.VariableSort.ALPHABETICAL_ASC
    )
    variable = variable.multi(several).include_all(several)
    return variable.all_value(".*") if several else variable


def make_dashboard(title: str, uid: str, description: str, panels: Sequence[Any], *, one_job: bool = False) -> Any:
    """Return a dashboard of the panels with its variables: the data source, job_id and rank."""
    made = dashboard.Dashboard(title).uid(uid).description(description).tags(["deepprof"]).readonly()
    made = made.refresh("30s").time("now-1h", "now").timezone("browser").tooltip(models.DashboardCursorSync.CROSSHAIR)
    made = made.link(
        dashboard.DashboardLink("DeepProf").type(models.DashboardLinkType.DASHBOARDS).tags(["deepprof"]).keep_time(True)
    )
    made = made.with_variable(dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus"))
    made = made.with_variable(ask_for("job_id", "Job", "label_values(deepprof_job_ranks, job_id)", several=not one_job))
    ranks = 'label_values(deepprof_rank_connected{job_id=~"$job_id"}, rank)'
    made = made.with_variable(ask_for("rank", "Rank", ranks, several=True))
    for panel in panels:
        made = made.with_panel(panel)
    return made.build()
