"""The log on Apache Kafka, the only place that knows its client. Entry point: `flowql.runtime.log.kafka.log.KafkaLog`.

Where Kafka differs from the embedded log: commits and aborted records take offsets, so there are gaps; a position may move
without a record; state is brought back from changelogs, since Kafka keeps no redo; a fenced producer fails at its next commit.
"""
