"""The overview: all jobs, a line each."""

from __future__ import annotations

from typing import Any

from deploy.grafana.panels import draw_lines, draw_number, draw_table, make_dashboard

__all__ = ["build_overview"]

OF = '{job_id=~"$job_id", rank=~"$rank"}'
SEVERE = '{job_id=~"$job_id", rank=~"$rank", severity=~"warning|critical"}'


def job_rate(name: str) -> str:
    """Return the rate of a counter (its name without `deepprof_`), by job."""
    return f"sum by (job_id) (rate(deepprof_{name}{OF}[$__rate_interval]))"


def by_job(dividend: str, divisor: str) -> str:
    """Return a ratio of two counters' rates, by job."""
    return f"{job_rate(dividend)} / {job_rate(divisor)}"


def build_overview() -> Any:
    """Return the dashboard of all jobs."""
    return make_dashboard(
        "DeepProf: overview",
        "deepprof-overview",
        "Training jobs at one glance: which of them run, at what pace, and what is wrong with them.",
        [*numbers(), *pace(), *devices(), *problems()],
    )


def numbers() -> list[Any]:
    """Return what there is, in numbers."""
    return [
        draw_number(
            "Jobs", "Jobs that were heard of lately.", "short", ('count(deepprof_job_ranks{job_id=~"$job_id"})', "jobs")
        ),
        draw_number(
            "Ranks connected",
            "Ranks whose collector is connected now.",
            "short",
            ('sum(deepprof_job_ranks_connected{job_id=~"$job_id"})', "ranks"),
        ),
        draw_number(
            "Ranks that iterate",
            "Ranks with a device whose loop is being followed.",
            "short",
            (
                f'count(max by (job_id, rank) (deepprof_miner_state{OF[:-1]}, state="locked"}}) == 1) or vector(0)',
                "ranks",
            ),
        ),
        draw_number(
            "Jobs with findings",
            "Jobs with a finding of at least a warning.",
            "short",
            (f"count(count by (job_id) (deepprof_diagnosis_active{SEVERE})) or vector(0)", "jobs"),
            bad_from=1,
        ),
        draw_number(
            "Alerts firing",
            "Alerts of the DeepProf rules that fire now.",
            "short",
            ('count(ALERTS{alertstate="firing", job_id=~"$job_id"}) or vector(0)', "alerts"),
            bad_from=1,
        ),
        draw_number(
            "Daemons ready",
            "Daemons that take records and are up to date.",
            "short",
            ("sum(deepprof_ready)", "daemons"),
        ),
    ]


def pace() -> list[Any]:
    """Return how fast jobs iterate."""
    duration = "iteration_duration_seconds"
    return [
        draw_lines(
            "Iteration time",
            "Mean time from an iteration's start to the next one's, over all ranks of a job.",
            "s",
            (by_job(f"{duration}_sum", f"{duration}_count"), "{{job_id}}"),
        ),
        draw_lines(
            "Time since the last iteration",
            "Of the connected rank that has waited longest. A line that rises steadily is a job that stands still.",
            "s",
            (
                f"max by (job_id) (time() - deepprof_last_iteration_timestamp_seconds{OF} "
                "and on (instance, job_id, rank) deepprof_rank_connected == 1)",
                "{{job_id}}",
            ),
        ),
    ]


def devices() -> list[Any]:
    """Return how well jobs use their devices."""
    return [
        draw_lines(
            "Device busy",
            "Share of the time in which anything ran on the devices, communication included.",
            "percentunit",
            (f"avg by (job_id) (rate(deepprof_busy_seconds_total{OF}[$__rate_interval]))", "{{job_id}}"),
        ),
        draw_lines(
            "Interval overlap",
            "Copies from the host inside the pauses between iterations, over those pauses: near 1 the device waits for "
            "its input to be copied.",
            "percentunit",
            (by_job("interval_copy_seconds_total", "iteration_interval_seconds_total"), "{{job_id}}"),
            top=1,
        ),
        draw_lines(
            "Exposed copies",
            "Time in which a copy ran and no kernel, over the time of iterations.",
            "percentunit",
            (by_job("copy_exposed_seconds_total", "iteration_duration_seconds_sum"), "{{job_id}}"),
        ),
        draw_lines(
            "Kernels per iteration",
            "Largest of a job's ranks. A line that climbs in steps is a graph that grows.",
            "short",
            (f"max by (job_id) (deepprof_iteration_kernels{OF})", "{{job_id}}"),
        ),
    ]


def problems() -> list[Any]:
    """Return what is wrong."""
    return [
        draw_table(
            "Findings",
            "What the rules see in the latest records, by rank; `deepprof diagnose --daemon` explains each.",
            "none",
            (f"max by (job_id, finding, severity, rank) (deepprof_diagnosis_active{OF})", "{{finding}}"),
        ),
        draw_lines(
            "Records missing",
            "Records lost on the way, refused, or left out, over all that were sent.",
            "percentunit",
            (
                f"({job_rate('records_lost_total')} + {job_rate('records_invalid_total')}"
                f" + ({job_rate('records_dropped_total')} or 0 * {job_rate('records_received_total')}))"
                f" / {job_rate('records_received_total')}",
                "{{job_id}}",
            ),
        ),
    ]
