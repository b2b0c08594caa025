"""The fleet: the daemons themselves, and what their collectors send."""

from __future__ import annotations

from typing import Any

from deploy.grafana.panels import draw_lines, draw_number, draw_table, make_dashboard

__all__ = ["build_fleet"]

OF = '{job_id=~"$job_id", rank=~"$rank"}'


def build_fleet() -> Any:
    """Return the dashboard of the daemons."""
    return make_dashboard(
        "DeepProf: fleet",
        "deepprof-fleet",
        "The daemons and their collectors: who sends, how far behind they are, and what it costs.",
        [*numbers(), *records(), *senders(), *collectors(), *stores(), *processes(), *hosts()],
    )


def numbers() -> list[Any]:
    """Return the fleet in numbers."""
    return [
        draw_number(
            "Daemons ready", "Daemons that take records and are up to date.", "short", ("sum(deepprof_ready)", "ready")
        ),
        draw_number(
            "Open streams", "Streams of collectors, of all daemons.", "short", ("sum(deepprof_streams)", "streams")
        ),
        draw_number(
            "Silent ranks",
            "Ranks that have sent nothing for five minutes and have not said that they are done.",
            "short",
            (
                f"count((time() - deepprof_last_record_timestamp_seconds{OF} > 300) "
                "unless on (instance, job_id, rank) deepprof_rank_ended == 1) or vector(0)",
                "ranks",
            ),
            bad_from=1,
        ),
        draw_number(
            "Series left out",
            "Series that went over the exporter's cap in the last hour: raise the cap, or forget jobs.",
            "short",
            ("sum(increase(deepprof_series_dropped_total[1h]))", "series"),
            bad_from=1,
        ),
        draw_number(
            "Messages refused",
            "Messages of the last hour that broke a limit or could not be read.",
            "short",
            ("sum(increase(deepprof_refused_messages_total[1h]))", "messages"),
            bad_from=1,
        ),
        draw_number(
            "Up",
            "Since the daemon started that started last.",
            "s",
            ("min(time() - deepprof_start_timestamp_seconds)", "up"),
        ),
    ]


def records() -> list[Any]:
    """Return what is sent and how far behind the daemons are."""
    return [
        draw_lines(
            "Records received",
            "By job.",
            "cps",
            (
                'sum by (job_id) (rate(deepprof_job_records_received_total{job_id=~"$job_id"}[$__rate_interval]))',
                "{{job_id}}",
            ),
        ),
        draw_lines(
            "Behind",
            "From a batch's arrival to its analysis, the slowest rank of each daemon.",
            "s",
            (f"max by (instance) (deepprof_ingest_lag_seconds{OF})", "{{instance}}"),
        ),
        draw_lines(
            "Queue",
            "Records taken and not yet analysed, and the ten ranks with most of them.",
            "bytes",
            ("sum by (instance) (deepprof_pipeline_queue_bytes)", "{{instance}}"),
            (f"topk(10, deepprof_queue_bytes{OF})", "{{job_id}} rank {{rank}}"),
        ),
        draw_lines(
            "Longest silent",
            "The ten ranks that have sent nothing for longest.",
            "s",
            (f"topk(10, time() - deepprof_last_record_timestamp_seconds{OF})", "{{job_id}} rank {{rank}}"),
        ),
    ]


def collectors() -> list[Any]:
    """Return how the collectors are, those that say it."""
    return [
        draw_lines(
            "Collectors by level",
            "Ranks that are recorded all of the time (full), a share of it (duty), and not at all (off).",
            "short",
            (f"sum by (level) (deepprof_collector_level{OF})", "{{level}}"),
        ),
        draw_lines(
            "What collecting costs",
            "Cores that collecting takes on the ranks' hosts, the ten ranks with most.",
            "short",
            (f"topk(10, deepprof_collector_overhead_ratio{OF})", "{{job_id}} rank {{rank}}"),
        ),
    ]


def senders() -> list[Any]:
    """Return who sends, and what of theirs is refused."""
    return [
        draw_lines(
            "Records by sender",
            "By the name of the token, or of another proof.",
            "cps",
            ("sum by (token) (rate(deepprof_sender_records_received_total[$__rate_interval]))", "{{token}}"),
        ),
        draw_lines(
            "Refused",
            "Calls, streams and messages by reason and the name of the token, each hour.",
            "short",
            ("sum by (token, reason) (increase(deepprof_refusals_total[1h])) or vector(0)", "{{token}} {{reason}}"),
        ),
    ]


def stores() -> list[Any]:
    """Return what is on disk."""
    return [
        draw_lines(
            "On disk",
            "Journal (its limit is journal size in the configuration) and iteration history.",
            "bytes",
            ("deepprof_journal_bytes", "journal {{instance}}"),
            ("deepprof_history_bytes", "history {{instance}}"),
        ),
        draw_lines(
            "Examinations",
            "Times that the rules looked at a job's latest records.",
            "cps",
            ("rate(deepprof_examinations_total[$__rate_interval])", "{{instance}}"),
        ),
    ]


def processes() -> list[Any]:
    """Return what the daemons cost."""
    own = " and on (instance, job) deepprof_build_info"
    return [
        draw_lines(
            "Processor",
            "Cores that a daemon uses.",
            "short",
            (f"rate(process_cpu_seconds_total[$__rate_interval]){own}", "{{instance}}"),
        ),
        draw_lines(
            "Memory",
            "Resident memory of a daemon; it depends on its ranks, not on how long they run.",
            "bytes",
            (f"process_resident_memory_bytes{own}", "{{instance}}"),
        ),
    ]


def hosts() -> list[Any]:
    """Return who sends."""
    return [
        draw_table(
            "Ranks by host",
            "Connected ranks, by the host that they say they run on.",
            "short",
            (
                f"count by (job_id, host) (deepprof_rank_info{OF} "
                "and on (instance, job_id, rank) deepprof_rank_connected == 1)",
                "{{host}}",
            ),
        ),
        draw_table(
            "Versions",
            "Daemons by the version they run.",
            "short",
            ("count by (version, instance) (deepprof_build_info)", "{{version}}"),
        ),
    ]
