-- What the payment systems send: payments, the cards they are made with, and the people who own them.
DEFINE prefix = 'bank.';

CREATE TYPE spot AS STRUCT<city STRING, country STRING, lat DOUBLE, lon DOUBLE>;

-- A payment at a till or in a shop on the net. Signs come from the till: 'risk:no-pin', 'info:contactless'.
CREATE STREAM payments (
  card STRING KEY,
  id BIGINT,
  amount DECIMAL(10, 2),
  merchant STRING,
  spot spot,
  signs ARRAY<STRING>,
  paid_at BIGINT
) WITH (kafka_topic='${prefix}payments', partitions=3, value_format='JSON', timestamp='paid_at');

-- One row per card; a card that is cancelled is deleted.
CREATE TABLE cards (
  card STRING PRIMARY KEY,
  customer STRING,
  limits MAP<STRING, INT>,
  home spot
) WITH (kafka_topic='${prefix}cards', partitions=3, value_format='JSON');

CREATE TABLE customers (customer STRING PRIMARY KEY, name STRING, tier STRING)
  WITH (kafka_topic='${prefix}customers', partitions=3, value_format='JSON');

-- A shop asks for money first, and fetches it later.
CREATE STREAM authorisations (auth STRING KEY, card STRING, amount DECIMAL(10, 2))
  WITH (kafka_topic='${prefix}authorisations', partitions=1, value_format='JSON');
CREATE STREAM settlements (auth STRING KEY, amount DECIMAL(10, 2), bank STRING)
  WITH (kafka_topic='${prefix}settlements', partitions=1, value_format='JSON');
