"""The keys of `flowql.yaml`: the one table that the reader and the published JSON Schema follow."""

from __future__ import annotations

from flowql.compiler.plan.priorities import PRIORITY_WEIGHTS
from flowql.config.api import API
from flowql.config.pg import PG
from flowql.config.sections import DEAD_LETTERS, INTERACTIVE_QUERIES, KAFKA, LOG_LEVELS, MEMBERS, METRICS, REMOTE, STATE
from flowql.config.shape import Choice, Constant, Duration, Fragment, Key, ListOf, MapOf, Record, Size, Text, Whole
from flowql.config.spark import SPARK

FILE_NAME = "flowql.yaml"
_PRIORITY = Key(Choice(tuple(PRIORITY_WEIGHTS)), "Its class: 64, 16, 4 or 1 parts of the processing time.")
_WEIGHT = Key(Whole(1, 1_000_000), "Parts of the processing time, instead of those of its class.")
_LATENCY = Key(
    Duration(),
    "Target time from a record to its results: shorter turns and more frequent commits, not more processing time.",
)

MEMORY_MIN_MIB = 16  # with a few bytes, which is what `memory: 4` says, RocksDB ended the process

TARGET = Record(
    "target",
    {
        **REMOTE,
        "vars": Key(
            MapOf(Constant(), "a variable"), "Values of ${NAME} with this target; they override the project's `vars`."
        ),
        "prefix": Key(
            Text("a prefix"),
            "Put before the names of all topics, groups and transactional ids that FlowQL creates, such as `dev_anna_`; default: none.",
        ),
        "engine": Key(Choice(("runtime", "spark")), "Engine of the queries; default: runtime."),
        "log": Key(Choice(("embedded", "kafka")), "The log that stores the records; default: embedded."),
        "data_dir": Key(Text("a folder"), "Folder of log and state, relative to this file; default: `.flowql/NAME`."),
        "threads": Key(Whole(1, 1024), "Processing threads; default: 2."),
        "memory": Key(
            Size(least_mib=MEMORY_MIN_MIB),
            "Memory budget for buffers, caches, state, interactive queries and the gateway; default: a quarter of the machine's, 256 MB to 1 GB.",
        ),
        "latency_target": Key(
            Duration(),
            "Target time until results are committed: the commit interval is half of the smallest target, 10 ms to 1 s; 100 to 500 ms without a target.",
        ),
        "guarantee": Key(
            Choice(("exactly_once", "at_least_once")), "Whether a crash may repeat results (at_least_once) or not."
        ),
        "metrics": Key(METRICS, "A port for Prometheus, usually 9464."),
        "api": Key(API, "A port for programs on other machines: `flowql.connect(URL, token=...)`."),
        "pg": Key(
            PG, "A port for clients of PostgreSQL: psql, drivers, tools. `pg: 5432` is short for `pg: {port: 5432}`."
        ),
        "log_level": Key(Choice(LOG_LEVELS), "Lowest level that the instance logs; default: info."),
        "dead_letters": Key(DEAD_LETTERS, "Retention of dead letters."),
        "members": Key(
            MEMBERS, "With `instances: many`: where other instances reach this one to query the rows of its partitions."
        ),
        "interactive_queries": Key(INTERACTIVE_QUERIES, "Limits of interactive queries."),
        "state": Key(STATE, "Where checkpoints of the state go."),
        "kafka": Key(KAFKA, "With `log: kafka`: brokers and settings of clients."),
        "spark": Key(SPARK, "With `engine: spark`: where and how Spark runs."),
    },
)

QUERY = Record(
    "query",
    {
        "sql": Key(Fragment("SQL statements", script=True), "Statements as text; excludes all other keys."),
        "name": Key(Text("a name"), "The name of its result; if `into` is given as well, the id of the query."),
        "into": Key(Text("a name"), "The stream or table that it creates."),
        "kind": Key(
            Choice(("stream", "table")), "Whether it creates a stream or a table; default: as the query implies."
        ),
        "from": Key(Fragment("a stream or table"), "`ORDERS` or `ORDERS O`."),
        "join": Key(ListOf(Fragment("a join"), single=True), "`LEFT JOIN USERS U ON O.USER_ID = U.ID`."),
        "where": Key(Fragment("a condition"), "Condition on input rows."),
        "select": Key(ListOf(Fragment("a select item"), single=True), "Columns of the result: `AMOUNT * 2 AS TWICE`."),
        "group_by": Key(ListOf(Fragment("an expression"), single=True), "Grouping expressions of an aggregation."),
        "partition_by": Key(ListOf(Fragment("an expression"), single=True), "The new key of a stream."),
        "window": Key(Fragment("a window"), "`TUMBLING (SIZE 1 HOUR, GRACE PERIOD 10 MINUTES)`."),
        "having": Key(Fragment("a condition"), "Condition on results of an aggregation."),
        "emit": Key(
            Choice(("changes", "final")), "Emit every change, or only the final result of a window when it closes."
        ),
        "priority": _PRIORITY,
        "weight": _WEIGHT,
        "latency_target": _LATENCY,
        "on_change": Key(
            Choice(("rebuild", "forward")),
            "Whether a changed text recomputes all history (default), or applies to new records only.",
        ),
        "with": Key(MapOf(Constant(), "a property"), "Properties of the result, as in WITH (...)."),
    },
)

PROJECT = Record(
    "project",
    {
        "name": Key(Text("a name"), "The project's name; also used for instances and consumer groups.", required=True),
        "dialect": Key(
            Choice(("ksql", "standard")),
            "SQL's meaning: ksqlDB's (default), with names folded to upper case, or PostgreSQL's, with lower case.",
        ),
        "vars": Key(
            MapOf(Constant(), "a variable"),
            "Values of ${NAME}; --var overrides them, and they override the default in ${NAME:-default}.",
        ),
        "sql": Key(ListOf(Text("a file"), single=True), "SQL files, relative to this file; `*` stands for any part."),
        "queries": Key(ListOf(QUERY), "Queries in this file, as SQL text or as structure."),
        "functions": Key(
            ListOf(Text("a module"), single=True),
            "Python modules with functions (`@flowql.udf`, `@flowql.udtf`, `@flowql.udaf`), without `.py`, in this file's folder.",
        ),
        "priorities": Key(
            MapOf(
                Record("priority", {"priority": _PRIORITY, "weight": _WEIGHT, "latency_target": _LATENCY}, "priority"),
                "a query",
            ),
            "By id of a query or name of its result; they override the query's own properties.",
        ),
        "defaults": Key(
            Record(
                "defaults",
                {
                    "partitions": Key(Whole(1, 10_000), "Number of partitions of topics that are created."),
                    "key_format": Key(Text("a format"), "Format of keys, if none is given."),
                    "value_format": Key(Text("a format"), "Format of values, if none is given."),
                },
            ),
            "For topics of statements that give no other value.",
        ),
        "properties": Key(MapOf(Constant(), "a property"), "Session properties, as SET 'name' = 'value'."),
        "targets": Key(MapOf(TARGET, "a target", chosen=True), "Engines and logs that the project can run on."),
        "default_target": Key(Text("a target"), "The target that is used if none is named."),
    },
)
