-- The topics that `flowql bench` writes; a record adds a row. "dateTime" is the moment of the event.
CREATE STREAM bid (
  auction BIGINT, bidder BIGINT, price BIGINT, channel TEXT, url TEXT, "dateTime" TIMESTAMP, extra TEXT,
  WATERMARK FOR "dateTime" AS "dateTime" - INTERVAL '4' SECOND
) WITH (KAFKA_TOPIC = 'bid', PARTITIONS = 4, VALUE_FORMAT = 'JSON', TIMESTAMP = '"dateTime"');

CREATE STREAM auction (
  id BIGINT, "itemName" TEXT, description TEXT, "initialBid" BIGINT, reserve BIGINT, "dateTime" TIMESTAMP, expires TIMESTAMP,
  seller BIGINT, category BIGINT, extra TEXT,
  WATERMARK FOR "dateTime" AS "dateTime" - INTERVAL '4' SECOND
) WITH (KAFKA_TOPIC = 'auction', PARTITIONS = 4, VALUE_FORMAT = 'JSON', TIMESTAMP = '"dateTime"');

CREATE STREAM person (
  id BIGINT, name TEXT, "emailAddress" TEXT, "creditCard" TEXT, city TEXT, state TEXT, "dateTime" TIMESTAMP, extra TEXT,
  WATERMARK FOR "dateTime" AS "dateTime" - INTERVAL '4' SECOND
) WITH (KAFKA_TOPIC = 'person', PARTITIONS = 4, VALUE_FORMAT = 'JSON', TIMESTAMP = '"dateTime"');

-- The values that q13 adds to bids.
CREATE TABLE side_input (key BIGINT PRIMARY KEY, value VARCHAR);

INSERT INTO side_input VALUES
  (0, '0'), (1, '1'), (2, '2'), (3, '3'), (4, '4'), (5, '5'), (6, '6'), (7, '7'), (8, '8'), (9, '9');
