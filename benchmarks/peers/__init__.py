"""Nexmark on FlowQL, Kafka Streams and Flink SQL, over the same Kafka topics; see `benchmarks.peers.__main__`."""
