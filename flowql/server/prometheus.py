"""The status of an instance in the text format of Prometheus. `METRICS` is all there is; names and labels stay as they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
Status = Mapping[str, Any]
# Labels and the value; of a histogram its sum and classes.
Samples = Callable[[Status], Iterator[tuple[tuple[str, ...], Any]]]
# Latencies beyond have no bucket of their own: 19 are enough for a histogram that every query has.
BUCKET_MS_MAX = 131_072.0


@dataclass(frozen=True, slots=True)
class Metric:
    """name: as it is exposed, but for the `_bucket`, `_sum` and `_count` of a histogram."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...]
    help: str
    samples: Samples


def _query(name: str, kind: Literal["counter", "gauge"], key: str, help_: str) -> Metric:
    """A figure that each entry of the status has; of one that does not know it, there is none."""

    def samples(status: Status) -> Iterator[tuple[tuple[str, ...], Any]]:
        for q in status["queries"]:
            if q.get(key) is not None:
                yield (q["id"],), q[key]

    return Metric(f"flowql_query_{name}", kind, ("query",), help_, samples)


def _by_row(status: Status) -> Iterator[tuple[tuple[str, ...], Any]]:
    for q in status["queries"]:
        for operator, rows in q.get("rows_by_row", {}).items():
            yield (q["id"], operator), rows


def _waiting(name: str, key: str, help_: str) -> Metric:
    """A figure of what queries have `waiting`."""

    def samples(status: Status) -> Iterator[tuple[tuple[str, ...], Any]]:
        for q in status["queries"]:
            if key in (q.get("waiting") or ()):
                yield (q["id"],), q["waiting"][key]

    return Metric(f"flowql_query_{name}", "gauge", ("query",), help_, samples)


def _instance(name: str, kind: Literal["counter", "gauge"], key: str, help_: str) -> Metric:
    def samples(status: Status) -> Iterator[tuple[tuple[str, ...], Any]]:
        if status["instance"].get(key) is not None:
            yield (), status["instance"][key]

    return Metric(f"flowql_{name}", kind, (), help_, samples)


def _gateway(name: str, kind: Literal["counter", "gauge"], key: str, help_: str) -> Metric:
    def samples(status: Status) -> Iterator[tuple[tuple[str, ...], Any]]:
        if found := status["instance"].get("gateway"):
            yield (), found[key]

    return Metric(f"flowql_gateway_{name}", kind, (), help_, samples)


def _state(name: str, kind: Literal["counter", "gauge"], key: str, help_: str) -> Metric:
    def samples(status: Status) -> Iterator[tuple[tuple[str, ...], Any]]:
        if (found := status["instance"].get("state")) and key in found:
            yield (), found[key]

    return Metric(f"flowql_state_{name}", kind, (), help_, samples)


def _calls(name: str, kind: Literal["counter", "gauge"], key: str, help_: str, factor: float = 1) -> Metric:
    def samples(status: Status) -> Iterator[tuple[tuple[str, ...], Any]]:
        for call, times in (status["instance"].get("state") or {}).get("calls", {}).items():
            yield (call,), times[key] * factor

    return Metric(f"flowql_state_{name}", kind, ("call",), help_, samples)


def _partition(name: str, key: str, help_: str) -> Metric:
    def samples(status: Status) -> Iterator[tuple[tuple[str, ...], Any]]:
        for q in status["queries"]:
            for p in q.get("partitions", ()):
                yield (q["id"], p["topic"], str(p["partition"])), p[key]

    return Metric(f"flowql_partition_{name}", "gauge", ("query", "topic", "partition"), help_, samples)


def _topic(name: str, key: str, help_: str) -> Metric:
    def samples(status: Status) -> Iterator[tuple[tuple[str, ...], Any]]:
        for topic, counts in status["instance"].get("topics", {}).items():
            yield (topic,), counts[key]

    return Metric(f"flowql_topic_{name}", "counter", ("topic",), help_, samples)


def _function(name: str, key: str, help_: str) -> Metric:
    def samples(status: Status) -> Iterator[tuple[tuple[str, ...], Any]]:
        for f in status["instance"].get("functions", ()):
            yield (f["function"], f["module"]), f[key]

    return Metric(f"flowql_function_{name}", "counter", ("function", "module"), help_, samples)


def _remote(name: str, kind: Literal["counter", "gauge"], key: str, help_: str, factor: float = 1) -> Metric:
    """A figure by query of what the remote store lacks, or of all together without a query."""

    def samples(status: Status) -> Iterator[tuple[tuple[str, ...], Any]]:
        if (remote := status["instance"].get("remote")) is None:
            return
        if key in remote and not any(key in found for found in remote["queries"].values()):
            yield ("",), remote[key] * factor
        for query, found in remote["queries"].items():
            if found.get(key) is not None:
                yield (query,), found[key] * factor

    return Metric(f"flowql_remote_{name}", kind, ("query",), help_, samples)


def _remote_total(name: str, key: str, help_: str) -> Metric:
    def samples(status: Status) -> Iterator[tuple[tuple[str, ...], Any]]:
        if (found := status["instance"].get("remote")) is not None:
            yield (), found[key]

    return Metric(f"flowql_remote_{name}", "counter", (), help_, samples)


def _away(status: Status) -> Iterator[tuple[tuple[str, ...], Any]]:
    if (found := status["instance"].get("remote")) is not None:
        yield (), int(found["away"] is not None)


def _info(status: Status) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield (status["instance"]["engine"], status["instance"]["log"]), 1


def _states(status: Status) -> Iterator[tuple[tuple[str, ...], Any]]:
    for q in status["queries"]:
        yield (q["id"], q["state"]), 1


def _waits(status: Status) -> Iterator[tuple[tuple[str, ...], Any]]:
    for q in status["queries"]:
        if q.get("waits") is not None:
            yield (q["id"], q["waits"]["for"]), 1


def _blocked(status: Status) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield (), int(status["instance"].get("blocked") is not None)


def _troubles(status: Status) -> Iterator[tuple[tuple[str, ...], Any]]:
    for trouble in status["instance"].get("trouble", ()):
        yield (trouble["partition"] or "",), trouble["for_ms"] / 1000


def _latency(status: Status) -> Iterator[tuple[tuple[str, ...], Any]]:
    for q in status["queries"]:
        if "latency" in q:
            yield (q["id"],), q["latency"]


def _commit_latency(status: Status) -> Iterator[tuple[tuple[str, ...], Any]]:
    if "commit_latency" in status["instance"]:
        yield (), status["instance"]["commit_latency"]


METRICS = (
    Metric("flowql_instance_info", "gauge", ("engine", "log"), "Always 1.", _info),
    _instance("uptime_seconds", "gauge", "uptime_s", "Time since the process started."),
    _instance("cpu_seconds_total", "counter", "cpu_s", "Processor time of the process."),
    _instance("memory_bytes", "gauge", "memory_bytes", "Resident memory of the process."),
    _instance("query_processes_memory_bytes", "gauge", "query_processes_memory_bytes", "Memory of query processes."),
    _gateway("memory_bytes", "gauge", "memory_bytes", "Gateway memory."),
    _gateway("memory_max_bytes", "gauge", "memory_bytes_max", "Its limit."),
    _gateway("restarts_total", "counter", "restarts", "Gateway restarts."),
    _gateway("connections", "gauge", "connections", "Open connections."),
    _gateway("requests_total", "counter", "requests", "HTTP requests."),
    _instance("tables_memory_bytes", "gauge", "tables_memory_bytes", "Memory of kept rows of local tables."),
    _instance("tables_memory_max_bytes", "gauge", "tables_memory_bytes_max", "Limit of the memory of kept rows."),
    _instance("commits_total", "counter", "commits", "Commits since the start."),
    Metric("flowql_commits_blocked", "gauge", (), "1 while commits fail.", _blocked),
    Metric("flowql_trouble_seconds", "gauge", ("partition",), "How long a partition has been unreadable.", _troubles),
    Metric("flowql_commit_seconds", "histogram", (), "From the cut of an epoch to its commit.", _commit_latency),
    _instance("uncommitted_bytes", "gauge", "uncommitted_bytes", "Output that waits for the next commit."),
    _topic("records_fetched_total", "fetched", "Records read from the log, once for all queries."),
    _topic("records_decoded_total", "decoded", "Records decoded, once for queries that read the same columns."),
    Metric("flowql_query_state", "gauge", ("query", "state"), "1 for the state the query is in.", _states),
    Metric("flowql_query_waiting", "gauge", ("query", "for"), "1 for the reason why the query waits.", _waits),
    _query("weight", "gauge", "weight", "Weight of the query's priority."),
    _query("share_ratio", "gauge", "share", "Its share of processor time, last 10 s."),
    _query("entitled_ratio", "gauge", "entitled", "The share due to its weight, last 10 s."),
    _query("cpu_seconds_total", "counter", "cpu_s", "Processor time."),
    _query("records_in_total", "counter", "records_in", "Records read."),
    _query("records_out_total", "counter", "records_out", "Records written."),
    Metric(
        *("flowql_query_rows_by_row_total", "counter", ("query", "operator")),
        "Rows that an operator with state processed one by one.",
        _by_row,
    ),
    _query("lag_records", "gauge", "lag", "Records of its sources whose results are not committed."),
    Metric(
        *("flowql_query_latency_seconds", "histogram", ("query",)),
        "Time from reading a record to the commit of its results.",
        _latency,
    ),
    _query("state_bytes", "gauge", "state_bytes", "Its stores, uncompressed; counted every few seconds."),
    _query("buffered_bytes", "gauge", "buffered_bytes", "Records fetched and not processed."),
    _query("dead_letters_total", "counter", "dead_letters", "Records that went to DEAD_LETTERS."),
    _query("late_records_total", "counter", "late_records", "Records after the grace period of their window."),
    _query("skipped_records_total", "counter", "skipped_records", "Damaged records that it skipped."),
    _query("errors_total", "counter", "errors", "Failures that delayed the query."),
    _waiting("held_rows", "windows", "Rows that wait for a time, such as the end of their window."),
    _waiting("waiting_rows", "calls", "Rows that wait for calls of asynchronous functions."),
    _waiting("parked_rows", "parked", "Rows that have waited for more than a second."),
    _waiting("calls_in_flight", "in_flight", "Calls of asynchronous functions in progress."),
    _function("calls_total", "calls", "Calls of a user-defined function, one per row."),
    _function("failures_total", "failures", "Calls that failed."),
    _function("seconds_total", "seconds", "Time of its calls, including messages to processes."),
    _function("lost_processes_total", "lost_processes", "Processes that ended during a call."),
    _state("cache_hits_total", "counter", "cache_hits", "Blocks that RocksDB found in its cache."),
    _state("cache_misses_total", "counter", "cache_misses", "Blocks that RocksDB read from files."),
    _state("filtered_lookups_total", "counter", "filtered_lookups", "Look-ups that a filter answered without a block."),
    _state("stall_seconds_total", "counter", "stall_s", "Time for which RocksDB held up writes."),
    _state("written_bytes_total", "counter", "written_bytes", "Rows written to RocksDB."),
    _state("flushed_bytes_total", "counter", "flushed_bytes", "Files written from memory."),
    _state("compacted_bytes_total", "counter", "compacted_bytes", "Files written by compactions."),
    _state("compactions", "gauge", "compactions", "Compactions in progress."),
    _state(
        "pending_compaction_bytes", "gauge", "pending_compaction_bytes", "Bytes that compactions still have to write."
    ),
    _state("files_bytes", "gauge", "files_bytes", "Files of RocksDB."),
    _state("unflushed_bytes", "gauge", "unflushed_bytes", "Rows that are in memory and not in files."),
    _calls("calls_total", "counter", "count", "Calls of RocksDB; one may read or write many rows."),
    _calls("call_seconds_total", "counter", "seconds", "Time of these calls."),
    _calls("call_p99_seconds", "gauge", "p99_ms", "99th percentile of their times since RocksDB was opened.", 0.001),
    Metric("flowql_remote_away", "gauge", (), "1 while uploads to the remote store fail.", _away),
    _remote("behind_commits", "gauge", "behind_commits", "Commits that the remote store lacks."),
    _remote("behind_seconds", "gauge", "behind_ms", "Age of its newest commit; 0 if it has all commits.", 0.001),
    _remote(
        "waiting_bytes",
        "gauge",
        "waiting_bytes",
        "Bytes not yet uploaded; on the embedded log without `query`.",
    ),
    _remote_total("uploaded_bytes_total", "uploaded_bytes", "Bytes uploaded since the start."),
    _remote_total("requests_total", "requests", "Writes to the remote store since the start."),
    _partition("position", "position", "Offset of the next record it processes."),
    _partition("lag_records", "lag", "Records of the partition whose results are not committed."),
)


class _Once(Collector):
    """Gives the families of one status."""

    def __init__(self, status: Status) -> None:
        self._status = status

    def collect(self) -> Iterator[Family]:
        for metric in METRICS:
            yield _family(metric, self._status)


def exposition(status: Status) -> bytes:
    """The text Prometheus reads. status: with details."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Once(status))
    return generate_latest(registry)


def _family(metric: Metric, status: Status) -> Family:
    if metric.kind == "histogram":
        histogram = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
        for labels, value in metric.samples(status):
            buckets = [
                (f"{ms / 1000:g}", float(n)) for ms, n in value["classes"] if ms is not None and ms <= BUCKET_MS_MAX
            ]
            histogram.add_metric(labels, [*buckets, ("+Inf", float(value["classes"][-1][1]))], value["sum_ms"] / 1000)
        return histogram
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    family = kind(metric.name, metric.help, labels=metric.labels)
    for labels, value in metric.samples(status):
        family.add_metric(labels, value)
    return family
