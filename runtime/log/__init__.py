"""The log: the only durable contract. Embedded, in-memory (and later Kafka) behind `flowql.runtime.log.base`."""
