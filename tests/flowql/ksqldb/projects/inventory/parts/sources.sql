CREATE TYPE lot AS STRUCT<batch STRING, best_before DATE>;

CREATE TABLE products (
  sku STRING PRIMARY KEY,
  name STRING,
  category STRING,
  price DECIMAL(8, 2),
  supplier INT
) WITH (kafka_topic='${day}.products', partitions=2, value_format='JSON');

CREATE TABLE suppliers (id INT PRIMARY KEY, name STRING, country STRING)
  WITH (kafka_topic='${day}.suppliers', partitions=2, value_format='JSON');

-- What comes in and goes out, in Avro.
CREATE STREAM movements (sku STRING KEY, warehouse INT, qty INT, lot lot)
  WITH (kafka_topic='${day}.movements', partitions=2, value_format='AVRO');

CREATE STREAM orders (id INT KEY, customer STRING, lines ARRAY<STRUCT<sku STRING, qty INT>>)
  WITH (kafka_topic='${day}.orders', partitions=1, value_format='JSON');
CREATE STREAM shipments (id INT KEY, carrier STRING, weight DOUBLE)
  WITH (kafka_topic='${day}.shipments', partitions=1, value_format='JSON');
