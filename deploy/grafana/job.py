"""One job: its iterations, where their time goes, and how its ranks differ."""

from __future__ import annotations

from typing import Any

from deploy.grafana.panels import draw_heatmap, draw_lines, draw_number, draw_states, draw_table, make_dashboard

__all__ = ["build_job"]

JOB = '{job_id="$job_id"}'
OF = '{job_id="$job_id", rank=~"$rank"}'
DURATION = "deepprof_iteration_duration_seconds"


def rate(name: str, by: str) -> str:
    """Return a counter's rate, summed by labels."""
    return f"sum by ({by}) (rate({name}{OF}[$__rate_interval]))"


def per_iteration(name: str, by: str) -> str:
    """Return how much of a counter an iteration takes."""
    return f"{rate(name, by)} / {rate('deepprof_iterations_total', by)}"


def build_job() -> Any:
    """Return the dashboard of one job."""
    return make_dashboard(
        "DeepProf: job",
        "deepprof-job",
        "One training job: how long an iteration takes, where its time goes, and which rank is different.",
        [*numbers(), *durations(), *parts(), *ranks(), *checks()],
        one_job=True,
    )


def numbers() -> list[Any]:
    """Return the job in numbers."""
    return [
        draw_number(
            "Ranks connected",
            "Ranks whose collector is connected now.",
            "short",
            (f"sum(deepprof_job_ranks_connected{JOB})", "connected"),
        ),
        draw_number(
            "World size",
            "Ranks that the job says it has; 0: it does not say.",
            "short",
            (f"max(deepprof_job_world_size{JOB})", "ranks"),
        ),
        draw_number(
            "Iteration, median",
            "Half of the iterations of the last ten minutes took less; as exact as the buckets of the histogram.",
            "s",
            (f"histogram_quantile(0.5, sum by (le) (rate({DURATION}_bucket{OF}[10m])))", "median"),
        ),
        draw_number(
            "Kernels per iteration",
            "Of the main stream, the largest of the ranks.",
            "short",
            (f"max(deepprof_iteration_kernels{OF})", "kernels"),
        ),
        draw_number(
            "Confidence",
            "How sure the least certain rank's iteration is.",
            "percentunit",
            (f"min(deepprof_iteration_confidence_ratio{OF})", "confidence"),
        ),
        draw_number(
            "Since the last iteration",
            "Of the rank that has waited longest.",
            "s",
            (f"max(time() - deepprof_last_iteration_timestamp_seconds{OF})", "waited"),
        ),
    ]


def durations() -> list[Any]:
    """Return how long iterations take."""
    return [
        draw_heatmap(
            "Iterations by duration",
            "How many iterations took how long.",
            "s",
            (f"sum by (le) (increase({DURATION}_bucket{OF}[$__rate_interval]))", "{{le}}"),
        ),
        draw_lines(
            "Iteration time",
            "Mean and quantiles over the chosen ranks; the quantiles are as exact as the buckets.",
            "s",
            (
                f"sum(rate({DURATION}_sum{OF}[$__rate_interval])) / sum(rate({DURATION}_count{OF}[$__rate_interval]))",
                "mean",
            ),
            (f"histogram_quantile(0.5, sum by (le) (rate({DURATION}_bucket{OF}[$__rate_interval])))", "median"),
            (
                f"histogram_quantile(0.95, sum by (le) (rate({DURATION}_bucket{OF}[$__rate_interval])))",
                "95th percentile",
            ),
        ),
    ]


def parts() -> list[Any]:
    """Return where an iteration's time goes."""
    return [
        draw_lines(
            "An iteration's time",
            "Mean per iteration and rank. The parts overlap: copies run beside kernels and inside the interval.",
            "s",
            (per_iteration(f"{DURATION}_sum", "job_id"), "iteration"),
            (per_iteration("deepprof_busy_seconds_total", "job_id"), "device busy"),
            (per_iteration("deepprof_compute_seconds_total", "job_id"), "computing"),
            (per_iteration("deepprof_copy_seconds_total", "job_id"), "copying"),
            (per_iteration("deepprof_copy_exposed_seconds_total", "job_id"), "copying, nothing else"),
            (per_iteration("deepprof_iteration_interval_seconds_total", "job_id"), "interval"),
        ),
        draw_lines(
            "Stages of an iteration",
            "What the device works and waits for, mean of the chosen ranks, in the records that were examined last.",
            "s",
            (f"avg by (stage) (deepprof_stage_seconds{OF})", "{{stage}}"),
            stacked=True,
        ),
        draw_lines(
            "Stages of an iteration on the host",
            "Where the threads are that launch, mean of the chosen ranks, in the records that were examined last.",
            "s",
            (f"avg by (stage) (deepprof_stage_host_seconds{OF})", "{{stage}}"),
            stacked=True,
        ),
        draw_lines(
            "Lines of code on the host",
            "What threads of the chosen ranks are in, of jobs that send calling contexts: the lines that take most.",
            "percentunit",
            (rate("deepprof_context_host_seconds_total", "context"), "{{context}}"),
            stacked=True,
        ),
        draw_lines(
            "Lines of code on devices",
            "What the devices of the chosen ranks run for a line, of jobs that send calling contexts.",
            "percentunit",
            (rate("deepprof_context_device_seconds_total", "context"), "{{context}}"),
            stacked=True,
        ),
        draw_lines(
            "Model FLOP utilisation",
            "What the model computes over what the device's peak allows; only of jobs in exporter.model_flops.",
            "percentunit",
            (f"deepprof_mfu_ratio{OF}", "rank {{rank}}, device {{device}}"),
        ),
        draw_lines(
            "Interval overlap",
            "Copies from the host inside the pauses between iterations, over those pauses.",
            "percentunit",
            (
                f"{rate('deepprof_interval_copy_seconds_total', 'rank')}"
                f" / {rate('deepprof_iteration_interval_seconds_total', 'rank')}",
                "rank {{rank}}",
            ),
            top=1,
        ),
        draw_lines(
            "Bytes copied",
            "By kind: from the host (HtoD), to it (DtoH), on the device (DtoD), between devices (PtoP).",
            "Bps",
            (rate("deepprof_copied_bytes_total", "kind"), "{{kind}}"),
        ),
        draw_lines(
            "Kernels per iteration",
            "Of the main stream. A line that climbs in steps is a graph that grows.",
            "short",
            (f"max by (rank) (deepprof_iteration_kernels{OF})", "rank {{rank}}"),
        ),
    ]


def ranks() -> list[Any]:
    """Return how ranks differ."""
    return [
        draw_lines(
            "Computing per iteration, by rank",
            "The rank that stands out keeps the others waiting in collectives: all of them iterate at one pace.",
            "s",
            (per_iteration("deepprof_compute_seconds_total", "rank"), "rank {{rank}}"),
        ),
        draw_lines(
            "Device busy, by rank",
            "Share of the time in which anything ran on the devices.",
            "percentunit",
            (f"avg by (rank) (rate(deepprof_busy_seconds_total{OF}[$__rate_interval]))", "rank {{rank}}"),
        ),
        draw_lines(
            "Iterations per second",
            "Iterations found, by rank.",
            "cps",
            (rate("deepprof_iterations_total", "rank"), "rank {{rank}}"),
        ),
        draw_states(
            "Loop",
            "Whether a loop is followed on some device of the rank.",
            (f'max by (rank) (deepprof_miner_state{OF[:-1]}, state="locked"}})', "rank {{rank}}"),
            (("no iteration known", "orange"), ("followed", "green")),
        ),
    ]


def checks() -> list[Any]:
    """Return what was found, and what the figures rest on."""
    return [
        draw_table(
            "Findings",
            "What the rules see in the latest records; `deepprof diagnose --daemon ADDRESS JOB` explains each.",
            "none",
            (f"max by (finding, severity, rank) (deepprof_diagnosis_active{OF})", "{{finding}}"),
        ),
        draw_lines(
            "Changes of the loop",
            "Times that the loop was lost or replaced, and that its iteration became longer.",
            "short",
            (f"sum(increase(deepprof_miner_resets_total{OF}[$__rate_interval]))", "lost or replaced"),
            (f"sum(increase(deepprof_graph_growth_total{OF}[$__rate_interval]))", "longer"),
        ),
        draw_lines(
            "Records",
            "What arrived, and what of it was left out or is missing.",
            "cps",
            (rate("deepprof_records_received_total", "job_id"), "received"),
            (rate("deepprof_records_dropped_total", "reason"), "left out: {{reason}}"),
            (rate("deepprof_records_invalid_total", "job_id"), "refused"),
            (rate("deepprof_records_duplicate_total", "job_id"), "sent again"),
            (rate("deepprof_records_lost_total", "job_id"), "lost on the way"),
        ),
        draw_lines(
            "Behind",
            "From a batch's arrival to its analysis, the slowest of the chosen ranks.",
            "s",
            (f"max(deepprof_ingest_lag_seconds{OF})", "lag"),
        ),
    ]
