"""Codes of the engine: log, state and records (FQ4xxx)."""

from __future__ import annotations

from compiler.diagnostics.page import CodePage

ENGINE_CODES: dict[str, CodePage] = {
    "FQ4000": CodePage("The engine failed", "The message says what happened and where."),
    "FQ4001": CodePage(
        "The log cannot do this",
        "For example a topic exists with another number of partitions than was asked for, or joined topics differ in theirs.",
        "flowql topic create orders --partitions 4   # it has 2",
        "flowql topic create orders --partitions 2",
    ),
    "FQ4002": CodePage(
        "A topic does not exist",
        "A query reads it, or a command names it. Import data into it, declare PARTITIONS on its source so that it is made, "
        "or make it with `flowql topic create`.",
        "CREATE STREAM ORDERS (...) WITH (KAFKA_TOPIC = 'orders', VALUE_FORMAT = 'JSON');",
        "CREATE STREAM ORDERS (...) WITH (KAFKA_TOPIC = 'orders', PARTITIONS = 2, VALUE_FORMAT = 'JSON');",
    ),
    "FQ4003": CodePage(
        "The log's files are damaged",
        "What was found cannot be the trace of a crash, which recovery repairs by itself: bytes of committed records changed, or "
        "files are gone. Restore the directory from a copy.",
    ),
    "FQ4004": CodePage(
        "There is no space left",
        "The transaction left no trace and is tried again. Make room on the disk of the target's data_dir.",
    ),
    "FQ4005": CodePage(
        "Another instance runs in this directory",
        "One runtime writes a data directory; others may read it, append to its topics and ask the one that runs. "
        "`flowql stop` ends it; a second target with a data_dir of its own runs beside it.",
        "flowql run   # while flowql deploy keeps the queries running",
        "flowql status",
    ),
    "FQ4006": CodePage(
        "A newer producer has taken over",
        "A producer with the same transactional id was started after this one, so that this one can no longer commit.",
    ),
    "FQ4007": CodePage(
        "Records were deleted before they were read",
        "A query's position lies below the start of the log. The message names the records that are gone. The query stops rather "
        "than skipping them.",
    ),
    "FQ4010": CodePage(
        "State and log do not fit together",
        "The state is newer than the log: the log was put back from an older copy, or belongs to another state. Put back the log "
        "that the state was made from, or remove the directory `state`: the next start then makes it anew from the inputs. State "
        "that is missing, damaged or too old is made anew by itself; a query whose input is not whole any more is named and stops.",
    ),
    "FQ4011": CodePage("A batch was revoked", "Its transaction was aborted while it ran; it is processed again."),
    "FQ4012": CodePage(
        "A value cannot be kept in a store",
        "A query put something into a store that has no durable form, such as a number beyond 64 bits in a key. The others commit "
        "without it; it runs again from the last commit, a record at a time where need be, until the record that is to blame is a dead "
        "letter. What cannot be found so holds this query, with the reason in status.",
    ),
    "FQ4020": CodePage(
        "A record cannot be read",
        "Its structure, or a column that the query reads, is not what the source declares. It goes to DEAD_LETTERS with its raw "
        "bytes, and the query goes on.",
        '{"AMOUNT": "much"}   -- AMOUNT DOUBLE',
        '{"AMOUNT": 12.5}',
    ),
    "FQ4021": CodePage(
        "A record stops its query",
        "The record cannot be used, and a property asks that this is fatal (ksql.timestamp.throw.on.invalid). Without the property "
        "it goes to DEAD_LETTERS.",
    ),
    "FQ4022": CodePage(
        "A record of a table has no key",
        "A row of a table is identified by its key, so a record without one means nothing. It goes to DEAD_LETTERS.",
    ),
    "FQ4023": CodePage(
        "A record has no usable time",
        "The TIMESTAMP column is null or not in the declared format; or the time, of the column or of the record itself, is outside the "
        "range of its source: from 1900-01-01 (1970-01-01 in a column) to 2200-01-01 unless EARLIEST_TIME and LATEST_TIME say otherwise, and no further ahead "
        "of the clock than MAX_AHEAD. Such a time would make all later records late. The record goes to DEAD_LETTERS.",
        "CREATE STREAM S (V INT) WITH (KAFKA_TOPIC='s', VALUE_FORMAT='JSON');   -- with a time of 9223372036854775807",
        "CREATE STREAM S (V INT) WITH (KAFKA_TOPIC='s', VALUE_FORMAT='JSON', MAX_AHEAD='1 DAY');",
    ),
    "FQ4024": CodePage(
        "The plan holds an operator, format or type this runtime does not make",
        "It was compiled by another version of FlowQL, or for another engine.",
    ),
    "FQ4026": CodePage(
        "An aggregate failed on a record",
        "For example a sum left the range of its type. The record goes to DEAD_LETTERS and is not counted.",
    ),
    "FQ4027": CodePage(
        "This aggregate cannot be used here",
        "Over a table it would have to be undone, over sessions merged, and it has no way to do that.",
        "SELECT K, TOPK(V, 3) FROM A_TABLE GROUP BY K;",
        "SELECT K, SUM(V) FROM A_TABLE GROUP BY K;",
    ),
    "FQ4028": CodePage(
        "The schema registry does not answer",
        "A query needs the schema of a record, or has to register the one it writes. It is tried again, later and later; other "
        "queries go on. The address is the property ksql.schema.registry.url; who asks, the environment variable "
        "FLOWQL_SCHEMA_REGISTRY_USER_INFO (user:password).",
    ),
    "FQ4030": CodePage(
        "An expression failed on a record",
        "For example a number is divided by zero, or a text is no date. The value is NULL or the record goes to DEAD_LETTERS with "
        "the reason; the query goes on.",
    ),
    "FQ4031": CodePage(
        "A record has values that an operator cannot work with",
        "For example a number is too large for the type of a key. The record goes to DEAD_LETTERS, nothing else of it is published, and "
        "the query goes on.",
    ),
    "FQ4041": CodePage(
        "Kafka does not answer",
        "No broker of `bootstrap` could be reached, or none in time. A running instance tries again by itself and loses nothing; "
        "a command gives up. For a broker to try with:  flowql kafka up.",
    ),
    "FQ4042": CodePage(
        "Kafka does not allow this",
        "Brokers refuse the connection, or what was asked. Look at the target's `kafka` options (`security.protocol`, `sasl.*`, "
        "`ssl.*`) and at the rights of its user: it reads and writes topics, creates those that begin with the application's id, "
        "and uses the group and the transactional id of that name.",
    ),
    "FQ4043": CodePage(
        "Kafka will never take this record",
        "It is larger than the brokers allow (`message.max.bytes`), or malformed. Nothing of its transaction was written. If it is known how "
        "much its topic takes, the record that it was made from goes to DEAD_LETTERS and the query goes on; else the query waits, and the "
        "others go on.",
        "targets:\n  main: {log: kafka}   # records up to 1 MB",
        "targets:\n  main: {log: kafka, kafka: {options: {message.max.bytes: 5000000}}}",
    ),
    "FQ4044": CodePage(
        "A transaction was aborted",
        "Brokers could not finish it, and nothing of it is visible. The same is tried again.",
    ),
    "FQ4051": CodePage(
        "Stored records are damaged",
        "Every batch of the embedded log carries a checksum, and this one does not match: bytes of the file are not what was written. The disk or another "
        "program has changed them. Queries that read these records stop, and others go on. The message names the file, the "
        "byte and the offsets. `flowql log verify` looks at the whole log. Restore a backup; or, if the records may be missing, "
        "`flowql log verify --skip-damaged` notes the range in the log: readers and later rebuilds leave it out, and `flowql status` counts "
        "the records.",
        "flowql run",
        "flowql log verify --skip-damaged\nflowql run",
    ),
    "FQ4050": CodePage(
        "Another number of partitions than the topic has",
        "A source or result declares another number of PARTITIONS than before. Which partition a record lies in follows from its key "
        "and that number. On the embedded log the change is carried out: results are rebuilt, and records from outside are moved. It is "
        "refused where records do not lie where their keys belong, where a topic holds what queries have written once, on Spark, and on "
        "Kafka: a broker only adds partitions (`kafka-topics --alter`), its records stay, and those of a key then lie in two partitions. "
        "Nothing was changed. Declare the number that the topic has, or take another topic and import the records into that. A program "
        "that has partitioned its records by the old number gets this error as well: it begins again with a new producer.",
        "CREATE STREAM orders (id INT KEY) WITH (KAFKA_TOPIC = 'orders', PARTITIONS = 6, VALUE_FORMAT = 'JSON');      -- it has 2",
        "CREATE STREAM orders (id INT KEY) WITH (KAFKA_TOPIC = 'orders-6', PARTITIONS = 6, VALUE_FORMAT = 'JSON');",
    ),
    "FQ4060": CodePage(
        "A query cannot go on with its new text now, or here",
        "To apply a new text to what comes, a query is brought to rest: each record that it has read has gone through all of the old "
        "text. That cannot be while it fails or is paused with rows between its parts, or while its state is restored; and of an "
        "application that many instances share (`instances: many`), as all of them would have to change at one position. Nothing was "
        "changed.",
        "flowql pause TOTALS\nflowql deploy --forward",
        "flowql resume TOTALS\nflowql deploy --forward",
    ),
    "FQ4049": CodePage(
        "A rebuild that is not supported",
        "The swap of a stream begins by deleting the old records of its topic, and brokers refuse that for a topic whose cleanup.policy is "
        "`compact` alone. Nothing was changed. Give the result another topic, or alter the topic's cleanup.policy to "
        "`compact,delete`.",
        "CREATE STREAM big WITH (KAFKA_TOPIC = 'compacted') AS SELECT k, v FROM orders WHERE v > 200;   -- was v > 100",
        "CREATE STREAM big WITH (KAFKA_TOPIC = 'big') AS SELECT k, v FROM orders WHERE v > 200;",
    ),
    "FQ4048": CodePage(
        "A rebuild would lose records that others have written",
        "The topic of a result holds records that no query of the project has made: another program has written to it. To rebuild the "
        "result replaces all records of its topic, and those would be lost. Nothing was changed. `flowql deploy --forward` applies the new "
        "text to what comes and leaves all records where they are; or give the result a topic of its own.",
        "CREATE STREAM alerts WITH (KAFKA_TOPIC = 'shared') AS SELECT * FROM orders WHERE v > 200;   -- was v > 100",
        "CREATE STREAM alerts WITH (KAFKA_TOPIC = 'alerts-2') AS SELECT * FROM orders WHERE v > 200;",
    ),
    "FQ4047": CodePage(
        "Another process has written to a topic while its records were replaced",
        "A rebuilt result was about to take the place of the old one, in one commit, and another process has written to its topic at "
        "the same moment. Nothing of the commit is visible, and the instance ends. Start it again: the rebuild goes on from where it "
        "was. Write to topics of your own, not to those of results.",
        "flowql topic import totals rows.json      # while `totals` is rebuilt",
        "flowql topic import corrections rows.json",
    ),
    "FQ4046": CodePage(
        "The application is run by one instance, not by many, or the other way round",
        "What is between the parts of a query is kept in the state of a single instance, and in topics when many share the work. So "
        "an application cannot go from `instances: one` to `instances: many` or back. Take another `app_id`, which begins at the "
        "start of its sources.",
        "targets:\n  main: {log: kafka, kafka: {instances: many}}   # ran with instances: one before",
        "targets:\n  main: {log: kafka, kafka: {instances: many, app_id: orders-shared}}",
    ),
    "FQ4045": CodePage(
        "The group has changed",
        "An instance tried to commit as a member of its group, and the group has moved on: others joined or left, or the instance "
        "was silent for too long and its partitions went to others. Nothing of the commit is visible. The instance commits again, "
        "or gives up what it lost and goes on with what it is assigned.",
    ),
}
