"""Codes of the engine: log, state and records (FQ4xxx)."""

from __future__ import annotations

from flowql.compiler.diagnostics.page import CodePage

ENGINE_CODES: dict[str, CodePage] = {
    "FQ4000": CodePage("The engine failed", "The message says what happened and where."),
    "FQ4001": CodePage(
        "The log cannot do this",
        "For example a topic exists with another number of partitions than requested, joined topics have different numbers, or the "
        "directory of the log was replaced by `flowql restore` while a process had it open.",
        "flowql topic create orders --partitions 4   # it has 2",
        "flowql topic create orders --partitions 2",
    ),
    "FQ4002": CodePage(
        "A topic does not exist",
        "A query reads it, or a command names it. Import data into it, declare PARTITIONS on its source so that it is created, or "
        "create it with `flowql topic create`.",
        "CREATE STREAM ORDERS (...) WITH (KAFKA_TOPIC = 'orders', VALUE_FORMAT = 'JSON');",
        "CREATE STREAM ORDERS (...) WITH (KAFKA_TOPIC = 'orders', PARTITIONS = 2, VALUE_FORMAT = 'JSON');",
    ),
    "FQ4003": CodePage(
        "The log's files are damaged",
        "The damage was not caused by a crash, which recovery would repair: bytes of committed records have changed, or files are "
        "missing. Put back the file that the message names, or restore a backup (`flowql restore DIR --replace`). Without either, `flowql log "
        "verify --skip-damaged` leaves out the records of missing and shortened segments, and names the queries that they concern: all others "
        "continue as before. If the commit log itself is damaged, move the data directory away and import the records of the sources "
        "again: `flowql run` then computes all results.",
        "flowql run",
        "flowql log verify --skip-damaged\nflowql run",
    ),
    "FQ4004": CodePage(
        "There is no space left",
        "The disk of the log or of the state is full, or the system limits its use: a quota of the user, or a limit of the size of files "
        "(`ulimit -f`). The message names the place and what to do. Nothing is lost: what was not committed is undone and tried again, and "
        "queries continue by themselves when there is space.",
    ),
    "FQ4005": CodePage(
        "Another instance runs in this directory",
        "Only one instance may write a data directory; other processes may read it, append to its topics and query the running "
        "instance. `flowql stop` stops it; a second target with its own data_dir can run at the same time.",
        "flowql run   # while flowql deploy keeps the queries running",
        "flowql status",
    ),
    "FQ4006": CodePage(
        "A newer producer has taken over",
        "A producer with the same transactional id was started after this one, so that this one can no longer commit.",
    ),
    "FQ4007": CodePage(
        "The records at a query's position are gone",
        "A query's position lies below the start of the log: records were deleted before they were read, and the message names them. Or it lies above the end "
        "of the log, or in another topic of the same name: the topic was deleted and made anew, or brokers have lost records, so that the next records are not "
        "those that follow what was read. The query stops rather than skipping records; compute it anew from what the topic holds: flowql deploy --full-refresh "
        "NAME. A topic that is made anew is noticed by its id, which stands beside the positions: at the start of an instance, and within 30 seconds while it "
        "runs. Brokers older than Kafka 2.8 do not tell ids.",
    ),
    "FQ4010": CodePage(
        "State and log do not fit together",
        "The state is newer than the log, or was computed from another one: the log was restored from an older copy, or only one of the two "
        "was copied. Restore the log that the state was computed from, or move the directory `state` away: the next start then recomputes it "
        "from the inputs. State that is missing, damaged or too old is recomputed by the next start; a query whose input is no longer "
        "complete is named and stops.",
    ),
    "FQ4011": CodePage("A batch was revoked", "Its transaction was aborted while it ran; it is processed again."),
    "FQ4012": CodePage(
        "A value cannot be kept in a store",
        "A query put a value into a store that cannot be encoded, such as a number beyond 64 bits in a key. Other queries commit "
        "without it. The query runs again from the last commit, if necessary one record at a time, until the record that causes the "
        "error is a dead letter. If no such record is found, the query stops, and `flowql status` shows the reason.",
    ),
    "FQ4020": CodePage(
        "A record cannot be read",
        "Its structure, or a column that the query reads, is not what the source declares. It goes to DEAD_LETTERS with its raw bytes,"
        " and the query continues.",
        '{"AMOUNT": "much"}   -- AMOUNT DOUBLE',
        '{"AMOUNT": 12.5}',
    ),
    "FQ4021": CodePage(
        "A record stops its query",
        "The record cannot be used, and a property makes this a fatal error (ksql.timestamp.throw.on.invalid). Without the property "
        "it goes to DEAD_LETTERS.",
    ),
    "FQ4022": CodePage(
        "A record of a table has no key",
        "A row of a table is identified by its key, so a record without one cannot be applied. It goes to DEAD_LETTERS.",
    ),
    "FQ4023": CodePage(
        "A record has no usable time",
        "The TIMESTAMP column is null or not in the declared format; or the time, of the column or of the record itself, is outside "
        "the range of its source: from 1900-01-01 (1970-01-01 in a column) to 2200-01-01 unless EARLIEST_TIME and LATEST_TIME set "
        "another range, and no further ahead of the clock than MAX_AHEAD. Such a time would make all later records late. The record "
        "goes to DEAD_LETTERS.",
        "CREATE STREAM S (V INT) WITH (KAFKA_TOPIC='s', VALUE_FORMAT='JSON');   -- with a time of 9223372036854775807",
        "CREATE STREAM S (V INT) WITH (KAFKA_TOPIC='s', VALUE_FORMAT='JSON', MAX_AHEAD='1 DAY');",
    ),
    "FQ4024": CodePage(
        "The plan contains an operator, format or type that this runtime does not support",
        "It was compiled by another version of FlowQL, or for another engine.",
    ),
    "FQ4026": CodePage(
        "An aggregate failed on a record",
        "For example a sum left the range of its type. The record goes to DEAD_LETTERS and is not counted.",
    ),
    "FQ4027": CodePage(
        "This aggregate cannot be used here",
        "Over a table an aggregate must support removing rows, over sessions merging; this one does not.",
        "SELECT K, TOPK(V, 3) FROM A_TABLE GROUP BY K;",
        "SELECT K, SUM(V) FROM A_TABLE GROUP BY K;",
    ),
    "FQ4028": CodePage(
        "The schema registry does not answer",
        "A query needs the schema of a record, or has to register the one it writes. It is retried at growing intervals; other queries"
        " continue. The address is the property ksql.schema.registry.url; user and password are in the environment variable "
        "FLOWQL_SCHEMA_REGISTRY_USER_INFO (user:password).",
    ),
    "FQ4030": CodePage(
        "An expression failed on a record",
        "For example a number is divided by zero, or a text is no date. The value is NULL or the record goes to DEAD_LETTERS with the "
        "reason; the query continues.",
    ),
    "FQ4031": CodePage(
        "A record has values that an operator cannot work with",
        "For example a number is too large for the type of a key. The record goes to DEAD_LETTERS, none of its results is published, "
        "and the query continues.",
    ),
    "FQ4032": CodePage(
        "A processor failed on a record",
        "Its `process` raised an exception for this record, or passed on what the columns of the sink cannot hold. The record goes to DEAD_LETTERS with "
        "the exception and the lines that raised it, nothing that was done for it takes effect, and the query continues. NameError, ImportError, "
        "AssertionError and flowql's QueryFailure fail the query instead, as does any exception in `init` or a punctuation.",
    ),
    "FQ4033": CodePage(
        "The code of the project failed, and not for the values of one record",
        "Code that is broken for all records (NameError, ImportError, AssertionError, flowql's QueryFailure), a module that a process cannot import, and any exception "
        "in a processor's factory, `init` or punctuation. The query is retried at growing intervals and loses no record; others continue. The "
        "reason in `flowql status` names the lines of the project's modules. Edit the module and deploy:  flowql deploy.",
    ),
    "FQ4041": CodePage(
        "Kafka does not answer",
        "No broker of `bootstrap` could be reached in time. A running instance retries automatically and loses nothing; a command "
        "gives up. To start a local test broker:  flowql kafka up.",
    ),
    "FQ4042": CodePage(
        "Kafka does not allow this",
        "Brokers refuse the connection or the request. Check the target's `kafka` options (`security.protocol`, `sasl.*`, `ssl.*`) and"
        " the permissions of its user: it reads and writes topics, creates those that start with the application's id, and uses the "
        "group and the transactional id of that name.",
    ),
    "FQ4043": CodePage(
        "Kafka rejects this record permanently",
        "It is larger than the brokers allow (`message.max.bytes`), or malformed. Nothing of its transaction was written. If the size "
        "limit of its topic is known, the record that it was computed from goes to DEAD_LETTERS and the query continues; otherwise the"
        " query waits, and the others continue.",
        "targets:\n  main: {log: kafka}   # records up to 1 MB",
        "targets:\n  main: {log: kafka, kafka: {options: {message.max.bytes: 5000000}}}",
    ),
    "FQ4044": CodePage(
        "A transaction was aborted",
        "Brokers could not finish it, and nothing of it is visible. It is retried.",
    ),
    "FQ4051": CodePage(
        "Stored records are damaged",
        "Every batch of the embedded log carries a checksum, and this one does not match: the disk or another program has changed "
        "bytes of the file. Queries that read these records stop, and others continue. The message names the file, the byte and the "
        "offsets. `flowql log verify` checks the whole log. Restore a backup; or, if the records are dispensable, `flowql log verify "
        "--skip-damaged` marks the range in the log: readers and later rebuilds skip it, and `flowql status` counts the records. A "
        "generation that is being built does not take over without records that it has computed: `flowql deploy --full-refresh NAME` "
        "computes it again from the beginning.",
        "flowql run",
        "flowql log verify --skip-damaged\nflowql run",
    ),
    "FQ4050": CodePage(
        "Another number of partitions than the topic has",
        "A source or result declares another number of PARTITIONS than before. Which partition a record lies in follows from its key "
        "and that number. On the embedded log the change is carried out: results are rebuilt, and records of other programs are moved."
        " It is refused if records are not in the partitions that their keys belong to, if a topic holds records that queries wrote "
        "only once, on Spark, and on Kafka: a broker can only add partitions (`kafka-topics --alter`) without moving records, so the "
        "records of a key would be in two partitions. Nothing was changed. Declare the number that the topic has, or use another topic"
        " and import the records into it. A program that has partitioned its records by the old number gets this error as well, and "
        "must create a new producer.",
        "CREATE STREAM orders (id INT KEY) WITH (KAFKA_TOPIC = 'orders', PARTITIONS = 6, VALUE_FORMAT = 'JSON');      -- it has 2",
        "CREATE STREAM orders (id INT KEY) WITH (KAFKA_TOPIC = 'orders-6', PARTITIONS = 6, VALUE_FORMAT = 'JSON');",
    ),
    "FQ4065": CodePage(
        "The number of partitions of a topic has changed",
        "Partitions were added to a topic (`kafka-topics --alter`) after a query began to read it. Producers place the records of a key by "
        "that number: from then on they may be in another partition, whose task does not have the state of the key, and counts would begin "
        "again from nothing. The query stops; the others continue, and one without state or repartition reads the new partitions as well. If "
        "all records of a key are in one partition, or the query groups or joins by something else than the key of the topic, compute it anew. If "
        "records of a key are in two partitions, a topic that has its number from the beginning is needed: create it, copy the records, and "
        "declare it in the source. A table whose own topic has got partitions stops at the next start: updates of a row would go to another "
        "partition than the row; computing it anew puts each row where it belongs.",
        "kafka-topics --alter --topic orders --partitions 6      -- it had 2",
        "flowql deploy --full-refresh SPENT",
    ),
    "FQ4066": CodePage(
        "Records of one key are in different partitions",
        "A query that joins or groups by the key of its topics reads the same partition of each of them in one task, so the records of a key must be "
        "in the same partition everywhere. Producers decide where they are: Java clients and FlowQL take murmur2 of the key; librdkafka (the clients of "
        "Python, C#, Go and Node) takes CRC32 unless it is told otherwise. Of two topics that were written in different ways most rows of a join "
        "would be missing, and a group whose key is in two partitions would be counted in two tasks. The query stops; the others continue. Streams and "
        "tables that FlowQL writes are placed by murmur2: copy the topic, and use the copy in the query. If records are only written from now "
        "on, set the partitioner of the producers and begin with a new topic.",
        "producer = Producer({'bootstrap.servers': brokers})      # CRC32\n"
        "CREATE STREAM named AS SELECT o.customer, c.name FROM orders o JOIN customers c ON o.customer = c.id;",
        "producer = Producer({'bootstrap.servers': brokers, 'partitioner': 'murmur2_random'})\n"
        "CREATE STREAM placed AS SELECT * FROM orders;      -- the existing records\n"
        "CREATE STREAM named AS SELECT o.customer, c.name FROM placed o JOIN customers c ON o.customer = c.id;",
    ),
    "FQ4070": CodePage(
        "A string is too long for a pattern",
        "The time that a pattern takes grows with the length of the string times the size of the pattern. A row whose string would take more than about "
        "a quarter of a second is a dead letter; the message names the length that is allowed. Take a part of the string, or a simpler pattern.",
        "REGEXP_REPLACE(body, '([a-z]+[0-9]*){1,500}', '')       -- bodies of megabytes",
        "REGEXP_REPLACE(SUBSTRING(body, 1, 10000), '([a-z]+[0-9]*){1,500}', '')",
    ),
    "FQ4071": CodePage(
        "A pattern from data cannot be used",
        "The pattern of a row, which is a column or is computed, is not valid, is too large, or has a construct that is not supported. The row is a dead "
        "letter. A constant pattern is checked when the query is compiled (FQ2061 to FQ2064).",
        "REGEXP_LIKE(name, rule)      -- rule is '(?=a)'",
        "REGEXP_LIKE(name, rule)      -- rule is 'a'",
    ),
    "FQ4067": CodePage(
        "Deletions of a table may have been missed",
        "Kafka keeps a deletion (a record without value) in a compacted topic for `delete.retention.ms` after it was compacted, a day unless the topic says "
        "otherwise. A query that has not read the topic to its end for longer, because the instance was stopped or the query was paused or failed, may find "
        "no deletion of rows that it has: they would stay for good. The query stops if records behind its position have been removed since; the others "
        "continue. Compute it anew. If you know that no row was deleted meanwhile, set `delete.retention.ms` of the topic to more than the time that the message "
        "names, and start the instance again.",
        "kafka-configs --alter --topic customers --add-config delete.retention.ms=3600000      -- the instance was stopped for a day",
        "flowql deploy --full-refresh SPENT\n"
        "kafka-configs --alter --topic customers --add-config delete.retention.ms=604800000      -- from now on: longer than it is ever stopped",
    ),
    "FQ4072": CodePage(
        "A value is larger than 16 MiB",
        "A function would give a value of more than 16 MiB, and all queries of an instance share its memory. A string counts its bytes in UTF-8; each "
        "element of an array, each key and value of a map and each field of a struct counts 16 bytes and the bytes of its strings, so an array "
        "has at most 1,048,576 elements. The values of a row together may take 64 MiB. The failure counts as any other failure of an expression: the "
        "record is in DEAD_LETTERS, and the value is NULL, or the row is left out. Make smaller values, or emit one row for each part.",
        "SELECT LPAD(name, 100000000, ' ') AS padded FROM people EMIT CHANGES;",
        "SELECT LPAD(name, 100, ' ') AS padded FROM people EMIT CHANGES;",
    ),
    "FQ4077": CodePage(
        "The lists of a record give too many rows",
        "EXPLODE and UNNEST give one row for each element, and each of these rows has all other columns that the query reads. One record may give "
        "1,048,576 rows, and their other columns together 64 MiB: all queries of an instance share its memory. The record is in DEAD_LETTERS and gives "
        "no row. Select only the columns that you need before the list becomes rows, or join the large columns afterwards.",
        "SELECT id, body, EXPLODE(words) AS word FROM letters EMIT CHANGES;      -- a body of 1 MB beside 1,000 words",
        "SELECT id, EXPLODE(words) AS word FROM letters EMIT CHANGES;",
    ),
    "FQ4073": CodePage(
        "A function would take too long for its arguments",
        "Some functions take more time than their arguments are long, for example the edit distance of two long strings. All queries of an instance "
        "share one interpreter, so a call that would take about a second is refused before it begins. The failure counts as any other failure of an "
        "expression: the record is in DEAD_LETTERS, and the value is NULL, or the row is left out. Shorten the arguments, or write a function in "
        "Python, which runs in a process of its own with a limit of time that you set.",
        "SELECT LEVENSHTEIN(body, template) AS changes FROM letters;",
        "SELECT LEVENSHTEIN(LEFT(body, 1000), LEFT(template, 1000)) AS changes FROM letters;",
    ),
    "FQ4085": CodePage(
        "The brokers can lose parts of a commit",
        "Kafka 4.3.0 and 4.3.1 have the fault KAFKA-20734. If the broker that coordinates a transaction stops after it decided to commit and before it "
        "has told all partitions, the next coordinator takes a partition without a leader for a deleted one. The positions of the commit then move on, "
        "and its records in that partition are aborted when the producer starts its next transaction. One broker alone, and partitions whose replicas are all down, "
        "are affected. FlowQL cannot prevent the loss. Kafka 4.2 and older do not have the fault, and `flowql kafka up` starts 4.2.1. "
        "Run the brokers on 4.2.1, or, until a fixed release "
        "exists, keep three replicas of each topic and restart one broker at a time. A cluster with the feature `metadata.version` 4.3 must downgrade that "
        "feature first; if the brokers refuse, use a new cluster.",
        "flowql doctor -t production\n"
        "  warning  target production: kafka    the brokers run Kafka 4.3, which loses parts of a committed transaction ...",
        "kafka-features --bootstrap-server broker:9092 downgrade --release-version 4.2      -- then run the brokers on 4.2.1\n"
        "flowql doctor -t production",
    ),
    "FQ4074": CodePage(
        "An aggregate keeps too much of one group",
        "COLLECT_LIST, COLLECT_SET, HISTOGRAM, ARRAY_AGG, STRING_AGG and their like, and accumulators of a project, keep at most 16 MiB of one group: a group "
        "is read and written as one value, and all queries share the memory. The query fails with the aggregate and the key, and is tried again; others "
        "continue. Group by more columns or in windows, keep fewer values (TOPK, or the property ksql.functions.collect_list.limit), or leave the key out.",
        "CREATE TABLE r AS SELECT country, COLLECT_LIST(body) AS bodies FROM s GROUP BY country EMIT CHANGES;",
        "CREATE TABLE r AS SELECT country, COLLECT_LIST(body) AS bodies FROM s WINDOW TUMBLING (SIZE 1 HOUR) GROUP BY country EMIT CHANGES;",
    ),
    "FQ4052": CodePage(
        "A computed history does not fit",
        "`flowql backfill` computes the history of a query and hands it to the instance, which compares it with the query and its "
        "topics before it changes anything: the query may have been edited meanwhile, a topic may have another number of partitions, or a file "
        "may be incomplete. Nothing was changed. Run the backfill again.",
    ),
    "FQ4060": CodePage(
        "A query cannot continue with its new text now, or on this target",
        "To apply a new text to new records, a query is first stopped at a point where every record that it has read is processed "
        "completely with the old text. That is impossible while the query fails, while it is paused with unprocessed rows between its "
        "operators, or while its state is restored; and with `instances: many`, because all instances would have to change at one "
        "position. Nothing was changed.",
        "flowql pause TOTALS\nflowql deploy --forward",
        "flowql resume TOTALS\nflowql deploy --forward",
    ),
    "FQ4062": CodePage(
        "A statement fails on its rows",
        "An INSERT, UPDATE or DELETE takes effect as a whole or not at all. This one would have stored a second row with a PRIMARY KEY "
        "that exists, or NULL in a column that is NOT NULL, or one of its expressions has no value for a row. Nothing was changed.",
        "INSERT INTO t VALUES (1, 'a'), (1, 'b');",
        "INSERT INTO t VALUES (1, 'a'), (1, 'b') ON CONFLICT DO NOTHING;",
    ),
    "FQ4063": CodePage(
        "Another statement changed the table meanwhile",
        "One statement at a time changes a table. This one was computed from rows that another has changed before it was committed, so "
        "nothing of it was written. Repeat it.",
        'flowql exec "UPDATE t SET n = n + 1"',
        'flowql exec "UPDATE t SET n = n + 1"   # again',
    ),
    "FQ4064": CodePage(
        "A table with rows would no longer fit them",
        "Rows of a table stay as they were written. So a table that has rows keeps its PRIMARY KEY and its columns; columns can be added, "
        "which are NULL in the rows that there are. A new table is not laid over the topic that one with its name has left. Nothing was "
        "changed.",
        "CREATE TABLE users (id INT PRIMARY KEY, age TEXT);   -- was: age INT",
        "CREATE TABLE users (id INT PRIMARY KEY, age INT, age_text TEXT);",
    ),
    "FQ4061": CodePage(
        "Commits fail, so nothing can be deployed",
        "A deployment takes effect with a commit, and the log accepts none: there is no space, or the brokers do not respond. The "
        "message gives the reason, and says whether nothing has changed or the deployment was already in progress and takes effect "
        "with the next commit. Queries resume automatically when commits succeed again; then repeat the deployment. `flowql pause` and"
        " `flowql resume` act at once meanwhile and are recorded by the next commit.",
        "flowql deploy      # commits do not get through (no space left on device), and nothing has changed",
        "flowql status      # until the instance is not blocked any more\nflowql deploy",
    ),
    "FQ4049": CodePage(
        "A rebuild that is not supported",
        "The swap of a stream begins by deleting the old records of its topic, and brokers refuse that for a topic whose "
        "cleanup.policy is `compact` alone. Nothing was changed. Give the result another topic, or alter the topic's cleanup.policy to"
        " `compact,delete`. Likewise a stream that becomes a table, or a table that becomes a stream, needs another cleanup.policy: if"
        " the permission to change it is missing, the message contains the command to type.",
        "CREATE STREAM big WITH (KAFKA_TOPIC = 'compacted') AS SELECT k, v FROM orders WHERE v > 200;   -- was v > 100",
        "CREATE STREAM big WITH (KAFKA_TOPIC = 'big') AS SELECT k, v FROM orders WHERE v > 200;",
    ),
    "FQ4048": CodePage(
        "A rebuild would lose records of other writers",
        "The topic of a result holds records that no query of the project has written: another program has written to it. A rebuild of"
        " the result replaces all records of its topic, so those would be lost. Nothing was changed. `flowql deploy --forward` applies"
        " the new text to new records and keeps all existing ones; or give the result its own topic. A new result is refused where its topic "
        "holds results of another application on the same log, as after the name of a project was changed: it would contain the results of both. "
        "So is a row of INSERT VALUES that another application has written to the same topic.",
        "CREATE STREAM alerts WITH (KAFKA_TOPIC = 'shared') AS SELECT * FROM orders WHERE v > 200;   -- was v > 100",
        "CREATE STREAM alerts WITH (KAFKA_TOPIC = 'alerts-2') AS SELECT * FROM orders WHERE v > 200;",
    ),
    "FQ4047": CodePage(
        "Another process has written to a topic while its records were replaced",
        "While a rebuilt result replaced the old one in a commit, another process wrote to its topic. Nothing of the commit is "
        "visible, and the instance ends. Start it again: the rebuild continues. Write to topics of your own, not to those of results.",
        "flowql topic import totals rows.json      # while `totals` is rebuilt",
        "flowql topic import corrections rows.json",
    ),
    "FQ4046": CodePage(
        "The application is run by one instance, not by many, or the other way round",
        "Repartitioned rows are kept in the state of a single instance, but in topics when many instances share the work. So an "
        "application cannot change from `instances: one` to `instances: many` or back. Use another `app_id`, which starts at the "
        "beginning of its sources.",
        "targets:\n  main: {log: kafka, kafka: {instances: many}}   # ran with instances: one before",
        "targets:\n  main: {log: kafka, kafka: {instances: many, app_id: orders-shared}}",
    ),
    "FQ4045": CodePage(
        "The group has changed",
        "An instance tried to commit as a member of its group, and the group's epoch has changed: others joined or left, or the "
        "session of the instance expired and its partitions were reassigned. Nothing of the commit is visible. The instance commits "
        "again, or drops the lost partitions and continues with its new assignment.",
    ),
}
