"""Pages of the codes about what an application has on its log: transactions of others there, and commands that remove it."""

from __future__ import annotations

from flowql.compiler.diagnostics.page import CodePage

APPLICATION_CODES = {
    "FQ4086": CodePage(
        "Brokers have lost a part of a commit",
        "Each commit records where the partitions that it wrote end, with a mark of its last record in each. At the start, and while it runs, an instance compares this with the "
        "brokers. A partition that is shorter has lost its end, or its topic was deleted and created again. Records that are in a partition and were aborted belong to a commit "
        "without its marker there, as Kafka 4.3 leaves it if a broker dies during a commit (KAFKA-20734). The other queries are not affected. The message names the "
        "partitions, and the command that computes the query again. Records that are only hidden become visible with the next commit to their partition.",
        "flowql status      # shop-CTAS_PER_HOUR-aggregate-1-changelog-3: records of a commit before offset 5120 are in the partition and were aborted",
        "flowql deploy --full-refresh PER_HOUR\n"
        "flowql doctor      # names a release of the brokers that loses parts of commits",
    ),
    "FQ4087": CodePage(
        "The time of a result is too far ahead",
        "Brokers refuse a record whose time is further ahead of their clock than `message.timestamp.after.max.ms` of the topic, one hour from Kafka 4.0 on (KIP-937). The source record "
        "that such a result comes from becomes a dead letter, which names the record, its time and the setting, and the query goes on. Repair the producer that writes "
        "the time, for example in microseconds. If the times are right, raise the setting of the topic of the results and send the dead letters again.",
        "flowql dlq ls      # FQ4087: the time 2031-01-01 00:00:00 UTC of a record for per_hour-0 is further ahead of the brokers' clock than the topic takes",
        "kafka-configs.sh --bootstrap-server BROKER --alter --topic per_hour --add-config message.timestamp.after.max.ms=9223372036854775807\nflowql dlq replay",
    ),
    "FQ4088": CodePage(
        "Brokers replace the times of results",
        "A topic with `message.timestamp.type=LogAppendTime` gives each record the time of its arrival. Windows, joins and watermarks of the queries that read the results "
        "would then go by the time of processing. The query waits, and nothing of it is committed. It begins by itself after the topic is changed. "
        "Topics that FlowQL creates keep event times under any default of the brokers.",
        "flowql status      # CTAS_PER_HOUR suspended: it writes to per_hour, where brokers replace the times of events",
        "kafka-configs.sh --bootstrap-server BROKER --alter --topic per_hour --add-config message.timestamp.type=CreateTime",
    ),
    "FQ4089": CodePage(
        "Topics are placed by different partitioners",
        "`PARTITIONER` of a source says how its producers place the records of a key: `murmur2` as Java clients and FlowQL do, `crc32` as librdkafka does, or `custom` for a rule of "
        "your own that all topics with `custom` share. A task reads the same partition of all topics that a query joins, and of the rows that the query itself moves, "
        "which are placed by murmur2. Where these differ, most rows of a join would be missing. For the same reason FlowQL does not write to a topic that is placed otherwise. "
        "A copy of the topic is placed by murmur2.",
        "CREATE STREAM orders (customer STRING KEY, n INT) WITH (KAFKA_TOPIC='orders', VALUE_FORMAT='JSON', PARTITIONER='crc32');\n"
        "CREATE TABLE customers (id STRING PRIMARY KEY, name STRING) WITH (KAFKA_TOPIC='customers', VALUE_FORMAT='JSON', PARTITIONER='murmur2');\n"
        "CREATE STREAM named AS SELECT o.customer, o.n, c.name FROM orders o JOIN customers c ON o.customer = c.id;",
        "CREATE STREAM placed AS SELECT * FROM orders;\n"
        "CREATE STREAM named AS SELECT o.customer, o.n, c.name FROM placed o JOIN customers c ON o.customer = c.id;",
    ),
    "FQ4090": CodePage(
        "A transaction that does not end hides records",
        "Results are exact because only committed records are read, in order. A producer that keeps a transaction open, or one that brokers have lost track of, "
        "hides all records behind the first one of the transaction from such readers, while the partition grows. The message names the partition and the offset. "
        "The client of FlowQL cannot ask brokers for the producer. Kafka's tool shows its id, says whether brokers have lost track of it, and aborts the transaction; "
        "a transaction with a coordinator also ends after `transaction.timeout.ms` of its producer. "
        "Then processing resumes by itself.",
        "flowql status      # orders-0: a transaction that has not ended hides all records from offset 1200 on",
        "kafka-transactions.sh --bootstrap-server BROKER describe-producers --topic orders --partition 0\n"
        "kafka-transactions.sh --bootstrap-server BROKER find-hanging --topic orders --partition 0\n"
        "kafka-transactions.sh --bootstrap-server BROKER abort --topic orders --partition 0 --start-offset 1200",
    ),
    "FQ5320": CodePage(
        "An instance of the application runs",
        "`flowql app delete` and `flowql app reset` remove what a running instance works with, so all its instances must be stopped first. "
        "Nothing was removed. With `instances: many` the members of the group count, on all machines; a killed one counts until its session ends.",
        "flowql app reset --yes",
        "flowql stop\nflowql app reset --yes",
    ),
    "FQ5321": CodePage(
        "This application cannot be deleted or reset by `flowql app`",
        "The command knows what the runtime keeps. Spark keeps checkpoints at addresses of its own. The instances of a group "
        "(`instances: many`) cannot be reset, because none of them computes lost state by itself: rebuild their queries.",
        "flowql app reset --yes          # instances: many",
        "flowql deploy --full-refresh ORDERS_PER_HOUR",
    ),
}
