CREATE TABLE person (
  id BIGINT, name STRING, emailAddress STRING, creditCard STRING, city STRING, state STRING,
  `dateTime` BIGINT, extra STRING,
  ts AS TO_TIMESTAMP_LTZ(`dateTime`, 3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND
) WITH ('topic' = '${PREFIX}person', ${SOURCE});
CREATE TABLE auction (
  id BIGINT, itemName STRING, description STRING, initialBid BIGINT, reserve BIGINT,
  `dateTime` BIGINT, expires BIGINT, seller BIGINT, category BIGINT, extra STRING,
  ts AS TO_TIMESTAMP_LTZ(`dateTime`, 3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND
) WITH ('topic' = '${PREFIX}auction', ${SOURCE});
CREATE TABLE bid (
  auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, `dateTime` BIGINT, extra STRING,
  ts AS TO_TIMESTAMP_LTZ(`dateTime`, 3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND
) WITH ('topic' = '${PREFIX}bid', ${SOURCE});
