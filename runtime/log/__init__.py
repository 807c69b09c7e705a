"""The log: the only durable contract. Embedded, in-memory (and later Kafka) behind `runtime.log.base`."""
