"""The keys of `flowql.yaml`: the one table that the reader and the published JSON Schema follow."""

from __future__ import annotations

from compiler.plan.topology import PRIORITY_WEIGHTS
from flowql.config.kafka import KAFKA
from flowql.config.members import MEMBERS
from flowql.config.shape import Choice, Constant, Duration, Fragment, Key, ListOf, MapOf, Record, Size, Text, Whole
from flowql.config.spark import SPARK
from flowql.config.watching import LOG_LEVELS, METRICS

FILE_NAME = "flowql.yaml"
_PRIORITY = Key(Choice(tuple(PRIORITY_WEIGHTS)), "Its class: 64, 16, 4 or 1 parts of the processing time.")
_WEIGHT = Key(Whole(1, 1_000_000), "Parts of the processing time, instead of those of its class.")
_LATENCY = Key(Duration(), "How soon a record should be through: shorter turns, not more of them.")

TARGET = Record(
    "target",
    {
        "engine": Key(Choice(("runtime", "spark")), "What runs the queries."),
        "log": Key(Choice(("embedded", "kafka")), "Where the records are."),
        "data_dir": Key(Text("a folder"), "Where log and state are kept, relative to this file."),
        "threads": Key(Whole(1, 1024), "Processing threads."),
        "memory": Key(Size(), "One budget for buffers, caches and state, such as '1 GB'."),
        "latency_target": Key(
            Duration(),
            "How soon results are there: commits come after half of the smallest, 10 ms to 1 s; 100 ms if nobody asks.",
        ),
        "guarantee": Key(Choice(("exactly_once", "at_least_once")), "What a crash may do."),
        "standbys": Key(
            Whole(0, 16), "Not supported yet, 0 but for that: copies of state kept warm on other instances."
        ),
        "remote_state": Key(Text("an address"), "Not supported yet: where checkpoints are copied to."),
        "metrics": Key(METRICS, "A port for Prometheus, 9464 by custom."),
        "log_level": Key(Choice(LOG_LEVELS), "What the instance writes down: info, where nothing is said."),
        "members": Key(MEMBERS, "With `instances: many`: where others reach this one for the rows of its partitions."),
        "kafka": Key(KAFKA, "With `log: kafka`: where the brokers are and how to talk to them."),
        "spark": Key(SPARK, "With `engine: spark`: where and how Spark runs."),
    },
)

QUERY = Record(
    "query",
    {
        "sql": Key(Fragment("SQL statements", script=True), "Statements as text; then nothing else is given."),
        "name": Key(Text("a name"), "The name of its result; where `into` is given too, the id of the query."),
        "into": Key(Text("a name"), "The stream or table it makes."),
        "kind": Key(Choice(("stream", "table")), "What it makes; without it, what the query gives."),
        "from": Key(Fragment("a stream or table"), "`ORDERS` or `ORDERS O`."),
        "join": Key(ListOf(Fragment("a join"), single=True), "`LEFT JOIN USERS U ON O.USER_ID = U.ID`."),
        "where": Key(Fragment("a condition"), "Which rows."),
        "select": Key(ListOf(Fragment("a select item"), single=True), "What of each row: `AMOUNT * 2 AS TWICE`."),
        "group_by": Key(ListOf(Fragment("an expression"), single=True), "What is counted together."),
        "partition_by": Key(ListOf(Fragment("an expression"), single=True), "The new key of a stream."),
        "window": Key(Fragment("a window"), "`TUMBLING (SIZE 1 HOUR, GRACE PERIOD 10 MINUTES)`."),
        "having": Key(Fragment("a condition"), "Which results."),
        "emit": Key(Choice(("changes", "final")), "Every change, or only what a closed window came to."),
        "priority": _PRIORITY,
        "weight": _WEIGHT,
        "latency_target": _LATENCY,
        "on_change": Key(
            Choice(("rebuild", "forward")), "What a new text means: all history anew, or what comes from then on."
        ),
        "with": Key(MapOf(Constant(), "a property"), "Properties of the result, as in WITH (...)."),
    },
)

PROJECT = Record(
    "project",
    {
        "name": Key(Text("a name"), "The project's name; instances and consumer groups carry it.", required=True),
        "dialect": Key(Choice(("ksql", "standard")), "Unquoted names fold to upper (ksql) or lower case (standard)."),
        "vars": Key(MapOf(Constant(), "a variable"), "Values of ${NAME}; --var and no default beat them."),
        "sql": Key(ListOf(Text("a file"), single=True), "SQL files, relative to this file; `*` stands for any part."),
        "queries": Key(ListOf(QUERY), "Queries in this file, as SQL text or as structure."),
        "priorities": Key(
            MapOf(
                Record("priority", {"priority": _PRIORITY, "weight": _WEIGHT, "latency_target": _LATENCY}, "priority"),
                "a query",
            ),
            "By id of a query or name of its result; they beat what the query says.",
        ),
        "defaults": Key(
            Record(
                "defaults",
                {
                    "partitions": Key(Whole(1, 10_000), "Of topics that are made."),
                    "key_format": Key(Text("a format"), "Of keys, where none is given."),
                    "value_format": Key(Text("a format"), "Of values, where none is given."),
                },
            ),
            "What holds where nothing is said.",
        ),
        "properties": Key(MapOf(Constant(), "a property"), "Session properties, as SET 'name' = 'value'."),
        "targets": Key(MapOf(TARGET, "a target"), "Places to run."),
        "default_target": Key(Text("a target"), "The target where none is named."),
    },
)
