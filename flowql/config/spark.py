"""The part of a target that is about Spark."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from flowql.compiler.diagnostics.diagnostic import Diagnostic
from flowql.config.reader import Item, plain, texts, under
from flowql.config.shape import Choice, Constant, Key, ListOf, MapOf, Record, Secret, Text, Whole
from flowql.runtime.spark.configuration import FIXED, REPLACED
from flowql.runtime.spark.settings import SparkSettings, TopicFiles
from flowql.runtime.spark.storage import is_remote

_LOGIN = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/@:]*:[^/]*@")  # s3a://key:secret@bucket/x
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")  # s3a://bucket/x; a folder otherwise
_CREDENTIALS = (
    "leave them out of the address, and give them to Spark in `conf`: spark.hadoop.fs.s3a.access.key and "
    "spark.hadoop.fs.s3a.secret.key for s3a"
)

HASH_BUCKETS_MAX = 4_096  # each is a task, with its state, in every micro-batch
_HISTORY = Choice(("complete", "arrival"))
_FILES = Record(
    "files",
    {
        "format": Key(
            Choice(("parquet", "json", "csv", "delta")),
            "Format of files. With `table` only `delta`; omit it to use the catalogue's.",
        ),
        "path": Key(Text("a folder"), "A folder relative to this file, or an address Spark reads."),
        "table": Key(Text("a table"), "Instead of `path`: the name of a table in a catalogue of Spark."),
        "options": Key(MapOf(Constant(), "an option"), "Options of Spark's reader or writer."),
        "history": Key(_HISTORY, "As `history` of the target, for these files."),
        "sequence_by": Key(
            ListOf(Text("a column"), single=True),
            "For a table that a batch reads: columns that order the rows of a key; default: the event time. Streams refuse it.",
        ),
        "delete_when": Key(
            Text("a condition"),
            "For a table: rows that delete their key, as Spark SQL over the files. Streams refuse it for JSON and CSV.",
        ),
        "partition_by": Key(
            ListOf(Text("a column"), single=True),
            "For results: columns whose values become folders; for streams in Delta only.",
        ),
        "write": Key(
            Choice(("state", "changes")),
            "For a Delta table, from streams: its current rows (default), or the changed rows of each batch, "
            "with EPOCH and ROWDELETED.",
        ),
        "repartition": Key(Whole(1, 100_000), "For results: number of parts written at a time."),
    },
)

SPARK = Record(
    "spark",
    {
        "master": Key(
            Text("a Spark master"), "Spark master: `local[4]` (cores of this machine), `spark://host:7077`, ..."
        ),
        "conf": Key(
            MapOf(Secret("a string, number or boolean", constant=True), "a Spark property"),
            "Spark properties, such as spark.executor.memory.",
        ),
        "late_rows": Key(
            Choice(("exact", "none")),
            "`exact`: lateness is decided row by row as on the runtime. `none`: you assert that no row is late;"
            " more nodes run natively.",
        ),
        "streams": Key(
            Choice(("exact", "native")),
            "`native` (default): Spark's own operators and state where results are the same. `exact`: state as "
            "on the runtime, which can be queried.",
        ),
        "semantics": Key(
            Choice(("flowql", "spark")),
            "For streams. `flowql` (default): results as on the runtime. `spark`: more native operators, late "
            "rows by Spark's watermark; `flowql explain` shows differences.",
        ),
        "shuffle_partitions": Key(Whole(1, 100_000), "Number of partitions of native shuffles."),
        "hash_buckets": Key(
            MapOf(Whole(1, HASH_BUCKETS_MAX), "a query"),
            "For streams, by query or result: tasks after `GROUP BY` and other repartitions, each with its "
            "state and late rows; default: the number of partitions of topics.",
        ),
        "history": Key(
            _HISTORY,
            "For batches. `complete` (default over files): rows in order of their times, none late. `arrival`: as over topics.",
        ),
        "files": Key(MapOf(_FILES, "a topic"), "Files that are read or written as topics."),
        "checkpoint": Key(
            Text("a folder or an address"),
            "Place of checkpoints and of results before their commit: a folder that all machines of a cluster "
            "share, or an address (`s3a://...`); default: `data_dir`.",
        ),
    },
)


def is_address(path: str) -> bool:
    """Whether a path names a file system that Spark is to find (`s3a://bucket/x`, `file:/x`); a folder otherwise."""
    return _ADDRESS.match(path) is not None


def spark_settings(
    given: Mapping[str, Item], root: Path, knobs: Mapping[str, Any]
) -> tuple[SparkSettings, list[Diagnostic]]:
    """The settings that the checked values `given` say. knobs: of the whole target; `threads` and `memory_bytes` count here, too."""
    values = plain({k: item for k, item in given.items() if k not in ("conf", "files", "checkpoint")})
    if "master" not in values and "threads" in knobs:
        values["master"] = f"local[{knobs['threads']}]"
    if "memory_bytes" in knobs:
        values["memory_bytes"] = knobs["memory_bytes"]
    problems: list[Diagnostic] = []
    if "checkpoint" in given:
        values["checkpoint"], problems = _checkpoint(given["checkpoint"], root)
    conf: Mapping[str, Item] = under(given, "conf")
    files: Mapping[str, Item] = under(given, "files")
    settings = SparkSettings(
        conf=texts(conf), files={topic: _files(item.value, root) for topic, item in files.items()}, **values
    )
    return settings, [*problems, *_refused(conf), *(d for topic, item in files.items() for d in _mistakes(topic, item))]


def _checkpoint(given: Item, root: Path) -> tuple[str, list[Diagnostic]]:
    """The folder or the address, and what is wrong with it."""
    said = str(given.value)
    if _LOGIN.match(said):
        title = "`checkpoint` holds credentials, which would appear in checkpoints and messages"
        return "", [Diagnostic("FQ3004", title, help=_CREDENTIALS)]  # without its line, as that is shown
    if is_remote(said):
        return said.rstrip("/"), []
    path = urlsplit(said).path if said.startswith("file:") else said
    if is_address(path):
        title, label = f"{said} names no file system that Spark could find", "an address has two slashes"
        return "", [Diagnostic("FQ3004", title, given.span, label, help="write  checkpoint: s3a://bucket/folder")]
    return str((root / Path(path).expanduser()).resolve()), []


def _files(given: Mapping[str, Item], root: Path) -> TopicFiles:
    path = str(given["path"].value) if "path" in given else ""
    if path and not is_address(path):
        path = str((root / Path(path).expanduser()).resolve())
    options = texts(under(given, "options"))
    form = "table" if "table" in given else "parquet"  # if it is required, `_mistakes` reports that it is missing
    return TopicFiles(**{"format": form, **plain(given), "path": path, "options": options})


def _mistakes(topic: str, item: Item) -> list[Diagnostic]:
    """Keys of an entry of `files` that do not go together."""
    given: Mapping[str, Item] = item.value
    found: list[Diagnostic] = []
    form = given["format"].value if "format" in given else None
    if "path" not in given and "table" not in given:
        add = "add  path: ...  or  table: ..."
        found.append(Diagnostic("FQ3006", f"`path` is missing in files `{topic}`", item.span, "", help=add))
    elif "path" in given and "table" in given:
        title = f"files `{topic}` have a path and are a table"
        found.append(Diagnostic("FQ3003", title, given["table"].key, "one of both", help="remove `path` or `table`"))
    elif "path" in given and form is None:
        add = "add  format: parquet"
        found.append(Diagnostic("FQ3006", f"`format` is missing in files `{topic}`", item.span, "", help=add))
    elif "table" in given and form not in (None, "delta"):
        title, help_ = (
            f"the catalogue knows how rows of `{topic}` are written",
            "remove `format`, or write  format: delta",
        )
        found.append(Diagnostic("FQ3003", title, given["format"].key, "only `delta` here", help=help_))
    if "path" in given and _LOGIN.match(str(given["path"].value)):
        title = (
            f"the address of files `{topic}` holds credentials, which would appear in plans, checkpoints and messages"
        )
        found.append(Diagnostic("FQ3004", title, help=_CREDENTIALS))  # without its line, as that is shown
    if "write" in given and form != "delta":
        title = f"`write` is for Delta: other files of streams only grow, so those of `{topic}` have all changes"
        found.append(Diagnostic("FQ3003", title, given["write"].key, "no meaning here", help="write  format: delta"))
    return found


def _refused(conf: Mapping[str, Item]) -> list[Diagnostic]:
    """Properties that are not the user's."""
    found: list[Diagnostic] = []
    for key, text in texts(conf).items():
        if key in REPLACED:
            title, label = f"{key} has a separate key in flowql.yaml", f"write {REPLACED[key]}"
        elif key in FIXED and text.lower() != FIXED[key].lower():
            title, label = f"{key} is always {FIXED[key]}", "decides what results mean"
        else:
            continue
        found.append(Diagnostic("FQ4106", title, conf[key].key, label, help="remove it from `conf`"))
    return found
