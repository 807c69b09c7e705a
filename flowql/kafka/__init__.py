"""A Kafka broker to try with: its jars fetched once, one process in one directory. Entry point: `flowql.kafka.broker.Broker`.

For tests and for people who want to see a project run on Kafka; not a way to run Kafka for real.
"""
