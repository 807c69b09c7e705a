-- The Nexmark auction site as `flowql bench` writes it: JSON, records keyed by the first column in digits.
-- "dateTime" is the moment of the event in ms, and the time of the record.
CREATE STREAM bid (
  auction BIGINT,
  bidder BIGINT,
  price BIGINT,
  channel STRING,
  url STRING,
  "dateTime" BIGINT,
  extra STRING
) WITH (
  KAFKA_TOPIC = '${prefix:-}bid', PARTITIONS = ${partitions:-4},
  VALUE_FORMAT = 'JSON',
  TIMESTAMP = '"dateTime"'
);

CREATE STREAM auction (
  id BIGINT,
  "itemName" STRING,
  description STRING,
  "initialBid" BIGINT,
  reserve BIGINT,
  "dateTime" BIGINT,
  expires BIGINT,
  seller BIGINT,
  category BIGINT,
  extra STRING
) WITH (
  KAFKA_TOPIC = '${prefix:-}auction', PARTITIONS = ${partitions:-4},
  VALUE_FORMAT = 'JSON',
  TIMESTAMP = '"dateTime"'
);

CREATE STREAM person (
  id BIGINT,
  name STRING,
  "emailAddress" STRING,
  "creditCard" STRING,
  city STRING,
  state STRING,
  "dateTime" BIGINT,
  extra STRING
) WITH (
  KAFKA_TOPIC = '${prefix:-}person', PARTITIONS = ${partitions:-4},
  VALUE_FORMAT = 'JSON',
  TIMESTAMP = '"dateTime"'
);
