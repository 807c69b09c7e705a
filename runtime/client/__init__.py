"""The consumer facade: an application side for the polling thread, a background thread that alone touches the client.

Source: the consumer threading refactor of Apache Kafka (application and background event queues, fetch buffer). Entry
point: `flowql.runtime.client.consumer.ConsumerFacade`.
"""
