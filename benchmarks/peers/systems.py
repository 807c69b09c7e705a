"""The systems that are compared: how a process of each is started, and how its results are read."""

from __future__ import annotations

import platform
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

from benchmarks.peers.build import HERE, built, version_of
from flowql.bench.engines import NEXMARK
from flowql.bench.oracle import EXPECTED
from flowql.kafka.jars import KAFKA_VERSION
from flowql.kafka.java import find_java

THREADS = 2
COMMIT_MS = 1000
HEAP_MB = 1024
FLOWQL = "flowql"
NAMES = (FLOWQL, "ks-alos", "ks-eos", "flink-heap", "flink-rocksdb")
SETTINGS = {
    FLOWQL: "exactly once, state in RocksDB with changelogs",
    "ks-alos": "Kafka Streams, at least once, RocksDB with changelogs, 64 MB record cache",
    "ks-eos": "Kafka Streams, exactly_once_v2, otherwise the same",
    "flink-heap": "Flink SQL, at least once, state on the heap, mini-batches",
    "flink-rocksdb": "Flink SQL, the same with state in RocksDB, incremental checkpoints",
}
_OPENED = [f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in ("lang", "util", "time", "nio")]
_TABLES = frozenset(query for query, expected in EXPECTED.items() if expected.table)


@dataclass(frozen=True, slots=True)
class System:
    """command: may hold {query} and the other fields of a run. tables: queries whose topic holds the last value of each key.

    ends: the process ends when it has processed all existing records; the others run until they are stopped.
    """

    name: str
    command: tuple[str, ...]
    tables: frozenset[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    ends: bool = True

    def argv(self, fields: Mapping[str, str]) -> list[str]:
        """The command for a run.

        >>> System("x", ("run", "{query}.sql"), frozenset()).argv({"query": "q0"})
        ['run', 'q0.sql']
        """
        return [word.format_map(fields) for word in self.command]


def systems(names: Iterable[str]) -> list[System]:
    """The systems with these names; what they need is built."""
    return [_system(name) for name in names]


def versions() -> dict[str, str]:
    """The versions of the systems, the broker, Java and Python."""
    java = subprocess.run([find_java(), "-version"], capture_output=True, text=True, check=True).stderr.splitlines()[0]
    return {
        "FlowQL": version("flowql"),
        "Kafka Streams": version_of("kafka_streams", "kafka.version"),
        "Flink": version_of("flink_sql", "flink.version"),
        "broker": KAFKA_VERSION,
        "Java": java,
        "Python": platform.python_version(),
    }


def _system(name: str) -> System:
    if name == FLOWQL:
        told = (f"{key}={{{key}}}" for key in ("bootstrap", "prefix", "output", "app_id", "partitions"))
        words = (sys.executable, "-m", "flowql", "run", "-p", str(NEXMARK), "-t", "peers", "-s", "{query}")
        variables = tuple(word for pair in told for word in ("--var", pair))
        return System(name, (*words, *variables, "--until-caught-up"), _TABLES)
    if name.startswith("ks-"):
        guarantee = "exactly_once_v2" if name == "ks-eos" else "at_least_once"
        # Its joins of tables give updates of a table, too.
        return System(name, _java("kafka_streams"), _TABLES | {"q3"}, {"PEER_GUARANTEE": guarantee}, ends=False)
    state = "rocksdb" if name == "flink-rocksdb" else "hashmap"
    # Windows and joins append their rows; an aggregation without windows writes a table.
    command = (*_java("flink_sql", *_OPENED), str(HERE / "flink_sql" / "queries"))
    return System(name, command, frozenset({"qc"}), {"PEER_STATE": state})


def _java(part: str, *options: str) -> tuple[str, ...]:
    folder: Path = built(part)
    return (str(find_java()), f"-Xmx{HEAP_MB}m", *options, "-cp", f"{folder}/peer.jar:{folder}/libs/*", "Peer")
