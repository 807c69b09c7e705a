CREATE TABLE sink (
  auction BIGINT, bidder BIGINT, price DOUBLE, `dateTime` BIGINT, extra STRING
) WITH ('connector' = 'kafka', 'format' = 'json', ${SINK});
INSERT INTO sink
SELECT auction, bidder, CAST(0.908 AS DOUBLE) * price, `dateTime`, extra FROM bid;
