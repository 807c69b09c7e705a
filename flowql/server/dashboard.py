"""A Grafana dashboard over the metrics of an instance, made from a list of panels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

UID = "flowql-instance"
WIDTH, HEIGHT = 12, 8  # of a panel, in Grafana's grid of 24 columns
_ONLY = 'query=~"$query"'
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}


@dataclass(frozen=True, slots=True)
class Panel:
    """A diagram over time. lines: expression -> legend. unit: Grafana's name of it. help: what to look at."""

    title: str
    lines: dict[str, str]
    unit: str = "short"
    help: str = ""


PANELS = (
    Panel(
        "Share of the processor",
        {
            f"flowql_query_share_ratio{{{_ONLY}}}": "{{query}}",
            f"flowql_query_entitled_ratio{{{_ONLY}}}": "{{query}} is entitled to",
        },
        "percentunit",
        "A query that gets less than it is entitled to waits for something else: its partitions, or its input.",
    ),
    Panel(
        "Processor time",
        {f"rate(flowql_query_cpu_seconds_total{{{_ONLY}}}[$__rate_interval])": "{{query}}"}
        | {"rate(flowql_cpu_seconds_total[$__rate_interval])": "whole process"},
        "short",
        "1 is one processor.",
    ),
    Panel("Records in", {f"rate(flowql_query_records_in_total{{{_ONLY}}}[$__rate_interval])": "{{query}}"}, "cps"),
    Panel("Records out", {f"rate(flowql_query_records_out_total{{{_ONLY}}}[$__rate_interval])": "{{query}}"}, "cps"),
    Panel("Lag", {f"flowql_query_lag_records{{{_ONLY}}}": "{{query}}"}, "short", "Records that wait in the log."),
    Panel(
        "Lag by partition",
        {f"topk(20, flowql_partition_lag_records{{{_ONLY}}})": "{{query}} {{topic}}-{{partition}}"},
        "short",
        "One partition far above the others is skew.",
    ),
    Panel(
        "Latency, 99th percentile",
        {
            "histogram_quantile(0.99, sum by (le, query) "
            f"(rate(flowql_query_latency_seconds_bucket{{{_ONLY}}}[$__rate_interval])))": "{{query}}"
        },
        "s",
        "From when a record was seen in the log to the commit of what follows from it.",
    ),
    Panel(
        "Latency, median",
        {
            "histogram_quantile(0.5, sum by (le, query) "
            f"(rate(flowql_query_latency_seconds_bucket{{{_ONLY}}}[$__rate_interval])))": "{{query}}"
        },
        "s",
    ),
    Panel("State", {f"flowql_query_state_bytes{{{_ONLY}}}": "{{query}}"}, "bytes"),
    Panel(
        "Memory",
        {
            "flowql_memory_bytes": "process",
            "flowql_query_processes_memory_bytes": "query processes",
            "flowql_gateway_memory_bytes": "gateway",
            "flowql_gateway_memory_max_bytes": "gateway at most",
            "flowql_tables_memory_bytes": "rows of tables",
            "flowql_tables_memory_max_bytes": "rows of tables at most",
            "flowql_uncommitted_bytes": "uncommitted output",
        }
        | {f"flowql_query_buffered_bytes{{{_ONLY}}}": "{{query}} waiting to be processed"},
        "bytes",
    ),
    Panel(
        "State: bytes",
        {
            "flowql_state_files_bytes": "files",
            "flowql_state_unflushed_bytes": "not flushed",
            "flowql_state_pending_compaction_bytes": "to be compacted",
        },
        "bytes",
    ),
    Panel(
        "State: bytes written in a second",
        {
            "rate(flowql_state_written_bytes_total[$__rate_interval])": "rows",
            "rate(flowql_state_flushed_bytes_total[$__rate_interval])": "flushed",
            "rate(flowql_state_compacted_bytes_total[$__rate_interval])": "compacted",
        },
        "bytes",
    ),
    Panel(
        "State: look-ups in a second",
        {
            "rate(flowql_state_cache_hits_total[$__rate_interval])": "blocks in the cache",
            "rate(flowql_state_cache_misses_total[$__rate_interval])": "blocks read",
            "rate(flowql_state_filtered_lookups_total[$__rate_interval])": "answered by filters",
            "rate(flowql_state_calls_total[$__rate_interval])": "calls: {{call}}",
        },
        "short",
    ),
    Panel(
        "State: time of calls",
        {
            "flowql_state_call_p99_seconds": "{{call}}, 99th percentile",
            "rate(flowql_state_call_seconds_total[$__rate_interval])": "{{call}}, in a second",
            "rate(flowql_state_stall_seconds_total[$__rate_interval])": "writes held up, in a second",
        },
        "s",
    ),
    Panel(
        "Remote store: behind",
        {
            f"flowql_remote_behind_seconds{{{_ONLY}}}": "{{query}}, seconds",
            f"flowql_remote_behind_commits{{{_ONLY}}}": "{{query}}, commits",
            "flowql_remote_away": "1: gets nothing",
        },
        "short",
        "With `state: {remote: ...}`. Should stay near 10 seconds.",
    ),
    Panel(
        "Remote store: bytes",
        {
            f"flowql_remote_waiting_bytes{{{_ONLY}}}": "{{query}} waits",
            "rate(flowql_remote_uploaded_bytes_total[$__rate_interval])": "uploaded in a second",
        },
        "bytes",
    ),
    Panel(
        "Remote store: writes in a second", {"rate(flowql_remote_requests_total[$__rate_interval])": "writes"}, "short"
    ),
    Panel("State: compactions", {"flowql_state_compactions": "in progress"}, "short"),
    Panel(
        "Rows that wait",
        {
            f"flowql_query_held_rows{{{_ONLY}}}": "{{query}} for a time",
            f"flowql_query_waiting_rows{{{_ONLY}}}": "{{query}} for calls",
            f"flowql_query_parked_rows{{{_ONLY}}}": "{{query}} parked",
            f"flowql_query_calls_in_flight{{{_ONLY}}}": "{{query}} calls under way",
        },
        "short",
    ),
    Panel(
        "Trouble",
        {
            f"increase(flowql_query_errors_total{{{_ONLY}}}[$__rate_interval])": "{{query}} failures",
            f"increase(flowql_query_dead_letters_total{{{_ONLY}}}[$__rate_interval])": "{{query}} dead letters",
            f"increase(flowql_query_late_records_total{{{_ONLY}}}[$__rate_interval])": "{{query}} late",
            f"increase(flowql_query_skipped_records_total{{{_ONLY}}}[$__rate_interval])": "{{query}} skipped",
        },
        "short",
        "Should stay at 0.",
    ),
    Panel(
        "Not running",
        {
            f'flowql_query_state{{{_ONLY}, state!="running"}}': "{{query}} {{state}}",
            "flowql_commits_blocked": "commits blocked",
        },
        "short",
        "Should be empty, or 0.",
    ),
    Panel(
        "Commits",
        {
            "histogram_quantile(0.99, rate(flowql_commit_seconds_bucket[$__rate_interval]))": "99th percentile",
            "histogram_quantile(0.5, rate(flowql_commit_seconds_bucket[$__rate_interval]))": "median",
        },
        "s",
        "From cut to commit. It grows with the disk's latency.",
    ),
    Panel(
        "Records fetched and decoded",
        {
            "rate(flowql_topic_records_fetched_total[$__rate_interval])": "{{topic}} fetched",
            "rate(flowql_topic_records_decoded_total[$__rate_interval])": "{{topic}} decoded",
        },
        "cps",
        "Each once for all queries, whatever their number.",
    ),
    Panel(
        "Functions: time of calls",
        {"rate(flowql_function_seconds_total[$__rate_interval])": "{{function}} of {{module}}"},
        "short",
        "1 is one thread that does nothing but wait for it.",
    ),
    Panel(
        "Functions: calls", {"rate(flowql_function_calls_total[$__rate_interval])": "{{function}} of {{module}}"}, "cps"
    ),
    Panel(
        "Functions: failures",
        {
            "rate(flowql_function_failures_total[$__rate_interval])": "{{function}} of {{module}}",
            "rate(flowql_function_lost_processes_total[$__rate_interval])": "{{function}} of {{module}}, processes lost",
        },
        "cps",
        "Every failure is a dead letter.",
    ),
    Panel(
        "Gateway",
        {
            "flowql_gateway_connections": "connections",
            "rate(flowql_gateway_requests_total[$__rate_interval])": "requests a second",
            "increase(flowql_gateway_restarts_total[$__rate_interval])": "restarts",
        },
        "short",
        "Clients of `api` and `pg`. A restart ends their connections.",
    ),
)


def dashboard() -> dict[str, Any]:
    """The dashboard as Grafana imports it: it asks for the Prometheus to read and for the queries to show."""
    return {
        "uid": UID,
        "title": "FlowQL",
        "tags": ["flowql"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "10s",
        "time": {"from": "now-30m", "to": "now"},
        "templating": {"list": [_datasource(), _queries()]},
        "panels": [_panel(n, p) for n, p in enumerate(PANELS)],
    }


def _datasource() -> dict[str, Any]:
    return {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"}


def _queries() -> dict[str, Any]:
    return {
        "name": "query",
        "label": "Queries",
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": "label_values(flowql_query_weight, query)", "refId": "queries"},
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
        "refresh": 2,  # whenever the time range changes
    }


def _panel(number: int, panel: Panel) -> dict[str, Any]:
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": panel.title,
        "description": panel.help,
        "datasource": _SOURCE,
        "gridPos": {"x": number % 2 * WIDTH, "y": number // 2 * HEIGHT, "w": WIDTH, "h": HEIGHT},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": {
            "legend": {
                "showLegend": True,
                "displayMode": "table",
                "placement": "right",
                "calcs": ["lastNotNull", "max"],
            },
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
        "targets": [
            {"refId": chr(ord("A") + n), "datasource": _SOURCE, "expr": expr, "legendFormat": legend}
            for n, (expr, legend) in enumerate(panel.lines.items())
        ],
    }
