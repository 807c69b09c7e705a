-- What the topic holds: one JSON object per order, keyed by customer, in event time.
CREATE STREAM ORDERS (
  CUSTOMER STRING KEY,
  ID INT,
  ITEM STRING,
  AMOUNT DOUBLE,
  AT BIGINT
) WITH (
  KAFKA_TOPIC = 'orders', PARTITIONS = 2,
  KEY_FORMAT = 'KAFKA', VALUE_FORMAT = 'JSON',
  TIMESTAMP = 'AT'
);
